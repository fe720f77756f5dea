"""Block masks of FlexAttention: functions written for tensors, and PyTorch's own masks, against its dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask as create_with_pytorch,
    create_mask,
    or_masks,
)

import regard
from regard import RegardError
from regard.functional import create_block_mask

BATCH, HEADS, QUERIES, KEYS = 2, 3, 130, 210
DOCUMENT = torch.arange(KEYS) // 37
PREFIX = torch.tensor([20, 90])
SHIFT = torch.arange(BATCH * KEYS).reshape(BATCH, KEYS) % 5
WIDTHS = torch.tensor([3, 40, 200])


def causal(b, h, i, j):
    return i >= j


def document(b, h, i, j):
    return DOCUMENT[i] == DOCUMENT[j]


MODS = {
    "document": document,
    "document & causal": lambda b, h, i, j: document(b, h, i, j) & causal(b, h, i, j),
    "causal & document": lambda b, h, i, j: causal(b, h, i, j) & document(b, h, i, j),
    "causal | prefix": lambda b, h, i, j: causal(b, h, i, j) | (j < PREFIX[b]),
    "a head's width": lambda b, h, i, j: (i - j).abs() <= WIDTHS[h],
    "one index after the other": lambda b, h, i, j: SHIFT[b][j] + i >= j,
    "where": lambda b, h, i, j: torch.where(i > 64, i >= j, i == j),
    "and_masks": and_masks(causal, document),
    "or_masks": or_masks(document, lambda b, h, i, j: j < 5),
    "logical": lambda b, h, i, j: torch.logical_and(i >= j, ~(j % 3 == 1)),
    "constant": lambda b, h, i, j: i.new_ones((), dtype=torch.bool),
    "for either": causal,
}  # fmt: skip


def dense(mod):
    return create_mask(mod, BATCH, HEADS, QUERIES, KEYS, device="cpu")


def allowed(mask):
    """Return which cells of a map a mask leaves."""
    x = np.zeros((BATCH, HEADS, QUERIES, 2)), np.zeros((BATCH, HEADS, KEYS, 2))
    return torch.from_numpy(regard.attention_weights(*x, mask=mask) > 0)


@pytest.mark.parametrize("name", MODS)
def test_a_function_for_tensors_is_evaluated_as_pytorch_does(name):
    mask = create_block_mask(MODS[name], BATCH, HEADS, QUERIES, KEYS)
    assert torch.equal(allowed(mask), dense(MODS[name]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [128, (32, 64), 16])
@pytest.mark.parametrize("name", MODS)
def test_a_block_mask_of_pytorch_is_a_mask(name, size, shared):
    needs_batch = name in ("causal | prefix", "a head's width", "one index after the other")
    axes = (None, None) if shared and not needs_batch else (BATCH, HEADS)
    mask = create_with_pytorch(MODS[name], *axes, QUERIES, KEYS, device="cpu", BLOCK_SIZE=size)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, n, 8, dtype=torch.float64, generator=generator) for n in (QUERIES, KEYS, KEYS))
    wanted = F.scaled_dot_product_attention(q, k, v, dense(MODS[name]))
    torch.testing.assert_close(regard.attention(q, k, v, mask=mask), wanted)
    assert torch.equal(allowed(mask), dense(MODS[name]))


def test_blocks_count_more_than_the_function():
    """A block that is listed as full is; one that is not listed is empty."""
    mask = BlockMask.from_kv_blocks(
        kv_num_blocks=torch.tensor([[[1, 0]]], dtype=torch.int32),
        kv_indices=torch.tensor([[[0, 1], [0, 1]]], dtype=torch.int32)[None],
        full_kv_num_blocks=torch.tensor([[[0, 1]]], dtype=torch.int32),
        full_kv_indices=torch.tensor([[[0, 1], [1, 0]]], dtype=torch.int32)[None],
        BLOCK_SIZE=16,
        mask_mod=causal,
    )
    x = np.zeros((32, 2))
    found = regard.attention_weights(x, x, mask=mask) > 0
    wanted = np.zeros((32, 32), bool)
    wanted[:16, :16] = np.tri(16, dtype=bool)
    wanted[16:, 16:] = True
    assert np.array_equal(found, wanted)


def test_errors_of_a_function_are_its_own():
    with pytest.raises(KeyError, match="mine"):
        create_block_mask(lambda b, h, i, j: {}["mine"], 1, 1, 4, 4)
    with pytest.raises(RegardError, match="must return booleans"):
        create_block_mask(lambda b, h, i, j: DOCUMENT[i] + j, 1, 1, 4, 4)
    mask = create_with_pytorch(causal, None, None, 64, 64, device="cpu")
    with pytest.raises(RegardError, match=r"the BlockMask is of \(1, 1, 64, 64\)"):
        regard.attention(*[np.zeros((2, 32, 4))] * 3, mask=mask)
