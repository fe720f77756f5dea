"""A statistic is one definition, of a block of weights, for every map: with the kernel, without it, and on dask."""

import inspect

import numpy as np
import pytest

import regard
from attention_cases import PATHS, random_case
from regard import AttentionMap
from regard.functional import native
from regard.functional.inputs import validate_inputs
from regard.trace.map_sources import source_of
from regard.trace.map_statistics import MAX_KERNEL_TOP, STORED, MapStatistic, MapStatistics
from regard.trace.stored_map import FORMAT

LARGEST = MapStatistic(
    name="largest",
    axis="queries",
    of_block=lambda block: (
        block.xp.max(block.weights, axis=-1, initial=0.0),
        block.sum_over_keys(block.weights**2),
    ),
    merge=lambda xp, one, other: (xp.maximum(one[0], other[0]), one[1] + other[1]),
    finish=lambda xp, parts: (parts[0], xp.sqrt(parts[1])),
)
UNUSED = MapStatistic(
    name="unused",
    axis="keys",
    of_block=lambda block: (block.xp.max(block.weights, axis=-2, initial=0.0),),
    merge=lambda xp, one, other: (xp.maximum(one[0], other[0]),),
    finish=lambda _, parts: (parts[0] < 0.1,),
)


METHODS = {  # of every map, without arguments
    name: method
    for name, method in vars(MapStatistics).items()
    if not name.startswith("_") and list(inspect.signature(method).parameters) == ["self"]
}


def of_weights(weights):
    return weights.max(-1, initial=0), np.sqrt((weights**2).sum(-1)), weights.max(-2, initial=0) < 0.1


@pytest.mark.parametrize("implementation", ["auto", "blockwise", "reference"])
@pytest.mark.parametrize("seed", range(20))
def test_a_statistic_is_that_of_the_weights(seed, implementation):
    case = random_case(seed)
    look = AttentionMap(case.q, case.k, **case.options, implementation=implementation)
    found = *look.statistic(LARGEST), *look.statistic(UNUSED)
    for ours, theirs in zip(found, of_weights(look.weights()), strict=True):
        assert ours.dtype.kind == theirs.dtype.kind
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(20))
def test_a_method_has_the_same_numbers_in_every_way_to_compute_it(seed, method):
    case = random_case(seed)
    ways = {
        implementation: METHODS[method](AttentionMap(case.q, case.k, **case.options, implementation=implementation))
        for implementation in PATHS
    }
    for ours in ways.values():
        assert (ours.shape, ours.dtype) == (ways["reference"].shape, ways["reference"].dtype)
        np.testing.assert_allclose(ours, ways["reference"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_on_dask_it_is_the_same(seed):
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    case = random_case(seed)
    q, k = (da.from_array(x, chunks=tuple(max(1, size // 2) for size in x.shape)) for x in (case.q, case.k))
    one, lazy = (
        (*look.statistic(LARGEST), *look.statistic(UNUSED), *(method(look) for method in METHODS.values()))
        for look in (AttentionMap(case.q, case.k, **case.options), regard.dask.AttentionMap(q, k, **case.options))
    )
    with dask.config.set(scheduler="synchronous"):
        for ours, theirs in zip(dask.compute(*lazy), one, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_more_of_the_largest_weights_than_the_kernel_sorts_on_dask():
    da = pytest.importorskip("dask.array")
    q, k = np.random.default_rng(0).standard_normal((2, 2 * MAX_KERNEL_TOP, 4))
    lazy = regard.dask.AttentionMap(da.from_array(q, chunks=(100, 4)), da.from_array(k, chunks=(100, 4)))
    weights, keys = lazy.top(MAX_KERNEL_TOP + 1)
    one = AttentionMap(q, k).top(MAX_KERNEL_TOP + 1)
    np.testing.assert_allclose(weights.compute(scheduler="synchronous"), one.weights, rtol=1e-9)
    np.testing.assert_array_equal(keys.compute(scheduler="synchronous"), one.keys)


@pytest.mark.parametrize("implementation", ["native", "blockwise"])
def test_overviews_of_some_keys_are_of_weights_over_all(implementation):
    if implementation == "native" and native.kernel() is None:
        pytest.skip("there is no kernel")
    q, k = np.random.default_rng(0).standard_normal((2, 8, 4))
    whole, part = (validate_inputs(q, keys, implementation=implementation) for keys in (k, k[:4]))
    stats = source_of(whole).stats
    found = source_of(part, whole=stats).pooled(np.array([0, 4, 8]), np.array([0, 2, 4]), "mean", lambda: None)
    np.testing.assert_allclose(found, AttentionMap(q, k).weights()[:, :4].reshape(2, 4, 2, 2).sum((1, 3)), rtol=1e-6)


def test_what_files_hold_is_in_the_name_of_their_format():
    """Files without a statistic that was added to `STORED` are damaged; of another format they are refused."""
    assert {"regard.map/2": ["entropy", "received"]}[FORMAT] == [statistic.name for statistic in STORED]
