"""The kernel's forward pass, on every path, compared with the formula in higher precision (bounds: fuzz_kernel.py)."""

import itertools
import subprocess
import sys
import tracemalloc
from pathlib import Path

import fuzz_kernel
import ml_dtypes
import numpy as np
import pytest

import regard
from attention_cases import Case, t5_bucket
from regard import attention, attention_partial, attention_weights, explain_plan
from regard.functional import ALiBi, Bias, DenseMask, Mask, RelativePositionBias, SegmentMask, native
from regard.functional.masks.base import KeyRanges
from sweeps import sweep_after, sweep_except

ISAS = native.kernel().instruction_sets() if native.kernel() else []
TILES = native.kernel().tile_implementations()[:-1] if native.kernel() else []  # all but none
QUERIES = (1, 2, 3, 7, 8, 9, 15, 17, 31, 33, 63, 64, 65, 127, 128, 129, 193)
KEYS = (1, 2, 5, 15, 16, 17, 33, 95, 96, 97, 191, 192, 193)
MANY_KEYS = (511, 512, 513, 527, 1023, 1024, 1025)
SHAPES = [*itertools.product(QUERIES, KEYS), *itertools.product((1, 2, 7, 8, 9), MANY_KEYS)]


def plain(rng, queries, keys, dim, width, dtype=np.float32, lead=(2,), groups=None, spread=3.0):
    q = (rng.standard_normal((*lead, queries, dim)) * spread).astype(dtype)
    k, v = (rng.standard_normal((*(groups or lead), keys, n)).astype(dtype) for n in (dim, width))
    return q, k, v


def held(
    q,
    k,
    v,
    *,
    isas=ISAS,
    attends=True,
    added=0.0,
    scale=None,
    softcap=None,
    sinks=None,
    dropout=None,
    threads=2,
    tiles=("auto",),
    **options,
):
    """Compare a call with the formula, given which query `attends` to which key and the bias `added`.

    It runs on each of the instruction sets `isas`, and with each of `tiles`.
    """
    shape = (*q.shape[:-1], k.shape[-2])
    scale = options["scale"] = 1 / np.sqrt(max(q.shape[-1], 1)) if scale is None else scale
    options |= {name: x for name, x in (("softcap", softcap), ("sinks", sinks)) if x is not None}
    attends, added = np.broadcast_to(attends, shape), np.broadcast_to(np.asarray(added, np.float64), shape)
    case = Case(q, k, v, options, attends & (added > -np.inf), added, scale, softcap, sinks)
    factors = 1.0 if dropout is None else fuzz_kernel.dropout_factors(shape, *dropout)
    calls = (
        fuzz_kernel.Call(case, (q, k, v), options, factors, dropout, isa, threads, tile)
        for isa, tile in itertools.product(isas, tiles)
    )
    assert fuzz_kernel.fault(*calls) is None


# In each part are each number of queries, several times, and each number of keys.
@pytest.mark.parametrize("part", sweep_after(1, range(3)))
@pytest.mark.parametrize("dtype", fuzz_kernel.DTYPES, ids=str)
def test_sizes_around_block_borders(dtype, part, rng):
    widths = itertools.cycle(fuzz_kernel.FEATURES)
    for queries, keys in SHAPES[part::3]:
        held(*plain(rng, queries, keys, next(widths), next(widths), dtype, lead=(1,)))


# In each part is each size of q and k, and each of v.
@pytest.mark.parametrize("part", sweep_after(2, range(5)))
@pytest.mark.parametrize("dtype", fuzz_kernel.DTYPES, ids=str)
def test_head_dims_around_vector_borders(dtype, part, rng):
    sizes = [*itertools.product((1, 2, 3, 15, 16, 17, 33, 64, 65, 129), (1, 3, 8, 17, 64, 71))]
    for dim, width in sizes[part::5]:
        held(*plain(rng, 66, 98, dim, width, dtype, lead=(1,)))
        held(*plain(rng, 2, 98, dim, width, dtype, lead=(1,)))


@pytest.mark.parametrize("part", sweep_after(1, range(3)))
def test_sizes_around_the_borders_of_tiles(part, rng):
    widths = itertools.cycle(fuzz_kernel.FEATURES)
    dims = [*itertools.product((1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 129), (1, 3, 15, 16, 17, 33, 71))]
    shapes = [(queries, keys, next(widths), next(widths)) for queries, keys in SHAPES[part::3]]
    for shape in [*shapes, *((66, 98, dim, width) for dim, width in dims[part::3])]:
        held(*plain(rng, *shape, ml_dtypes.bfloat16, lead=(1,)), isas=ISAS[:1], tiles=TILES)


# Full, partial and empty blocks of queries and keys; and split-KV over three splits.
SIZES = [(2, 2, 67, 203), (2, 2, 131, 107), (4, 2, 3, 1100), (1, 1, 7, 600)]


def arguments(rng, heads, queries, keys):
    """Yield for each argument its name, options, and what they mean: allowed cells, added bias."""
    i, j, shift = np.arange(queries)[:, None], np.arange(keys), keys - queries
    position = i + shift
    yield "nothing", {}, True, 0.0
    yield "causal", {"causal": True}, j <= position, 0.0
    yield "causal from the first", {"causal": True, "query_offset": 0}, j <= i, 0.0
    yield "causal, most see nothing", {"causal": True, "query_offset": 5 - queries}, j <= i + 5 - queries, 0.0
    yield "window", {"window": (30, 4)}, (position - j <= 30) & (j - position <= 4), 0.0
    yield "window of one", {"window": (0, 0)}, position == j, 0.0
    yield "key lengths", {"key_lengths": keys // 3}, j < keys // 3, 0.0
    yield "no keys", {"key_lengths": 0}, False, 0.0
    of_queries, of_keys = np.sort(rng.integers(0, 4, queries)), np.sort(rng.integers(0, 4, keys))
    yield "segments", {"mask": SegmentMask(of_queries, of_keys)}, of_queries[:, None] == of_keys, 0.0
    for shape in (
        (heads, queries, keys),
        (1, queries, keys),
        (queries, keys),
        (1, keys),
        (queries, 1),
        (heads, 1, keys),
    ):
        some = rng.random(shape) < 0.7
        yield f"mask {shape}", {"mask": some}, some, 0.0
        yield f"causal and mask {shape}", {"mask": some, "causal": True}, some & (j <= position), 0.0
        numbers = rng.standard_normal(shape)
        yield f"bias {shape}", {"bias": numbers}, True, numbers
        hiding = np.where(some, numbers, -np.inf)
        yield f"bias that hides {shape}", {"bias": hiding}, True, hiding
    one, other = rng.random((queries, keys)) < 0.7, rng.random(keys) < 0.7
    yield "two masks", {"mask": DenseMask(one) & other}, one & other, 0.0
    slopes = rng.random(heads)
    yield "ALiBi", {"bias": ALiBi(slopes)}, True, -slopes[:, None, None] * abs(j - position)
    table = rng.standard_normal((8, heads))
    distances, where = np.unique(j - position, return_inverse=True)
    buckets = np.array([t5_bucket(int(d), True, 8, 16) for d in distances])[where].reshape(queries, keys)
    yield "relative", {"bias": RelativePositionBias(table, max_distance=16)}, True, np.moveaxis(table[buckets], -1, 0)
    yield "softcap", {"softcap": 2.0}, True, 0.0
    yield "softcap of large scores", {"softcap": 30.0, "scale": 20.0}, True, 0.0
    yield "scale", {"scale": -0.3}, True, 0.0
    yield "scale of 0", {"scale": 0.0}, True, 0.0
    yield "sinks", {"sinks": rng.standard_normal(heads)}, True, 0.0
    yield "sinks and no keys", {"sinks": rng.standard_normal(heads), "key_lengths": 0}, False, 0.0
    yield "sinks above all scores", {"sinks": np.full(heads, 300.0)}, True, 0.0
    yield "dropout", {"dropout": (0.3, 7)}, True, 0.0
    yield "causal and dropout", {"dropout": (0.9, 8), "causal": True}, j <= position, 0.0


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", fuzz_kernel.DTYPES, ids=str)
@pytest.mark.parametrize("size", sweep_except([SIZES[0], *SIZES[2:]], SIZES), ids=str)
def test_every_argument(instruction_set, size, dtype, rng):
    heads, groups, queries, keys = size
    for _, options, attends, added in arguments(rng, heads, queries, keys):
        arrays = plain(rng, queries, keys, 17, 5, dtype, (heads,), (groups,))
        held(*arrays, attends=attends, added=added, isas=[instruction_set], **options)


@pytest.mark.parametrize("size", sweep_after(1, SIZES[:2]), ids=str)
def test_every_argument_in_tiles(size, rng):
    heads, groups, queries, keys = size
    for _, options, attends, added in arguments(rng, heads, queries, keys):
        arrays = plain(rng, queries, keys, 17, 5, ml_dtypes.bfloat16, (heads,), (groups,))
        held(*arrays, attends=attends, added=added, isas=ISAS[:1], tiles=TILES, **options)


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),
    "features first": lambda x: np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every third": lambda x: np.repeat(x, 3, -1)[..., ::3],
    "every second row": lambda x: np.repeat(x, 2, -2)[..., 1::2, :],
    "a byte off": lambda x: moved(x, 1),
    "half a number off": lambda x: moved(x, x.itemsize // 2),
    "bytes of a record": lambda x: in_record(x),
    "read-only": lambda x: frozen(x),
    "foreign byte order": lambda x: x.astype(x.dtype.newbyteorder("S")) if x.dtype.kind == "f" else x,
}


def moved(x, offset):
    apart = np.ndarray(x.shape, x.dtype, bytearray(x.nbytes + offset), offset=offset)
    apart[...] = x
    return apart


def in_record(x):
    records = np.zeros(x.shape, [("before", "u1"), ("x", x.dtype)])
    records["x"] = x
    return records["x"]


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", fuzz_kernel.DTYPES, ids=str)
@pytest.mark.parametrize("queries", [2, 70])
def test_strides_and_alignment_do_not_change_the_bits(instruction_set, queries, dtype, rng):
    q, k, v = plain(rng, queries, 99, 17, 19, dtype)
    bias, mask = rng.standard_normal((2, queries, 99)).astype(dtype), rng.random((2, queries, 99)) < 0.8
    expected = attention(q, k, v, bias=bias, mask=mask, implementation="native")
    for name, layout in LAYOUTS.items():
        one = attention(*map(layout, (q, k, v)), bias=layout(bias), mask=layout(mask), implementation="native")
        assert one.tobytes() == expected.tobytes(), name
        assert one.dtype.isnative


@pytest.mark.parametrize("dtype", fuzz_kernel.DTYPES, ids=str)
def test_no_unnecessary_copies(dtype, rng):
    q, k, v = plain(rng, 4, 20_000, 32, 32, dtype)
    views = {
        "as it is": (q, k, v),
        "turned": [LAYOUTS["features first"](x) for x in (q, k, v)],
        "reversed": [x[..., ::-1, ::-1] for x in (q, k, v)],
        "sliced": [x[..., ::2, ::3] for x in (q, k, v)],
        "repeated": [np.broadcast_to(x, (16, *x.shape)) for x in (q, k, v)],
        "frozen": [frozen(x) for x in (q, k, v)],
    }
    work = np.float64 if dtype == np.float64 else np.float32
    for name, arrays in views.items():
        bias = np.broadcast_to(work(1), (arrays[0].shape[-2], arrays[1].shape[-2]))
        for options in ({}, {"causal": True}, {"key_lengths": 9}, {"bias": bias}, {"mask": bias > 0}):
            attention(*arrays, **options, implementation="native")  # fills caches
            tracemalloc.start()
            attention(*arrays, **options, implementation="native")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 100_000, (name, options)  # k alone has 425,000 bytes and more, the output at most 32,768


def test_memory_does_not_grow_with_the_square_of_the_length():
    code = (
        "import resource, numpy as np, regard\n"
        "n = 131_072\n"
        "q, k, v = (np.ones((n, 64), np.float32) for _ in range(3))\n"
        "np.zeros((n, 64), np.float32).fill(1)\n"  # as much as the output, once used
        "regard.attention(q[:200], k[:200], v[:200], implementation='native')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "out = regard.attention(q, k, v, window=(64, 0), implementation='native')\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert (out == 1).all()\n"
        "print((after - before) * 1024 - out.nbytes)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000_000  # the map would have 64 GiB


@pytest.mark.parametrize("queries", [1, 2, 5, 70, 400])
def test_the_same_bits_for_any_number_of_threads(instruction_set, queries, rng, same_bits):
    q, k, v = plain(rng, queries, 3000, 16, 24, lead=(4,), groups=(2,))
    options = {"causal": True, "softcap": 20.0, "bias": ALiBi(np.array([0.1, 0.2, 0.3, 0.4])), "sinks": np.ones(4)}
    same_bits(lambda: attention_partial(q, k, v, **options, implementation="native"), (1, 2, 3, 5, 1))


def test_half_precision_is_read_and_rounded_exactly(instruction_set):
    """One key has all the weight, so the output is its value, for every half-precision number."""
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        bits = np.arange(2**16, dtype=np.uint16)
        infinity = np.array(np.inf, dtype).view(np.uint16)
        v = bits[(bits & 0x7FFF) < infinity].view(dtype)[None]  # the finite ones
        for queries in (1, 70):
            ours = attention(np.ones((queries, 1), dtype), np.ones((1, 1), dtype), v, implementation="native")
            np.testing.assert_array_equal(ours, np.repeat(v, queries, 0))


def test_means_round_to_nearest_even_in_half_precision(instruction_set, rng):
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        bits = rng.integers(0, 0x7B00, 5000).astype(np.uint16)
        v = np.stack([bits, bits + rng.integers(0, 3, 5000).astype(np.uint16)]).view(dtype)
        exact = v.astype(np.float32).sum(0) / 2  # the sum of two neighbours is exact
        for queries in (1, 70):
            ours = attention(np.zeros((queries, 1), dtype), np.zeros((2, 1), dtype), v, implementation="native")
            np.testing.assert_array_equal(ours, np.repeat(exact.astype(dtype)[None], queries, 0))


def test_any_nonzero_mask_byte_allows(rng):
    q, k, v = rng.standard_normal((3, 16, 8))
    for allowed in (0x01, 0x80, 0xFF):
        mask = np.zeros((16, 16), np.uint8)
        mask[0], mask[3, 5] = allowed, allowed
        ours = attention(q, k, v, mask=mask.view(bool), implementation="native")
        theirs = attention(q, k, v, mask=mask != 0, implementation="reference")
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


class FarKeyRanges(Mask):
    """A custom rule whose intervals end far outside the keys."""

    def allows(self, grid, rows, cols):
        return grid.key_indices(cols) >= 2

    def key_ranges(self, grid):
        return KeyRanges(np.full(1, 2), np.full(1, 2**40))


class OneForAll(Bias):
    """A distance rule whose tile broadcasts."""

    parameter = np.array([0.5])
    by_distance = True
    can_mask = False

    def values(self, grid, rows, cols):
        return np.full((1, 1), 0.5)


@pytest.mark.parametrize("queries", [3, 70])
def test_custom_rules_may_be_far_and_may_broadcast(rng, queries):
    q, k, v = (rng.standard_normal((n, 8)) for n in (queries, 130, 130))
    for options in ({"mask": FarKeyRanges()}, {"bias": OneForAll()}):
        ours, theirs = (attention(q, k, v, **options, implementation=path) for path in ("native", "reference"))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"window": (300, 100)}, {"causal": True, "window": (700, 0)}, {"key_lengths": 700}],
    ids=str,
)
def test_blocks_of_the_plan_are_those_that_hold_weights(options):
    """Blocks begin at the first key that a query of theirs attends to; full ones have no masked pair."""
    q, k = np.zeros((1000, 8), np.float32), np.zeros((1200, 8), np.float32)
    plan = explain_plan(q, k, k, **options)
    seen = attention_weights(q, k, **options) > 0
    blocks = {"full": 0, "partial": 0, "empty": -(-1000 // plan.rows) * -(-1200 // plan.cols)}
    for row in range(0, 1000, plan.rows):
        strip = seen[row : row + plan.rows]
        keys = np.flatnonzero(strip.any(0))
        first, last = keys[0], keys[-1] + 1
        for at in range(first, last, plan.cols):
            kind = "full" if at + plan.cols <= last and strip[:, at : at + plan.cols].all() else "partial"
            blocks[kind] += 1
            blocks["empty"] -= 1
    assert plan.blocks == blocks


def test_the_splitkv_plan_is_in_splits_of_keys(rng):
    q, k = np.zeros((32, 1, 64), np.float32), np.zeros((8, 4096, 64), np.float32)
    plan = explain_plan(q, k, k)
    assert (plan.implementation, plan.rows, plan.cols, plan.blocks["full"]) == ("native", 1, 512, 8)
    short = explain_plan(*(np.zeros((1, 4096, 64), np.float16) for _ in range(3)))
    assert short.memory > 2 * 4096 * 64 * 4  # keys and values in float32


@pytest.mark.parametrize(("queries", "heads"), [(1, 9), (1, 17), (2, 8), (3, 4), (8, 2), (5, 33), (12, 16)])
def test_few_queries_of_any_number_of_heads_are_split_over_keys(queries, heads, rng):
    for groups, keys in ((1, 600), (2, 1100), (8, 1100)):
        q, k, v = plain(rng, queries, keys, 20, 17, lead=(groups * heads,), groups=(groups,))
        attends = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
        held(q, k, v, attends=attends, causal=True)
        for isa in ISAS:
            assert native.kernel().use_instruction_set(isa)
            assert explain_plan(q, k, v).cols == native.kernel().SPLITKV_KEYS
            one = attention(q[heads - 1], k[0], v[0], implementation="native")
            np.testing.assert_array_equal(attention(q, k, v, implementation="native")[heads - 1], one)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("queries", [1, 70])
def test_half_precision_keys_and_values_are_upcast_without_a_copy(instruction_set, queries, dtype, rng):
    q, k, v = plain(rng, queries, 4000, 40, 48, lead=(3, 4), groups=(3, 2))
    for keys, values in ((k.astype(dtype), v.astype(dtype)), (k.astype(dtype), v), (k, v.astype(dtype))):
        wide = [x.astype(np.float32) for x in (keys, values)]
        expected = attention(q, *wide, implementation="native")
        assert expected.dtype == np.float32
        tracemalloc.start()
        found = attention(q, keys, values, implementation="native")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_array_equal(found, expected)
        assert peak < found.nbytes + k.nbytes / 2


@pytest.mark.parametrize("queries", [1, 2, 70])
def test_without_keys_the_result_is_zero_whatever_was_in_memory(queries, rng):
    noisy = rng.standard_normal((2, 9, 1, 64)) * 1e300
    q, sinks = rng.standard_normal((2, 9, queries, 7)), rng.standard_normal(9)
    nothing = np.zeros((2, 3, 0, 7))
    for _ in range(20):
        attention(noisy, noisy[:, :3], noisy[:, :3], scale=1e-300, implementation="native")
        part = attention_partial(q, nothing, nothing, sinks=sinks, implementation="native")
        assert not part.output.any()
        np.testing.assert_allclose(part.lse, np.broadcast_to(sinks[:, None], part.lse.shape))


@pytest.mark.skipif(not ISAS, reason="the calls without a kernel are those of the formula")
def test_a_small_call_is_few_calls_in_python():
    """Of a call of microseconds most is spent before the kernel."""
    x = np.ones((5, 8), np.float32)
    assert len(calls := calls_of(lambda: attention(x, x, x))) <= 20, calls
    assert len({path for path, _ in calls}) <= 8, calls


def test_the_reference_is_few_calls_to_walk_through():
    """Of the package alone, without those inside NumPy."""
    x, package = np.ones((5, 8)), str(Path(regard.__file__).parent)
    calls = [call for call in calls_of(lambda: attention(x, x, x, implementation="reference")) if package in call[0]]
    assert len(calls) <= 40, calls
    assert len({path for path, _ in calls}) <= 8, calls


def calls_of(run):
    """Return the file and the name of each function of Python that `run` calls, once it ran before."""
    run()
    calls = []

    def profile(frame, event, _):
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls[1:]  # without `run` itself
