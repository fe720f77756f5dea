"""Explorations to test, and a whole map of one."""

from __future__ import annotations

import numpy as np

import regard
from regard.explorer import Exploration


def recorded(model, text, **options):
    trace = regard.Trace(maps=True, **options)
    model(text, trace=trace)
    return trace


def explored(model, *texts):
    return Exploration(*(recorded(model, text) for text in texts), models=[model] * len(texts))


def long_exploration(tokens, heads=2, *, causal=True, seed=7):
    """Return the exploration of one bare layer over so many random tokens."""
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.standard_normal((2, 1, heads, tokens, 8), dtype=np.float32)
    trace = regard.Trace(maps=True, only="*weights")
    with trace.scope("blocks.0.attn"):
        regard.attention(q, k, k, causal=causal, trace=trace)
    return Exploration(trace)


def whole(exploration, run, layer, head, mode="raw"):
    return exploration.whole(run, layer, head, mode)


def thumbnails_of(exploration, run=0):
    """Return the thumbnails of a run, uint8 ``L H t t``."""
    layers, side = exploration.run(run).layers, exploration.manifest()["runs"][run]["thumbnail_size"]
    return np.frombuffer(exploration.thumbnails(run), np.uint8).reshape(len(layers), len(layers[0].heads), side, side)
