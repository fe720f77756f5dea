"""What FlashAttention-3 has an option for and regard says by other arguments, by the definition of the option.

The definitions are those of the masks in FlashAttention's own tests (hopper/test_util.py); `docs/attention.md` has the
table.
"""

import math
import re

import numpy as np
import pytest

from attention_cases import PATHS, Case, reference
from regard import attention, attention_vjp
from regard.functional import PrefixLM, SegmentMask, SlidingWindow

B, H, T, D, DV = 2, 3, 11, 5, 7


def draw(keys):
    rng = np.random.default_rng(keys)
    return [rng.standard_normal((B, H, *size)) for size in ((T, D), (keys, D), (keys, DV))]


def agrees(path, q, k, v, attends, **options):
    attends = np.broadcast_to(attends, (B, H, T, k.shape[-2]))
    output, weights, _ = reference(Case(q, k, v, {}, attends, np.zeros(attends.shape), D**-0.5, None, None))
    np.testing.assert_allclose(attention(q, k, v, **options, implementation=path), output, rtol=1e-11, atol=1e-13)
    found, pullback = attention_vjp(q, k, v, **options, implementation=path)
    d_v = np.broadcast_to(weights.sum(-2)[..., None], v.shape)
    np.testing.assert_allclose(pullback(np.ones_like(found)).v, d_v, rtol=1e-11, atol=1e-13)


def positions(keys):
    """Return the positions of the queries, aligned at the end, ``T 1``, and those of the keys."""
    return np.arange(T)[:, None] + keys - T, np.arange(keys)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("keys", [5, 11, 29])
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize(("left", "right"), [(2, 0), (3, 2), (0, 0)])
def test_sink_tokens_stay_visible_beside_a_window(path, keys, count, left, right):
    """FlashAttention masks keys behind the window on the right, and on the left those from `sink_token_length` on."""
    row, column = positions(keys)
    masked = (column > row + right) | ((column < row - left) & (column >= count))
    options = {"mask": SlidingWindow(left) | PrefixLM(count), "window": (None, right)}
    agrees(path, *draw(keys), ~masked, **options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("keys", [5, 11, 29])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("causal", [False, True])
def test_chunks(path, keys, size, causal):
    """FlashAttention's chunk of a query begins at position − position % size, also of a position before the first."""
    row, column = positions(keys)
    start = row - row % size
    masked = (column < start) | (column >= start + size) | (causal & (column > row))
    mask = SegmentMask(np.arange(keys - T, keys) // size, np.arange(keys) // size)
    agrees(path, *draw(keys), ~masked, mask=mask, causal=causal)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("chunk", [0, 4])
def test_a_cache_that_begins_and_ends_within_its_room(path, chunk):
    """Keys from `cache_leftpad` to `cache_seqlens`; queries are the last of them, chunks begin with the first."""
    keys, leftpad, seqlens = 29, np.array([0, 5]), np.array([14, 27])
    counts = (seqlens - leftpad)[:, None, None, None]
    row = np.arange(T)[:, None] + counts - T
    column = np.arange(keys) - leftpad[:, None, None, None]
    masked = (column < 0) | (column >= counts) | (column > row)
    options = {"mask": np.arange(keys) >= leftpad[:, None, None, None]}
    if chunk:
        start = row - row % chunk
        masked |= (column < start) | (column >= start + chunk)
        first = (seqlens - leftpad - T)[:, None]
        options["mask"] = options["mask"] & SegmentMask(
            (np.arange(T) + first) // chunk, (np.arange(keys) - leftpad[:, None]) // chunk
        )
    agrees(path, *draw(keys), ~masked, **options, causal=True, key_lengths=seqlens, query_offset=seqlens - T)


@pytest.mark.parametrize("path", PATHS)
def test_queries_of_values_beside_those_of_keys(path):
    """With `qv` a score is (q · k + qv · v) / √(D + Dv)."""
    q, k, v = draw(11)
    qv = np.random.default_rng(0).standard_normal((B, H, T, DV))
    scores = (q @ k.swapaxes(-1, -2) + qv @ v.swapaxes(-1, -2)) / math.sqrt(D + DV)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    found = attention(np.concat([q, qv], -1), np.concat([k, v], -1), v, implementation=path)
    np.testing.assert_allclose(found, exponentials / exponentials.sum(-1, keepdims=True) @ v, rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("attention_chunk", "it is mask=SegmentMask("),
        ("sink_token_length", "it is mask=SlidingWindow(left) | PrefixLM(length) here"),
        ("s_aux", "it is sinks= here"),
        ("query_seq_lengths", "it is mask=arange(T)[:, None] < lengths[:, None, None, None] here"),
        ("key_value_seq_lengths", "it is key_lengths= here"),
    ],
)
def test_an_option_of_another_library_is_an_error_that_says_the_argument(name, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        attention(*draw(11), **{name: 2})
