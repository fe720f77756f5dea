"""Attention, step by step: scores, weights, context."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Literal, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, integers, namespace
from regard.functional.biases import Bias
from regard.functional.blockwise import blockwise, normaliser
from regard.functional.dispatch import choose_backend
from regard.functional.inputs import AttentionInputs, Implementation, Options, heads, repeat_kv, validate_inputs
from regard.functional.masks import Mask
from regard.functional.native.attention import attend as attend_natively
from regard.functional.native.attention import attend_with_sums, has_blocks
from regard.functional.native.map import for_kernel, shows_hidden
from regard.functional.native.map import tile as compiled_tile
from regard.functional.online_softmax import SoftmaxStats
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.score_layout import ALL, Index, ScoreLayout, bounds_of
from regard.functional.scores import restore_nonfinite, score, weighted_sum
from regard.functional.softmax import softmax

Stage = Literal["scores", "capped", "biased", "weights"]


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | Mask | None = None,
    bias: Array | Bias | None = None,
    causal: bool = False,
    query_offset: int | Array | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    key_lengths: int | Array | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
    implementation: Implementation = "auto",
    trace: Recorder = NULL_RECORDER,
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
    mask : boolean array that broadcasts to ``... H T S``, or Mask, optional
        True = may look. A rule such as ``Causal() & SegmentMask(ids)`` never holds n² cells.
    bias : floating array that broadcasts to ``... H T S``, or Bias, optional
        Added to the scaled scores. −inf hides, as in a mask. A rule such as ``ALiBi(slopes)`` never holds n² numbers.
    causal : bool
        Hide from each query the keys behind its own position.
    query_offset : int, or integer array with one for each batch entry, optional
        Query i stands at position i + query_offset. The default S − T makes the queries the last of the positions
        (decoding with a cache); 0 aligns both at the first.
    window : (left, right), optional
        How many keys before and behind its own position a query sees; None on a side is all of them.
    scale : float, optional
        1/√D by default.
    softcap : float, optional
        Scores become softcap · tanh(scores / softcap), before bias and mask.
    sinks : floating array, ``H``, optional
        One more logit for each head, that takes its share of the weight and gives no value.
    key_lengths : int, or integer array with one for each batch entry, optional
        Only the first keys are there; the rest is padding.
    dropout : float
        The share of the weights set to zero, for training; the others grow by 1 / (1 − dropout).
    rng : numpy.random.Generator, optional
        Where `dropout` draws from; required with it.
    implementation : {"auto", "reference", "blockwise", "native"}
        The formula on the whole map; block by block in memory of O(n · D); or the compiled kernel, which does that at
        the speed of the machine, or raises with the reason where it cannot. `explain_plan` says what auto takes.
    trace : Recorder
        Gets ``scores``, ``capped`` (where there is a softcap), ``biased`` (where a bias or a mask is), ``weights``,
        ``dropped`` (where there is a dropout) and ``context``. Where it edits one of those that hold the whole map, or
        wants one and there is no kernel, the path is the direct one; `Trace(maps=True)` does not.

    Returns
    -------
    array, ``... H T Dv``
        In the common floating dtype of q, k and v (integers count as float64). Short floats are computed in
        float32 and rounded once. A query with nothing to look at gets 0. What a hidden key or value holds,
        NaN and infinity included, never shows.

    Raises
    ------
    RegardError
        Shapes, dtypes or arguments do not fit; the message says which and what to do.

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
    p = validate_inputs(
        q, k, v, mask=mask, bias=bias, causal=causal, query_offset=query_offset, window=window, scale=scale,
        softcap=softcap, sinks=sinks, key_lengths=key_lengths, dropout=dropout, rng=rng, implementation=implementation,
    )  # fmt: skip
    return attend(p, trace)


def attend(p: AttentionInputs, trace: Recorder) -> Array:
    """Return what `attention` does, of its arguments made ready."""
    if not hasattr(trace, "record_attention"):
        raise RegardError(f"trace is a recorder, trace=regard.Trace(), got {trace!r}")
    path, _ = choose_backend(p, trace)
    if path == "native":
        context = _natively(p, trace)
    else:
        p = p.to_compute_dtype()
        trace.record_attention(p)
        context = _direct(p, trace) if path == "reference" else blockwise(p)[0]
    return p.layout.xp.astype(trace("context", context, "... H T Dv"), p.dtype, copy=False)


def record(p: AttentionInputs, trace: Recorder) -> None:
    """Give a recorder what it wants of a call that is computed elsewhere: its map, or the whole arrays."""
    trace.record_attention(p.to_compute_dtype())
    _record_whole_maps(p, trace)


def _natively(p: AttentionInputs, trace: Recorder) -> Array:
    """Return the context by the kernel; what a recorder wants beside it is found beside it."""
    if trace is NULL_RECORDER:
        return attend_natively(p, p.dtype)
    sums = None
    if trace.wants_attention() and has_blocks(p):
        context, sums = attend_with_sums(p, p.compute_dtype)
    else:
        context = attend_natively(p, p.compute_dtype)
    trace.record_attention(p, sums)
    _record_whole_maps(p, trace)
    return context


def _record_whole_maps(p: AttentionInputs, trace: Recorder) -> None:
    """Give a recorder the maps that it wants, which the kernel did not hold: looking changes nothing."""
    is_there: dict[Stage, bool] = {
        "scores": True,
        "capped": p.softcap is not None,
        "biased": p.bias is not None or p.mask is not None,
        "weights": True,
    }
    wanted = [stage for stage, there in is_there.items() if there and trace.wants(stage)]
    drops = p.dropout is not None and trace.wants("dropped")
    if not wanted and not drops:
        return
    exact = p.to_compute_dtype().replace(dtype=p.compute_dtype, v=None, dropout=None)
    for stage in wanted:
        trace(stage, tile_of(exact, None, None, stage), "... H T S")
    if drops:
        trace("dropped", tile_of(exact.replace(dropout=p.dropout), None, None), "... H T S")


def _direct(p: AttentionInputs, trace: Recorder) -> Array:
    """Return the context by the formula, on the whole map at once."""
    weights, allowed = _weights(p, trace)
    return restore_nonfinite(*weighted_sum(weights, repeat_kv(p.v, heads(p.q)), allowed))


def _weights(p: AttentionInputs, trace: Recorder) -> tuple[Array, Array | None]:
    """Return the weights of the whole map, dropped out where asked for, and where a query may look."""
    tile = score(p, trace=trace)
    weights = trace("weights", softmax_with_sink(tile.biased, p.sinks), "... H T S")
    if p.dropout is not None:
        weights = trace("dropped", weights * p.dropout.factors(p.layout, ALL, ALL, weights.dtype), "... H T S")
    return weights, tile.allowed


def softmax_with_sink(scores: Array, sinks: Array | None) -> Array:
    """Return the softmax of each row; a sink is one more score, whose share goes nowhere."""
    if sinks is None:
        return softmax(scores)
    xp = namespace(scores)
    sinks = xp.broadcast_to(sinks, (*scores.shape[:-1], 1))
    return softmax(xp.concat([scores, sinks], axis=-1))[..., :-1]


def attention_weights(
    q: Array,
    k: Array,
    *,
    rows: int | Index | None = None,
    cols: int | Index | None = None,
    stage: Stage = "weights",
    trace: Recorder = NULL_RECORDER,
    **options: Unpack[Options],
) -> Array:
    """Return softmax(q · kᵀ × scale): how much each query looks at each key, for the whole map or a part of it.

    Takes the arguments of `attention`, which says what they mean.

    Parameters
    ----------
    rows, cols : int, slice or integer array, optional
        Which queries and keys. Each row is shared out over all keys, also those that are not asked for, so that the
        parts of a row sum to 1; beside the part it takes memory of O(n · D). The compiled kernel computes scores in
        the precision of `attention`, as exact as they enter it; without it a part is computed in float64 where there
        is one and rounded once.
    stage : {"scores", "capped", "biased", "weights"}
        How far to go: scaled; after the softcap; after bias and mask, hidden is −inf; shared out (and dropped out).

    Returns
    -------
    array, ``... H T S``, or fewer rows and columns
        A number in `rows` or `cols` takes its axis away. Each row of the weights sums to 1 less what its sink gets,
        or is 0 throughout where a query has nothing to look at.

    Examples
    --------
    >>> import numpy as np
    >>> attention_weights(np.zeros((2, 3)), np.zeros((2, 3)), causal=True)
    array([[1. , 0. ],
           [0.5, 0.5]])
    >>> attention_weights(np.zeros((2, 3)), np.zeros((2, 3)), causal=True, rows=1, cols=0)
    array(0.5)
    """
    p = validate_inputs(q, k, **options)
    _check_stage(stage)
    p = p.to_compute_dtype()
    if rows is None and cols is None and for_kernel(p, trace) is None:
        part = _weights(p, trace)[0] if stage == "weights" else getattr(score(p, trace=trace), stage)
        return p.layout.xp.astype(part, p.dtype, copy=False)
    if rows is None and cols is None and trace is not NULL_RECORDER:
        _record_whole_maps(p, trace)
    return tile_of(p, rows, cols, stage)


def tile_of(
    p: AttentionInputs,
    rows: int | Index | None,
    cols: int | Index | None,
    stage: Stage = "weights",
    known: SoftmaxStats | None = None,
) -> Array:
    """Return a stage of some rows and columns.

    `known` normalises all rows, in the precision that they are looked at in: `for_kernel`'s, or else the widest;
    without it those asked for are gone through once more.
    """
    _check_stage(stage)
    row, row_axis = _index("rows", p.layout, rows, p.layout.queries)
    col, col_axis = _index("cols", p.layout, cols, p.layout.keys)
    compiled = for_kernel(p)
    if compiled is not None and not shows_hidden(p, stage):
        part = compiled_tile(compiled, row, col, stage, known)
    else:
        part = _tile(p.upcast(), row, col, stage, known)
    if stage == "weights" and p.dropout is not None:
        part = part * p.dropout.factors(p.layout, row, col, part.dtype)
    if not row_axis:
        part = part[..., 0, :]
    if not col_axis:
        part = part[..., 0]
    return p.layout.xp.astype(part, p.dtype, copy=False)


def _tile(p: AttentionInputs, rows: Index, cols: Index, stage: Stage, known: SoftmaxStats | None) -> Array:
    """Return a stage of some rows and columns by the formula."""
    tile = score(p, rows, cols)
    if stage != "weights":
        return getattr(tile, stage)
    of_rows = normaliser(p, rows) if known is None else known.of(rows)
    return of_rows.weights(tile.biased, p.layout.xp)


def _check_stage(stage: str) -> None:
    if stage not in ("scores", "capped", "biased", "weights"):
        raise RegardError(f"stage must be scores, capped, biased or weights, got {stage!r}")


def _index(name: str, layout: ScoreLayout, index: Any, length: int) -> tuple[Index, bool]:
    """Return `index` as a slice or as an array of numbers from 0, and whether its axis stays."""
    if index is None:
        return slice(0, length), True
    if isinstance(index, slice):
        if index.step == 0:
            raise RegardError(f"{name} goes in steps of 0; give another step")
        start, stop, step = index.indices(length)
        if step == 1:
            return slice(start, max(start, stop)), True
        return layout.xp.arange(start, stop, step, device=layout.device), True
    try:
        number = operator.index(None if isinstance(index, bool) else index)  # type: ignore[arg-type]
    except TypeError:
        array = np.zeros(0, int) if isinstance(index, list | tuple) and not index else as_array(index, name)
        if array.ndim != 1 or not namespace(array).isdtype(array.dtype, "integral"):
            raise RegardError(f"{name} must be an integer, a slice or a row of integers, got {index!r}") from None
        _check_within(name, (bounds_of(array) if array.shape[0] else None) or (), length)
        array = integers(layout.xp.asarray(array, device=layout.device))
        return layout.xp.where(array < 0, array + length, array), True
    _check_within(name, [number], length)
    return slice(number % length, number % length + 1), False


def _check_within(name: str, numbers: Iterable[int], length: int) -> None:
    for number in numbers:
        if not -length <= number < length:
            raise RegardError(f"{name} {number} is outside the {length} there are")
