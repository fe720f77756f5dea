"""Masks by a function: the same numbers as the boolean array that the function makes, on every path."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from attention_cases import PATHS, chance, close, cut_into_blocks
from regard import (
    AttentionMap,
    RegardError,
    Trace,
    attention,
    attention_partial,
    attention_vjp,
    attention_weights,
    create_block_mask,
    explain_plan,
)
from regard.functional import BlockMask, FunctionMask, native
from regard.functional.masks.base import BlockKind
from regard.functional.masks.block_mask import BLOCK_KEYS, BLOCK_QUERIES
from regard.functional.scores.layout import ScoreLayout

seeds = st.integers(0, 2**31)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def random_function(rng, batch, heads, queries, keys):
    """Return a function of the indices, and the array that it makes, ``B H T S`` or less."""
    kind = int(rng.integers(0, 6))
    if kind == 0:
        table = rng.random((batch, heads, queries, keys)) < rng.choice([0.05, 0.5, 0.95])
        table[..., : int(rng.integers(0, queries + 1)), : int(rng.integers(0, keys + 1))] = chance(rng, 0.5)
        return lambda b, h, q_idx, kv_idx: table[b, h, q_idx, kv_idx]
    if kind == 1:
        step = int(rng.integers(2, 70))
        return lambda b, h, q_idx, kv_idx: ((q_idx - kv_idx) % step == 0) & (q_idx >= kv_idx)
    if kind == 2:
        back = rng.integers(0, keys + 1, heads)
        return lambda b, h, q_idx, kv_idx: (q_idx - kv_idx <= back[h]) & (q_idx >= kv_idx)
    if kind == 3:
        documents = np.sort(rng.integers(0, 4, (batch, max(queries, keys))), axis=-1)
        return lambda b, h, q_idx, kv_idx: documents[b, q_idx] == documents[b, kv_idx]
    if kind == 4:
        ends = rng.integers(0, keys + 1, (2, queries))
        return lambda b, h, q_idx, kv_idx: (kv_idx >= ends[0][q_idx]) & (kv_idx < ends[1][q_idx])
    strip = int(rng.integers(1, 100))
    return lambda b, h, q_idx, kv_idx: (q_idx // strip + kv_idx // strip) % 2 == h % 2


def random_call(seed, longest=300):
    rng = np.random.default_rng(seed)
    batch, groups, repeats = (int(rng.integers(1, 3)) for _ in range(3))
    queries, keys = (int(rng.choice([1, 5, 63, 64, 65, 96, 97, 130, longest])) for _ in range(2))
    heads = groups * repeats
    function = random_function(rng, batch, heads, queries, keys)
    b, h = np.arange(batch)[:, None, None, None], np.arange(heads)[:, None, None]
    allowed = function(b, h, np.arange(queries)[:, None], np.arange(keys)[None, :])
    q = rng.standard_normal((batch, heads, queries, 4))
    k, v = (rng.standard_normal((batch, groups, keys, n)) for n in (4, 3))
    options = {}
    if chance(rng, 0.3):
        options["key_lengths"] = rng.integers(0, keys + 1, batch)
    if chance(rng, 0.3):
        options["window"] = (int(rng.integers(0, 150)), None)
    if chance(rng, 0.3):
        options["bias"] = rng.standard_normal((heads, queries, keys))
    if chance(rng, 0.2):
        options["softcap"] = 2.0
    return rng, function, np.broadcast_to(allowed, (batch, heads, queries, keys)), (q, k, v), options


@pytest.mark.parametrize("path", PATHS)
@given(seeds)
def test_the_numbers_of_the_array(path, seed):
    rng, function, allowed, (q, k, v), options = random_call(seed)
    kept = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    expected, pullback = attention_vjp(q, k, v, mask=allowed, implementation=path, **options)
    d_output = rng.standard_normal(expected.shape)
    for mask in (kept, function):
        output, ours = attention_vjp(q, k, v, mask=mask, implementation=path, **options)
        close(output, expected)
        close(attention(q, k, v, mask=mask, implementation=path, **options), expected)
        for one, other in zip(ours(d_output), pullback(d_output), strict=True):
            if other is not None:
                close(one, other)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("path", PATHS)
@given(seed=seeds)
@settings(max_examples=25)
def test_what_is_masked_does_not_show(path, poison, seed):
    _, function, allowed, (q, k, v), _ = random_call(seed, longest=200)
    mask = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    unseen = ~allowed.any((0, 1, 2))
    expected = attention(q, k, v, mask=allowed, implementation=path)
    k[:, :, unseen], v[:, :, unseen] = poison, poison
    close(attention(q, k, v, mask=mask, implementation=path), expected)
    v[...] = poison  # it shows where a query attends to a key at all
    shown = ~np.isfinite(attention(q, k, v, mask=mask, implementation=path)).all(-1)
    np.testing.assert_array_equal(shown, allowed.any(-1))


@given(seeds)
def test_parts_of_the_map_are_those_of_the_array(seed):
    rng, function, allowed, (q, k, _), options = random_call(seed)
    mask = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    ours, theirs = (AttentionMap(q, k, mask=m, **options) for m in (mask, allowed))
    close(ours.lse, theirs.lse)
    rows = rng.integers(0, q.shape[2], 5)
    start = int(rng.integers(0, q.shape[2]))
    for index in (rows, slice(start, None), start):
        part = {"rows": index, "cols": rng.integers(0, k.shape[2], 4)}
        close(*(attention_weights(q, k, mask=m, **options, **part) for m in (mask, allowed)))
    close(ours.select(0, -1).weights(), theirs.select(0, -1).weights())
    close(ours.pooled((3, 3)), theirs.pooled((3, 3)))
    close(ours.entropy(), theirs.entropy())


@given(seeds)
def test_bits_blocks_and_ranges(seed):
    """A block mask tells what the function tells: for any slice, for any indices, in blocks and in ranges."""
    rng, function, allowed, (q, k, _), _ = random_call(seed)
    mask = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    layout = ScoreLayout(np, None, allowed.shape)
    for _ in range(5):
        rows, cols = (slice(*sorted(rng.integers(0, n + 1, 2).tolist())) for n in allowed.shape[-2:])
        block = np.broadcast_to(mask.allows(layout, rows, cols), allowed[..., rows, cols].shape)
        np.testing.assert_array_equal(block, allowed[..., rows, cols])
        if block.size:
            kind = mask.block_kind(layout, rows, cols)
            assert kind is not BlockKind.FULL or block.all()
            assert kind is not BlockKind.EMPTY or not block.any()
    ranges = mask.key_ranges(layout)
    edges = np.diff(np.pad(allowed.astype(np.int8), ((0, 0),) * 3 + ((1, 1),)), axis=-1)
    consecutive = bool(((edges == 1).sum(-1) <= 1).all())
    assert (ranges is not None) == consecutive
    if ranges is not None:
        key = np.arange(k.shape[2])
        inside = (key >= ranges.first[..., None]) & (key < ranges.last[..., None])
        np.testing.assert_array_equal(np.broadcast_to(inside, allowed.shape), allowed)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_floats(dtype):
    for seed in range(20):
        _, function, allowed, (q, k, v), _ = random_call(seed)
        mask = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        q, k, v = (x.astype(dtype) for x in (q, k, v))
        expected = attention(q, k, v, mask=allowed)
        atol = 1e-3 if dtype == np.float16 else 1e-5
        np.testing.assert_allclose(attention(q, k, v, mask=mask), expected, rtol=2e-3, atol=atol)


def test_blocks_are_counted_and_the_function_is_called_once():
    calls = []

    def sparse(b, h, q_idx, kv_idx):
        calls.append(1)
        return (q_idx // BLOCK_QUERIES == kv_idx // BLOCK_KEYS) & ((q_idx + kv_idx) % 3 != 0)

    mask = create_block_mask(sparse, None, None, 4 * BLOCK_QUERIES, 4 * BLOCK_KEYS)
    assert mask.count_blocks() == {"full": 0, "partial": 4, "empty": 12}
    q, k = np.ones((2, 4 * BLOCK_QUERIES, 3)), np.ones((2, 4 * BLOCK_KEYS, 3))
    for _ in range(3):
        attention(q, k, k, mask=mask)
    assert len(calls) == 1
    if native.kernel():
        plan = explain_plan(q, k, k, mask=mask)
        assert plan.implementation == "native"
        assert plan.blocks == {"full": 0, "partial": 4, "empty": 12}
        assert explain_plan(q, k, k, mask=sparse).blocks["partial"] == 16
    assert "12 empty" in repr(mask)


def test_where_keys_are_consecutive_the_kernel_computes_what_a_rule_asks_for():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 200, 8))
    mask = create_block_mask(causal, None, None, 200, 200)
    np.testing.assert_array_equal(attention(q, k, v, mask=mask), attention(q, k, v, causal=True))


def test_masks_combine_with_others_and_partials_merge():
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 130, 5))
    mask = create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx + kv_idx) % 3 != 0, None, None, 130, 130)
    dense = (np.arange(130)[:, None] + np.arange(130)) % 3 != 0
    other = rng.random((130, 130)) < 0.7
    close(attention(q, k, v, mask=mask & other), attention(q, k, v, mask=dense & other))
    close(attention(q, k, v, mask=mask & mask & FunctionMask(causal)), attention(q, k, v, mask=dense, causal=True))
    close(attention(q, k, v, mask=mask | other), attention(q, k, v, mask=dense | other))
    close(attention_partial(q, k, v, mask=mask).lse, attention_partial(q, k, v, mask=dense).lse)


def test_a_map_with_its_block_mask_is_saved(tmp_path):
    q = np.random.default_rng(2).standard_normal((2, 100, 4))
    mask = create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx ^ kv_idx ^ h) % 5 > 1, None, 2, 100, 100)
    trace = Trace(maps=True, only="*")
    attention(q, q, q, mask=mask, trace=trace)
    trace.save(tmp_path / "run.safetensors")
    close(Trace.load(tmp_path / "run.safetensors")["weights"], attention_weights(q, q, mask=mask))


def test_arrays_that_do_not_fit_together_are_refused():
    mask = create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx + kv_idx) % 2 == 0, None, None, 99, 99)
    for changed in (
        {"blocks": mask.blocks + 1}, {"blocks": mask.blocks[..., 0]}, {"tiles": mask.tiles[:1]},
        {"tiles": mask.tiles[:, :5]}, {"num_keys": 400}, {"first": np.zeros((1, 1, 98), np.int32)},
    ):  # fmt: skip
        with pytest.raises(RegardError):
            dataclasses.replace(mask, **changed)
    assert isinstance(dataclasses.replace(mask), BlockMask)


def test_several_leading_axes_are_counted_in_order():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((3, 2, 3, 2, 70, 4))
    table = rng.random((6, 2, 70, 70)) < 0.5

    def function(b, h, q_idx, kv_idx):
        return table[b, h, q_idx, kv_idx]

    mask = create_block_mask(function, 6, 2, 70, 70)
    expected = attention(q, k, v, mask=table.reshape(2, 3, 2, 70, 70))
    close(attention(q, k, v, mask=mask), expected)
    close(attention(q, k, v, mask=function), expected)
    assert math.prod(mask.blocks.shape[:2]) == 12


@pytest.mark.skipif(native.kernel() is None, reason="the kernel is not built")
def test_the_blocks_are_those_of_the_kernel():
    assert (native.kernel().BLOCK_QUERIES, native.kernel().BLOCK_KEYS) == (BLOCK_QUERIES, BLOCK_KEYS)


def test_blocks_of_other_sizes(monkeypatch):
    cut_into_blocks(monkeypatch, 32, 96)
    _, function, allowed, (q, k, v), _ = random_call(5)
    mask = create_block_mask(function, q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    close(attention(q, k, v, mask=mask, implementation="blockwise"), attention(q, k, v, mask=allowed))
