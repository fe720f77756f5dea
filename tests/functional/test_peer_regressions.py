"""What other libraries got wrong: none of it may happen here."""

from __future__ import annotations

import numpy as np
import pytest

from attention_cases import PATHS
from regard import (
    AttentionMap,
    RegardError,
    Trace,
    attention,
    attention_partial,
    attention_vjp,
    attention_weights,
    explain_plan,
    merge_partials,
)
from regard.functional import SegmentMask, SlidingWindow

LN2 = np.log(2)


def heads(rng, queries=5, keys=7, dim=4, width=3, shape=(2, 4), groups=None):
    groups = shape[-1] if groups is None else groups
    kv = (*shape[:-1], groups, keys)
    return (
        rng.standard_normal((*shape, queries, dim)),
        rng.standard_normal((*kv, dim)),
        rng.standard_normal((*kv, width)),
    )


@pytest.mark.parametrize("path", PATHS)
def test_pytorch_one_masked_row_poisons_every_gradient(rng, path):
    q, k, v = heads(rng)
    mask = rng.random((5, 7)) < 0.7
    mask[2] = False
    output, pullback = attention_vjp(q, k, v, mask=mask, implementation=path)
    d_output = rng.standard_normal(output.shape)
    gradients = pullback(d_output)
    assert all(np.isfinite(g).all() for g in (gradients.q, gradients.k, gradients.v))
    assert (gradients.q[..., 2, :] == 0).all()
    d_output[..., 2, :] = np.nan  # the gradient of an empty row may be anything
    for ours, theirs in zip(pullback(d_output), gradients, strict=True):
        assert ours is None or np.array_equal(ours, theirs)


def test_pytorch_weights_give_nan_where_the_output_gives_zero(rng):
    q, k, v = heads(rng)
    mask = np.zeros((5, 7), bool)
    mask[0] = True
    weights = attention_weights(q, k, mask=mask)
    assert (weights[..., 1:, :] == 0).all()
    assert (attention_weights(q, k, mask=mask, rows=slice(1, None)) == 0).all()
    assert (AttentionMap(q, k, mask=mask)[..., 1:, :] == 0).all()
    assert (attention(q, k, v, mask=mask)[..., 1:, :] == 0).all()
    assert (attention_partial(q, k, v, mask=mask).lse[..., 1:] == -np.inf).all()


@pytest.mark.parametrize("path", PATHS)
def test_pytorch_nan_in_hidden_keys_reaches_the_output(rng, path):
    q, k, v = heads(rng)
    clean = attention(q, k, v, key_lengths=np.array([4, 6]), implementation=path)
    for b, length in enumerate((4, 6)):
        k[b, :, length:], v[b, :, length:] = np.nan, np.inf
    assert np.array_equal(attention(q, k, v, key_lengths=np.array([4, 6]), implementation=path), clean)


def test_pytorch_true_means_keep_here_and_drop_there(rng):
    """One meaning in every function and form: True may be looked at."""
    q, k, v = heads(rng)
    mask = np.arange(7) < 2
    for weights in (
        attention_weights(q, k, mask=mask),
        attention_weights(q, k, mask=mask, rows=slice(None)),
        attention_weights(q, k, mask=np.broadcast_to(mask, (5, 7))),
        AttentionMap(q, k, mask=mask)[...],
        attention_weights(q, k, key_lengths=2),
    ):
        assert (weights[..., :2] > 0).all()
        assert (weights[..., 2:] == 0).all()
    np.testing.assert_allclose(attention(q, k, v, mask=mask), attention(q, k[..., :2, :], v[..., :2, :]), rtol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_pytorch_causal_forbids_a_mask(rng, path):
    q, k, v = heads(rng)
    mask = rng.random((2, 1, 5, 7)) < 0.5
    both = attention(q, k, v, causal=True, mask=mask, implementation=path)
    by_hand = attention(q, k, v, mask=mask & np.tri(5, 7, 2, dtype=bool), implementation=path)
    np.testing.assert_allclose(both, by_hand, rtol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (1, 7), (7, 1), (6, 6)])
def test_onnxruntime_causal_alignment_differs_by_device(rng, queries, keys):
    """The last query attends to the last key in every implementation."""
    q, k, v = heads(rng, queries, keys)
    allowed = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    expected = attention(q, k, v, mask=allowed)
    for path in PATHS:
        np.testing.assert_allclose(attention(q, k, v, causal=True, implementation=path), expected, atol=1e-14)
    np.testing.assert_allclose(attention_partial(q, k, v, causal=True).output, expected, atol=1e-14)
    np.testing.assert_allclose(attention_vjp(q, k, v, causal=True)[0], expected, atol=1e-14)
    for weights in (
        attention_weights(q, k, causal=True),
        attention_weights(q, k, causal=True, rows=slice(None)),
        AttentionMap(q, k, causal=True)[...],
    ):
        assert np.array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))


def test_keras_causal_mask_dropped_when_dropout_is_on_or_scores_are_asked_for(rng):
    q, k, v = heads(rng, 6, 6)
    future = ~np.tri(6, dtype=bool)
    for path in PATHS:
        dropped = attention(q, k, v, causal=True, dropout=0.5, rng=np.random.default_rng(1), implementation=path)
        v_later = v.copy()
        v_later[..., 3:, :] += 1
        again = attention(q, k, v_later, causal=True, dropout=0.5, rng=np.random.default_rng(1), implementation=path)
        assert np.array_equal(dropped[..., :3, :], again[..., :3, :])
    weights = attention_weights(q, k, causal=True, dropout=0.5, rng=np.random.default_rng(1))
    assert (weights[..., future] == 0).all()
    assert (attention_weights(q, k, causal=True, stage="biased")[..., future] == -np.inf).all()


@pytest.mark.parametrize("path", PATHS)
def test_jax_float64_masks_overflow(rng, path):
    """The most negative float64 as a bias on float32 arrays masks nearly everything, without a warning."""
    q, k, v = (x.astype(np.float32) for x in heads(rng))
    keep = rng.random((5, 7)) < 0.5
    keep[:, 0] = True
    bias = np.where(keep, 0.0, np.finfo(np.float64).min)
    ours = attention(q, k, v, bias=bias, implementation=path)
    np.testing.assert_allclose(ours, attention(q, k, v, mask=keep, implementation=path), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("path", PATHS)
def test_mlx_sinks_differ_between_one_query_and_many(rng, path):
    q, k, v = heads(rng, groups=2)
    sinks = rng.standard_normal(4)
    many = attention(q, k, v, sinks=sinks, implementation=path)
    for t in range(5):
        one = attention(q[..., t : t + 1, :], k, v, sinks=sinks, implementation=path)
        np.testing.assert_allclose(one, many[..., t : t + 1, :], rtol=1e-12)
    assert not np.allclose(many, attention(q, k, v))


def test_sglang_merging_with_the_wrong_log_base(rng):
    q, k, v = heads(rng)
    scores = attention_weights(q, k, stage="scores")
    parts = attention_partial(q, k[..., :3, :], v[..., :3, :]), attention_partial(q, k[..., 3:, :], v[..., 3:, :])
    np.testing.assert_allclose(parts[0].lse, np.log(np.exp(scores[..., :3]).sum(-1)), rtol=1e-12)  # natural, not base 2
    np.testing.assert_allclose(merge_partials(*parts).output, attention(q, k, v), rtol=1e-12)


def test_pytorch_asking_for_weights_silently_loses_the_fast_path(rng):
    q = k = v = np.zeros((4096, 8), np.float32)
    plain = explain_plan(q, k, v).implementation
    assert plain == PATHS[-1]  # the kernel, where there is one
    assert explain_plan(q, k, v, trace=Trace(maps=True)).implementation == plain
    for path in PATHS:
        assert explain_plan(q, k, v, implementation=path).implementation == path
    if "native" not in PATHS:
        with pytest.raises(RegardError, match="no compiled kernel"):
            attention(q, k, v, implementation="native")


def test_pytorch_long_sequence_with_a_mask_overflows_or_is_wrong(rng):
    """50,000 × 50,000 cells are more than 32 bits count."""
    n = 50_000
    q, k, v = (rng.standard_normal((n, 4)).astype(np.float32) for _ in range(3))
    ids = np.arange(n) // 1000
    rules = {"causal": True, "window": (300, 0), "mask": SegmentMask(ids)}
    ours = attention(q, k, v, **rules)
    assert ours.dtype == np.float32
    for start in (0, 24_700, n - 400):
        rows = slice(start, start + 400)
        keys = slice(max(0, start - 300), start + 400)
        position = np.arange(n)
        allowed = (
            (position[keys] <= position[rows, None])
            & (position[rows, None] - position[keys] <= 300)
            & (ids[keys] == ids[rows, None])
        )
        theirs = attention(q[rows], k[keys], v[keys], mask=allowed, implementation="reference")
        np.testing.assert_allclose(ours[rows], theirs, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_odd_strides_read_only_and_broadcast_arrays(rng, path):
    q, k, v = heads(rng)
    plain = attention(q, k, v, causal=True, implementation=path)
    wide = np.zeros((2, 4, 5, 8))
    wide[..., ::2] = q
    transposed = np.ascontiguousarray(np.moveaxis(k, -1, 0))
    backwards = np.ascontiguousarray(v[..., ::-1, :])
    odd = wide[..., ::2], np.moveaxis(transposed, 0, -1), backwards[..., ::-1, :]
    assert not any(x.flags.c_contiguous for x in odd)
    for x in odd:
        x.flags.writeable = False
    np.testing.assert_allclose(attention(*odd, causal=True, implementation=path), plain, rtol=1e-12)
    of_stride_0 = np.broadcast_to(np.tri(5, 7, 2, dtype=bool), (2, 4, 5, 7))
    assert of_stride_0.strides[0] == 0
    np.testing.assert_allclose(attention(q, k, v, mask=of_stride_0, implementation=path), plain, rtol=1e-12)
    swapped = [x.astype(x.dtype.newbyteorder()) for x in (q, k, v)]
    np.testing.assert_allclose(attention(*swapped, causal=True, implementation=path), plain, rtol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("lead", "queries", "keys", "dim", "width"),
    [
        ((0, 4), 5, 7, 4, 3), ((2, 0), 5, 7, 4, 3), ((2, 4), 0, 7, 4, 3), ((2, 4), 5, 0, 4, 3),
        ((2, 4), 5, 7, 0, 3), ((2, 4), 5, 7, 4, 0), ((2, 4), 0, 0, 0, 0), ((), 0, 0, 3, 3), ((1, 1), 1, 1, 1, 1),
        ((1, 3), 9, 2, 13, 17), ((1, 1), 1, 9, 1, 257),
    ],
)  # fmt: skip
def test_nothing_one_and_odd_sizes(rng, path, lead, queries, keys, dim, width):
    q, k, v = (rng.standard_normal((*lead, *size)) for size in ((queries, dim), (keys, dim), (keys, width)))
    for options in ({}, {"causal": True}, {"window": (1, 1), "softcap": 2.0, "sinks": np.zeros(lead[-1:] or 1)}):
        out, pullback = attention_vjp(q, k, v, **options, implementation=path)
        assert out.shape == (*lead, queries, width)
        assert np.isfinite(out).all()
        gradients = pullback(np.ones_like(out))
        assert [g.shape for g in gradients[:3]] == [x.shape for x in (q, k, v)]
        np.testing.assert_allclose(attention(q, k, v, **options, implementation=path), out, atol=1e-14)
        look = AttentionMap(q, k, **options)
        assert look[...].shape == (*lead, queries, keys)
        assert look.entropy().shape == (*lead, queries)
        assert look.received().shape == (*lead, keys)
        assert look.top(2).keys.shape == (*lead, queries, 2)
        if queries and keys:
            assert look.pooled((2, 2)).shape == (*lead, min(queries, 2), min(keys, 2))


def test_what_peers_ignore_or_round_off(rng):
    """softcap is heeded, float64 stays float64 throughout, and a log-sum-exp is never rounded to the keys' type."""
    q, k, v = heads(rng)
    assert np.abs(attention_weights(q * 50, k, softcap=1.0, stage="capped")).max() <= 1
    tiny = np.array([[1e-12]])
    assert attention(tiny * 0, np.zeros((2, 1)), np.array([[1.0], [1.0 + 1e-12]])) == 1 + 5e-13
    short = [x.astype(np.float16) for x in (q, k, v)]
    partial = attention_partial(*short)
    assert partial.lse.dtype == np.float64
    assert partial.output.dtype == np.float32
    assert attention(*short).dtype == np.float16


def test_a_window_asks_where_the_queries_stand(rng):
    q, k, v = heads(rng)
    shifted = attention(q, k, v, window=(1, 0), query_offset=0)
    np.testing.assert_allclose(shifted, attention(q, k, v, mask=SlidingWindow(1, 0, query_offset=0)), rtol=1e-12)
    with pytest.raises(RegardError, match="no argument depends on positions"):
        attention(q, k, v, query_offset=0)
