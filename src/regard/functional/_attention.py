"""Attention, step by step: scores, weights, context."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard._errors import RegardError
from regard._recorder import SILENT, Recorder
from regard._typing import Array
from regard.functional._arrays import as_array, compute_dtype, namespace, result_dtype
from regard.functional._mask import causal_mask, check_bias, check_mask, combine
from regard.functional._softmax import softmax


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    query_offset: int | Array | None = None,
    scale: float | None = None,
    trace: Recorder = SILENT,
) -> Array:
    """Return softmax(q · kᵀ × scale) · v: for each query the mean of the values, weighted by how keys match.

    Parameters
    ----------
    q : array, ``... H T D``
        Queries. A plain ``T D`` is one head. Leading axes of q, k and v broadcast.
    k : array, ``... G S D``
        Keys. G divides H: each key/value head serves H/G consecutive query heads.
    v : array, ``... G S Dv``
        Values. Dv may differ from D.
    mask : boolean array that broadcasts to ``... H T S``, optional
        True = may look.
    bias : floating array that broadcasts to ``... H T S``, optional
        Added to the scaled scores. −inf hides, as in a mask.
    causal : bool
        Hide from each query the keys behind its own position.
    query_offset : int, or integer array ``B``, optional
        With `causal`: query i stands at position i + query_offset. The default S − T makes the queries the last
        of the positions (decoding with a cache); 0 aligns both at the first.
    scale : float, optional
        1/√D by default.
    trace : Recorder
        Gets ``scores``, ``biased`` (where a bias or a mask is), ``weights`` and ``context``.

    Returns
    -------
    array, ``... H T Dv``
        In the common floating dtype of q, k and v (integers count as float64). Short floats are computed in
        float32 and rounded once. A query with nothing to look at gets 0. What a hidden key or value holds,
        NaN and infinity included, never shows.

    Raises
    ------
    RegardError
        Shapes or dtypes do not fit; the message says which and what to do.

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", https://arxiv.org/abs/1706.03762. The semantics
    follow the ONNX operator Attention, opset 25.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> v = np.array([[1.0], [0.0]])
    >>> attention(q, k, v).round(4)
    array([[1.],
           [0.]])
    >>> attention(np.zeros((2, 2)), k, v)
    array([[0.5],
           [0.5]])
    """
    q, k, v = _checked(q=q, k=k, v=v)
    if v.shape[-2] != k.shape[-2]:
        raise RegardError(f"k {k.shape} and v {v.shape} need the same number of positions S (last but one axis)")
    dtype = result_dtype(q, k, v)
    q, k, v = (_widened(x, dtype) for x in (q, k, v))
    weights, seen = _weights(q, k, mask, bias, causal, query_offset, scale, trace)
    v = _for_each_query_head(v, "v", _heads(weights))
    context = trace("context", _weighted_sum(weights, v, seen), "... H T Dv")
    return namespace(context).astype(context, dtype, copy=False)


def attention_weights(
    q: Array,
    k: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    query_offset: int | Array | None = None,
    scale: float | None = None,
    trace: Recorder = SILENT,
) -> Array:
    """Return softmax(q · kᵀ × scale): how much each query looks at each key.

    Takes the arguments of `attention`, which says what they mean.

    Returns
    -------
    array, ``... H T S``
        Each row sums to 1, or is 0 throughout where a query has nothing to look at.

    Examples
    --------
    >>> import numpy as np
    >>> attention_weights(np.zeros((2, 3)), np.zeros((2, 3)), causal=True)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    q, k = _checked(q=q, k=k)
    dtype = result_dtype(q, k)
    q, k = _widened(q, dtype), _widened(k, dtype)
    weights, _ = _weights(q, k, mask, bias, causal, query_offset, scale, trace)
    return namespace(weights).astype(weights, dtype, copy=False)


def _weights(
    q: Array,
    k: Array,
    mask: Array | None,
    bias: Array | None,
    causal: bool,
    query_offset: int | Array | None,
    scale: float | None,
    trace: Recorder,
) -> tuple[Array, Array | None]:
    """Return the weights and where a query may look (None = everywhere), both ``... H T S``."""
    xp = namespace(q, k)
    if q.shape[-1] != k.shape[-1]:
        raise RegardError(f"q {q.shape} and k {k.shape} need the same head dimension D (last axis)")
    if query_offset is not None and not causal:
        raise RegardError("query_offset says where causal queries stand; give causal=True too, or leave it out")
    k = _for_each_query_head(k, "k", _heads(q))
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1] or 1)
    if isinstance(scale, str | bool) or not math.isfinite(scale):
        raise RegardError(f"scale must be a finite number, got {scale!r}")

    with np.errstate(invalid="ignore"):  # NaN and infinity in hidden keys are hidden below
        scores = trace("scores", q @ xp.matrix_transpose(k) * scale, "... H T S")

    queries, keys = scores.shape[-2:]
    seen = combine(
        None if mask is None else check_mask(mask, scores.shape),
        causal_mask(xp, queries, keys, query_offset, _device(q)) if causal else None,
    )
    if bias is not None:
        bias = _widened(check_bias(bias, scores.shape), scores.dtype)
        scores = scores + xp.astype(bias, scores.dtype, copy=False)
        seen = combine(seen, bias > -xp.inf)
    if seen is not None:
        check_mask(seen, scores.shape)
        scores = trace("biased", xp.where(seen, scores, -xp.inf), "... H T S")
    return trace("weights", softmax(scores), "... H T S"), seen


def _weighted_sum(weights: Array, v: Array, seen: Array | None) -> Array:
    """Return weights · v, where what a query does not see does not count, be it NaN or infinity.

    Parameters
    ----------
    weights : array, ``... H T S``
    v : array, ``... H S Dv``
    seen : boolean array that broadcasts to the weights, or None
    """
    xp = namespace(weights, v)
    if seen is None or bool(xp.all(xp.isfinite(v))):
        with np.errstate(invalid="ignore"):
            return weights @ v
    # 0 · NaN is NaN, so a hidden NaN would poison every row: sum the finite values and add to each row by
    # hand the infinities and NaN that it does see.
    seen = xp.astype(xp.broadcast_to(seen, weights.shape), weights.dtype)
    finite = weights @ xp.where(xp.isfinite(v), v, xp.zeros_like(v))
    plus, minus, nan = (seen @ xp.astype(what, v.dtype) > 0 for what in (v == xp.inf, v == -xp.inf, xp.isnan(v)))
    total = xp.where(plus, xp.inf, xp.where(minus, -xp.inf, finite))
    return xp.where(nan | (plus & minus), xp.nan, total)


def _checked(**arrays: Array) -> tuple[Array, ...]:
    """Return the arrays, after a look at what can be wrong with each alone."""
    checked = tuple(as_array(x, name) for name, x in arrays.items())
    for name, x in zip(arrays, checked, strict=True):
        if x.ndim < 2:
            raise RegardError(f"{name} {tuple(x.shape)} needs at least two axes: positions and features")
    try:
        np.broadcast_shapes(*(tuple(x.shape[:-3]) for x in checked))
    except ValueError:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in zip(arrays, checked, strict=True))
        raise RegardError(f"the axes before heads, positions and features do not broadcast: {shapes}") from None
    return checked


def _widened(x: Array, dtype: Any) -> Array:
    xp = namespace(x)
    return xp.astype(x, compute_dtype(xp, dtype), copy=False)


def _heads(x: Array) -> int:
    return int(x.shape[-3]) if x.ndim > 2 else 1


def _for_each_query_head(x: Array, name: str, num_heads: int) -> Array:
    """Return ``... G S D`` as ``... H S D``: each key/value head repeated for the H/G query heads it serves."""
    groups = _heads(x)
    if groups in (1, num_heads):
        return x  # one head broadcasts by itself
    if groups == 0 or num_heads % groups:
        raise RegardError(
            f"{num_heads} query heads cannot share {groups} heads of {name}: the second must divide the first"
        )
    return namespace(x).repeat(x, num_heads // groups, axis=-3)


def _device(x: Array) -> Any:
    return None if isinstance(x, np.ndarray) else getattr(x, "device", None)
