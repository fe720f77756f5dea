"""The embeddings that enter an encoder: the norm of the sum of those of tokens, positions and types."""

from __future__ import annotations

import numpy as np

from regard.functional.native import ops
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.nn.fast_paths import are_ours, fused, norm_arrays
from regard.nn.layers import Embedding, LayerNorm, traced_norm


def summed_embeddings(
    ids: np.ndarray,
    tokens: Embedding,
    positions: np.ndarray,
    types: Embedding | None,
    norm: LayerNorm,
    trace: Recorder = NULL_RECORDER,
) -> np.ndarray:
    """Return the norm of the sum of the embeddings of tokens, positions and the first type, ``B T E``.

    Taps ``token_embeddings``, ``position_embeddings``, ``type_embeddings`` if there are any, and their sum
    ``embeddings``; optionally what `traced_norm` does, under ``embedding_norm``.

    Parameters
    ----------
    ids : integer array, ``B T``
    tokens : Embedding
    positions : array, ``T E`` or ``B T E``
    types : Embedding, optional
    norm : LayerNorm
    trace : Recorder
    """
    x = fused_embeddings(ids, tokens, positions, types, norm, trace)
    return _step_by_step(ids, tokens, positions, types, norm, trace) if x is None else x


def fused_embeddings(
    ids: np.ndarray,
    tokens: Embedding,
    positions: np.ndarray,
    types: Embedding | None,
    norm: LayerNorm,
    trace: Recorder,
) -> np.ndarray | None:
    """Return what `summed_embeddings` does, from one call; None where a step is asked for, or there is no kernel."""
    if not are_ours(tokens, norm, *([] if types is None else [types])):
        return None

    def compute(trace: Recorder) -> np.ndarray:  # one token
        return _step_by_step(np.zeros((1, 1), int), tokens, positions[..., :1, :], types, norm, trace)

    name = "_fused_embeddings" if types is None else "_fused_embeddings_with_types"
    arrays = fused(norm, name, lambda: norm_arrays(norm), trace, compute)
    if arrays is None:
        return None
    return ops.embed(ids, tokens.weight, positions, None if types is None else types.weight[0], arrays)


def _step_by_step(
    ids: np.ndarray,
    tokens: Embedding,
    positions: np.ndarray,
    types: Embedding | None,
    norm: LayerNorm,
    trace: Recorder,
) -> np.ndarray:
    of_tokens = trace("token_embeddings", tokens(ids), "B T E")
    embeddings = of_tokens + trace("position_embeddings", positions, "B T E" if positions.ndim == 3 else "T E")
    if types is not None:
        embeddings = embeddings + trace("type_embeddings", types(np.zeros(ids.shape[1], dtype=int)), "T E")
    return traced_norm(norm, trace("embeddings", embeddings, "B T E"), trace, "embedding_norm")
