"""One weight, step by step with its numbers: the products of query and key, the score, the share of the value."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention_map import AttentionMap
from regard.trace import Trace
from regard.web._maps import LayerMap
from regard.web._movement import embeddings_of

_SHOWN = 8  # numbers of an embedding, of which there are hundreds


def cell(trace: Trace, layer: LayerMap, head: int, i: int, j: int, *, batch: int, rotated: bool) -> dict[str, Any]:
    """Return how token i comes to look at token j in a head, as plain data; what was not recorded is None.

    ``products`` sum to ``score_raw``, times ``scale`` that is ``scaled``; after ``softcap`` it is ``capped``, with
    ``bias`` it is ``biased``, and the weight is exp(biased − lse). ``share`` is weight · v, a part of ``output``.
    """
    kv_head = layer.kv_head(head)
    steps = {name: layer.step(name) for name in ("q", "k", "v", "context", "scores", "capped", "biased", "weights")}
    look = layer.heads[head]
    q: np.ndarray | None
    k: np.ndarray | None
    row: np.ndarray | None
    scaled: float | None
    capped: float | None
    scale: float | None
    softcap: float | None
    if isinstance(look, AttentionMap):
        q, k = (np.asarray(x, np.float64) for x in (look.q, look.k))
        q, k = (x.reshape(x.shape[-2:]) for x in (q, k))
        scaled, capped = (float(look.tile([i], [j], stage=stage)[0, 0]) for stage in ("scores", "capped"))
        row = np.asarray(look.tile([i], None, stage="biased"), np.float64)[0]
        best = int(row.argmax())
        weight, largest = (float(x) for x in np.asarray(look.tile([i], [j, best]))[0])
        softcap, scale = look.softcap, look.scale
        source = f"{layer.name or 'the layer'}: q, k and the log-sum-exp"
    else:
        q, k = (_of_head(trace, steps[x], batch, at) for x, at in (("q", head), ("k", kv_head)))
        known = {x: _of_head(trace, steps[x], batch, head) for x in ("scores", "capped", "biased")}
        scores = known["scores"]
        scaled = None if scores is None else float(scores[i, j])
        capped = scaled if known["capped"] is None else float(known["capped"][i, j])
        last = next((known[x] for x in ("biased", "capped", "scores") if known[x] is not None), None)
        row = None if last is None else np.asarray(last[i], np.float64)
        best = 0 if row is None else int(row.argmax())
        weight, largest, softcap, scale = float(look[i, j]), float(look[i, best]), None, None
        source = f"{steps['weights']}, as it was recorded"
    products = None if q is None or k is None else q[i].astype(np.float64) * k[j].astype(np.float64)
    raw = None if products is None else float(products.sum())
    if scale is None and scaled is not None and raw:
        scale = scaled / raw
    biased = None if row is None else float(row[j])
    # From the largest weight of the row, for that knows what a sink takes.
    lse = None if row is None or not largest > 0 else float(row[best] - np.log(largest))
    masked = biased == -np.inf or (biased is None and weight == 0)
    v = _of_head(trace, steps["v"], batch, kv_head)
    context = _of_head(trace, steps["context"], batch, head)
    named = embeddings_of(trace)
    embeddings = None if named is None else _of_text(trace, named, batch)
    return {
        "q": None if q is None else _plain(q[i]),
        "k": None if k is None else _plain(k[j]),
        "products": None if products is None else _plain(products),
        "kv_head": kv_head,
        "score_raw": raw,
        "scale": scale,
        "scaled": _finite(scaled),
        "softcap": softcap,
        "capped": _finite(capped),
        "bias": None if masked or biased is None or capped is None or biased == capped else biased - capped,
        "masked": masked,
        "biased": _finite(biased),
        "lse": _finite(lse),
        "weight": weight,
        "v": None if v is None else _plain(v[j]),
        "share": None if v is None else _plain(weight * v[j].astype(np.float64)),
        "output": None if context is None else _plain(context[i]),
        "rotated": rotated,
        "embedding": None if embeddings is None else _plain(embeddings[i, :_SHOWN]),
        "source": source,
    }


def vectors(
    trace: Trace, layer: LayerMap, head: int, *, batch: int, rotated: bool
) -> tuple[bytes, dict[str, Any]] | None:
    """Return what all cells of a head can be computed from, as `Exploration.vectors` says."""
    look = layer.heads[head]
    v = _of_head(trace, layer.step("v"), batch, layer.kv_head(head))
    if not isinstance(look, AttentionMap) or v is None:
        return None
    q, k = (np.asarray(x).reshape(x.shape[-2:]) for x in (look.q, look.k))
    capped, biased, weights = (np.asarray(look.tile(None, None, stage=x)) for x in ("capped", "biased", "weights"))
    hidden = np.isneginf(biased)
    if hidden.any() and not np.array_equal(hidden, np.triu(np.ones(hidden.shape, bool), 1)):
        return None
    if not np.array_equal(biased[~hidden], capped[~hidden]):
        return None
    best = biased.argmax(axis=-1)[:, None]
    score, largest = (np.take_along_axis(x, best, axis=-1)[:, 0].astype(np.float64) for x in (biased, weights))
    lse = score - np.log(largest)
    content = b"".join(np.ascontiguousarray(x, "<f4").tobytes() for x in (q, k, v[: layer.cols], lse))
    fields = {"sizes": [q.shape[-1], v.shape[-1]], "scale": look.scale, "softcap": look.softcap}
    return content, {**fields, "kv_head": layer.kv_head(head), "causal": bool(hidden.any()), "rotated": rotated}


def _of_text(trace: Trace, name: str, batch: int) -> np.ndarray:
    """Return recorded vectors of one text, ``T E``."""
    return np.asarray(trace[name][batch] if trace.axes(name).startswith("B ") else trace[name])


def _of_head(trace: Trace, name: str, batch: int, head: int) -> np.ndarray | None:
    """Return a recorded step of one head of one text, ``T …``; None where it was not recorded."""
    if name not in trace:
        return None
    value, axes = trace[name], trace.axes(name).split()
    if axes[0] == "B":
        value, axes = value[batch], axes[1:]
    return np.asarray(value[head] if axes[0] in "HG" else value)


def _plain(vector: np.ndarray) -> list[float]:
    return [float(x) for x in vector.astype(np.float64)]


def _finite(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else x
