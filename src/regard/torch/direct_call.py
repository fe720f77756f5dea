"""A call of attention on plain tensors of PyTorch, by the shortest way to the kernel.

Most calls of a program repeat an earlier one with other numbers. What depends on the shapes, dtypes and options alone
is checked once for each of them; then the kernel reads q, k and v and writes the result.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from regard.functional import native
from regard.functional.arrays import Array
from regard.functional.backward import backward, forward_with_stats, like
from regard.functional.dispatch import choose_implementation
from regard.functional.heads import sum_over_query_groups
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.native.attention import empty_array, kernel_dtype
from regard.functional.native.convert import compute_type, to_kernel
from regard.functional.native.mask_args import kernel_mask_args
from regard.torch import operator as torch_operator
from regard.torch.autograd import differentiable_once
from regard.torch.extra import torch

if torch is not None and native.kernel() is not None:
    native.kernel().use_openmp()  # PyTorch's threads spin between its operations

_STATIC: dict[str, tuple[type, ...]] = {
    "causal": (bool,), "query_offset": (int, type(None)), "window": (tuple, type(None)), "scale": (float, type(None)),
    "softcap": (float, type(None)), "key_lengths": (int, type(None)), "implementation": (str,),
}  # fmt: skip
_TENSORS = ("mask", "bias", "sinks")
_BATCH_OF_HEADS = 4  # axes B H T D
_CACHED_CALLS = 256
_MAX_QUERIES = 8192  # of a call whose key ranges are kept


def one_query_attention(q: Array, k: Array, v: Array, scale: float) -> Array | None:
    """Return the context, ``B H 1 Dv``, of a query that attends to all keys, ``B G S D``; None for other calls.

    The step of a model that generates: the kernel takes less time than what is around it, so that is little.
    """
    if not type(q) is type(k) is type(v) is torch.Tensor or torch_operator.is_intercepted():
        return None
    try:
        query, keys, values = q.numpy(), k.numpy(), v.numpy()
    except (RuntimeError, TypeError):  # gradients, bfloat16, another device, a lazy negation, sparse tensors
        return None
    kernel = native.kernel()
    if kernel is None:
        return None
    context = np.empty((*query.shape[:-1], *values.shape[-1:]), query.dtype)
    return torch.from_numpy(context) if kernel.forward_one_query(query, keys, values, scale, context) else None


def direct_attention(q: Array, k: Array, v: Array, options: Options) -> Array | None:
    """Return the context, ``... H T Dv``, of tensors on the CPU that nobody traces; None for other calls.

    The options are numbers; other tensors than q, k and v go another way.
    """
    if torch.autograd.forward_ad._current_level >= 0 or torch.jit.is_tracing():
        return None
    for x in (q, k, v):
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or not x.is_cpu or x.is_neg():
            return None
        if x.layout is not torch.strided or x.is_nested or x.is_quantized:  # which `as_array` refuses
            return None
    static = tuple([options[name] for name in _STATIC])  # type: ignore[literal-required]
    if not all([type(x) in kinds for x, kinds in zip(static, _STATIC.values(), strict=True)]):  # noqa: C419
        return None
    if any([type(side) not in (int, type(None)) for side in options["window"] or ()]):  # noqa: C419
        return None
    if options["dropout"] != 0.0 or any([options[name] is not None for name in _TENSORS]):  # type: ignore[literal-required]  # noqa: C419
        return None
    _, query_offset, window, scale, softcap, key_lengths, implementation = static
    sees_all = query_offset is window is softcap is key_lengths is None  # of one query, whether causal or not
    if sees_all and q.ndim == _BATCH_OF_HEADS and q.shape[2] == 1 and q.shape[3] and implementation == "auto":
        of_one_query = one_query_attention(q, k, v, 1 / math.sqrt(q.shape[3]) if scale is None else scale)
        if of_one_query is not None:
            return of_one_query
    call: DirectCall | None = _direct_call(q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, static)
    if call is None:
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        context: Array = _function().apply(call, q, k, v)
        return context.to(call.p.dtype)
    return call.forward(q, k, v)


@functools.lru_cache(_CACHED_CALLS)
def _direct_call(*signature: Any) -> Any:
    """Return the call with these shapes, dtypes and options; None where the kernel computes none or not at once."""
    shapes, dtypes, static = signature[:3], signature[3:6], signature[6]
    q, k, v = (
        torch.empty((), dtype=dtype, device="cpu").expand(shape) for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    options: Any = dict(zip(_STATIC, static, strict=True))
    p = validate_inputs(q, k, v, **options)
    if q.dtype != p.dtype or p.layout.queries > _MAX_QUERIES or choose_implementation(p)[0] != "native":
        return None
    halves = torch.float16, torch.bfloat16
    takes = all(x == p.dtype or (p.dtype == torch.float32 and x in halves) for x in dtypes)
    return DirectCall(p) if takes else None


class DirectCall:
    """What the kernel computes of any q, k and v of some shapes and dtypes."""

    def __init__(self, p: AttentionInputs) -> None:
        ranges = {} if p.mask is None else kernel_mask_args(p).arguments(slice(0, p.layout.queries))
        q_dtype, k_dtype, v_dtype = (kernel_dtype(x.dtype) for x in (p.q, p.k, p.v))
        self.p, self.shape = p.replace(q=None, k=None, v=None), p.context_shape
        self._before = p.context_shape[:-2], q_dtype
        self._options = {"softcap": p.softcap or 0.0, "k_dtype": k_dtype, "v_dtype": v_dtype, **ranges}
        self._dtype = np.dtype(compute_type(p.dtype))
        self._gradient_shapes = [(*p.context_shape[:-2], *x.shape[-2:]) for x in (p.q, p.k, p.v)]

    def forward(self, q: Array, k: Array, v: Array) -> Array | None:
        """Return the context; None if a number is not finite."""
        output = empty_array(q, self.shape, self.p.dtype)
        call = self._kernel_call(q, k, v, tiles=True)
        return output if native.kernel().forward(call, to_kernel(output), None, None) else None

    def forward_with_stats(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array] | None:
        """Return the context in the compute dtype and the softmax statistics, ``... H T``; None as in `forward`."""
        output = empty_array(q, self.shape, self.p.compute_dtype)
        row_max, row_sum = (np.empty(self.shape[:-1], dtype) for dtype in (self._dtype, np.float64))
        call = self._kernel_call(q, k, v, tiles=False)
        if not native.kernel().forward(call, to_kernel(output), row_max, row_sum):
            return None
        return output, torch.from_numpy(row_max), torch.from_numpy(row_sum)

    def backward(self, qkv: tuple[Array, ...], d_context: Array, states: tuple[Array, ...]) -> list[Array] | None:
        """Return the gradients of q, k and v from what `forward_with_stats` returned; None as in `forward`."""
        d_output, (output, row_max, row_sum) = to_kernel(d_context), (to_kernel(x) for x in states)
        d_qkv = [native.empty(shape, self._dtype) for shape in self._gradient_shapes]
        delta = np.empty(self.shape[:-1], self._dtype)
        call = self._kernel_call(*qkv, tiles=False)
        valid = native.kernel().backward(call, d_output, output, row_max, row_sum, delta, *d_qkv)
        if not valid:
            return None
        gradients = (
            sum_over_query_groups(torch.from_numpy(x), tuple(operand.shape))
            for x, operand in zip(d_qkv, qkv, strict=True)
        )
        return [x.to(operand.dtype) for x, operand in zip(gradients, qkv, strict=True)]

    def _kernel_call(self, q: Array, k: Array, v: Array, *, tiles: bool) -> Any:
        arrays = to_kernel(q), to_kernel(k), to_kernel(v)
        return native.kernel().AttentionCall(*self._before, *arrays, self.p.scale, **self._options, tiles=tiles)


@functools.cache
def _function() -> Any:
    class Attention(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, call: DirectCall, q: Array, k: Array, v: Array) -> Array:
            states: tuple[Array, ...] | None = call.forward_with_stats(q, k, v)
            ctx.call, ctx.native = call, states is not None
            if states is None:
                _, context, *_ = forward_with_stats(call.p.replace(q=q, k=k, v=v), native=False)
                states = (context,)
            ctx.save_for_backward(q, k, v, *states)
            return states[0]

        @staticmethod
        def backward(ctx: Any, d_context: Array) -> tuple[Array | None, ...]:
            q, k, v, *states = ctx.saved_tensors
            qkv = q, k, v

            def gradients(d: Array) -> list[Array]:
                d_qkv: list[Array] | None = ctx.call.backward(qkv, d, states) if ctx.native else None
                if d_qkv is None:
                    p, context, stats, _ = forward_with_stats(ctx.call.p.replace(q=q, k=k, v=v), native=False)
                    wide = backward(p, context, stats, d, native=False)
                    d_qkv = [like(p, wide[name], x) for name, x in zip("qkv", qkv, strict=True)]
                return d_qkv

            return None, *differentiable_once(gradients, d_context, *qkv)

    return Attention
