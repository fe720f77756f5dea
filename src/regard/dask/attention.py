"""Attention of one text on many workers: partial results of pairs of blocks, merged as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from dask.task_spec import TaskRef

from regard.dask.blocks import AttentionBlocks, QueryBlock, task, with_arrays
from regard.functional.arrays import narrowed
from regard.functional.inputs import AttentionInputs, Options
from regard.functional.partial import Partial, compute_partial, merge_partials

_FAN_IN = 4  # of a node of the tree


def attention(q: Any, k: Any, v: Any, **options: Unpack[Options]) -> Any:
    """Return `regard.attention` of dask arrays, whose keys and values need fit into no single machine.

    For each block of queries and block of keys, the chunks of q and k, `regard.attention_partial` is a task; blocks
    that a rule masks entirely are none. `regard.merge_partials` joins those of a block of queries as a tree that
    depends on the chunks only: the result has the same bits whatever worker did what.

    Parameters
    ----------
    q : dask array, ``... H T D``
        Chunks along T are the blocks of queries; batch entries and heads may be chunked too.
    k : dask array, ``... G S D``
        Chunks along S are the blocks of keys.
    v : dask array, ``... G S Dv``
        Is rechunked along S like k.
    **options
        Those of `regard.attention`, with the same meaning, but for `dropout`, `rng` and `trace`. Rules stay rules: each
        task gets those of its block. A mask or bias may also be a dask array that broadcasts to ``... H T S``.
        `implementation` is that of each block.

    Returns
    -------
    dask array, ``... H T Dv``
        Lazy, with the chunks of q along T, in the dtype of `regard.attention`. Partial results are merged in float64.

    Raises
    ------
    RegardError
        The arguments do not fit; an array is not one of dask, or has chunks of unknown size; or `dropout` is given.

    References
    ----------
    Liu et al. (2023), "Ring attention with blockwise transformers", https://arxiv.org/abs/2310.01889; the merge is that
    of Dao (2023), "FlashAttention-2", https://arxiv.org/abs/2307.08691.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> q = k = v = da.from_array(np.eye(6, dtype=np.float32), chunks=(2, 6))
    >>> attention(q, k, v, causal=True)
    dask.array<attention, shape=(6, 6), dtype=float32, chunksize=(2, 6), chunktype=numpy.ndarray>
    >>> attention(q, k, v, causal=True)[1].compute().round(3)
    array([0.399, 0.601, 0.   , 0.   , 0.   , 0.   ], dtype=float32)
    """
    blocks = AttentionBlocks(q, k, v, **options)
    p = blocks.inputs
    graph: dict[Any, Any] = {}
    for block, cols in blocks.pairs.items():
        key = (*blocks.keys("attention", block), 0)
        if not cols:
            graph[key] = task(key, _empty, _context_shape(blocks, block), p.dtype)
            continue
        parts = []
        for at, col in enumerate(cols):
            part = blocks.keys("attention-partial", block, col)
            inputs = blocks.pair_inputs(block, col, sinks=at == 0)
            graph[part] = task(part, _partial, inputs, **blocks.array_refs(block, col))
            parts.append(part)
        graph[key] = task(key, _merged, p.dtype, *map(TaskRef, _tree(graph, blocks, block, parts)))
    chunks = blocks.chunks((p.context_shape[-1],))
    return blocks.collection("attention", graph, chunks, p.dtype)


def _tree(graph: dict[Any, Any], blocks: AttentionBlocks, block: QueryBlock, parts: list[Any]) -> Sequence[Any]:
    """Add the merges of partial results, neighbours first, until few are left; return their keys."""
    level = 0
    while len(parts) > _FAN_IN:
        groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
        parts = [blocks.keys("attention-merge", block, level, number) for number in range(len(groups))]
        for key, group in zip(parts, groups, strict=True):
            graph[key] = task(key, _merge, *map(TaskRef, group))
        level += 1
    return parts


def _partial(p: AttentionInputs, **arrays: np.ndarray) -> Partial:
    return compute_partial(with_arrays(p, arrays))


def _merge(*parts: Partial) -> Partial:
    """Return parts merged in float64: rounding of the parts themselves is all that is lost."""
    wide = (np.promote_types(part.output.dtype, np.float64) for part in parts)
    return merge_partials(
        *(Partial(part.output.astype(dtype, copy=False), part.lse) for part, dtype in zip(parts, wide, strict=True))
    )


def _merged(dtype: Any, *parts: Partial) -> np.ndarray:
    merged = parts[0] if len(parts) == 1 else _merge(*parts)
    return np.asarray(narrowed(merged.output, dtype))


def _empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.zeros(shape, dtype)


def _context_shape(blocks: AttentionBlocks, block: QueryBlock) -> tuple[int, ...]:
    return (*blocks.lead_sizes(block.lead), block.rows.stop - block.rows.start, blocks.inputs.context_shape[-1])
