"""Masks: how they combine, which blocks they rule out, what fits the scores."""

import numpy as np
import pytest

from attention_cases import PATHS, close, cut_into_blocks, one_head
from regard import attention, attention_vjp, attention_weights
from regard.functional import (
    ALiBi,
    Causal,
    DenseMask,
    KeyRangeMask,
    PrefixLM,
    SegmentMask,
    SlidingWindow,
    alibi_slopes,
    blockwise,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


@pytest.mark.parametrize("path", PATHS)
def test_a_window_that_covers_all_is_no_window(path):
    _, q, k, v = one_head(3)
    plain = attention(q, k, v, implementation=path)
    for window in [(7, 7), (None, None), (None, 7), (7, None)]:
        assert np.array_equal(attention(q, k, v, window=window, implementation=path), plain)
    causal = attention(q, k, v, causal=True, implementation=path)
    assert np.array_equal(attention(q, k, v, window=(None, 0), implementation=path), causal)
    close(attention(q, k, v, mask=np.ones(7, bool), implementation=path), plain)
    close(attention(q, k, v, key_lengths=7, implementation=path), plain)


@pytest.mark.parametrize("path", PATHS)
def test_masks_and_biases_of_one_axis_and_none(path):
    _, q, k, v = one_head(8)
    row = np.array([True, False, True, True, False, True, True])
    expected = attention(q, k, v, mask=np.broadcast_to(row, (6, 7)), implementation=path)
    k[1], v[4] = np.nan, np.inf  # masked
    for options in ({"mask": row}, {"mask": DenseMask(row)}, {"bias": np.where(row, 0.0, -np.inf)}):
        assert np.array_equal(attention(q, k, v, **options, implementation=path), expected)
        gradients = attention_vjp(q, k, v, **options)[1](np.ones((6, 4)))
        assert all(np.isfinite(g).all() for g in gradients if g is not None)
    assert (attention(q, k, v, mask=np.array(False), implementation=path) == 0).all()


def test_blocks_that_are_ruled_out_are_never_read(monkeypatch):
    """With a causal window of 2, packed documents and padding, the blocks read are counted by hand."""
    read = []
    score = blockwise.block_scores
    monkeypatch.setattr(
        blockwise, "block_scores", lambda p, rows, cols, **o: read.append((rows, cols)) or score(p, rows, cols, **o)
    )
    cut_into_blocks(monkeypatch, 4, 4)
    q = k = v = np.random.default_rng(7).standard_normal((16, 3))
    ids = np.repeat([0, 1], 8)
    for options, blocks in [
        ({}, 16),
        ({"causal": True}, 10),
        ({"window": (2, 0)}, 7),
        ({"window": (2, 2)}, 10),
        ({"mask": SegmentMask(ids)}, 8),
        ({"mask": SegmentMask(ids) & Causal()}, 6),
        ({"mask": KeyRangeMask(np.zeros(16, int), np.repeat([4, 8, 0, 16], 4))}, 7),
        ({"key_lengths": 5}, 8),
        ({"mask": np.zeros((16, 16), bool)}, 0),
        ({"mask": ids == 1}, 8),
        ({"bias": ALiBi(alibi_slopes(1))}, 16),
    ]:
        read.clear()
        attention(q, k, v, **options, implementation="blockwise")
        assert len(read) == blocks, options


def test_a_single_key_between_two_ranges_stays_masked():
    rule = PrefixLM(2) | SlidingWindow(0, 0, query_offset=3)
    weights = attention_weights(np.zeros((1, 2)), np.zeros((5, 2)), mask=rule)
    np.testing.assert_allclose(weights, [[1 / 3, 1 / 3, 0, 1 / 3, 0]])
