"""Attention of arrays of JAX by the kernel: with its gradient, while JAX traces, maps or differentiates the call.

JAX calls back from a compiled program (`jax.pure_callback`). A callback must not use JAX, which may wait for the thread
that the callback holds: it computes in NumPy, on the memory of JAX's arrays. Mapped axes (`jax.vmap`) are folded into
the batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import JaxError
from regard.functional import native
from regard.functional.arrays import Array, is_half, narrowed
from regard.functional.backward import NOT_TWICE, backward, forward_with_stats, like
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.inputs import AttentionInputs, Options, validate_inputs, widened
from regard.functional.native.attention import native_forward, stats_from_kernel, unsupported_arrays_reason
from regard.jax.call import DIFFERENTIABLE, JaxCall, is_traced, reason_against_device, split_call


def jax_attention(q: Array, k: Array, v: Array, options: Options) -> Array | None:
    """Return the context of arrays of JAX, ``... H T Dv``, by the kernel; None for a call that it does not take.

    Dropout takes a generator of NumPy, which gives a seed each time the call is traced, or a key of JAX.
    """
    if options.get("implementation", "auto") not in ("auto", "native") or native.kernel() is None:
        return None
    call, operands = split_call(q, k, v, options)
    if reason_against_device(*operands.values()) is not None:
        return None
    traced = is_traced(*operands.values())
    if traced and call.is_foreign:
        return None  # a rule of one's own may use JAX, which a callback must not
    p = validate_inputs(*(operands[name] for name in "qkv"), **call.options(operands))
    if unsupported_arrays_reason(np, None, p.dtype, ()) is not None:
        return None
    operands |= _common_dtypes(p)
    if not traced:
        (context,) = _compute("forward", call, operands, None)
        return context
    differentiable = {name: operands.pop(name) for name in DIFFERENTIABLE if name in operands}
    output: Array = _operator()(call, differentiable, operands)
    return output


def _common_dtypes(p: AttentionInputs) -> dict[str, Array]:
    """Return q, k and v in dtypes that NumPy has a common one for: that of the result, or half precision beside it."""
    arrays = {"q": p.q, "k": p.k, "v": p.v}
    kept = any(x.dtype == p.dtype for x in arrays.values())
    return {
        name: x if x.dtype == p.dtype or (kept and is_half(x.dtype) and p.dtype == np.float32) else x.astype(p.dtype)
        for name, x in arrays.items()
    }


# What callbacks compute, in NumPy. A state is what the gradient needs beside the operands.


def _forward(call: JaxCall, operands: dict[str, np.ndarray], _: Any) -> tuple[np.ndarray, ...]:
    """Return the context in the dtype of the result."""
    p = call.inputs(operands)
    context, is_valid = native_forward(p, p.dtype) if choose_implementation(p)[0] == "native" else (None, False)
    if context is None or not is_valid:
        context = narrowed(blockwise(widened(p))[0], p.dtype)
    return (context,)


def _forward_with_state(call: JaxCall, operands: dict[str, np.ndarray], _: Any) -> tuple[np.ndarray, ...]:
    """Return the context, and the state: the context in the compute dtype and the softmax statistics.

    The row sums, which JAX may not have the dtype for, are pairs of 32 bits. Where a sum of the kernel overflowed
    the row maxima are NaN.
    """
    p = call.inputs(operands)
    _, context, stats, is_native = forward_with_stats(p, native=choose_implementation(p)[0] == "native")
    wide, shape = narrowed(context, p.compute_dtype), p.context_shape[:-1]
    if is_native:
        row_max, row_sum = (np.broadcast_to(x[..., 0], shape) for x in stats)
    else:
        row_max, row_sum = np.full(shape, np.nan, p.compute_dtype), np.ones(shape)
    bits = np.ascontiguousarray(row_sum[..., None], np.float64).view(np.uint32)
    return narrowed(wide, p.dtype), wide, row_max, bits


def _backward(call: JaxCall, operands: dict[str, np.ndarray], state: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the gradients of the operands that have one, from the gradient of the context and the state."""
    p = call.inputs(operands)
    d_output, context, row_max, bits = state
    row_sum = np.ascontiguousarray(bits).view(np.float64)[..., 0]
    if np.isnan(row_max).any():
        p, context, stats, is_native = forward_with_stats(p, native=False)
    else:
        stats, is_native = stats_from_kernel(p, row_max, row_sum), choose_implementation(p)[0] == "native"
    d_inputs = backward(p, context, stats, d_output, native=is_native)
    gradients = [like(p, d_inputs[name], operands[name]) for name in DIFFERENTIABLE if name in operands]
    return tuple(x for x in gradients if x is not None)


_METHODS: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {
    "forward": _forward,
    "forward_with_state": _forward_with_state,
    "backward": _backward,
}


@functools.cache
def _operator() -> Any:
    """Return attention as a function of JAX: of a call, of operands with a gradient, and of others."""
    import jax

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def attention(call: JaxCall, differentiable: dict[str, Array], others: dict[str, Array]) -> Array:
        return _compute("forward", call, differentiable | others, None)[0]

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
    def once(method: str, call: JaxCall, operands: dict[str, Array], state: list[Array] | None) -> tuple[Array, ...]:
        return _compute(method, call, operands, state)

    @once.defjvp  # type: ignore[untyped-decorator]
    def twice(*_: Any) -> Any:
        raise JaxError(NOT_TWICE)

    def forward(call: JaxCall, differentiable: dict[str, Array], others: dict[str, Array]) -> tuple[Array, Any]:
        context, *state = once("forward_with_state", call, differentiable | others, None)
        return context, (differentiable, others, state)

    def pullback(call: JaxCall, saved: Any, d_output: Array) -> tuple[dict[str, Array], None]:
        differentiable, others, state = saved
        gradients = once("backward", call, differentiable | others, [d_output, *state])
        names = [name for name in DIFFERENTIABLE if name in differentiable]  # JAX sorts a dictionary
        return dict(zip(names, gradients, strict=True)), None

    attention.defvjp(forward, pullback)
    return attention


def _compute(method: str, call: JaxCall, operands: dict[str, Array], state: Any) -> tuple[Array, ...]:
    """Return what one of `_METHODS` computes: at once if nobody traces, else by a callback of the program."""
    import jax

    if not is_traced(*operands.values(), *(state or ())):
        numbers = {name: np.asarray(x) for name, x in operands.items()}
        computed = _METHODS[method](call, numbers, [np.asarray(x) for x in state or ()])
        device = next(iter(operands["q"].devices()))
        return tuple(jax.device_put(x, device) for x in computed)
    p = validate_inputs(*(operands[name] for name in "qkv"), **call.options(operands))
    arguments = (*operands.values(), *(state or ()))
    callback = _Callback(method, call, tuple(operands), tuple(str(x.dtype) for x in arguments))
    results = _shapes(method, p, operands)
    shapes = tuple(jax.eval_shape(_as_words, x) for x in results)
    computed = jax.pure_callback(callback, shapes, *map(_as_words, arguments), vmap_method="expand_dims")
    return tuple(
        jax.lax.bitcast_convert_type(x, result.dtype) if x.dtype != result.dtype else x
        for x, result in zip(computed, results, strict=True)
    )


def _as_words(x: Array) -> Array:
    """Return numbers of 64 bits as pairs of 32, ``... 2``: a thread that calls back may not have their dtype.

    ``jax.enable_x64`` as a context holds in one thread; in another one JAX would round what it hands over.
    """
    import jax

    return jax.lax.bitcast_convert_type(x, "uint32") if x.dtype.itemsize == 8 else x


def _shapes(method: str, p: AttentionInputs, operands: dict[str, Array]) -> tuple[Any, ...]:
    import jax

    struct, shape = jax.ShapeDtypeStruct, p.context_shape
    if method == "backward":
        return tuple(struct(operands[x].shape, operands[x].dtype) for x in DIFFERENTIABLE if x in operands)
    context = struct(shape, p.dtype)
    if method == "forward":
        return (context,)
    rows = struct(shape[:-1], p.compute_dtype)
    return context, struct(shape, p.compute_dtype), rows, struct((*shape[:-1], 2), np.uint32)


@dataclass(frozen=True)
class _Callback:
    """One of `_METHODS` on operands in their order, each with the same number of mapped axes before its own."""

    method: str
    call: JaxCall
    names: tuple[str, ...]
    dtypes: tuple[str, ...]  # of the operands and of the state; numbers of 64 bits arrive as words

    def __call__(self, *arguments: Any) -> tuple[np.ndarray, ...]:
        """Return the results, those of 64 bits as words."""
        arrays = [_from_words(np.asarray(x), dtype) for x, dtype in zip(arguments, self.dtypes, strict=True)]
        return tuple(_in_words(x) for x in self._results(arrays))

    def _results(self, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        operands = dict(zip(self.names, arrays, strict=False))
        state = arrays[len(self.names) :]
        function = functools.partial(_METHODS[self.method], self.call)
        mapped = operands["q"].ndim - self.call.axes["q"]
        if not mapped:
            return function(operands, state)
        lead = np.broadcast_shapes(*(x.shape[:mapped] for x in arrays))
        state = [np.broadcast_to(x, (*lead, *x.shape[mapped:])) for x in state]
        if self._folds(operands, mapped):
            return self._folded(function, operands, state, lead)
        return self._looped(function, operands, state, lead)

    def _folds(self, operands: dict[str, np.ndarray], mapped: int) -> bool:
        """Tell whether mapped axes can be axes of the batch: arrays without those, and their gradients, have none."""
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
            folded[name] = np.broadcast_to(x, (*lead, *shape)) if name in DIFFERENTIABLE else x
            shapes[name] = own
        rows = most - 1  # axes of the context without the last
        counts = (rows + 1, rows + 1, rows, rows + 1)  # of the gradient of the context, and of the state
        folded_state = [
            x.reshape(*lead, *(1,) * (count - (x.ndim - mapped)), *x.shape[mapped:])
            for x, count in zip(state, counts, strict=False)
        ]
        computed = function(folded, folded_state)
        if self.method == "backward":
            owns = [shapes[name] for name in DIFFERENTIABLE if name in shapes]
            return tuple(x.reshape(*lead, *own) for x, own in zip(computed, owns, strict=True))
        axes = max(call.axes[name] for name in "qkv")  # of the context
        drops = most - axes
        return tuple(x.reshape(*lead, *x.shape[mapped + drops :]) for x in computed)

    def _looped(
        self, function: Any, operands: dict[str, np.ndarray], state: list[np.ndarray], lead: tuple[int, ...]
    ) -> tuple[np.ndarray, ...]:
        wide = {name: np.broadcast_to(x, (*lead, *x.shape[len(lead) :])) for name, x in operands.items()}
        parts = [
            function({name: x[at] for name, x in wide.items()}, [x[at] for x in state]) for at in np.ndindex(*lead)
        ]
        if not parts:
            raise JaxError("an axis that is mapped must have an entry")
        return tuple(np.stack(x).reshape(*lead, *x[0].shape) for x in zip(*parts, strict=True))


def _from_words(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(x).view(dtype)[..., 0] if dtype in ("float64", "int64", "uint64") else x


def _in_words(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x)[..., None].view(np.uint32) if x.dtype.itemsize == 8 else x
