"""Parts and statistics of a map agree with NumPy in float64, for every instruction set and number of threads."""

import copy

import ml_dtypes
import numpy as np
import pytest

from regard import AttentionMap, Trace, attention, attention_weights, set_num_threads
from regard.functional import ALiBi, Causal, Mask, PrefixLM, RelativePositionBias, SegmentMask, native
from sweeps import sweep_after

kernel = native.kernel()
if kernel is None:
    pytest.skip(native.unavailable_reason(), allow_module_level=True)

STAGES = ("scores", "capped", "biased", "weights")


class OnceEvery(Mask):
    """A custom rule, which is evaluated cell by cell."""

    def allows(self, grid, rows, cols):
        return (grid.query_indices(rows) + grid.key_indices(cols)) % 3 != 0


def drawn(seed):
    """Return q, k and random options, of sizes around the kernel's blocks of 64 queries and 96 keys."""
    rng = np.random.default_rng(seed)
    queries, keys = int(rng.choice([1, 5, 63, 64, 65, 130])), int(rng.choice([1, 31, 33, 95, 97, 200]))
    groups, repeats, dim = (int(rng.choice(sizes)) for sizes in ((1, 2), (1, 3), (1, 7, 16)))
    heads, lead = groups * repeats, [(), (2,)][int(rng.integers(2))]
    q = rng.standard_normal((*lead, heads, queries, dim)) * rng.choice([0.3, 3.0])
    k = rng.standard_normal((*lead, groups, keys, dim))
    options = {}
    if rng.random() < 0.5:
        options["causal"] = True
    if rng.random() < 0.3:
        options["window"] = (int(rng.integers(0, 120)), int(rng.integers(0, 50)))
    if options and rng.random() < 0.5:
        options["query_offset"] = rng.integers(-9, 70, lead) if lead else int(rng.integers(-9, 70))
    if rng.random() < 0.3:
        options["key_lengths"] = rng.integers(0, keys + 1, lead) if lead else int(rng.integers(0, keys + 1))
    if rng.random() < 0.5:
        options["mask"] = [
            rng.random((heads, queries, keys)) < 0.7,
            rng.random((queries, 1)) < 0.8,
            SegmentMask(np.sort(rng.integers(0, 3, queries)), np.sort(rng.integers(0, 3, keys))),
            (Causal(3) | PrefixLM(min(5, keys))) & (rng.random(keys) < 0.9),
            OnceEvery(),
        ][int(rng.integers(5))]
    if rng.random() < 0.5:
        dense = rng.standard_normal((heads, queries, keys))
        options["bias"] = [
            np.where(rng.random(dense.shape) < 0.1, -np.inf, dense),
            dense[:, :1],
            ALiBi(rng.random(heads)),
            RelativePositionBias(rng.standard_normal((8, heads)), max_distance=40),
        ][int(rng.integers(4))]
    more = {"softcap": 3.0, "scale": 0.7, "sinks": rng.standard_normal(heads).astype(np.float32)}
    return rng, q, k, options | {name: value for name, value in more.items() if rng.random() < 0.3}


def allowed(q, k, options, dtype):
    """Return how far a score in `dtype` may be from the exact one.

    A sum of D products has an error of at most D units of the sum of their sizes; scale, softcap (whose tanh is within
    4 units), the bias and its rounding add theirs.
    """
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    scale = options.get("scale", 1 / np.sqrt(q.shape[-1]))
    sizes = np.abs(q).max(axis=(-1, -2), initial=0).max(initial=0) * np.abs(k).sum(-1).max(initial=0) * scale
    biased = attention_weights(q, k, **options, stage="biased", implementation="blockwise", rows=slice(None))
    added = np.abs(biased[np.isfinite(biased)]).max(initial=0)
    return unit * ((q.shape[-1] + 3) * sizes + 6 * options.get("softcap", 0) + 3 * added + 1)


def pair(seed, dtype):
    """Return a map by the kernel, one by NumPy in float64, and how far scores and, relatively, weights may be off."""
    rng, q, k, options = drawn(seed)
    q, k = (x.astype(dtype) for x in (q, k))
    wide = [x.astype(np.float64) for x in (q, k)]
    error = allowed(*wide, options, np.float64 if dtype == np.float64 else np.float32)
    unit = float(ml_dtypes.finfo(dtype).eps)
    relative = np.expm1(2 * error) + 4 * unit  # of a weight: errors of score and sum; the exponential, the quotient
    ours = AttentionMap(q, k, **options, implementation="native")
    return rng, ours, AttentionMap(*wide, **options, implementation="blockwise"), error, relative


def close(ours, theirs, relative, absolute=0.0):
    smallest = float(ml_dtypes.finfo(ours.dtype).smallest_normal * ml_dtypes.finfo(ours.dtype).eps)
    smallest = max(smallest, 1e-37)  # the exponential may underflow in float32
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=relative, atol=absolute + smallest)


DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def on_each_instruction_set(look):
    """Yield a map with nothing computed, as often as there are instruction sets, and each in use."""
    for name in kernel.instruction_sets():
        assert kernel.use_instruction_set(name)
        yield copy.deepcopy(look)


@pytest.mark.parametrize("first", sweep_after(1, range(0, 60, 5)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_stages_and_tiles_of_any_rows_and_columns(dtype, first):
    for seed in range(first, first + 5):
        rng, ours, theirs, error, relative = pair(seed, dtype)
        queries, keys = ours.shape[-2:]
        some = (
            (None, None),
            (slice(queries // 3, queries), slice(keys // 2, keys)),
            (rng.integers(-queries, queries, 7), slice(None, None, 3)),
            (slice(None, None, -2), np.array([0, keys - 1, 0])),
            (-1, rng.integers(0, keys, 5)),
        )
        cases = [(rows, cols, stage, theirs.tile(rows, cols, stage=stage)) for rows, cols in some for stage in STAGES]
        for look in on_each_instruction_set(ours):
            for rows, cols, stage, expected in cases:
                rounding = relative if stage == "weights" else float(ml_dtypes.finfo(dtype).eps)
                close(look.tile(rows, cols, stage=stage), expected, rounding, 0 if stage == "weights" else error)


@pytest.mark.parametrize("first", sweep_after(1, range(0, 60, 5)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_forward_pass_writes_the_recorded_weights(dtype, first, monkeypatch):
    written = []
    forward = kernel.forward
    monkeypatch.setattr(kernel, "forward", lambda *arguments: written.append(len(arguments)) or forward(*arguments))
    for seed in range(first, first + 5):
        rng, ours, theirs, _, relative = pair(seed, dtype)
        _, _, _, options = drawn(seed)
        options["implementation"] = "native"
        v = rng.standard_normal((*ours.k.shape[:-1], int(rng.choice([1, 7, 20])))).astype(dtype)
        expected = theirs.weights()
        for look in on_each_instruction_set(ours):
            trace, one = Trace(only="weights"), Trace(only="weights")
            context = attention(look.q, look.k, v, **options, trace=trace)
            close(trace["weights"], expected, relative)
            np.testing.assert_array_equal(context, attention(look.q, look.k, v, **options))
            if "sinks" not in options and len(look.q):
                sums = trace["weights"].astype(np.float64).sum(-1)
                assert (np.abs(sums - 1) < 1e-6)[expected.any(-1)].all()
            set_num_threads(1)
            attention(look.q, look.k, v, **options, trace=one)
            set_num_threads(3)
            np.testing.assert_array_equal(one["weights"], trace["weights"])
    assert max(written) == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("instruction_set")
def test_an_earlier_call_leaves_nothing_behind(rng, dtype, monkeypatch):
    finite, forward = [], kernel.forward
    monkeypatch.setattr(kernel, "forward", lambda *arguments: finite.append(forward(*arguments)) or finite[-1])
    q, k, v = rng.standard_normal((3, 1, 65, 16)).astype(dtype)
    bias = rng.standard_normal((65, 65)).astype(dtype)
    nan = np.full((63, 65), np.nan, dtype)
    set_num_threads(1)
    with np.errstate(all="ignore"):
        attention(q[:, :63], k, v, bias=nan, implementation="native")
    finite.clear()
    attention(q, k, v, bias=bias, implementation="native", trace=Trace(only="weights"))
    assert finite == [True]


@pytest.mark.parametrize("keys", [509, 528])
def test_weights_that_are_stored_past_the_caches_have_the_same_bits(rng, keys):
    q, k, v = (rng.standard_normal((12, n, 8)).astype(np.float32) for n in (510, keys, keys))
    every, alone = Trace(only="weights"), [Trace(only="weights") for _ in q]
    attention(q, k, v, causal=keys == 528, trace=every)  # more than 8 MB
    for head, trace in enumerate(alone):
        attention(q[head], k[head], v[head], causal=keys == 528, trace=trace)
        np.testing.assert_array_equal(every["weights"][head], trace["weights"])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_weights_beside_numbers_that_are_not_finite(rng, poison):
    q, k, v = rng.standard_normal((3, 2, 70, 8)).astype(np.float32)
    for poisoned in (q, k, v):
        poisoned[0, 3, 1] = poison
        trace = Trace(only="weights")
        mask = np.arange(70) != 3
        with np.errstate(all="ignore"):
            context = attention(q, k, v, mask=mask, trace=trace)
            np.testing.assert_array_equal(trace["weights"], attention_weights(q, k, mask=mask))
            np.testing.assert_array_equal(context, attention(q, k, v, mask=mask))


def test_recorded_weights_are_not_copied(rng, monkeypatch):
    q, k, v = rng.standard_normal((3, 2, 70, 8)).astype(np.float32)
    monkeypatch.setattr(native, "pooled_copy", None)
    trace = Trace(only="weights")
    attention(q, k, v, trace=trace)
    np.testing.assert_allclose(trace["weights"].sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("first", sweep_after(1, range(0, 60, 5)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_overviews(dtype, first):
    unit = float(ml_dtypes.finfo(dtype).eps)
    for seed in range(first, first + 5):
        rng, ours, theirs, _, relative = pair(seed, dtype)
        queries, keys = ours.shape[-2:]
        sizes = ((1, 1), (3, 7), (queries, keys), (int(rng.integers(1, 99)), int(rng.integers(1, 99))))
        pooled = [(size, how, theirs.pooled(size, how)) for size in sizes for how in ("max", "mean")]
        entropy, distance, received, largest = theirs.entropy(), theirs.distance(), theirs.received(), theirs.top(5)
        weights = theirs.weights()
        for look in on_each_instruction_set(ours):
            close(look.lse, theirs.lse, 1e-12, 1e-12)
            close(look.received(), received, relative)
            # d(-w log w) = -(log w + 1) dw, where dw is at most `relative` of w
            close(look.entropy(), entropy, unit, (entropy + 1).max(initial=0) * 2 * relative)
            close(look.distance(), distance, unit, 2 * relative * (queries + keys + 70))
            for size, how, expected in pooled:
                close(look.pooled(size, how), expected, relative)
            best, named = look.top(5)
            close(best, largest.weights, relative)
            assert np.array_equal(named >= 0, largest.keys >= 0)
            of_named = np.take_along_axis(weights, np.where(named < 0, 0, named), -1)
            close(best, np.where(named < 0, 0, of_named), relative)


@pytest.mark.usefixtures("instruction_set")
def test_an_overview_and_row_stats_have_the_same_bits():
    """After an overview, no tile iterates over all keys of its rows again."""
    for seed in range(60):
        _, look, _, _, _ = pair(seed, np.float32)
        for how in ("max", "mean"):
            look.pooled((7, 33), how)
            found = vars(look._source).pop("stats")
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, look._source.stats, strict=True))
            del look._source.stats


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_bits_for_any_number_of_threads(rng, same_bits, dtype):
    q, k = rng.standard_normal((3, 300, 16)).astype(dtype), rng.standard_normal((3, 1000, 16)).astype(dtype)

    def overviews():
        look = AttentionMap(q, k, causal=True, bias=ALiBi(np.ones(3)), implementation="native")
        pooled = look.pooled((7, 33)), look.pooled((290, 5), "mean")
        statistics = look.entropy(), look.received(), look.distance(), look.lse, *look.top(7)
        return [*statistics, *pooled, look.weights(), look[1, 40:200, ::2]]

    same_bits(overviews)


@pytest.mark.usefixtures("instruction_set")
def test_a_weight_has_the_same_bits_in_every_tile(rng):
    """For any rows and columns of the tile, before and after the row statistics are known."""
    q, k = rng.standard_normal((2, 400, 24)).astype(np.float32)
    look = AttentionMap(q, k, window=(150, 10), implementation="native")
    rows = look[100:300, :380]
    for known in (False, True):
        assert np.array_equal(look[150, :380], rows[50])
        assert np.array_equal(look[131:277, 200:301], rows[31:177, 200:301])
        assert np.array_equal(look[[250, 103], [7, 200, 201]], rows[[150, 3]][:, [7, 200, 201]])
        if not known:
            assert look.pooled((400, 400))[150, 151] == look[150, 151]
            assert np.array_equal(look.top(1).weights[100:300, 0], rows.max(-1))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keys", [1024, 1000, 1030, 4000])  # whole cache lines, or not; 4,000: in two passes
def test_streaming_stores_give_the_same_bits(rng, dtype, keys):
    """More than 8 MB of weights use streaming stores."""
    q, k = rng.standard_normal((3, 777, 8)).astype(dtype), rng.standard_normal((3, keys, 8)).astype(dtype)
    options = {"causal": True, "query_offset": keys - 700, "implementation": "native"}
    whole = attention_weights(q, k, **options)
    assert whole.nbytes > 8 << 20
    parts = [attention_weights(q[h, i : i + 128], k[h], **options | {"query_offset": keys - 700 + i})
             for h in range(3) for i in range(0, 777, 128)]  # fmt: skip
    assert np.array_equal(whole, np.concatenate(parts).reshape(whole.shape))


@pytest.mark.parametrize("keys", [97, 4096, 100_000])
def test_equal_weights_of_a_long_row_sum_to_one(keys):
    """Rounding errors of one sign add up: the float32 sum of 100,000 equal numbers is off by 1e-3."""
    look = AttentionMap(np.zeros((1, 1), np.float32), np.zeros((keys, 1), np.float32), sinks=np.array([1.2]))
    share = keys / (keys + np.exp(np.float64(np.float32(1.2))))
    np.testing.assert_allclose(look[0].astype(np.float64).sum(), share, rtol=1e-6)
    np.testing.assert_allclose(look.received().astype(np.float64).sum(), share, rtol=1e-6)
    np.testing.assert_allclose(look.pooled((1, 1), "mean") * keys, share, rtol=1e-6)


@pytest.mark.usefixtures("instruction_set")
def test_top_k_ranks_equal_weights_by_key_and_counts_allowed_keys(rng):
    q, k = np.zeros((70, 4), np.float32), np.zeros((200, 4), np.float32)
    assert AttentionMap(q, k).top(4).keys.tolist() == [[0, 1, 2, 3]] * 70
    bias = np.full((70, 200), -300.0)  # weights that are 0 in float32, but allowed
    bias[:, 150] = 0
    bias[:, ::2] = -np.inf  # masked
    bias[:, 150] = 0
    best = AttentionMap(q, k, bias=bias).top(4)
    assert best.keys.tolist() == [[150, 1, 3, 5]] * 70
    assert best.weights.tolist() == [[1, 0, 0, 0]] * 70
    few = AttentionMap(q, k, key_lengths=2).top(3)
    assert few.keys.tolist() == [[0, 1, -1]] * 70
    assert few.weights.tolist() == [[0.5, 0.5, 0]] * 70
    scores = rng.permutation(70 * 200).reshape(70, 200) / 1e3
    order = np.argsort(-scores, -1)
    for count in (1, 10, 200, 300):  # the last without the kernel
        keys = AttentionMap(q, k, bias=scores).top(count).keys
        assert np.array_equal(keys[:, :200], order[:, :count])
        assert (keys[:, 200:] == -1).all()


@pytest.mark.usefixtures("instruction_set")
def test_masked_keys_do_not_propagate(rng):
    q, k = rng.standard_normal((2, 5, 3))
    k[2], k[4] = np.nan, np.inf
    mask = np.array([True, True, False, True, False])
    look, clean = (AttentionMap(q, x, mask=mask) for x in (k, np.where(mask[:, None], k, 0)))
    for stage in ("biased", "weights"):
        assert np.array_equal(look.tile(stage=stage), clean.tile(stage=stage))
    for stage in ("scores", "capped"):  # before the mask, without the kernel
        np.testing.assert_allclose(look.tile(stage=stage), clean.tile(stage=stage), rtol=1e-12)
    for one, other in (
        (look.entropy(), clean.entropy()),
        (look.received(), clean.received()),
        (look.top(4).keys, clean.top(4).keys),
        (look.pooled((2, 2)), clean.pooled((2, 2))),
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("lowest", [np.finfo(np.float32).min, -1e30])
def test_rows_of_very_low_scores_are_normalised(rng, lowest):
    q, k = (rng.standard_normal((n, 8)).astype(np.float32) for n in (70, 100))
    bias = np.zeros((70, 100), np.float32)
    bias[3] = lowest
    look = AttentionMap(q, k, bias=bias)
    np.testing.assert_allclose(look.weights()[3], 0.01, rtol=1e-6)
    np.testing.assert_allclose(look[3, 20:30], 0.01, rtol=1e-6)
    np.testing.assert_allclose(look.pooled((70, 1))[3], 0.01, rtol=1e-6)
    np.testing.assert_allclose(look.entropy()[3], np.log(100), rtol=1e-6)


def test_only_rows_that_attend_to_nan_are_nan(rng):
    q, k = rng.standard_normal((2, 130, 4)).astype(np.float32)
    q[70] = np.nan
    look = AttentionMap(q, k, causal=True)
    for found in (look.weights().max(-1), look[:, 0], look.entropy(), look.distance(), look.pooled((130, 2))[:, 1]):
        assert np.array_equal(np.isnan(found), np.arange(130) == 70)
    assert np.isnan(look.pooled((2, 2))).tolist() == [[False, False], [True, True]]
    assert np.isnan(look.received()[:71]).all()
