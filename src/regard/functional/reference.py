"""The equation of attention: softmax(q · kᵀ × scale) · v, with all that models add to it.

This page is ``implementation="reference"``; the others compute the same numbers and are tested against it. Vaswani et
al. (2017), https://arxiv.org/abs/1706.03762; the order of the steps is that of the ONNX operator Attention, opset 25.
"""

from collections.abc import Callable

from regard.functional.arrays import Array, namespace
from regard.functional.nonfinite import clamp_posinf, finite_row_max, masked_matmul, nonzero, zero_masked_nonfinite
from regard.functional.recorder import NULL_RECORDER, Recorder


def attention(
    q: Array, k: Array, v: Array, *, scale: float, softcap: float | None = None,
    bias: Array | Callable[[Array], Array] | None = None, mask: Array | None = None, sinks: Array | None = None,
    dropout: Array | None = None, trace: Recorder = NULL_RECORDER,
) -> Array:  # fmt: skip
    """Return the context, ``... H T Dv``; q ``... H T D``, k ``... G S D``, v ``... G S Dv``, dropout 0 or 1/(1−p)."""
    *_, scores = attention_scores(q, k, scale=scale, softcap=softcap, bias=bias, mask=mask, trace=trace)
    weights = trace("weights", softmax(scores, sinks), "... H T S")
    if dropout is not None:
        weights = trace("dropped", weights * dropout, "... H T S")
    return masked_matmul(weights, repeat_kv(v, q), mask)  # weights @ v, whatever masked values hold


def attention_scores(
    q: Array, k: Array, *, scale: float, softcap: float | None = None,
    bias: Array | Callable[[Array], Array] | None = None, mask: Array | None = None, trace: Recorder = NULL_RECORDER,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the scores ``... H T S``: scaled, then capped, then with bias (or a function) and −inf where masked."""
    xp = namespace(q, k)
    k = zero_masked_nonfinite(repeat_kv(k, q), mask)
    scores = capped = biased = trace("scores", q @ xp.matrix_transpose(k) * scale, "... H T S")
    if softcap is not None:
        capped = biased = trace("capped", softcap * xp.tanh(scores / softcap), "... H T S")
    if bias is not None:
        biased = bias(biased) if callable(bias) else biased + bias
    if mask is not None:
        biased = xp.where(mask, biased, -xp.inf)
    if bias is not None or mask is not None:
        biased = trace("biased", biased, "... H T S")
    return scores, capped, biased


def repeat_kv(x: Array, q: Array) -> Array:
    """Return ``... G S D`` as ``... H S D``: each key/value head repeated for the H/G heads of `q` that share it.

    Ainslie et al. (2023), "GQA: Training generalized multi-query transformer models", https://arxiv.org/abs/2305.13245.
    """
    if x.ndim < 3 or q.ndim < 3 or x.shape[-3] in (1, q.shape[-3]):
        return x  # a single head broadcasts
    return namespace(x).repeat(x, q.shape[-3] // x.shape[-3], axis=-3)


def softmax(scores: Array, sinks: Array | None = None) -> Array:
    """Return exp(scores) / (Σ exp(scores) + exp(sinks)) of each row; 0 for a row of −inf."""
    xp = namespace(scores)
    scores = clamp_posinf(scores, xp)
    row_max = finite_row_max(scores, sinks, xp)  # cancels in the quotient, and keeps every exponential at most 1
    exponentials = xp.exp(scores - row_max)
    row_sum = xp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / nonzero(row_sum if sinks is None else row_sum + xp.exp(clamp_posinf(sinks, xp) - row_max), xp)
