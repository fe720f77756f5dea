"""Gradients of attention, block by block: the weights are recomputed, never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, concat, is_floating, namespace, narrowed, no_grad, result_dtype
from regard.functional.biases.base import BiasGradAccumulator, sum_to_shape
from regard.functional.biases.score_mod import ScoreMod, is_score_function
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.heads import sum_over_query_groups
from regard.functional.inputs import AttentionInputs, Options, validate_inputs, widened
from regard.functional.native.attention import native_forward_with_stats
from regard.functional.native.backward import native_backward
from regard.functional.nonfinite import finite_matmul
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.reference import repeat_kv
from regard.functional.scores.layout import take
from regard.functional.scores.stages import BlockScores, block_scores

NOT_TWICE = (
    "the kernel's gradients of attention cannot be differentiated again; attention(..., implementation='reference') can"
)


class Gradients(NamedTuple):
    """The gradient of a scalar with respect to each input, in the input's shape and dtype.

    Parameters
    ----------
    q, k, v : array
    bias : array or None
        Of the array, or of the parameter of a `Bias` (the slopes of `ALiBi`); None if no bias was given.
    sinks : array or None
    """

    q: Array
    k: Array
    v: Array
    bias: Array | None = None
    sinks: Array | None = None


def attention_vjp(
    q: Array, k: Array, v: Array, **options: Unpack[Options]
) -> tuple[Array, Callable[[Array], Gradients]]:
    """Return attention and its vector-Jacobian product.

    Takes the arguments of `attention`.

    Returns
    -------
    output : array, ``... H T Dv``
    pullback : function
        Takes the gradient of a scalar with respect to the output, ``... H T Dv``, and returns `Gradients`. It
        recomputes the weights block by block, in memory of O(n · D). Queries that attend to no key, and masked keys
        and values, get 0; integer inputs get float64 gradients. Where an attended value is not finite there is no
        derivative: the gradients that depend on it are NaN, computed blockwise even after a native forward pass.

    References
    ----------
    Dao et al. (2022), "FlashAttention", https://arxiv.org/abs/2205.14135, algorithm 4.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[1.0], [3.0]])
    >>> output, pullback = attention_vjp(q, k, v)
    >>> output, pullback(np.ones((1, 1))).v
    (array([[2.]]), array([[0.5],
           [0.5]]))
    """
    inputs = {"q": q, "k": k, "v": v, "bias": options.get("bias"), "sinks": options.get("sinks")}
    p = validate_inputs(q, k, v, **options)
    if isinstance(p.bias, ScoreMod):
        p.bias.check_derivative()
    native = choose_implementation(p)[0] == "native"
    p, context, stats, native = forward_with_stats(p, native=native)

    def pullback(d_output: Array) -> Gradients:
        d_output = p.layout.to_namespace(as_array(d_output, "d_output"))
        result_dtype(d_output)  # raises unless real
        if tuple(d_output.shape) != tuple(context.shape):
            raise RegardError(
                f"d_output {tuple(d_output.shape)} must have the shape of the output, {tuple(context.shape)}"
            )
        gradients = backward(p, context, stats, d_output, native=native)
        return Gradients(**{name: like(p, gradient, inputs[name]) for name, gradient in gradients.items()})

    return narrowed(context, p.dtype), pullback


def forward_with_stats(p: AttentionInputs, *, native: bool) -> tuple[AttentionInputs, Array, SoftmaxStats, bool]:
    """Return the inputs as they were computed, context and softmax statistics for `backward`, and whether natively.

    `native` asks for the kernel; where a sum of it overflows, a wider dtype is used without it.
    """
    with no_grad(p.layout.xp):
        if native:
            context, stats, native = native_forward_with_stats(p, p.compute_dtype)
        if not native:
            p = widened(p)
            context, stats = blockwise(p)
    return p, context, stats, native


def backward(
    p: AttentionInputs, context: Array, stats: SoftmaxStats, d_output: Array, *, native: bool
) -> dict[str, Array | None]:
    """Return the gradients of what `forward_with_stats` returned, in its dtype or a wider one."""
    with no_grad(p.layout.xp):
        gradients = native_backward(p, context, stats, d_output) if native else None
        if gradients is None:
            inputs = widened(p, d_output)
            same = not native and inputs is p
            forward = (context, stats) if same else blockwise(inputs)
            d_output = p.layout.xp.astype(d_output, inputs.q.dtype, copy=False)
            gradients = _backward(inputs, *forward, d_output)
    return gradients


def _backward(p: AttentionInputs, context: Array, stats: SoftmaxStats, d_context: Array) -> dict[str, Array | None]:
    """Return the gradients in the dtype of the inputs.

    With P the weights and O = P · V: dV = Pᵀ · dO, dP = dO · Vᵀ and dS = P · (dP − delta), where delta, the row sum of
    P · dP, is also that of dO · O and needs no P.
    """
    xp, layout = p.layout.xp, p.layout
    rows, cols = (spans(length, size) for length, size in zip(layout.shape[-2:], block_sizes(p), strict=True))
    # NaN in the gradient of a row without keys must not spread.
    d_context = xp.where(stats.row_sum != 0, d_context, xp.zeros_like(d_context))
    delta = xp.sum(d_context * context, axis=-1, keepdims=True)

    d_q: list[Array] = []
    d_k: list[Array | None] = [None] * len(cols)
    d_v: list[Array | None] = [None] * len(cols)
    d_bias = None if p.bias is None or not p.bias.differentiated else BiasGradAccumulator(p.bias, rows, cols)
    for r, span in enumerate(rows):
        q, d_out, row_delta = (take(x, span, -2) for x in (p.q, d_context, delta))
        row_stats = stats.rows(span)
        d_q_rows = xp.zeros((*d_out.shape[:-1], q.shape[-1]), dtype=q.dtype, device=layout.device)
        for c, keys, full in nonempty_blocks(p, span, cols):
            k, v = (repeat_kv(take(x, keys, -2), p.q) for x in (p.k, p.v))
            block = block_scores(p, span, keys, unmasked=full)
            weights = row_stats.weights(block.biased, xp)
            factors = 1.0 if p.dropout is None else p.dropout.factors(layout, span, keys, q.dtype)
            with np.errstate(invalid="ignore", over="ignore"):  # masked values may hold anything
                d_weights = d_out @ xp.matrix_transpose(v) * factors
            d_biased, d_scores = _score_gradients(p, block, weights, d_weights, row_delta, span, keys)
            if d_bias is not None:
                d_bias.add(layout, (r, span), (c, keys), d_biased)

            mask = None if block.mask is None else xp.broadcast_to(block.mask, d_scores.shape)
            transposed_mask = None if mask is None else xp.matrix_transpose(mask)
            d_q_rows = d_q_rows + _matmul(d_scores, k, mask)
            d_k[c] = _add(d_k[c], _matmul(xp.matrix_transpose(d_scores), q, transposed_mask))
            dropped = xp.broadcast_to(weights * factors, d_scores.shape)
            d_v[c] = _add(d_v[c], _matmul(xp.matrix_transpose(dropped), d_out, transposed_mask))
        d_q.append(d_q_rows)
    return {
        "q": sum_to_shape(concat(d_q, -2), p.q.shape),
        "k": sum_over_query_groups(_concat_blocks(p, d_k, cols, p.k), p.k.shape),
        "v": sum_over_query_groups(_concat_blocks(p, d_v, cols, p.v), p.v.shape),
        "bias": None if d_bias is None else d_bias.result(p.q.dtype),
        "sinks": None if p.sinks is None else sum_to_shape(-delta * stats.weights(p.sinks, xp), p.sinks.shape),
    }


def _score_gradients(
    p: AttentionInputs, block: BlockScores, weights: Array, d_weights: Array, delta: Array, rows: slice, cols: slice
) -> tuple[Array, Array]:
    """Return the gradients of a block's biased scores and of its q · kᵀ, from that of its weights; 0 where masked."""
    with np.errstate(invalid="ignore", over="ignore"):
        d_biased = d_capped = _zero_masked(weights * (d_weights - delta), block.mask)
        if is_score_function(p.bias):
            d_capped = _zero_masked(d_biased * p.bias.d_score(p.layout, rows, cols, block.capped), block.mask)
        if p.softcap is not None:
            d_capped = _zero_masked(d_capped * (1 - (block.capped / p.softcap) ** 2), block.mask)
    return d_biased, d_capped * p.scale


def _zero_masked(x: Array, mask: Array | None) -> Array:
    return x if mask is None else namespace(x, mask).where(mask, x, 0.0)


def _matmul(weights: Array, x: Array, mask: Array | None) -> Array:
    """Return weights · x; NaN in rows that attend to a value which is not finite: there is no derivative."""
    product, marks = finite_matmul(weights, x, mask)
    if marks is None:
        return product
    xp, width = namespace(product), product.shape[-1]
    any_mark = xp.any(xp.reshape(marks, (*marks.shape[:-1], 3, width)), axis=-2)
    return xp.where(any_mark, xp.nan, product)


def _concat_blocks(p: AttentionInputs, parts: list[Array | None], cols: list[slice], x: Array) -> Array:
    """Return the gradient of keys or values, ``... H S F``, from blocks ``... H C F``; None is a block of zeros."""
    xp, batch = p.layout.xp, p.context_shape[:-2]
    return concat(
        [
            xp.zeros((*batch, span.stop - span.start, x.shape[-1]), dtype=x.dtype, device=p.layout.device)
            if part is None
            else part
            for part, span in zip(parts, cols, strict=True)
        ],
        -2,
    )


def _add(total: Array | None, part: Array) -> Array:
    return part if total is None else total + part


def like(p: AttentionInputs, gradient: Array | None, operand: object) -> Array | None:
    """Return a gradient in the shape and, if that is floating, the dtype of the input."""
    if gradient is None:
        return None
    if isinstance(operand, type(gradient)) and (operand.shape, operand.dtype) == (gradient.shape, gradient.dtype):
        return gradient
    array = p.layout.to_namespace(as_array(getattr(operand, "parameter", operand), "input"))
    dtype = array.dtype if is_floating(array) else gradient.dtype
    return narrowed(p.layout.xp.reshape(gradient, array.shape), dtype)
