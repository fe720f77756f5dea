"""The numbers of one weight: query, key, the steps from score to weight, and the value.

The page derives the rest from these (`frontend/data/cell.js`): the products of query and key, their sum, and the
weighted value.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict, cast

import numpy as np

from regard.explorer import answers
from regard.explorer.display_modes import has_value_norms
from regard.explorer.query import Exploration, query
from regard.explorer.rotation import RotatedPairs, rotated_pairs, rotates
from regard.explorer.run import Head, Run
from regard.explorer.stages import embeddings_of, vectors_of
from regard.functional.biases.base import Bias
from regard.functional.biases.distance import RelativePositionBias
from regard.metrics.layer_maps import LayerMap
from regard.metrics.value_norms import output_projection
from regard.nn import parameters
from regard.nn.layer import before_residual
from regard.trace import AttentionMap, Trace

_FIT_SIZE = 64  # rows and columns that the scale of recorded scores is fitted to
_ROW_SHOWN = 48  # tokens of a row, the heaviest
_ROLLOUT_SHOWN = 8
_TERMS_SHOWN = 3  # weighted values that are shown one by one
_EMBEDDING_SHOWN = 8  # numbers of an embedding, of which there are hundreds


class RowTerms(TypedDict):
    """The scores and weights of the heaviest tokens of a row.

    ``max`` is the largest score of the row, ``sum`` that of exp(score − max), with the sink.
    """

    columns: list[int]
    scores: answers.Numbers
    shifted: answers.Numbers
    weights: answers.Numbers
    max: float
    sum: float


class ValueTerms(TypedDict):
    """Weight · value of the heaviest tokens, and of all others together."""

    columns: list[int]
    weights: answers.Numbers
    vectors: list[answers.Numbers]
    rest: answers.Numbers


class Projected(TypedDict):
    """What a head and what all heads write into the stream, and the stream before and after it."""

    vector: answers.Vector
    attention: answers.Vector
    before: answers.Vector
    after: answers.Vector
    lengths: dict[str, float | None]
    width: int
    share: float | None
    normed: bool


class MeanTerms(TypedDict):
    """What each head has, of the mean of heads and in rollout."""

    heads: answers.Numbers
    sum: float | None
    value: float | None


class RolloutTerms(TypedDict):
    """The terms of a cell on the map of rollout."""

    mixed: float
    before: float
    total: float
    value: float
    columns: list[int]
    means: answers.Numbers
    previous: answers.Numbers


class CellSteps(TypedDict):
    """The steps from a query and a key to a weight; see `regard.explorer.queries.cell.cell`."""

    q: answers.Vector
    k: answers.Vector
    v: answers.Vector
    kv_head: int | None
    scale: float | None
    scaled: float | None
    softcap: float | None
    capped: float | None
    bias: float | None
    masked: bool | None
    biased: float | None
    sink: float | None
    sink_weight: float | None
    lse: float | None
    row_sum: float | None
    weight: float | None
    output: answers.Vector
    output_length: float | None
    row: RowTerms | None
    terms: ValueTerms | None
    ablated: bool | None
    embedding: answers.Vector
    source: str | None


class RecordedCell(CellSteps):
    """One weight, step by step; None for what was not recorded, or is not of the map that is shown."""

    rotated: bool | None
    rotation: RotatedPairs | None
    projected: Projected | None
    value_length: float | None
    bias_note: str | None
    mean: MeanTerms | None
    rollout: RolloutTerms | None


@query()
def cell(
    exploration: Exploration, run: int, layer: int, head: Head, i: int, j: int, *, mode: str = "raw"
) -> RecordedCell:
    """Return one weight step by step: `_steps`, and what is known besides.

    With ``rotation``, the pairs of dimensions that turn, and ``projected``, what the head writes into the residual
    stream, where there is a model; with ``value_length`` for the mode "norms", and the terms of ``rollout`` for
    that mode. For the mean of heads only ``mean``, what each head has, and the terms of rollout.
    """
    recorded = exploration.run(run)
    layer_map = recorded.layer_map(layer, head, i, j)
    mean, rollout = None, None
    if mode == "rollout" or head == "mean":
        weights = layer_map.rows(np.array([i]))[:, 0]
        if mode == "rollout":
            weights[[each for at, each in recorded.ablated if at == layer]] = 0
            before = exploration.rollout(run)[layer - 1] if layer else np.eye(layer_map.length)
            rollout = _rollout_terms(weights.mean(axis=0), before, i, j)
        values = weights[:, j]
        mean = _mean_terms(values * exploration.value_norms(run, layer)[:, j] if mode == "norms" else values)
    if head == "mean":
        nothing = cast("RecordedCell", dict.fromkeys(RecordedCell.__annotations__))
        return {**nothing, "mean": mean, "rollout": rollout}
    ablated, block = (layer, head) in recorded.ablated, recorded.number(layer)
    steps = _steps(recorded.trace, layer_map, head, i, j, batch=recorded.batch, ablated=ablated)
    return {
        **steps,
        "rotated": rotates(recorded.model, block),
        "rotation": rotated_pairs(recorded.model, block, recorded.length, steps["q"], steps["k"], i, j),
        "projected": projected_output(recorded, layer, head, i),
        "value_length": float(exploration.value_norms(run, layer)[head, j]) if mode == "norms" else None,
        "mean": mean,
        "rollout": rollout,
        "bias_note": bias_note(layer_map, recorded.bias_rule(layer), head, i, j),
    }


def _steps(trace: Trace, layer: LayerMap, head: int, i: int, j: int, *, batch: int, ablated: bool) -> CellSteps:
    """Return the steps by which token i attends to token j in a head, as plain data; None for what was not recorded.

    q · k, times ``scale``, is ``scaled``; after ``softcap`` it is ``capped``, with ``bias`` it is ``biased``, and the
    weight is exp(biased − lse). The weights of the row sum to ``row_sum``; a head's own ``sink`` has exp(sink − lse)
    of 1. ``row`` has the scores and weights of the heaviest tokens, the largest score ``max`` and the ``sum`` of
    exp(score − max) over all, with the sink. ``output`` is Σ weight · v over the row, 0 for an ``ablated`` head;
    ``terms`` has the largest of its summands, and the ``rest``.
    """
    v, context = (_head_step(trace, layer, name, batch, head) for name in ("v", "context"))
    scores = _scores_of_map(layer, head, i, j) if layer.is_map else _scores_of_arrays(trace, layer, batch, head, i, j)
    row = scores.biased
    weights = layer.tile(head, [i], None)[0].astype(np.float64)
    weight, largest = float(weights[j]), int(weights.argmax())
    biased = None if row is None else float(row[j])
    # From the largest weight of the row, which includes what a sink takes.
    lse = None if row is None or not weights[largest] > 0 else float(row[largest] - np.log(weights[largest]))
    masked = biased == -np.inf if biased is not None else None if weight == 0 else False
    bias = None if biased is None or scores.capped is None or masked else biased - scores.capped
    name = embeddings_of(trace)
    embedding = None if name is None else vectors_of(trace, name, batch)[i, :_EMBEDDING_SHOWN]
    return {
        "q": _vector(scores.q),
        "k": _vector(scores.k),
        "kv_head": layer.kv_head(head),
        "scale": scores.scale,
        "scaled": _finite(scores.scaled),
        "softcap": scores.softcap,
        "capped": _finite(scores.capped),
        "bias": _finite(bias or None),
        "masked": masked,
        "biased": _finite(biased),
        "sink": scores.sink,
        "sink_weight": None if scores.sink is None or lse is None else _finite(float(np.exp(scores.sink - lse))),
        "lse": _finite(lse),
        "row_sum": _finite(float(weights.sum())),
        "weight": _finite(weight),
        "v": None if v is None else _vector(v[j]),
        "output": None if context is None else _vector(context[i]),
        "output_length": None if context is None else _finite(float(np.linalg.norm(context[i].astype(np.float64)))),
        "row": _row_terms(row, weights, lse, scores.sink),
        "terms": None if v is None else _value_terms(weights, v[: len(weights)].astype(np.float64)),
        "ablated": ablated,
        "embedding": _vector(embedding),
        "source": scores.source,
    }


def _row_terms(
    scores: np.ndarray | None, weights: np.ndarray, lse: float | None, sink: float | None
) -> RowTerms | None:
    """Return how the scores of a row become its weights; None where the scores are not known."""
    if scores is None or lse is None or not np.isfinite(lse):
        return None
    heaviest = np.argsort(-weights, kind="stable")[:_ROW_SHOWN]
    columns = np.sort(heaviest[scores[heaviest] > -np.inf])
    largest = max(float(scores.max()), -np.inf if sink is None else sink)
    return {
        "columns": columns.tolist(),
        "scores": _numbers(scores[columns]),
        "shifted": _numbers(scores[columns] - largest),
        "weights": _numbers(weights[columns]),
        "max": largest,
        "sum": float(np.exp(lse - largest)),
    }


def _value_terms(weights: np.ndarray, v: np.ndarray) -> ValueTerms:
    """Return the largest weights times values, ``S Dv``, and the sum of all others."""
    columns = np.argsort(-weights, kind="stable")[:_TERMS_SHOWN]
    columns = columns[weights[columns] > 0]
    others = np.where(np.isin(np.arange(len(weights)), columns), 0, weights)
    visible = others > 0  # hidden values may hold anything
    return {
        "columns": columns.tolist(),
        "weights": _numbers(weights[columns]),
        "vectors": [_numbers(weights[j] * v[j]) for j in columns],
        "rest": _numbers(others[visible] @ v[visible]),
    }


def projected_output(run: Run, layer_index: int, head: int, i: int) -> Projected | None:
    """Return what a head writes into the residual stream at token i: its output times W_O, ``vector``, ``E``.

    ``attention`` is that of all heads of the layer together with the bias of W_O, ``share`` the part of this head along
    the sum of heads. ``before`` is the stream that it is added to and ``after`` their sum, None where that was not
    recorded, or where the model normalises what attention writes first, ``normed``. ``lengths`` are of all of these.
    Ablated heads write nothing. None without a model or values.
    """
    layer, heads = run.layers[layer_index], range(len(run.layers[layer_index].heads))
    if not has_value_norms(run.model, run.trace, [layer]):
        return None
    v = layer.values(run.trace, run.batch)
    split = np.asarray(output_projection(run.model, layer), np.float64)
    split = split.reshape(len(heads), v.shape[-1], -1)  # H Dv E
    written = np.zeros((len(heads), split.shape[-1]))
    for each in heads:
        if (layer_index, each) not in run.ablated:
            of_head = layer.tile(each, [i], None)[0].astype(np.float64)
            visible = of_head > 0  # hidden values may hold anything
            written[each] = of_head[visible] @ v[layer.kv_head(each)][visible] @ split[each]
    total, own = written.sum(axis=0), written[head]
    norm, factor = before_residual(run.model, layer.name)
    bias = parameters(run.model).get(layer.step("o_proj.bias"))
    attention = total if bias is None else total + np.asarray(bias, np.float64) * factor
    number, name = run.number(layer_index), layer.name.removesuffix("attn")
    prefix = name[: name.rindex("blocks.")]
    inputs = (
        ("projected_embeddings", "normed_embeddings", "embeddings", "token_embeddings")
        if number == 0
        else (f"blocks.{number - 1}.output",)
    )
    stream = next((prefix + step for step in inputs if prefix + step in run.trace), None)
    before = None if stream is None else vectors_of(run.trace, stream, run.batch)[i]
    after = None if before is None or norm is not None else before + attention
    vectors = {"vector": own, "attention": attention, "before": before, "after": after}
    return {
        "vector": _vector(own),
        "attention": _vector(attention),
        "before": _vector(before),
        "after": _vector(after),
        "lengths": {key: _finite(float(np.linalg.norm(x))) for key, x in vectors.items() if x is not None},
        "width": len(own),
        "share": _finite(float(own @ total / (total @ total))) if total.any() else None,
        "normed": norm is not None,
    }


def _mean_terms(values: np.ndarray) -> MeanTerms:
    """Return what every head has at a cell, ``H``, of which the map shows the mean."""
    return {"heads": _numbers(values), "sum": _finite(float(values.sum())), "value": _finite(float(values.mean()))}


def _rollout_terms(mean: np.ndarray, before: np.ndarray, i: int, j: int) -> RolloutTerms:
    """Return the terms of cell i, j of rollout, which is (``mixed`` + ``before``) / ``total``.

    `mean` is row i of the mean of heads, ``S``; `before` the rollout of the layer before, ``S S``. ``mixed`` is the sum
    of mean · before over all tokens; its largest terms are those of ``columns``. ``total`` is 2, less what sinks take.
    """
    previous = before[:, j].astype(np.float64)
    products = mean * previous
    columns = np.argsort(-products, kind="stable")[:_ROLLOUT_SHOWN]
    columns = columns[products[columns] > 0]
    mixed, total = float(products.sum()), float(mean.sum()) + 1
    return {
        "mixed": mixed,
        "before": float(previous[i]),
        "total": total,
        "value": (mixed + float(previous[i])) / total,
        "columns": columns.tolist(),
        "means": _numbers(mean[columns]),
        "previous": _numbers(previous[columns]),
    }


def bias_note(layer: LayerMap, rule: Bias | None, head: int, i: int, j: int) -> str | None:
    """Return what the bias of a cell is, in words; None without a bias, or where it is not recorded."""
    if not layer.is_map:
        return None
    capped, biased = (layer.tile(head, [i], None, stage)[0].astype(np.float64) for stage in ("capped", "biased"))
    visible = np.isfinite(biased)
    bias, distance = (biased - capped)[visible], np.abs(i - np.flatnonzero(visible))
    if not visible[j] or not np.abs(bias).max(initial=0.0) > 0:
        return None
    apart = f"{abs(i - j)} tokens apart"
    slope = -float(bias @ distance) / max(1.0, float(distance @ distance))
    if np.allclose(bias, -slope * distance, rtol=0, atol=1e-4 * np.abs(bias).max()):
        return f"ALiBi: −{slope:.4g} for each token of distance; these are {apart}."
    if isinstance(rule, RelativePositionBias):
        return _bucket_note(rule, j - i)
    return f"The model adds it to the score of this query and key; they are {apart}, i − j = {i - j}."


def _bucket_note(rule: RelativePositionBias, relative: int) -> str:
    """Return which bucket of a learned table a distance is in, j − i, and which other distances are."""
    near = np.arange(-rule.max_distance, rule.max_distance + 1)
    if not rule.bidirectional:
        near = near[near <= 0]
    buckets = rule.buckets(near)
    bucket = int(rule.buckets(np.array([relative]))[0])
    same = near[buckets == bucket]
    ends = [("−" if x < 0 else "") + str(abs(x)) for x in (same[0], same[-1])]
    distances = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    beyond = ", and all beyond" if rule.max_distance in np.abs(same) else ""
    return (
        f"A learned number of this head for the bucket of j − i: bucket {bucket} of {rule.parameter.shape[0]}, "
        f"j − i = {distances}{beyond}."
    )


class _Scores(NamedTuple):
    """The steps of one score, as far as they are known."""

    q: np.ndarray | None  # D, of token i
    k: np.ndarray | None  # D, of token j
    scale: float | None
    scaled: float | None
    softcap: float | None
    capped: float | None
    biased: np.ndarray | None  # S, of token i
    sink: float | None
    source: str


def _scores_of_map(layer: LayerMap, head: int, i: int, j: int) -> _Scores:
    attention_map = layer.heads[head]
    assert isinstance(attention_map, AttentionMap)
    scaled, capped = (float(layer.tile(head, [i], [j], stage)[0, 0]) for stage in ("scores", "capped"))
    biased = layer.tile(head, [i], None, "biased")[0].astype(np.float64)
    source = f"{layer.name or 'the layer'}: q, k and the log-sum-exp"
    q, k = (np.asarray(x, np.float64).reshape(-1) for x in (attention_map.query(i), attention_map.key(j)))
    sink = sink_of(attention_map)
    return _Scores(q, k, attention_map.scale, scaled, attention_map.softcap, capped, biased, sink, source)


def _scores_of_arrays(trace: Trace, layer: LayerMap, batch: int, head: int, i: int, j: int) -> _Scores:
    q, k, scores, capped, biased = (
        _head_step(trace, layer, name, batch, head) for name in ("q", "k", "scores", "capped", "biased")
    )
    scale = None if q is None or k is None or scores is None else _fit_scale(q, k, scores)
    capped = scores if capped is None else capped
    last = capped if biased is None else biased
    row = None if last is None else last[i, : layer.length].astype(np.float64)
    q_i, k_j = (None if x is None else x[at].astype(np.float64) for x, at in ((q, i), (k, j)))
    scaled_ij, capped_ij = (None if x is None else float(x[i, j]) for x in (scores, capped))
    source = f"{layer.step('weights')}, as recorded"
    return _Scores(q_i, k_j, scale, scaled_ij, None, capped_ij, row, None, source)


def _fit_scale(q: np.ndarray, k: np.ndarray, scores: np.ndarray) -> float | None:
    """Return the factor from q · k to the scores; None where they are not proportional."""
    q, k, scores = (x[:_FIT_SIZE].astype(np.float64) for x in (q, k, scores))
    with np.errstate(all="ignore"):  # masked keys may hold anything
        products, scores = q @ k.T, scores[:, :_FIT_SIZE]
    finite = np.isfinite(products) & np.isfinite(scores)
    products, scores = products[finite], scores[finite]
    if not products.any():
        return None
    scale = float(products @ scores / (products @ products))
    error = np.abs(scores - scale * products).max()
    return scale if error <= 0.004 * np.abs(scores).max() else None  # 2^-8: the precision of bfloat16


def cell_inputs(run: Run, number: int, head: int) -> tuple[bytes, answers.HeadFields] | None:
    """Return the arrays that all cells of a head can be computed from, float32, and the numbers that go with them.

    q ``T D``, k ``S D``, v ``S Dv``, lse ``T``, and the first and the end of the columns that each row attends to,
    ``T`` each, concatenated. None if these are not enough: with a bias, a mask with holes, or without v.
    """
    layer = run.layers[number]
    attention_map = layer.heads[head]
    v = _head_step(run.trace, layer, "v", run.batch, head)
    if not isinstance(attention_map, AttentionMap) or v is None:
        return None
    q, k = (x[: layer.length] for x in _queries_and_keys(attention_map))
    capped, biased, weights = (layer.tile(head, None, None, stage) for stage in ("capped", "biased", "weights"))
    allowed = ~np.isneginf(biased)
    begin, end = allowed.argmax(axis=-1), layer.length - allowed[:, ::-1].argmax(axis=-1)
    begin, end = (np.where(allowed.any(axis=-1), x, 0)[:, None] for x in (begin, end))
    at = np.arange(layer.length)
    if not np.array_equal(allowed, (begin <= at) & (at < end)) or not np.array_equal(biased[allowed], capped[allowed]):
        return None
    largest = biased.argmax(axis=-1)[:, None]
    score, weight = (np.take_along_axis(x, largest, axis=-1)[:, 0].astype(np.float64) for x in (biased, weights))
    lse = np.zeros_like(score)  # of a row without weights
    np.subtract(score, np.log(weight, where=weight > 0, out=np.zeros_like(weight)), where=weight > 0, out=lse)
    content = b"".join(np.ascontiguousarray(x, "<f4").tobytes() for x in (q, k, v[: layer.length], lse, begin, end))
    return content, {
        "head_dim": q.shape[-1],
        "value_dim": v.shape[-1],
        "scale": attention_map.scale,
        "softcap": attention_map.softcap,
        "sink": sink_of(attention_map),
        "kv_head": layer.kv_head(head),
        "rotated": rotates(run.model, run.number(number)),
    }


def _head_step(trace: Trace, layer: LayerMap, step: str, batch: int, head: int) -> np.ndarray | None:
    """Return a recorded step of one head of one text, ``T …``; None where it was not recorded."""
    name = layer.step(step)
    if name not in trace:
        return None
    value, axes = trace[name], trace.axes(name).split()
    if axes[0] == "B":
        value, axes = value[batch], axes[1:]
    at = {"H": head, "G": layer.kv_head(head)}.get(axes[0])
    return np.asarray(value if at is None else value[at])


def _queries_and_keys(attention_map: AttentionMap) -> tuple[np.ndarray, np.ndarray]:
    """Return the queries and keys of a map of one head, ``T D`` and ``S D``."""
    q, k = (np.asarray(x).reshape(x.shape[-2:]) for x in (attention_map.q, attention_map.k))
    return q, k


def sink_of(attention_map: AttentionMap) -> float | None:
    """Return the logit of the sink of a map of one head, if it has one."""
    return None if attention_map.sinks is None else float(np.asarray(attention_map.sinks).item())


def _vector(vector: np.ndarray | None) -> answers.Vector:
    return None if vector is None else _numbers(vector)


def _numbers(values: np.ndarray) -> answers.Numbers:
    return [_finite(float(x)) for x in values]


def _finite(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else x
