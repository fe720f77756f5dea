"""A drop-in for PyTorch's own attention."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

from regard._utils.drop_ins import raises
from regard._utils.errors import RegardError, TorchError
from regard.functional.arrays import Array
from regard.torch.attention import attention, check_tensors, is_plain
from regard.torch.classes import is_of_own_class
from regard.torch.extra import torch


@raises(TorchError)
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """Return what `torch.nn.functional.scaled_dot_product_attention` returns, for tensors on the CPU.

    Parameters
    ----------
    query : floating tensor, ``... H T D``
    key : tensor of the same dtype, ``... H S D``
    value : tensor of the same dtype, ``... H S Dv``
    attn_mask : tensor that broadcasts to ``... H T S``, optional
        Boolean, True where the query attends to the key; or floating, added to the scores; or a causal bias of
        `torch.nn.attention.bias`.
    dropout_p : float
        Probability with which a weight is set to zero, by PyTorch's own generator; other weights than PyTorch's.
    is_causal : bool
        Query i attends to the keys 0 to i, however many keys there are; of those, to the ones that `attn_mask` allows.
    scale : float, optional
        1/√D by default.
    enable_gqa : bool
        Key and value may have fewer heads, each for several consecutive heads of the query.

    Returns
    -------
    tensor, ``... H T Dv``
        A query that attends to no key gets 0.

    Raises
    ------
    RegardError
        Also a RuntimeError, as PyTorch's own. A tensor is not on the CPU or of another subclass, or dtypes or shapes
        do not fit.
    """
    tensors = {"query": query, "key": key, "value": value}
    if attn_mask is not None and not _is_causal_bias(attn_mask):
        tensors["attn_mask"] = attn_mask
    check_tensors("scaled_dot_product_attention", tensors)
    if not query.dtype == key.dtype == value.dtype:
        raise RegardError(
            f"query, key and value must have one dtype, got {query.dtype}, {key.dtype} and {value.dtype}; convert them"
        )
    if not query.dtype.is_floating_point:
        raise RegardError(f"query, key and value must be floating, got {query.dtype}")
    options: dict[str, Any] = {"scale": None if scale is None else float(scale)}
    if _is_causal_bias(attn_mask):
        if is_causal:
            raise RegardError("attn_mask is a CausalBias, which is causal itself: leave out is_causal=True")
        options |= _options_of_causal_bias(attn_mask, query.shape[-2], key.shape[-2])
        attn_mask = None
    if is_causal:
        options |= _FROM_FIRST_KEY
    if attn_mask is not None:
        if not attn_mask.dtype.is_floating_point and str(attn_mask.dtype) != "torch.bool":
            raise RegardError(
                f"attn_mask must be boolean or floating, got {attn_mask.dtype}: of 0 and 1 make a mask, attn_mask != 0"
            )
        options["bias" if attn_mask.dtype.is_floating_point else "mask"] = attn_mask
    if not enable_gqa:
        query, key, value = _broadcast(query, key, value)
    if dropout_p == 1.0:
        return attention(query, key, value, **options) * 0.0
    if dropout_p:
        options["dropout"] = dropout_p
    return attention(query, key, value, **options)


_FROM_FIRST_KEY: dict[str, Any] = {"causal": True, "query_offset": 0}


def _is_causal_bias(mask: Any) -> bool:
    if not is_of_own_class(mask):
        return False
    from torch.nn.attention.bias import CausalBias

    return type(mask) is CausalBias


def _options_of_causal_bias(bias: Any, queries: int, keys: int) -> dict[str, Any]:
    """Return the options that mean what PyTorch computes: it heeds the sizes of a bias that is aligned at the end."""
    from torch.nn.attention.bias import CausalVariant

    rows, cols = bias.seq_len_q, bias.seq_len_kv
    if bias.variant == CausalVariant.UPPER_LEFT or rows == cols:
        return _FROM_FIRST_KEY
    if (rows, cols) == (queries, keys):
        return {"causal": True, "query_offset": keys - queries}
    return {"mask": torch.ones(rows, cols, dtype=torch.bool, device="cpu").tril(cols - rows)}


def _broadcast(query: Array, key: Array, value: Array) -> tuple[Array, Array, Array]:
    """Return the tensors with the same axes before positions and features."""
    leads = query.shape[:-2], key.shape[:-2], value.shape[:-2]
    if leads[0] == leads[1] == leads[2]:
        return query, key, value
    try:
        lead = torch.broadcast_shapes(*leads)
    except RuntimeError:
        hint = "; enable_gqa=True lets heads share keys" if query.shape[:-3] == key.shape[:-3] else ""
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise RegardError(f"query, key and value of shapes {shapes} do not broadcast{hint}") from None
    return tuple(x.expand(*lead, *x.shape[-2:]) for x in (query, key, value))


NO_TORCHSCRIPT = (
    "TorchScript cannot compile or trace regard's attention: call torch.jit.script or torch.jit.trace outside of "
    "use_regard()"
)
_is_used: contextvars.ContextVar[bool] = contextvars.ContextVar("regard is used", default=False)


def _is_used_here() -> bool:
    return _is_used.get()


# What `torch.compiler.assume_constant_result` says, which imports the compiler: it asks once, when it compiles.
_is_used_here._dynamo_marked_constant = True  # type: ignore[attr-defined]


class _Switch:
    """What stands in place of PyTorch's own function: regard's in the threads that use it, else `own`.

    Subclasses of tensors ask which function is called: it is found under the name and in the tables of `own`.
    """

    def __init__(self, own: Any) -> None:
        self.own = own
        self.__name__ = "scaled_dot_product_attention"

    def __eq__(self, other: object) -> bool:
        return bool(self.own == (other.own if isinstance(other, _Switch) else other))

    def __hash__(self) -> int:
        return hash(self.own)

    def __call__(self, query: Array, key: Array, value: Array, *arguments: Any, **options: Any) -> Array:
        mask = arguments[0] if arguments else options.get("attn_mask")
        operands = [query, key, value, *([] if mask is None else [mask])]
        if _is_used_here() and all(_takes(x) for x in operands[:3]) and (not operands[3:] or _takes_mask(mask)):
            if torch.jit.is_tracing():
                raise TorchError(NO_TORCHSCRIPT)
            return scaled_dot_product_attention(query, key, value, *arguments, **options)
        asks = any(is_of_own_class(x) for x in operands) and not any(x.is_nested for x in operands)
        if asks and not torch.compiler.is_compiling() and torch.overrides.has_torch_function(operands):
            with _blocks.held() as switch:
                return torch.overrides.handle_torch_function(switch, operands, query, key, value, *arguments, **options)
        return self.own(query, key, value, *arguments, **options)


def _takes(x: Array) -> bool:
    is_usual = type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return is_usual and is_plain(x) and not x.dtype.is_complex


def _takes_mask(mask: Array) -> bool:
    return _takes(mask) or _is_causal_bias(mask)


class _Compiler:
    """What tells TorchScript which operator a function is: for a switch that of PyTorch's own function, or an error."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __call__(self, function: Any) -> Any:
        if not isinstance(function, _Switch):
            return self.own(function)
        if not _is_used.get():
            return self.own(function.own)
        self._forget_what_is_incomplete()
        raise TorchError(NO_TORCHSCRIPT)

    def _forget_what_is_incomplete(self) -> None:
        """Let the classes of modules be compiled again whose compilation the error ends."""
        from torch.jit._recursive import concrete_type_store as store

        for types in store.type_store.values():
            types[:] = [x for x in types if x in store.methods_compiled]


class _Blocks:
    """How many blocks use regard, of all threads; the first one puts a switch in place, the last one takes it away."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.switch: Any = None
        self.compiler: Any = None

    def enter(self) -> None:
        with self.lock:
            if not self.count:
                self.switch = _Switch(torch.nn.functional.scaled_dot_product_attention)
                torch.nn.functional.scaled_dot_product_attention = self.switch
                self.compiler = _Compiler(torch.jit._builtins._find_builtin)
                torch.jit._builtins._find_builtin = self.compiler
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count:
                return
            if torch.nn.functional.scaled_dot_product_attention is self.switch:
                torch.nn.functional.scaled_dot_product_attention = self.switch.own
            if torch.jit._builtins._find_builtin is self.compiler:
                torch.jit._builtins._find_builtin = self.compiler.own

    @contextlib.contextmanager
    def held(self) -> Iterator[Any]:
        """Keep the switch in place, whatever other threads leave."""
        self.enter()
        try:
            yield self.switch
        finally:
            self.leave()


_blocks = _Blocks()


@contextlib.contextmanager
def use_regard() -> Iterator[None]:
    """Let `torch.nn.functional.scaled_dot_product_attention` be regard's in a block of code.

    Blocks may be nested, and an exception ends one like any other end. Only calls of the thread, or of the task of
    asyncio, that entered the block are regard's; tensors on other devices, and subclasses of tensors but a causal bias
    as a mask, go to PyTorch's own function. A module that has imported the function by its name keeps PyTorch's own.
    A function of `torch.compile` is compiled once for the block and once for outside; what TorchScript has compiled, or
    `torch.compile` while another thread is in a block, keeps the function that it was compiled with.

    Raises
    ------
    RegardError
        PyTorch is missing; or, in the block, TorchScript compiles or traces code that calls the function.

    Examples
    --------
    >>> with use_regard():  # doctest: +SKIP
    ...     output = model(inputs)
    """
    raises(TorchError)(check_tensors)("use_regard", {})
    _blocks.enter()
    token = _is_used.set(True)
    try:
        yield
    finally:
        _is_used.reset(token)
        _blocks.leave()
