"""The derivatives of attention, block by block: the weights are computed anew, never kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, concat, is_floating, namespace, no_grad, result_dtype
from regard.functional.biases import BiasGradAccumulator, sum_to_shape
from regard.functional.blocks import block_sizes, nonempty_blocks, spans
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.grouped_heads import count_heads, repeat_kv, sum_over_query_groups
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.native.attention import native_forward_with_stats
from regard.functional.native.backward import native_backward
from regard.functional.nonfinite import finite_matmul
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.score_layout import take
from regard.functional.scores import BlockScores, block_scores


class Gradients(NamedTuple):
    """The gradient of a number with respect to each input, in the input's shape and dtype.

    Parameters
    ----------
    q, k, v : array
    bias : array or None
        Of the array, or of the parameter of a rule (the slopes of `ALiBi`); None where no bias was given.
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
    """Return attention and the function that carries a gradient back through it.

    Takes the arguments of `attention`, which says what they mean.

    Returns
    -------
    output : array, ``... H T Dv``
    pullback : function
        Takes the gradient of a number with respect to the output, ``... H T Dv``, and returns `Gradients`. It
        computes the weights anew, block by block, in memory of O(n · D). A query with nothing to look at, and what
        is hidden, get 0; integers get float64 gradients. What is looked at and not finite has no derivative: what it
        reaches gets NaN, and such a call is worked out in blocks also where the compiled kernel went forth.

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
    given = {"q": q, "k": k, "v": v, "bias": options.get("bias"), "sinks": options.get("sinks")}
    p = validate_inputs(q, k, v, **options)
    with no_grad(p.layout.xp):
        native = choose_implementation(p)[0] == "native"
        if native:
            context, normaliser = native_forward_with_stats(p, p.compute_dtype)
        else:
            p = p.to_compute_dtype()
            context, normaliser = blockwise(p)

    def pullback(d_output: Array) -> Gradients:
        d_output = p.layout.to_namespace(as_array(d_output, "d_output"))
        result_dtype(d_output)  # complains of what is not real
        if tuple(d_output.shape) != tuple(context.shape):
            raise RegardError(
                f"d_output {tuple(d_output.shape)} must have the shape of the output, {tuple(context.shape)}"
            )
        with no_grad(p.layout.xp):
            gradients = native_backward(p, context, normaliser, d_output) if native else None
            if gradients is None:
                computed = p.to_compute_dtype()
                state = blockwise(computed) if native else (context, normaliser)
                gradients = _backward(computed, *state, p.layout.xp.astype(d_output, p.compute_dtype, copy=False))
        return Gradients(**{name: _like(p, gradient, given[name]) for name, gradient in gradients.items()})

    return p.layout.xp.astype(context, p.dtype, copy=False), pullback


def _backward(
    p: AttentionInputs, context: Array, normaliser: SoftmaxStats, d_context: Array
) -> dict[str, Array | None]:
    """Return the gradients in the precision of the problem.

    With P the weights and O = P · V: dV = Pᵀ · dO, and with dP = dO · Vᵀ the scores get P · (dP − Σ_s P dP), where the
    sum over a row is dO · O, known without P.
    """
    xp, layout = p.layout.xp, p.layout
    rows, cols = (spans(length, size) for length, size in zip(layout.shape[-2:], block_sizes(p), strict=True))
    allowed = normaliser.row_sum != 0  # what an empty row is told reaches nobody, be it NaN
    d_context = xp.where(allowed, d_context, xp.zeros_like(d_context))
    row_sums = xp.sum(d_context * context, axis=-1, keepdims=True)

    d_q: list[Array] = []
    d_k: list[Array | None] = [None] * len(cols)
    d_v: list[Array | None] = [None] * len(cols)
    d_bias = None if p.bias is None else BiasGradAccumulator(p.bias, rows, cols)
    for r, span in enumerate(rows):
        q, d_out, row_sum = (take(x, span, -2) for x in (p.q, d_context, row_sums))
        row = normaliser.of(span)
        d_q_rows = xp.zeros((*d_out.shape[:-1], q.shape[-1]), dtype=q.dtype, device=layout.device)
        for c, keys, full in nonempty_blocks(p, span, cols):
            k, v = (repeat_kv(take(x, keys, -2), count_heads(p.q)) for x in (p.k, p.v))
            tile = block_scores(p, span, keys, unmasked=full)
            weights = row.weights(tile.biased, xp)
            factors = 1.0 if p.dropout is None else p.dropout.factors(layout, span, keys, q.dtype)
            with np.errstate(invalid="ignore", over="ignore"):  # of what hidden values hold
                d_weights = d_out @ xp.matrix_transpose(v) * factors
            d_biased, d_scores = _through_softmax_and_cap(p, tile, weights, d_weights, row_sum)
            if d_bias is not None:
                d_bias.add(layout, (r, span), (c, keys), d_biased)

            allowed = None if tile.mask is None else xp.broadcast_to(tile.mask, d_scores.shape)
            seen_by = None if allowed is None else xp.matrix_transpose(allowed)
            d_q_rows = d_q_rows + _seen_sum(d_scores, k, allowed)
            d_k[c] = _plus(d_k[c], _seen_sum(xp.matrix_transpose(d_scores), q, seen_by))
            dropped = xp.broadcast_to(weights * factors, d_scores.shape)
            d_v[c] = _plus(d_v[c], _seen_sum(xp.matrix_transpose(dropped), d_out, seen_by))
        d_q.append(d_q_rows)
    return {
        "q": sum_to_shape(concat(d_q, -2), p.q.shape),
        "k": sum_over_query_groups(_whole(p, d_k, cols, p.k), p.k.shape),
        "v": sum_over_query_groups(_whole(p, d_v, cols, p.v), p.v.shape),
        "bias": None if d_bias is None else d_bias.total(p.q.dtype),
        "sinks": None if p.sinks is None else sum_to_shape(-row_sums * normaliser.weights(p.sinks, xp), p.sinks.shape),
    }


def _through_softmax_and_cap(
    p: AttentionInputs, tile: BlockScores, weights: Array, d_weights: Array, row_sum: Array
) -> tuple[Array, Array]:
    """Return the gradients of the biased scores and of q · kᵀ for a block, from that of its weights; 0 where hidden."""
    with np.errstate(invalid="ignore", over="ignore"):
        d_biased = d_capped = _where_seen(weights * (d_weights - row_sum), tile.mask)
        if p.softcap is not None:
            d_capped = _where_seen(d_biased * (1 - (tile.capped / p.softcap) ** 2), tile.mask)
    return d_biased, d_capped * p.scale


def _where_seen(x: Array, allowed: Array | None) -> Array:
    return x if allowed is None else namespace(x, allowed).where(allowed, x, 0.0)


def _seen_sum(weights: Array, x: Array, allowed: Array | None) -> Array:
    """Return weights · x; NaN where a row sees something that is not finite, for which there is no derivative."""
    total, marks = finite_matmul(weights, x, allowed)
    if marks is None:
        return total
    xp, width = namespace(total), total.shape[-1]
    any_mark = xp.any(xp.reshape(marks, (*marks.shape[:-1], 3, width)), axis=-2)
    return xp.where(any_mark, xp.nan, total)


def _whole(p: AttentionInputs, parts: list[Array | None], cols: list[slice], x: Array) -> Array:
    """Return the gradient of keys or values, ``... H S F``, from blocks ``... H C F``; a block nobody saw is 0."""
    xp, lead = p.layout.xp, p.context_shape[:-2]
    return concat(
        [
            xp.zeros((*lead, span.stop - span.start, x.shape[-1]), dtype=x.dtype, device=p.layout.device)
            if part is None
            else part
            for part, span in zip(parts, cols, strict=True)
        ],
        -2,
    )


def _plus(total: Array | None, part: Array) -> Array:
    return part if total is None else total + part


def _like(p: AttentionInputs, gradient: Array | None, given: object) -> Array | None:
    """Return a gradient in the shape and, for floats, the dtype of what it belongs to."""
    if gradient is None:
        return None
    if isinstance(given, type(gradient)) and (given.shape, given.dtype) == (gradient.shape, gradient.dtype):
        return gradient
    array = p.layout.to_namespace(as_array(getattr(given, "parameter", given), "input"))
    dtype = array.dtype if is_floating(array) else gradient.dtype
    return p.layout.xp.astype(p.layout.xp.reshape(gradient, array.shape), dtype, copy=False)
