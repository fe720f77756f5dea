"""Masks given by a function of the indices, evaluated where they are asked for, or once and kept block by block.

References
----------
Dong et al. (2024), "Flex Attention: a programming model for generating optimized attention kernels",
https://arxiv.org/abs/2412.05496.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array, as_array, is_boolean, is_tensor
from regard.functional.frameworks import framework
from regard.functional.masks.base import BlockKind, KeyRanges, Mask, PartOfMask
from regard.functional.rules import rule
from regard.functional.scores.layout import Index, ScoreLayout, broadcasts
from regard.functional.scores.part import ScorePart

MaskMod: TypeAlias = Callable[[Any, Any, Any, Any], Any]
"""``mask_mod(b, h, q_idx, kv_idx)``: whether a query of batch entry b and head h attends to a key. The indices count
from 0 and are integer arrays that broadcast against each other; so does the boolean result."""

BLOCK_QUERIES, BLOCK_KEYS = 64, 96  # those of the kernel
_EMPTY, _FULL = -1, -2  # blocks without a tile
_STRIP_CELLS = 2**22  # that a function is evaluated for at a time
_ALL = np.uint64(2**64 - 1)


@dataclass(frozen=True, eq=False)
class FunctionMask(Mask):
    """A mask by a function, evaluated anew for each block that is asked for; `create_block_mask` evaluates it once.

    Parameters
    ----------
    mask_mod : function
        ``mask_mod(b, h, q_idx, kv_idx)`` returns True where the query attends to the key. The arguments are integer
        arrays of the library of the call, of shapes ``... 1 1 1``, ``H 1 1``, ``R 1`` and ``1 C``.

    Examples
    --------
    >>> import numpy as np
    >>> from regard import attention_weights
    >>> x = np.zeros((3, 2))
    >>> attention_weights(x, x, mask=lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 2 == 0)
    array([[0.5, 0. , 0.5],
           [0. , 1. , 0. ],
           [0.5, 0. , 0.5]])
    """

    mask_mod: MaskMod

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the function at the indices of `rows` and `cols`."""
        indices = (*batch_and_head_indices(layout), layout.query_indices(rows), layout.key_indices(cols))
        allowed = layout.to_namespace(as_array(self.mask_mod(*indices), "mask_mod's result"))
        _check_result(allowed, (*layout.shape[:-2], indices[2].shape[0], indices[3].shape[1]))
        return allowed


@rule
class BlockMask(Mask):
    """A mask kept in blocks: which are empty, which are full, and the bits of the others. `create_block_mask` makes it.

    It serves any number of calls with as many queries and keys. The kernel skips empty blocks, computes full ones
    without a mask and reads the bits of the others; where each query attends to consecutive keys, it takes these.

    Parameters
    ----------
    blocks : int32 array, ``B H M N``
        Of 64 queries and 96 keys each: −1 empty, −2 full, else the index of a tile. B and H are 1 where all batch
        entries or heads share the mask.
    tiles : uint8 array, ``tiles 768``
        64 bits for each key of the block, least significant first, one for each query.
    num_queries, num_keys : int
    first, last : int32 array, ``B H T``, optional
        Where the keys of each query are consecutive: first ≤ key < last.
    """

    blocks: np.ndarray
    tiles: np.ndarray
    num_queries: int
    num_keys: int
    first: np.ndarray | None = None
    last: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("blocks", "tiles"):  # of our own: the kernel reads what was checked
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        table, tiles = (-(-self.num_queries // BLOCK_QUERIES), -(-self.num_keys // BLOCK_KEYS)), self.tiles
        fits = self.blocks.ndim == 4 and self.blocks.shape[-2:] == table and self.blocks.dtype == np.int32
        if not fits or tiles.ndim != 2 or tiles.shape[1] != BLOCK_KEYS * 8 or tiles.dtype != np.uint8:
            raise RegardError("the arrays of a BlockMask do not fit together; create_block_mask makes them")
        if self.blocks.size and not (self.blocks.min() >= _FULL and self.blocks.max() < len(tiles)):
            raise RegardError("a BlockMask has a block without a tile; create_block_mask makes them")
        for ends in (self.first, self.last):
            if ends is not None and ends.shape != (*self.blocks.shape[:2], self.num_queries):
                raise RegardError("the key ranges of a BlockMask do not fit its blocks")

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError unless the mask was made for as many batch entries, heads, queries and keys."""
        made = (*self.blocks.shape[:2], self.num_queries, self.num_keys)
        called = (math.prod(layout.batch_shape), layout.heads, layout.queries, layout.keys)
        if made[2:] != called[2:] or any(have not in (1, want) for have, want in zip(made, called, strict=True)):
            raise RegardError(f"the BlockMask is of {made} (batch, heads, queries, keys), but the scores are {called}")

    def allows(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return the bits of some queries and keys."""
        if isinstance(rows, slice) and isinstance(cols, slice):
            allowed = self._unpacked(range(self.num_queries)[rows], range(self.num_keys)[cols])
        else:
            row, col = _indices(rows, self.num_queries), _indices(cols, self.num_keys)
            allowed = self._cells(row[:, None], col[None, :])
        return layout.xp.asarray(self._with_lead(layout, allowed), device=layout.device)

    def block_kind(self, layout: ScoreLayout, rows: slice, cols: slice) -> BlockKind:  # noqa: ARG002
        """Return FULL or EMPTY where all blocks that it overlaps are."""
        kinds = self.blocks[(..., _overlapped(rows, BLOCK_QUERIES), _overlapped(cols, BLOCK_KEYS))]
        if (kinds == _EMPTY).all():
            return BlockKind.EMPTY
        return BlockKind.FULL if (kinds == _FULL).all() else BlockKind.PARTIAL

    def key_ranges(self, layout: ScoreLayout) -> KeyRanges | None:
        """Return the keys of each query, if they are consecutive."""
        if self.first is None or self.last is None:
            return None
        first, last = (self._with_lead(layout, x[..., None])[..., 0] for x in (self.first, self.last))
        return KeyRanges(first, last)

    def take(self, part: ScorePart) -> Mask:
        """Return the mask of a part; of a block, that of the blocks that it overlaps."""
        if not part.is_block:
            return super().take(part)
        above, below = part.rows.start // BLOCK_QUERIES, -(-part.rows.stop // BLOCK_QUERIES)
        before, after = part.cols.start // BLOCK_KEYS, -(-part.cols.stop // BLOCK_KEYS)
        table = self.blocks[..., above:below, before:after]
        used, index = np.unique(table[table >= 0], return_inverse=True)
        blocks = table.copy()
        blocks[table >= 0] = index.reshape(-1)
        queries = min(below * BLOCK_QUERIES, self.num_queries) - above * BLOCK_QUERIES
        keys = min(after * BLOCK_KEYS, self.num_keys) - before * BLOCK_KEYS
        layout = replace(part.layout, shape=(*part.layout.shape[:-2], queries, keys))
        rows, cols = (
            slice(span.start - first, span.stop - first)
            for span, first in ((part.rows, above * BLOCK_QUERIES), (part.cols, before * BLOCK_KEYS))
        )
        overlapped = BlockMask(blocks, self.tiles[used], queries, keys)
        return PartOfMask(overlapped, ScorePart(layout, part.index, rows, cols))

    def kernel_blocks(self, layout: ScoreLayout, rows: slice) -> np.ndarray:
        """Return the blocks of some queries, ``... M N``; `rows` begin with a block."""
        return self._with_lead(layout, self.blocks)[..., _overlapped(rows, BLOCK_QUERIES), :]

    def count_blocks(self) -> dict[str, int]:
        """Return how many blocks are full, partial and empty, averaged over batch entries and heads."""
        heads = max(1, math.prod(self.blocks.shape[:2]))
        empty, full = (round(np.count_nonzero(self.blocks == kind) / heads) for kind in (_EMPTY, _FULL))
        return {"full": full, "partial": math.prod(self.blocks.shape[2:]) - full - empty, "empty": empty}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.count_blocks().items())
        shape = (*self.blocks.shape[:2], self.num_queries, self.num_keys)
        return f"<BlockMask {shape}: {counts} blocks of {BLOCK_QUERIES} × {BLOCK_KEYS}>"

    def _with_lead(self, layout: ScoreLayout, x: np.ndarray) -> np.ndarray:
        """Return ``B H ...`` with the axes before ``T S`` of a layout."""
        batch = layout.batch_shape if x.shape[0] != 1 else (1,) * len(layout.batch_shape)
        lead = (*batch, x.shape[1]) if len(layout.shape) > 2 else ()
        return x.reshape(*lead, *x.shape[2:])

    def _unpacked(self, rows: range, cols: range) -> np.ndarray:
        """Return the bits of consecutive queries and keys, ``B H R C``."""
        above, before = rows.start // BLOCK_QUERIES, cols.start // BLOCK_KEYS
        table = self.blocks[..., above : -(-rows.stop // BLOCK_QUERIES), before : -(-cols.stop // BLOCK_KEYS)]
        whole = np.repeat(np.array([[0xFF], [0]], np.uint8), BLOCK_KEYS * 8, axis=1)
        tiles = np.concatenate([self.tiles, whole])[table]  # −2 and −1 are the last two
        tiles = tiles.reshape(*table.shape, BLOCK_KEYS, 8).transpose(0, 1, 3, 4, 2, 5)
        columns = tiles.reshape(*table.shape[:2], table.shape[3] * BLOCK_KEYS, table.shape[2] * 8)
        first_row, first_col = rows.start - above * BLOCK_QUERIES, cols.start - before * BLOCK_KEYS
        columns = columns[..., first_col : first_col + len(cols), :]
        bits = np.unpackbits(columns, axis=-1, bitorder="little").swapaxes(-1, -2)
        return bits[..., first_row : first_row + len(rows), :].view(np.bool_)

    def _cells(self, row: np.ndarray, col: np.ndarray) -> np.ndarray:
        """Return the bits of any queries ``R 1`` and keys ``1 C``, ``B H R C``."""
        block: np.ndarray = self.blocks[..., row // BLOCK_QUERIES, col // BLOCK_KEYS]
        if not len(self.tiles):
            return np.asarray(block == _FULL)
        byte = self.tiles[np.maximum(block, 0), col % BLOCK_KEYS * 8 + row % BLOCK_QUERIES // 8]
        bit = (byte >> (row % 8).astype(np.uint8)) & 1
        return np.asarray(np.where(block < 0, block == _FULL, bit), np.bool_)


def create_block_mask(mask_mod: MaskMod, batch: int | None, heads: int | None, queries: int, keys: int) -> BlockMask:
    """Evaluate a function once for every query and key; keep which blocks are empty or full, and bits of the others.

    Parameters
    ----------
    mask_mod : function
        ``mask_mod(b, h, q_idx, kv_idx)`` returns True where the query attends to the key, as in PyTorch's
        FlexAttention. It is called with integer NumPy arrays that broadcast against each other, and returns a boolean
        array; the indices count from 0, whatever the position of the queries. A function that takes or returns tensors
        of PyTorch is called as FlexAttention calls it.
    batch, heads : int or None
        None: the mask is the same for all. With several leading axes `batch` counts their entries, the last axis first.
    queries, keys : int

    Returns
    -------
    BlockMask
        To give as ``mask=``, alone or combined with other masks, to any number of calls. Its memory is at most a bit
        for each query and key of the blocks that are partial.

    Examples
    --------
    >>> create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 1024, 1024)
    <BlockMask (1, 1, 1024, 1024): 75 full, 21 partial, 80 empty blocks of 64 × 96>
    """
    batch, heads = (1 if n is None else whole_number(name, n, 1) for name, n in (("batch", batch), ("heads", heads)))
    queries, keys = whole_number("queries", queries, 0), whole_number("keys", keys, 0)
    b, h = np.arange(batch, dtype=np.int32)[:, None, None, None], np.arange(heads, dtype=np.int32)[:, None, None]
    kv_idx = np.arange(keys, dtype=np.int32)[:, None]
    count = max(1, _STRIP_CELLS // max(1, batch * heads * keys) // BLOCK_QUERIES) * BLOCK_QUERIES
    strips = []
    for start in range(0, queries, count):  # transposed: 64 queries of a key are a word
        q_idx = np.arange(start, min(start + count, queries), dtype=np.int32)[None, :]
        allowed = np.asarray(_evaluated(mask_mod, b, h, q_idx, kv_idx))
        _check_result(allowed, (batch, heads, keys, q_idx.shape[1]))
        lead = (1,) * (4 - allowed.ndim) + allowed.shape[:-2] if allowed.ndim > 2 else (1, 1)
        allowed = np.broadcast_to(allowed, (*lead, keys, q_idx.shape[1]))
        padding = -q_idx.shape[1] % BLOCK_QUERIES
        if padding:
            allowed = np.concatenate([allowed, np.zeros((*lead, keys, padding), bool)], axis=-1)
        strips.append(np.packbits(allowed, axis=-1, bitorder="little").view("<u8"))
    words = np.concatenate(strips, axis=-1) if strips else np.zeros((1, 1, keys, 0), "<u8")  # B H S M
    words = np.ascontiguousarray(words.swapaxes(-1, -2))  # B H M S
    blocks, tiles = _classified(words, queries, keys)
    return BlockMask(blocks, tiles, queries, keys, *(_key_ranges(words, queries) or (None, None)))


def _evaluated(mask_mod: MaskMod, *indices: np.ndarray) -> Any:
    """Return the function of arrays ``B 1 1 1``, ``H 1 1``, ``1 T`` and ``S 1``, which may be one of tensors."""
    try:
        allowed = mask_mod(*indices)
    except Exception:  # whatever a function of tensors does with arrays
        if "torch" in sys.modules:
            with contextlib.suppress(Exception):
                return framework("torch").vectorized(mask_mod)(*indices)
        raise
    return framework("torch").vectorized(mask_mod)(*indices) if is_tensor(allowed) else allowed


def batch_and_head_indices(layout: ScoreLayout) -> tuple[Array, Array]:
    """Return the index of each batch entry, ``... 1 1 1``, and of each head, ``H 1 1``; 0 where there is no axis."""
    xp, lead, batch = layout.xp, layout.shape[:-2], math.prod(layout.batch_shape)
    if not lead:
        zero = xp.asarray(0, device=layout.device)
        return zero, zero
    b = xp.reshape(xp.arange(batch, device=layout.device), (*layout.batch_shape, 1, 1, 1))
    return b, xp.reshape(xp.arange(layout.heads, device=layout.device), (layout.heads, 1, 1))


def _check_result(allowed: Any, shape: tuple[int, ...]) -> None:
    if not is_boolean(allowed):
        raise RegardError(f"mask_mod must return booleans (True: the query attends to the key), got {allowed.dtype}")
    if not broadcasts(tuple(allowed.shape), shape):
        raise RegardError(f"mask_mod returned {tuple(allowed.shape)}, which does not broadcast to {shape}")


def _classified(words: np.ndarray, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks and tiles of words ``B H M S``."""
    batch, heads, rows, _ = words.shape
    cols = -(-keys // BLOCK_KEYS)
    padded = np.zeros((batch, heads, rows, cols * BLOCK_KEYS), "<u8")
    padded[..., :keys] = words
    padded = padded.reshape(batch, heads, rows, cols, BLOCK_KEYS)
    empty = ~padded.any(-1)
    whole = np.full((rows, 1, 1), _ALL)
    if queries % BLOCK_QUERIES:
        whole[-1] = (1 << queries % BLOCK_QUERIES) - 1
    beyond = np.arange(cols * BLOCK_KEYS).reshape(cols, BLOCK_KEYS) >= keys
    full = ((padded == whole) | beyond).all(-1)
    partial = ~(empty | full)
    blocks = np.where(full, np.int32(_FULL), np.int32(_EMPTY))
    blocks[partial] = np.arange(np.count_nonzero(partial), dtype=np.int32)
    return blocks, padded[partial].view(np.uint8).reshape(-1, BLOCK_KEYS * 8)


def _key_ranges(words: np.ndarray, queries: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first key of each query and the one after its last, ``B H T``; None if there are gaps."""
    *lead, rows, keys = words.shape
    if not keys:
        return None
    before = np.concatenate([np.zeros((*lead, rows, 1), "<u8"), words[..., :-1]], axis=-1)
    starts, ends = words & ~before, ~words & before  # the first key of a run, and the one after its last
    started = np.bitwise_or.accumulate(starts, axis=-1)
    if (starts[..., 1:] & started[..., :-1]).any():
        return None
    first = np.zeros((*lead, rows, BLOCK_QUERIES), np.int32)
    last = np.zeros_like(first)
    for bounds, events in ((first, starts), (last, ends)):
        at = events.nonzero()
        bits = np.unpackbits(events[at][:, None].view(np.uint8), axis=-1, bitorder="little")
        word, query = bits.nonzero()
        bounds[(*(axis[word] for axis in at[:-1]), query)] = at[-1][word]
    open_end = np.unpackbits(np.ascontiguousarray(words[..., -1:]).view(np.uint8), axis=-1, bitorder="little")
    last[open_end.astype(bool)] = keys
    shape = (*lead, rows * BLOCK_QUERIES)
    return first.reshape(shape)[..., :queries], last.reshape(shape)[..., :queries]


def _indices(index: Index, count: int) -> np.ndarray:
    if isinstance(index, slice):
        return np.arange(count)[index]
    return index if isinstance(index, np.ndarray) else np.array([int(i) for i in index], np.int64)  # of any device


def _overlapped(index: slice, size: int) -> slice:
    """Return the blocks that a slice of queries or keys overlaps."""
    return slice(index.start // size, -(-index.stop // size))
