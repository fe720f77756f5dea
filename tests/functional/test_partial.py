"""Attention over parts of the keys, and their merge."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from attention_cases import PATHS, close, cut_into_blocks, one_head, random_case
from regard import Partial, attention, attention_partial, merge_partials
from regard.functional import ALiBi, alibi_slopes

seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


@given(seeds)
def test_parts_merge_to_the_whole_in_any_split_and_order(seed):
    case = random_case(seed)
    rng = np.random.default_rng(seed)
    if case.k.ndim < 3 or set(case.options) - {"scale", "softcap", "sinks"}:
        case.options = {name: case.options[name] for name in case.options.keys() & {"scale", "softcap"}}
    whole = attention_partial(case.q, case.k, case.v, **case.options)
    keys = case.k.shape[-2]
    cuts = [0, *sorted(rng.integers(0, keys + 1, 3)), keys]
    parts = []
    for a, b in itertools.pairwise(cuts):
        parts.append(attention_partial(case.q, case.k[..., a:b, :], case.v[..., a:b, :], **case.options))
        case.options.pop("sinks", None)  # counts once, with any of the parts
    shuffled = [parts[i] for i in rng.permutation(4)]
    for merged in (
        merge_partials(*parts),
        merge_partials(*shuffled),
        merge_partials(merge_partials(shuffled[0], shuffled[1]), merge_partials(shuffled[2], shuffled[3])),
        merge_partials(shuffled[0], merge_partials(shuffled[1], merge_partials(*shuffled[2:]))),
    ):
        close(merged.output, whole.output)
        close(merged.lse, whole.lse)
    one, other = merge_partials(parts[0], parts[3]), merge_partials(parts[3], parts[0])
    assert one.output.tobytes() == other.output.tobytes()
    assert one.lse.tobytes() == other.lse.tobytes()


@given(seeds)
def test_a_part_of_the_keys_takes_the_offset_of_its_first_key(seed):
    rng, q, k, v = one_head(seed)
    cut, offset = int(rng.integers(0, 8)), int(rng.integers(-2, 5))
    window, bias = (3, 1), ALiBi(alibi_slopes(1))
    parts = [
        attention_partial(q, k[a:b], v[a:b], causal=True, window=window, bias=bias, query_offset=offset - a)
        for a, b in ((cut, 7), (0, cut))
    ]
    whole = attention_partial(q, k, v, causal=True, window=window, bias=bias, query_offset=offset)
    close(merge_partials(*parts).output, whole.output)
    close(merge_partials(*parts).lse, whole.lse)


def test_an_empty_part_is_the_identity():
    _, q, k, v = one_head(0)
    part = attention_partial(q, k, v)
    empty = attention_partial(q, k[:0], v[:0])
    assert (empty.output == 0).all()
    assert (empty.lse == -np.inf).all()
    for merged in (merge_partials(part), merge_partials(part, empty), merge_partials(empty, part, empty)):
        np.testing.assert_array_equal(merged.output, part.output)
        np.testing.assert_array_equal(merged.lse, part.lse)
    assert np.array_equal(merge_partials(empty, empty).output, empty.output)
    assert np.array_equal(merge_partials(empty, empty).lse, empty.lse)


def test_parts_of_float32_merge_exactly_where_scores_are_large():
    """With the log-sum-exp of 1e4 in float32, parts would count wrongly by a thousandth."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((64, 8)).astype(np.float32) for _ in range(3))
    q[:, 0] = k[:, 0] = 168.0  # every score is 1e4 and a little
    whole = attention_partial(q, k, v)
    merged = merge_partials(*(attention_partial(q, k[a : a + 16], v[a : a + 16]) for a in (32, 0, 48, 16)))
    assert np.abs(whole.lse).min() > 9e3
    np.testing.assert_allclose(merged.output, whole.output, rtol=0, atol=2e-6)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_parts_of_half_precision_merge_as_if_they_were_float32(path, dtype):
    """The last conversion is the only rounding: the merged parts are what attention rounds."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 64, 8)).astype(dtype) for _ in range(3))
    spans = [slice(a, a + 4) for a in range(0, 64, 4)]
    parts = [attention_partial(q, k[:, s], v[:, s], implementation=path) for s in spans]
    merged = merge_partials(*parts)
    assert {part.output.dtype for part in (*parts, merged)} == {np.dtype(np.float32)}
    assert {part.lse.dtype for part in (*parts, merged)} == {np.dtype(np.float64)}
    whole = attention(*(x.astype(np.float64) for x in (q, k, v)))
    np.testing.assert_allclose(merged.output, whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_parts_from_elsewhere_merge_in_float32_at_least(dtype):
    """As FlashAttention returns them: the output in the dtype of the queries, the log-sum-exp in float32."""
    rng = np.random.default_rng(4)
    q, k, v = rng.standard_normal((3, 2, 64, 8))
    spans = [slice(a, a + 4) for a in range(0, 64, 4)]
    parts = [attention_partial(q, k[:, s], v[:, s]) for s in spans]
    of_peers = [Partial(part.output.astype(dtype), part.lse.astype(np.float32)) for part in parts]
    merged, exact = merge_partials(*of_peers), [Partial(part.output.astype(np.float64), part.lse) for part in of_peers]
    assert (merged.output.dtype, merged.lse.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(merged.output, merge_partials(*exact).output, rtol=0, atol=2e-6)
    alone = merge_partials(of_peers[0])
    assert (alone.output.dtype, alone.lse.dtype) == (np.float32, np.float64)
    mixed = merge_partials(of_peers[0], parts[1])
    assert mixed.output.dtype == np.float64


@pytest.mark.parametrize(("k", "v", "whole"), [([0.0, 2000], [np.inf, 1], np.inf), ([0, 0], [np.inf, -np.inf], np.nan)])
def test_infinities_of_parts_show_in_the_whole_however_small_their_weights(k, v, whole):
    q, k, v = np.ones((1, 1)), np.array(k)[:, None], np.array(v)[:, None]
    parts = [attention_partial(q, k[i : i + 1], v[i : i + 1]) for i in range(2)]
    for output in (merge_partials(*parts).output, attention(q, k, v)):
        np.testing.assert_array_equal(output, [[whole]])
