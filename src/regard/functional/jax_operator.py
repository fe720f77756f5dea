"""Attention of arrays of JAX by the kernel: with its gradient, while JAX traces, maps or differentiates the call.

JAX calls back from a compiled program (`jax.pure_callback`). A callback must not use JAX, which may wait for the thread
that the callback holds: it computes in NumPy, on the memory of JAX's arrays. Mapped axes (`jax.vmap`) are folded into
the batch.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import native
from regard.functional.arrays import Array, is_floating, is_half
from regard.functional.autograd import NOT_TWICE
from regard.functional.backward import backward, forward_with_stats, like
from regard.functional.biases import ALiBi, Bias, DenseBias, DistanceBias, RelativePositionBias
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.dropout import Dropout, make_dropout
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.mask_rules import Causal, KeyLengths, KeyRangeMask, PrefixLM, SegmentMask, SlidingWindow
from regard.functional.masks import DenseMask, LogicalAnd, LogicalOr, Mask
from regard.functional.native.attention import native_forward, stats_from_kernel, unsupported_arrays_reason
from regard.functional.overflow import narrowed, widened

# How many of the axes ... H T S an array lacks at the end; None: it has no batch axes.
SCORES, RANGES, ROWS, PER_SEQUENCE = range(4)
_RULES: dict[type, dict[str, int | None]] = {
    DenseMask: {"array": SCORES},
    Causal: {"query_offset": PER_SEQUENCE},
    SlidingWindow: {"query_offset": PER_SEQUENCE},
    KeyLengths: {"lengths": PER_SEQUENCE},
    PrefixLM: {"lengths": PER_SEQUENCE},
    SegmentMask: {"queries": ROWS, "keys": ROWS},
    KeyRangeMask: {"first": RANGES, "last": RANGES},
    LogicalAnd: {},
    LogicalOr: {},
    DenseBias: {"parameter": SCORES},
    DistanceBias: {"parameter": RANGES},
    ALiBi: {"parameter": None},
    RelativePositionBias: {"parameter": None},
}
_OPTIONS: dict[str, int | None] = {
    "mask": SCORES, "bias": SCORES, "sinks": ROWS, "query_offset": PER_SEQUENCE, "key_lengths": PER_SEQUENCE,
    "seed": None,
}  # fmt: skip
_DIFFERENTIABLE = ("q", "k", "v", "bias", "sinks")


def is_jax(*arrays: Array) -> bool:
    """Tell whether all are arrays of JAX, or what stands for them while it traces."""
    return all([type(x).__module__.partition(".")[0] in ("jax", "jaxlib") for x in arrays])  # noqa: C419, a list is made sooner


def reason_against_device(*arrays: Array) -> str | None:
    """Return where arrays are that the kernel cannot read, or None."""
    import jax

    for x in arrays:
        if isinstance(x, jax.core.Tracer):
            default = jax.config.jax_default_device
            platform = getattr(default, "platform", default) or jax.default_backend()
            if platform != "cpu":
                return f"a program compiled for {platform}"
        elif is_jax(x):
            devices = x.devices()
            if len(devices) > 1:
                return f"{len(devices)} devices"
            if next(iter(devices)).platform != "cpu":
                return str(next(iter(devices)))
    return None


def jax_attention(q: Array, k: Array, v: Array, options: Options) -> Array | None:
    """Return the context of arrays of JAX, ``... H T Dv``, by the kernel; None for a call that it does not take.

    Dropout takes a generator of NumPy, which gives a seed each time the call is traced, or a key of JAX.
    """
    import jax

    if options.get("implementation", "auto") not in ("auto", "native") or native.kernel() is None:
        return None
    call, operands = _split(q, k, v, options)
    if reason_against_device(*operands.values()) is not None:
        return None
    is_traced = any([isinstance(x, jax.core.Tracer) for x in operands.values()])  # noqa: C419
    if is_traced and call.is_foreign:
        return None  # a rule of one's own may use JAX, which a callback must not
    p = validate_inputs(*(operands[name] for name in "qkv"), **call.options(operands))
    if unsupported_arrays_reason(np, None, p.dtype, ()) is not None:
        return None
    operands |= _common_dtypes(p)
    if not is_traced:
        (context,) = _compute(call.forward, call, operands, None)
        return context
    differentiable = {name: operands.pop(name) for name in _DIFFERENTIABLE if name in operands}
    context = _operator()(call, differentiable, operands)
    return context


def _common_dtypes(p: AttentionInputs) -> dict[str, Array]:
    """Return q, k and v in dtypes that NumPy has a common one for: that of the result, or half precision beside it."""
    arrays = {"q": p.q, "k": p.k, "v": p.v}
    kept = any(x.dtype == p.dtype for x in arrays.values())
    return {
        name: x if x.dtype == p.dtype or (kept and is_half(x.dtype) and p.dtype == np.float32) else x.astype(p.dtype)
        for name, x in arrays.items()
    }


@dataclass(frozen=True)
class _Slot:
    """The place of an operand in the options."""

    name: str


@dataclass(frozen=True, eq=False)
class _Call:
    """What a call is besides its operands; equal for equal calls, so that JAX compiles each once.

    Operands are q, k, v and all arrays of the options; `axes` says how many each has, `lacks` how many of the axes of
    the scores it lacks at the end.
    """

    template: dict[str, Any]
    key: tuple[Any, ...]
    axes: dict[str, int]
    lacks: dict[str, int | None]
    rate: float
    is_foreign: bool

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.key == other.key

    def options(self, operands: dict[str, Array]) -> Options:
        """Return the options with operands in their places, without dropout."""
        return cast(Options, {name: _filled(value, operands) for name, value in self.template.items()})

    def inputs(self, operands: dict[str, np.ndarray]) -> AttentionInputs:
        """Return the inputs of the call."""
        p = validate_inputs(*(operands[name] for name in "qkv"), **self.options(operands))
        if "seed" not in operands:
            return p
        low, high = (int(x) for x in operands["seed"])
        return p.replace(dropout=Dropout(self.rate, high << 32 | low))

    # What callbacks compute, in NumPy. A state is what the gradient needs beside the operands.

    def forward(self, operands: dict[str, np.ndarray], _: Any) -> tuple[np.ndarray, ...]:
        """Return the context in the dtype of the result."""
        p = self.inputs(operands)
        context, is_valid = native_forward(p, p.dtype) if choose_implementation(p)[0] == "native" else (None, False)
        return (context if is_valid else narrowed(blockwise(widened(p))[0], p.dtype),)

    def forward_with_state(self, operands: dict[str, np.ndarray], _: Any) -> tuple[np.ndarray, ...]:
        """Return the context, and the state: the context in the compute dtype and the softmax statistics.

        The row sums, which JAX may not have the dtype for, are pairs of 32 bits. Where a sum of the kernel overflowed
        the row maxima are NaN.
        """
        p = self.inputs(operands)
        _, context, stats, is_native = forward_with_stats(p, native=choose_implementation(p)[0] == "native")
        wide, shape = narrowed(context, p.compute_dtype), p.context_shape[:-1]
        if is_native:
            row_max, row_sum = (np.broadcast_to(x[..., 0], shape) for x in stats)
        else:
            row_max, row_sum = np.full(shape, np.nan, p.compute_dtype), np.ones(shape)
        bits = np.ascontiguousarray(row_sum[..., None], np.float64).view(np.uint32)
        return narrowed(wide, p.dtype), wide, row_max, bits

    def backward(self, operands: dict[str, np.ndarray], state: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the gradients of the operands that have one, from the gradient of the context and the state."""
        p = self.inputs(operands)
        d_output, context, row_max, bits = state
        row_sum = np.ascontiguousarray(bits).view(np.float64)[..., 0]
        if np.isnan(row_max).any():
            p, context, stats, is_native = forward_with_stats(p, native=False)
        else:
            stats, is_native = stats_from_kernel(p, row_max, row_sum), choose_implementation(p)[0] == "native"
        found = backward(p, context, stats, d_output, native=is_native)
        return tuple(like(p, found[name], operands[name]) for name in _DIFFERENTIABLE if name in operands)


def _split(q: Array, k: Array, v: Array, options: Options) -> tuple[_Call, dict[str, Array]]:
    """Return a call and its operands by name."""
    import jax.numpy as jnp

    operands, lacks = {"q": q, "k": k, "v": v}, dict[str, int | None](q=SCORES, k=SCORES, v=SCORES)
    foreign: list[Any] = []

    def without_arrays(value: Any, name: str, lacking: int | None) -> tuple[Any, Any]:
        """Return a value with slots in the place of its arrays, and what says whether it equals another one."""
        if isinstance(value, list):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) or is_jax(value):
            name = name if name not in operands else f"array{len(operands)}"
            operands[name], lacks[name] = (jnp.asarray(value) if isinstance(value, np.ndarray) else value), lacking
            return _Slot(name), _Slot(name)
        if not isinstance(value, Mask | Bias):
            return value, (type(value), value if value.__hash__ is not None else id(value))
        if type(value) not in _RULES:
            foreign.append(value)
        filled, keys = copy.copy(value), []
        for field, x in vars(value).items():
            inner = "bias" if field == "parameter" else f"array{len(operands)}"
            emptied, key = without_arrays(x, inner, _RULES.get(type(value), {}).get(field))
            object.__setattr__(filled, field, emptied)
            keys.append((field, key))
        return filled, (type(value), tuple(keys))

    rate, rng = options.get("dropout", 0.0), options.get("rng")
    dropout = make_dropout(rate, np.random.default_rng(0) if is_jax(rng) else rng)
    template, keys = {}, []
    for name, value in options.items():
        if name in ("dropout", "rng", "implementation"):
            continue
        if name == "window" and isinstance(value, list):
            value = tuple(value)
        if name == "bias" and (isinstance(value, np.ndarray | list) or is_jax(value)):
            value = DenseBias(value)
        if name == "mask" and (isinstance(value, np.ndarray | list) or is_jax(value)):
            value = DenseMask(value)
        template[name], key = without_arrays(value, name, _OPTIONS.get(name))
        keys.append((name, key))
    if dropout is not None:
        operands["seed"], lacks["seed"] = _seed(dropout, rng), None
    axes = {name: x.ndim for name, x in operands.items()}
    key = (tuple(keys), tuple(axes.items()), rate)
    return _Call(template, key, axes, lacks, rate, bool(foreign)), operands


def _seed(dropout: Dropout, rng: Any) -> Array:
    """Return the seed as two numbers of 32 bits, from a key of JAX or from that of NumPy's generator."""
    import jax

    if is_jax(rng):
        return jax.random.bits(rng, (2,), "uint32")
    return jax.numpy.asarray(np.array([dropout.seed % 2**32, dropout.seed >> 32], np.uint32))


def _filled(value: Any, operands: dict[str, Array]) -> Any:
    if isinstance(value, _Slot):
        return operands[value.name]
    if not isinstance(value, Mask | Bias):
        return value
    filled = copy.copy(value)
    for field, x in vars(value).items():
        object.__setattr__(filled, field, _filled(x, operands))
    return filled


@functools.cache
def _operator() -> Any:
    """Return attention as a function of JAX: of a call, of operands with a gradient, and of others."""
    import jax

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def attention(call: _Call, differentiable: dict[str, Array], others: dict[str, Array]) -> Array:
        return _compute(call.forward, call, differentiable | others, None)[0]

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
    def once(method: str, call: _Call, operands: dict[str, Array], state: list[Array] | None) -> tuple[Array, ...]:
        return _compute(getattr(call, method), call, operands, state)

    @once.defjvp
    def twice(*_: Any) -> Any:
        raise RegardError(NOT_TWICE)

    def forward(call: _Call, differentiable: dict[str, Array], others: dict[str, Array]) -> tuple[Array, Any]:
        context, *state = once("forward_with_state", call, differentiable | others, None)
        return context, (differentiable, others, state)

    def pullback(call: _Call, saved: Any, d_output: Array) -> tuple[dict[str, Array], None]:
        differentiable, others, state = saved
        found = once("backward", call, differentiable | others, [d_output, *state])
        names = [name for name in _DIFFERENTIABLE if name in differentiable]  # JAX sorts a dictionary
        return dict(zip(names, found, strict=True)), None

    attention.defvjp(forward, pullback)
    return attention


def _compute(
    function: Callable[..., tuple[np.ndarray, ...]], call: _Call, operands: dict[str, Array], state: Any
) -> tuple[Array, ...]:
    """Return what a method of a call computes: at once if nobody traces, else by a callback of the program."""
    import jax

    if not any(isinstance(x, jax.core.Tracer) for x in (*operands.values(), *(state or ()))):
        numbers = {name: np.asarray(x) for name, x in operands.items()}
        found = function(numbers, None if state is None else [np.asarray(x) for x in state])
        device = next(iter(operands["q"].devices()))
        return tuple(jax.device_put(x, device) for x in found)
    p = validate_inputs(*(operands[name] for name in "qkv"), **call.options(operands))
    shapes = _shapes(function.__name__, p, operands)
    callback = _Callback(function.__name__, call, tuple(operands))
    arguments = (*operands.values(), *(state or ()))
    return tuple(jax.pure_callback(callback, shapes, *arguments, vmap_method="expand_dims"))


def _shapes(name: str, p: AttentionInputs, operands: dict[str, Array]) -> tuple[Any, ...]:
    import jax

    struct, shape = jax.ShapeDtypeStruct, p.context_shape
    if name == "backward":
        return tuple(struct(operands[x].shape, operands[x].dtype) for x in _DIFFERENTIABLE if x in operands)
    context = struct(shape, p.dtype)
    if name == "forward":
        return (context,)
    rows = struct(shape[:-1], p.compute_dtype)
    return context, struct(shape, p.compute_dtype), rows, struct((*shape[:-1], 2), np.uint32)


@dataclass(frozen=True)
class _Callback:
    """A method of a call on operands in their order, each with the same number of mapped axes before its own."""

    method: str
    call: _Call
    names: tuple[str, ...]

    def __call__(self, *arguments: Any) -> tuple[np.ndarray, ...]:
        arrays = [np.asarray(x) for x in arguments]
        operands = dict(zip(self.names, arrays, strict=False))
        state = arrays[len(self.names) :]
        function = getattr(self.call, self.method)
        mapped = operands["q"].ndim - self.call.axes["q"]
        if not mapped:
            return cast("tuple[np.ndarray, ...]", function(operands, state))
        lead = np.broadcast_shapes(*(x.shape[:mapped] for x in arrays))
        state = [np.broadcast_to(x, (*lead, *x.shape[mapped:])) for x in state]
        if self._folds(operands, mapped):
            return self._folded(function, operands, state, lead)
        return self._looped(function, operands, state, lead)

    def _folds(self, operands: dict[str, np.ndarray], mapped: int) -> bool:
        """Tell whether mapped axes can be axes of the batch: not of arrays without batch axes, nor of their gradients."""
        alone = [name for name, lacking in self.call.lacks.items() if lacking is None]
        if self.method == "backward" and "bias" in alone:
            return False
        return all(math.prod(operands[name].shape[:mapped]) == 1 for name in alone)

    def _folded(
        self, function: Any, operands: dict[str, np.ndarray], state: list[np.ndarray], lead: tuple[int, ...]
    ) -> tuple[np.ndarray, ...]:
        mapped, call = len(lead), self.call
        most = max(3, *(call.axes[name] for name in "qkv"))  # axes of the scores or the context, with one of heads
        folded, shapes = {}, {}
        for name, x in operands.items():
            own, lacking = x.shape[mapped:], call.lacks[name]
            if lacking is None:
                folded[name] = x.reshape(own)
                continue
            shape = (1,) * (most - lacking - len(own)) + own
            x = x.reshape(*x.shape[:mapped], *shape)
            folded[name] = np.broadcast_to(x, (*lead, *shape)) if name in _DIFFERENTIABLE else x
            shapes[name] = own
        rows = most - 1  # axes of the context without the last
        counts = (rows + 1, rows + 1, rows, rows + 1)  # of the gradient of the context, and of the state
        given = [
            x.reshape(*lead, *(1,) * (count - (x.ndim - mapped)), *x.shape[mapped:])
            for x, count in zip(state, counts, strict=False)
        ]
        found = function(folded, given)
        if self.method == "backward":
            owns = [shapes[name] for name in _DIFFERENTIABLE if name in shapes]
            return tuple(x.reshape(*lead, *own) for x, own in zip(found, owns, strict=True))
        axes = max(call.axes[name] for name in "qkv")  # of the context
        drops = most - axes
        return tuple(x.reshape(*lead, *x.shape[mapped + drops :]) for x in found)

    def _looped(
        self, function: Any, operands: dict[str, np.ndarray], state: list[np.ndarray], lead: tuple[int, ...]
    ) -> tuple[np.ndarray, ...]:
        wide = {name: np.broadcast_to(x, (*lead, *x.shape[len(lead) :])) for name, x in operands.items()}
        parts = [
            function({name: x[at] for name, x in wide.items()}, [x[at] for x in state]) for at in np.ndindex(*lead)
        ]
        if not parts:
            raise RegardError("an axis that is mapped must have an entry")
        return tuple(np.stack(x).reshape(*lead, *x[0].shape) for x in zip(*parts, strict=True))
