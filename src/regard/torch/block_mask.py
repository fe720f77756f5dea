"""The `BlockMask` of PyTorch's FlexAttention."""

from __future__ import annotations

import weakref
from typing import Any

from regard.functional.masks.block_mask import BlockMask, create_block_mask
from regard.torch.extra import torch


class _Converted:
    """The masks of PyTorch's as long as they live: the layers of a model share one."""

    def __init__(self) -> None:
        self._masks: weakref.WeakKeyDictionary[Any, BlockMask] = weakref.WeakKeyDictionary()

    def convert(self, mask: Any) -> BlockMask:
        """Return the mask as one of ours."""
        converted = self._masks.get(mask)
        if converted is None:
            converted = self._masks[mask] = _converted(mask.to("cpu"))
        return converted


from_pytorch = _Converted().convert


def _converted(mask: Any) -> BlockMask:
    """Return a mask that is full, or empty, where a block is, whatever its function says there."""
    (rows, cols), (batch, heads, *sizes) = mask.BLOCK_SIZE, mask.shape
    partial = _table(mask.kv_num_blocks, mask.kv_indices)
    full = (
        torch.zeros_like(partial)
        if mask.full_kv_num_blocks is None
        else _table(mask.full_kv_num_blocks, mask.full_kv_indices)
    )

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        block = b, h, q_idx // rows, kv_idx // cols
        return full[block] | (partial[block] & mask.mask_mod(b, h, q_idx, kv_idx))

    return create_block_mask(mask_mod, batch, heads, *sizes)


def _table(counts: Any, indices: Any) -> Any:
    """Return which blocks are listed, ``B H M N``: the first `counts` of the indices of each row, ``B H M N``."""
    columns = indices.shape[-1]
    listed = torch.arange(columns) < counts[..., None]
    table = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.bool)
    return table.scatter_(-1, torch.where(listed, indices, columns).long(), True)[..., :columns]
