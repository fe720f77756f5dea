"""An attention map equals the array of weights, which it never holds."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from attention_cases import PATHS, cut_into_blocks, random_case, reference
from regard import AttentionMap, RegardError, attention_weights
from regard.functional import (
    ALiBi,
    Causal,
    PrefixLM,
    RelativePositionBias,
    SegmentMask,
    blockwise,
    rotary,
    rotary_pairs,
)
from sweeps import sweep_after

SEEDS = sweep_after(2, range(0, 600, 60))
OVERVIEWS = PATHS[1:]  # block by block in NumPy, and the kernel where there is one


@pytest.fixture
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def cases(first, path):
    for seed in range(first, first + 60):
        case = random_case(seed)
        _, weights, lse = reference(case)
        look = AttentionMap(case.q, case.k, **case.options, implementation=path)
        yield np.random.default_rng(seed), case, weights, lse, look


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("path", OVERVIEWS)
@pytest.mark.parametrize("first", SEEDS)
def test_indexing_is_that_of_the_array(first, path):
    for rng, _, weights, lse, look in cases(first, path):
        close(look.lse, lse)
        close(look.weights(), weights)
        cell = tuple(int(rng.integers(-n, n)) for n in weights.shape)
        few = tuple(slice(int(rng.integers(0, n)), None, int(rng.integers(1, 3))) for n in weights.shape)
        mixed = tuple(a if rng.random() < 0.5 else b for a, b in zip(cell, few, strict=True))
        picked = rng.integers(0, weights.shape[-1], 3)
        for index in (cell, few, mixed, cell[:-1], cell[:-2], cell[0], few[0], (..., picked), (cell[0], ..., cell[-1])):
            part = look[index]
            assert np.shape(part) == weights[index].shape
            close(part, weights[index])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("path", OVERVIEWS)
@pytest.mark.parametrize("first", SEEDS)
def test_overviews_are_those_of_the_array(first, path):
    for _, case, weights, _, look in cases(first, path):
        some = np.where(weights > 0, weights, 1)
        close(look.entropy(), -(weights * np.log(some)).sum(-1))
        close(look.received(), weights.sum(-2))
        queries, keys = weights.shape[-2:]
        offset = np.asarray(case.options.get("query_offset", keys - queries))
        offset = offset[..., None, None, None] if offset.ndim else offset
        away = np.abs(np.arange(keys) - (np.arange(queries)[:, None] + offset))
        mass = weights.sum(-1)
        close(look.distance(), (weights * away).sum(-1) / np.where(mass == 0, 1, mass))
        for size in ((1, 1), (2, 3), (5, 4), (20, 20)):
            rows, cols = (
                [i * n // min(p, n) for i in range(min(p, n))] for p, n in zip(size, (queries, keys), strict=True)
            )
            largest = np.maximum.reduceat(np.maximum.reduceat(weights, rows, -2), cols, -1)
            close(look.pooled(size), largest)
            counts = np.diff([*rows, queries])[:, None] * np.diff([*cols, keys])
            close(look.pooled(size, "mean"), np.add.reduceat(np.add.reduceat(weights, rows, -2), cols, -1) / counts)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("path", OVERVIEWS)
@pytest.mark.parametrize("first", SEEDS)
def test_top_names_the_largest_and_never_what_is_hidden(first, path):
    for _, case, weights, _, look in cases(first, path):
        best, keys = look.top(3)
        count = min(3, weights.shape[-1])
        close(best[..., :count], np.sort(weights, -1)[..., ::-1][..., :count])
        attends = np.broadcast_to(case.attends, weights.shape)
        assert np.array_equal((keys >= 0).sum(-1), np.minimum(attends.sum(-1), 3))
        named = np.take_along_axis(weights, np.where(keys < 0, 0, keys), -1)
        close(np.where(keys < 0, 0, named), best)
        assert (np.take_along_axis(attends, np.where(keys < 0, 0, keys), -1) | (keys < 0)).all()


def test_of_equal_weights_top_names_the_first_key():
    assert AttentionMap(np.zeros((1, 2)), np.zeros((9, 2))).top(4).keys.tolist() == [[0, 1, 2, 3]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("path", OVERVIEWS)
@pytest.mark.parametrize("first", SEEDS)
def test_heads_and_entries_are_maps_of_their_own(first, path):
    for rng, _, weights, _, look in cases(first, path):
        lead = weights.shape[:-2]
        index = tuple(int(rng.integers(0, n)) if rng.random() < 0.6 else slice(None, None, 2) for n in lead)
        part, expected = look.select(*index), weights[index]
        assert part.shape == expected.shape
        close(part[...], expected)
        close(part.received(), expected.sum(-2))
        close(part.pooled((2, 2), "mean").mean(), look.select(*index).pooled((2, 2), "mean").mean())
        if expected.ndim > 2:
            close(part.select(-1)[...], expected[-1])


@pytest.mark.usefixtures("small_blocks")
def test_selected_maps_keep_the_query_positions(rng):
    q, k = rng.standard_normal((3, 2, 5, 4)), rng.standard_normal((3, 2, 7, 4))
    options = {"causal": True, "query_offset": np.array([0, 2, -1]), "bias": ALiBi(np.array([0.5, 2.0]))}
    look = AttentionMap(q, k, **options)
    for index in ((1, 0), (2,), (slice(1, 3), 1), (slice(None, None, 2),), (slice(None), slice(1))):
        close(look.select(*index).distance(), look.distance()[index])
        close(look.select(*index).entropy(), look.entropy()[index])
        close(look.select(*index)[..., 2:4, :], look[...][index][..., 2:4, :])
    with pytest.raises(RegardError, match="save the whole map"):
        look.select(1).to_arrays()


def test_queries_that_a_batch_shares(rng):
    """Learned queries look at each text of a batch: the axis of texts is that of the keys alone."""
    for q, k in (
        (rng.standard_normal((2, 4, 3)), rng.standard_normal((3, 2, 5, 3))),
        (np.ones((1, 4, 4, 3)), np.ones((3, 2, 5, 3))),
    ):
        look, weights = AttentionMap(q, k), attention_weights(q, k)
        for index in ((slice(None), 1), (slice(1, 3), 0, slice(2)), (2, 1), (slice(None), slice(0, 1)), (slice(0, 0),)):
            close(look[index], weights[index])
        close(look.select(slice(None), 1).top(2).weights, np.sort(weights[:, 1], -1)[..., ::-1][..., :2])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_no_heads_and_no_texts(groups):
    look = AttentionMap(np.zeros((1, 4, 4, 5)), np.zeros((1, groups, 4, 5)))
    assert look.lse.shape == (1, 4, 4)
    assert look.select(0, slice(0, 0)).weights().shape == (0, 4, 4)
    assert look.select(slice(0, 0)).weights().shape == (0, 4, 4, 4)


def test_a_kept_map_has_arrays_of_its_own(rng):
    q, k, bias, lengths = *rng.standard_normal((2, 1, 3, 4, 4)), np.zeros((4, 4)), np.array([3])
    mask, sinks = np.ones((4, 4), bool), np.zeros(3)
    kept = AttentionMap(q, k, bias=bias, key_lengths=lengths, mask=mask, sinks=sinks).copy()
    expected = attention_weights(q, k, bias=bias, key_lengths=lengths, mask=mask, sinks=sinks)
    for x in (q, k, bias, lengths, sinks):
        x += 1
    mask[:] = False
    close(kept[...], expected)


def test_long_floats_stay_long(rng):
    q, k = rng.standard_normal((2, 4, 3)).astype(np.longdouble)
    part = attention_weights(q, k, rows=slice(None))
    assert part.dtype == np.longdouble
    np.testing.assert_allclose(part, attention_weights(q, k), rtol=8 * np.finfo(np.longdouble).eps)


def test_a_look_at_some_rows_goes_through_those_alone(rng, monkeypatch):
    q, k = rng.standard_normal((2, 4096, 4))
    look, rows = AttentionMap(q, k, causal=True, implementation="blockwise"), []
    onward = blockwise.online_softmax_step

    def counted(state, biased, xp):
        rows.append(biased.shape[-2])
        return onward(state, biased, xp)

    monkeypatch.setattr(blockwise, "online_softmax_step", counted)
    tile = look[1000:1010, 5]
    assert rows
    assert set(rows) == {10}
    look.entropy()
    rows.clear()
    np.testing.assert_allclose(look[1000:1010, 5], tile, rtol=1e-12)
    assert not rows


def test_one_column_of_a_long_text_takes_little_memory(rng):
    q = k = rng.standard_normal((8192, 8)).astype(np.float32)
    tracemalloc.start()
    try:
        column = attention_weights(q, k, cols=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert column.shape == (8192,)
    assert peak < 60e6  # a row's 1,024 keys for all queries at once took 200 MB


def test_products_sum_to_the_score_and_name_the_shared_head(rng):
    q, k = rng.standard_normal((2, 6, 5, 8)).astype("f4"), rng.standard_normal((2, 3, 7, 8)).astype("f4")
    for positions in (np.arange(5) + 10, np.arange(5) + 1000):
        look = AttentionMap(
            rotary(q, positions, rotary_dim=6), rotary(k, np.arange(7) + positions[0] - 10, rotary_dim=6), softcap=3.0
        )
        scores = look.tile(stage="scores")
        by_dim = look.score_terms(1, 5, 2, 4)
        assert by_dim.kv_head == 2
        assert by_dim.dims == [(d,) for d in range(8)]
        by_pair = look.score_terms(1, 5, 2, 4, dims=rotary_pairs(8, rotary_dim=6))
        assert by_pair.dims == [(0, 3), (1, 4), (2, 5), (6,), (7,)]
        for found in (by_dim, by_pair):
            np.testing.assert_allclose(found.terms.sum(), scores[1, 5, 2, 4], rtol=0, atol=1e-5)
            np.testing.assert_allclose(found.score, scores[1, 5, 2, 4], rtol=0, atol=1e-5)
        if positions[0] == 10:
            first = by_dim, by_pair
    products = look.q[1, 5, 2] * look.k[1, 2, 4] * 8**-0.5
    np.testing.assert_allclose(by_dim.terms, products, atol=1e-4)
    np.testing.assert_allclose(by_pair.terms, [products[list(group)].sum() for group in by_pair.dims], atol=1e-4)
    # What a pair gives does not depend on where the text begins; what one dimension gives does.
    np.testing.assert_allclose(by_pair.terms, first[1].terms, atol=1e-5)
    assert np.abs(by_dim.terms - first[0].terms).max() > 1e-2


def test_memory_grows_with_the_text_not_with_its_square(rng):
    n = 8192
    q, k = (rng.standard_normal((n, 16)).astype(np.float32) for _ in range(2))
    look = AttentionMap(q, k, mask=Causal(), window=(2000, 0))
    assert look.nbytes < 1.5e6
    tracemalloc.start()
    try:
        tile = look[6000:6512, 5500:6012]
        overview = look.pooled((128, 128))
        top = look.top(2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # n² weights are 268 MB, and 537 MB in float64
    assert overview.shape == (128, 128)
    assert overview.max() == top.weights.max()
    np.testing.assert_allclose(look[6000].sum(), 1, atol=1e-6)
    np.testing.assert_allclose(tile[0], look[6000, 5500:6012])


def test_errors_say_what_is_wrong(rng):
    look = AttentionMap(rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 7, 4)))
    for bad, message in [
        (lambda: look[2], "outside an axis of 2"),
        (lambda: look[0, 5], "rows 5 is out of range for 5"),
        (lambda: look[0, 0, -8], "cols -8 is out of range for 7"),
        (lambda: look[0, 0, 0, 0], "too many indices"),
        (lambda: look[0, [[1]]], "a 1-D array of integers"),
        (lambda: look[0, 0.5], "rows must be an integer"),
        (lambda: look[[0, 1]], "taken by integers and slices"),
        (lambda: look.select(0, 0), "2 indices for the 1 axes"),
        (lambda: look.pooled((0, 3)), "at least 1, got 0"),
        (lambda: look.pooled((2.0, 3)), "whole number"),
        (lambda: look.pooled(3), r"\(rows, columns\), got 3"),
        (lambda: look.top(1.5), "whole number"),
        (lambda: look[True], "integers and slices, got True"),
        (lambda: look[0, True], "rows must be an integer"),
        (lambda: look[0, ::0], "step 0"),
        (lambda: look.score_terms(0, 0.5, 0), "integers and slices, got 0.5"),
        (lambda: look.score_terms(0, slice(1), 0), "one integer for each axis"),
        (lambda: look.score_terms(0, 0, 0, dims=[(0, 1, 2, 3), ()]), "each of the 4 dimensions once"),
        (lambda: look.pooled((2, 2), "median"), "max or mean"),
        (lambda: look.top(0), "at least 1"),
        (lambda: look.score_terms(0, 0), "3 indices, got 2"),
        (lambda: look.score_terms(0, 0, 0, dims=[(0, 1)]), "each of the 4 dimensions once"),
        (lambda: look.tile(stage="softmax"), "stage must be"),
    ]:
        with pytest.raises(RegardError, match=message):
            bad()
    assert repr(look) == "<AttentionMap 2 × 5 × 7 in 0.0 MB>"


def test_a_notebook_shows_which_heads_of_how_many(rng):
    look = AttentionMap(rng.standard_normal((12, 5, 4)), rng.standard_normal((12, 7, 4)))
    html = look._repr_html_()
    assert "AttentionMap 12 × 5 × 7 in 0.0 MB<" in html  # without the brackets
    assert f"heads 0 to {len(look.small_tiles()) - 1} of 12" in html
    assert "one head" in look.select(0)._repr_html_()
    assert look.select(3).score_terms(1, 2).kv_head == 0  # of the one head that is left


# As an array, and across processes


def masked(rng):
    """Return maps with every kind of mask and bias, and the options beside them."""
    q, k = rng.standard_normal((2, 4, 5, 3)), rng.standard_normal((2, 2, 7, 3))
    slopes, table = np.linspace(0.1, 1, 4), rng.standard_normal((8, 4))
    options = [
        {},
        {"causal": True, "query_offset": np.array([1, 2]), "softcap": 3.0, "sinks": rng.standard_normal(4)},
        {"window": (2, None), "key_lengths": np.array([7, 4]), "bias": ALiBi(slopes)},
        {"mask": rng.random((2, 1, 5, 7)) < 0.7, "bias": rng.standard_normal((4, 5, 7))},
        {"mask": Causal() | PrefixLM(3), "bias": RelativePositionBias(table, bidirectional=True, max_distance=6)},
        {"mask": SegmentMask(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1]))},
    ]
    return [AttentionMap(q, k, **given) for given in options]


def same_map(ours, theirs):
    assert repr(ours) == repr(theirs)
    np.testing.assert_array_equal(ours.weights(), theirs.weights())
    np.testing.assert_array_equal(ours.entropy(), theirs.entropy())
    np.testing.assert_array_equal(ours.lse, theirs.lse)


def test_as_an_array_it_is_its_weights(rng):
    look = AttentionMap(*rng.standard_normal((2, 3, 4, 2), dtype=np.float32))
    array = np.asarray(look)
    np.testing.assert_array_equal(array, look.weights())
    assert array.dtype == np.float32
    assert np.asarray(look, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.array(look, copy=True), array)
    np.testing.assert_array_equal(np.max(look, axis=-1), array.max(-1))
    with pytest.raises(ValueError, match="weights are computed, so they cannot be had without a copy"):
        np.array(look, copy=False)


def test_an_array_that_does_not_fit_is_an_error_that_says_what_does():
    x = np.zeros((1, 2**21, 1), dtype=np.float32)
    look = AttentionMap(x, x)
    for whole in (look.weights, lambda: np.asarray(look)):
        with pytest.raises(RegardError, match=r"1 × 2097152 × 2097152 weights take 17,592\.2 GB.*tile.*pooled"):
            whole()
    assert look[0, -1, :3].shape == (3,)


def test_maps_are_copied_and_pickled_with_every_mask_and_bias(rng):
    for look in masked(rng):
        kept = copy.deepcopy(look)
        same_map(kept, look)
        assert not np.shares_memory(kept.q, look.q)
        same_map(pickle.loads(pickle.dumps(look)), look)
        part = look.select(1, slice(1, 3))
        same_map(pickle.loads(pickle.dumps(part)), part)


def test_maps_of_other_libraries_are_copied_and_pickled(rng):
    import array_api_strict as xp

    x = xp.asarray(rng.standard_normal((2, 3, 4)).astype(np.float32))
    look = AttentionMap(x, x, causal=True)
    for kept in (copy.deepcopy(look), pickle.loads(pickle.dumps(look))):
        assert type(kept.q) is type(x)
        np.testing.assert_array_equal(np.asarray(kept), np.asarray(look))


def test_a_pickle_is_as_large_as_the_map_however_much_of_it_was_read(rng):
    look = AttentionMap(*rng.standard_normal((2, 2, 300, 4)))
    before = len(pickle.dumps(look))
    look.weights(), look.entropy(), look.lse
    assert len(pickle.dumps(look)) < before + 2 * look.lse.nbytes + 1000


def test_all_heads_of_a_sequence_share_its_keys(rng):
    q, k = rng.standard_normal((2, 6, 5, 4)), rng.standard_normal((2, 3, 5, 4))
    whole = AttentionMap(q, k, causal=True)
    one = whole.select(1)
    assert one.k.shape == (3, 5, 4)
    assert np.shares_memory(one.k, whole.k)
    assert np.allclose(one.weights(), whole.weights()[1])


def test_a_map_is_no_sequence():
    q = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(TypeError, match="not iterable"):
        iter(AttentionMap(q, q))
