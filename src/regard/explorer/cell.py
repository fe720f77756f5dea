"""One weight, step by step with its numbers: the products of query and key, the score, the share of the value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.explorer.movement import embeddings_of
from regard.metrics.layer_maps import LayerMap
from regard.trace import Trace
from regard.trace.attention_map import AttentionMap

_FITTED = 64  # rows and columns that tell what recorded scores were scaled by
_SHOWN = 8  # numbers of an embedding, of which there are hundreds


def cell(
    trace: Trace, layer: LayerMap, head: int, i: int, j: int, *, batch: int, rotated: bool | None, off: bool
) -> dict[str, Any]:
    """Return how token i comes to look at token j in a head, as plain data; what was not recorded is None.

    ``products`` sum to ``score_raw``, times ``scale`` that is ``scaled``; after ``softcap`` it is ``capped``, with
    ``bias`` it is ``biased``, and the weight is exp(biased − lse). The weights of the row sum to ``row_sum``; a head's
    own ``sink`` has exp(sink − lse) of 1. ``share`` is weight · v, a part of ``output``; both
    are 0 of a head that is ``off``.
    """
    kv_head = layer.kv_head(head)
    v, context = (_of_head(trace, layer, name, batch, head) for name in ("v", "context"))
    steps = _from_map(layer, head, i, j) if layer.is_map else _from_arrays(trace, layer, batch, head, i, j)
    q, k, row = steps.q, steps.k, steps.biased
    with np.errstate(all="ignore"):
        products = None if q is None or k is None else q * k
        raw = None if products is None else float(products.sum())
    weights = layer.tile(head, [i], None)[0].astype(np.float64)
    weight, best = float(weights[j]), int(weights.argmax())
    biased = None if row is None else float(row[j])
    # From the largest weight of the row, for that knows what a sink takes.
    lse = None if row is None or not weights[best] > 0 else float(row[best] - np.log(weights[best]))
    masked = biased == -np.inf if biased is not None else None if weight == 0 else False
    bias = None if biased is None or steps.capped is None or masked else biased - steps.capped
    handed = 0 if off else weight
    share = None if v is None else handed * (v[j].astype(np.float64) if handed else np.zeros(v.shape[-1]))
    named = embeddings_of(trace)
    return {
        "q": _plain(q),
        "k": _plain(k),
        "products": _plain(products),
        "kv_head": kv_head,
        "score_raw": _finite(raw),
        "scale": steps.scale,
        "scaled": _finite(steps.scaled),
        "softcap": steps.softcap,
        "capped": _finite(steps.capped),
        "bias": _finite(bias or None),
        "masked": masked,
        "biased": _finite(biased),
        "sink": steps.sink,
        "lse": _finite(lse),
        "row_sum": _finite(float(weights.sum())),
        "weight": _finite(weight),
        "v": None if v is None else _plain(v[j]),
        "share": _plain(share),
        "output": None if context is None else _plain(context[i]),
        "off": off,
        "rotated": rotated,
        "embedding": None if named is None else _plain(_of_text(trace, named, batch)[i, :_SHOWN]),
        "source": steps.source,
    }


class _Steps(NamedTuple):
    """What is known of how a score comes to be; of arrays, as far as they were recorded."""

    q: np.ndarray | None  # D, of token i
    k: np.ndarray | None  # D, of token j
    scale: float | None
    scaled: float | None
    softcap: float | None
    capped: float | None
    biased: np.ndarray | None  # S, of token i
    sink: float | None
    source: str


def _from_map(layer: LayerMap, head: int, i: int, j: int) -> _Steps:
    look = layer.heads[head]
    assert isinstance(look, AttentionMap)
    q, k = _vectors_of(look)
    scaled, capped = (float(layer.tile(head, [i], [j], stage)[0, 0]) for stage in ("scores", "capped"))
    biased = layer.tile(head, [i], None, "biased")[0].astype(np.float64)
    source = f"{layer.name or 'the layer'}: q, k and the log-sum-exp"
    q, k = q[i].astype(np.float64), k[j].astype(np.float64)
    return _Steps(q, k, look.scale, scaled, look.softcap, capped, biased, _sink_of(look), source)


def _from_arrays(trace: Trace, layer: LayerMap, batch: int, head: int, i: int, j: int) -> _Steps:
    q, k, scores, capped, biased = (
        _of_head(trace, layer, name, batch, head) for name in ("q", "k", "scores", "capped", "biased")
    )
    scale = None if q is None or k is None or scores is None else _scale_of(q, k, scores)
    capped = scores if capped is None else capped
    last = capped if biased is None else biased
    row = None if last is None else last[i, : layer.length].astype(np.float64)
    q_i, k_j = (None if x is None else x[at].astype(np.float64) for x, at in ((q, i), (k, j)))
    scaled_ij, capped_ij = (None if x is None else float(x[i, j]) for x in (scores, capped))
    source = f"{layer.step('weights')}, as it was recorded"
    return _Steps(q_i, k_j, scale, scaled_ij, None, capped_ij, row, None, source)


def _scale_of(q: np.ndarray, k: np.ndarray, scores: np.ndarray) -> float | None:
    """Return what the products of queries and keys were multiplied by; None where that is no one number."""
    q, k, scores = (x[:_FITTED].astype(np.float64) for x in (q, k, scores))
    with np.errstate(all="ignore"):  # keys that nobody sees may hold anything
        products, scores = q @ k.T, scores[:, :_FITTED]
    known = np.isfinite(products) & np.isfinite(scores)
    products, scores = products[known], scores[known]
    if not products.any():
        return None
    scale = float(products @ scores / (products @ products))
    off = np.abs(scores - scale * products).max()
    return scale if off <= 0.004 * np.abs(scores).max() else None  # as exact as eight bits are


def vectors(
    trace: Trace, layer: LayerMap, head: int, *, batch: int, rotated: bool | None
) -> tuple[bytes, dict[str, Any]] | None:
    """Return what all cells of a head can be computed from, as `Exploration.vectors` says."""
    look = layer.heads[head]
    v = _of_head(trace, layer, "v", batch, head)
    if not isinstance(look, AttentionMap) or v is None:
        return None
    q, k = (x[: layer.length] for x in _vectors_of(look))
    capped, biased, weights = (layer.tile(head, None, None, stage) for stage in ("capped", "biased", "weights"))
    seen = ~np.isneginf(biased)
    first, behind = seen.argmax(axis=-1), layer.length - seen[:, ::-1].argmax(axis=-1)
    first, behind = (np.where(seen.any(axis=-1), x, 0)[:, None] for x in (first, behind))
    at = np.arange(layer.length)
    if not np.array_equal(seen, (first <= at) & (at < behind)) or not np.array_equal(biased[seen], capped[seen]):
        return None
    best = biased.argmax(axis=-1)[:, None]
    score, largest = (np.take_along_axis(x, best, axis=-1)[:, 0].astype(np.float64) for x in (biased, weights))
    lse = score - np.log(largest)
    content = b"".join(np.ascontiguousarray(x, "<f4").tobytes() for x in (q, k, v[: layer.length], lse, first, behind))
    fields = {"sizes": [q.shape[-1], v.shape[-1]], "scale": look.scale, "softcap": look.softcap, "sink": _sink_of(look)}
    return content, {**fields, "kv_head": layer.kv_head(head), "rotated": rotated}


def _of_text(trace: Trace, name: str, batch: int) -> np.ndarray:
    """Return recorded vectors of one text, ``T E``."""
    return np.asarray(trace[name][batch] if trace.axes(name).startswith("B ") else trace[name])


def _of_head(trace: Trace, layer: LayerMap, step: str, batch: int, head: int) -> np.ndarray | None:
    """Return a recorded step of one head of one text, ``T …``; None where it was not recorded."""
    name = layer.step(step)
    if name not in trace:
        return None
    value, axes = trace[name], trace.axes(name).split()
    if axes[0] == "B":
        value, axes = value[batch], axes[1:]
    at = {"H": head, "G": layer.kv_head(head)}.get(axes[0])
    return np.asarray(value if at is None else value[at])


def _vectors_of(look: AttentionMap) -> tuple[np.ndarray, np.ndarray]:
    """Return the queries and keys of a map of one head, ``T D`` and ``S D``."""
    q, k = (np.asarray(x).reshape(x.shape[-2:]) for x in (look.q, look.k))
    return q, k


def _sink_of(look: AttentionMap) -> float | None:
    return None if look.sinks is None else float(np.asarray(look.sinks).item())


def _plain(vector: np.ndarray | None) -> list[float | None] | None:
    return None if vector is None else [_finite(float(x)) for x in vector]


def _finite(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else x
