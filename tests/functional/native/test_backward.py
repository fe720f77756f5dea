"""Gradients of the kernel: compared with the reference in float64, at block borders, for any number of threads."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from attention_cases import random_case
from regard import RegardError, attention_vjp
from regard.functional import ALiBi, Bias, Causal, RelativePositionBias, SegmentMask, native
from sweeps import sweep_after

kernel = native.kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason="built without a compiler")

LENGTHS = [1, 2, 5, 63, 64, 65, 95, 96, 97, 191, 193, 229]  # a block is 64 queries by 96 keys, a task 192 keys
SEEDS = sweep_after(7, range(0, 160, 8))


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape)


def gradients(q, k, v, d_output=None, *, path="native", **options):
    """Return the gradients by name, without those that are None."""
    if "dropout" in options:
        options["rng"] = np.random.default_rng(7)
    output, pullback = attention_vjp(q, k, v, **options, implementation=path)
    found = pullback(draw(*output.shape, seed=9).astype(output.dtype) if d_output is None else d_output)
    return {name: x for name, x in found._asdict().items() if x is not None}


def bits(found):
    return {name: x.tobytes() for name, x in found.items()}


def close(ours, theirs, relative=1e-10):
    assert ours.keys() == theirs.keys()
    largest = max(np.abs(x).max(initial=1e-3) for x in theirs.values())  # the gradient of a bias may be a sum that is 0
    for name, x in theirs.items():
        assert ours[name].shape == x.shape
        np.testing.assert_allclose(ours[name], x, rtol=relative, atol=relative * largest, err_msg=name)


@pytest.mark.parametrize("first", SEEDS)
def test_random_calls_have_the_gradients_of_the_reference(first):
    for seed in range(first, first + 8):
        case = random_case(seed, lengths=LENGTHS)
        options = case.options
        if seed % 4 == 0:
            options = {**options, "dropout": 0.3}
        close(
            gradients(case.q, case.k, case.v, **options), gradients(case.q, case.k, case.v, path="blockwise", **options)
        )


@pytest.mark.parametrize("first", sweep_after(3, range(0, 80, 8)))
def test_every_instruction_set_has_the_gradients_of_the_reference(first, instruction_set):
    test_random_calls_have_the_gradients_of_the_reference(first)


@pytest.mark.parametrize("first", SEEDS)
def test_the_float32_error_is_that_of_the_reference(first):
    """At most three times that of NumPy in float32; where that is lucky, a few roundings of the largest value.

    Sums over a block go on one number after the other: of 64 roundings as many as their square root, up and down.
    """
    for seed in range(first, first + 8):
        case = random_case(seed, lengths=LENGTHS, spread=1.0).cast(np.float32)
        wide = case.cast(np.float64)
        ours, theirs = (
            gradients(case.q, case.k, case.v, path=path, **case.options) for path in ("native", "blockwise")
        )
        d_output = draw(*attention_vjp(case.q, case.k, case.v, **case.options)[0].shape, seed=9).astype(np.float32)
        truth = gradients(wide.q, wide.k, wide.v, d_output.astype(float), path="blockwise", **case.options)
        luck = 16 * np.finfo(np.float32).eps * max(np.abs(exact).max(initial=1) for exact in truth.values())
        for name, exact in truth.items():
            off, naive = (np.abs(x[name] - exact).max(initial=0) for x in (ours, theirs))
            assert off <= 3 * naive + luck, (seed, name)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    for seed in range(20):
        case = random_case(seed, lengths=LENGTHS, spread=0.5).cast(dtype)
        d_output = draw(*attention_vjp(case.q, case.k, case.v, **case.options)[0].shape, seed=9).astype(dtype)
        ours = gradients(case.q, case.k, case.v, d_output, **case.options)
        q, k, v, d_wide = (x.astype(np.float32) for x in (case.q, case.k, case.v, d_output))
        wide = gradients(q, k, v, d_wide, **case.options)
        for name in ("q", "k", "v"):
            assert ours[name].dtype == dtype
            assert np.array_equal(ours[name], wide[name].astype(dtype))


CALLS = {
    "plain": {},
    "causal, softcap and sinks": {"causal": True, "softcap": 3.0, "sinks": draw(6)},
    "window": {"window": (70, 3)},
    "one bias for all heads": {"bias": draw(130, 330)},
    "bias of keys": {"bias": draw(6, 1, 330)},
    "bias of queries": {"bias": draw(6, 130, 1)},
    "bias of heads": {"bias": draw(6, 1, 1)},
    "slopes": {"bias": ALiBi(np.linspace(0.1, 0.6, 6)), "causal": True},
    "buckets": {"bias": RelativePositionBias(draw(16, 6))},
    "segments": {"mask": SegmentMask(np.arange(130) // 50, np.arange(330) // 90) & Causal()},
    "dropout": {"dropout": 0.4},
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CALLS)
def test_any_number_of_threads_gives_the_same_bits(name, dtype, same_bits):
    q, k, v = (draw(*shape).astype(dtype) for shape in ((2, 6, 130, 24), (2, 2, 330, 24), (2, 2, 330, 10)))
    same_bits(lambda: [*gradients(q, k, v, **CALLS[name]).values()], (1, *[2, 3, 7] * 3))


@pytest.mark.parametrize("name", ["plain", "causal, softcap and sinks", "slopes"])
def test_one_head_with_a_long_sequence(name, threads):
    """Several tasks along queries and keys, which accumulate into the same gradients in order."""
    options = {key: x[:1] if key == "sinks" else x for key, x in CALLS[name].items()}
    if name == "slopes":
        options["bias"] = ALiBi(np.array([0.01]))
    q, k, v = draw(8400, 3), draw(500, 3), draw(500, 2)
    threads(3)
    found = gradients(q, k, v, query_offset=0, **options) if options else gradients(q, k, v)
    theirs = {**options, "query_offset": 0} if options else {}
    close(found, gradients(q, k, v, path="blockwise", **theirs))
    threads(1)
    assert bits(gradients(q, k, v, **theirs)) == bits(found)


def test_strides_do_not_matter():
    def laid_out(x):
        yield np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 0, 1)), 0, 1)
        yield np.asfortranarray(x)
        yield np.ascontiguousarray(x[:, ::-1])[:, ::-1]
        yield np.repeat(x, 2, axis=-1)[..., ::2]

    for dtype in (np.float16, np.float32, np.float64):
        q, k, v = (
            draw(*shape, seed=i).astype(dtype) for i, shape in enumerate([(3, 70, 32), (3, 99, 32), (3, 99, 16)])
        )
        d_output = draw(3, 70, 16).astype(dtype)
        straight = bits(gradients(q, k, v, d_output))
        for arrays in zip(*map(laid_out, (q, k, v, d_output)), strict=True):
            assert bits(gradients(*arrays)) == straight


@pytest.mark.parametrize("shape", [(0, 5, 3, 2), (5, 0, 3, 2), (0, 0, 3, 2), (5, 4, 0, 2), (5, 4, 3, 0)], ids=str)
def test_empty_axes(shape):
    queries, keys, dim, width = shape
    bias = draw(queries, keys)
    arrays = draw(2, queries, dim), draw(2, keys, dim), draw(2, keys, width)
    for options in ({}, {"bias": bias}, {"bias": ALiBi(np.ones(2))}, {"sinks": np.ones(2)}):
        close(gradients(*arrays, **options), gradients(*arrays, path="blockwise", **options))


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_masked_nonfinite_inputs_do_not_propagate(poison):
    q, k, v = draw(130, 7), draw(250, 7), draw(250, 5)
    mask = np.random.default_rng(3).random((130, 250)) < 0.5
    mask[:, [3, 100, 249]] = False
    mask[[0, 64, 129]] = False
    clean = gradients(q, k, v, mask=mask, softcap=2.0)
    k[[3, 100]], v[[3, 249]], q[[0, 129]] = poison, poison, poison
    found = gradients(q, k, v, mask=mask, softcap=2.0)
    assert bits(found) == bits(clean)


def test_attended_nonfinite_inputs_have_no_derivative():
    q, k, v = draw(70, 3), draw(99, 3), draw(99, 2)
    k[5, 1], v[60, 0] = np.nan, np.inf
    ours, theirs = (gradients(q, k, v, causal=True, query_offset=0, path=path) for path in ("native", "blockwise"))
    for name, x in theirs.items():
        assert np.array_equal(np.isnan(ours[name]), np.isnan(x))
    assert np.isnan(ours["k"]).any()
    assert not np.isnan(ours["q"][:5]).any()


def test_a_custom_bias():
    class Towards(Bias):
        parameter = np.array(0.3)

        def values(self, grid, rows, cols):
            return self.parameter * np.sin(np.arange(grid.keys)[cols])

        def gradient(self, grid, rows, cols, d_tile):
            return np.sum(d_tile * np.sin(np.arange(grid.keys)[cols]))

    q, k, v = draw(2, 66, 3), draw(2, 97, 3), draw(2, 97, 2)
    close(gradients(q, k, v, bias=Towards()), gradients(q, k, v, bias=Towards(), path="blockwise"))
    del Towards.gradient
    with pytest.raises(RegardError, match="has no gradient"):
        gradients(q, k, v, bias=Towards())


def test_rules_evaluated_in_strips_of_queries(monkeypatch):
    monkeypatch.setattr("regard.functional.native.mask_args._STRIP_SCORES", 4 * 64 * 97)
    q, k, v = draw(4, 201, 3), draw(2, 97, 3), draw(2, 97, 2)
    mask = SegmentMask(np.arange(201) // 30, np.arange(97) // 14) | Causal()
    for bias in (None, draw(201, 97), ALiBi(np.ones(4)), draw(97), draw(201, 1)):
        ours, theirs = (gradients(q, k, v, mask=mask, path=path, bias=bias) for path in ("native", "blockwise"))
        close(ours, theirs)


def test_scores_near_and_beyond_the_largest_finite_value():
    q, ones = np.full((3, 2), 1e20, np.float32), np.ones((3, 2), np.float32)
    found = gradients(q, np.array([[1e20, 1e20], [0, 0], [1e20, 1e20]], np.float32), ones, ones)
    np.testing.assert_allclose(found["v"], [[1.5, 1.5], [0, 0], [1.5, 1.5]])
    found = gradients(q / 10, np.full((2, 2), -1e19, np.float32), ones[:2], ones)  # all scores are -1.4e38
    np.testing.assert_allclose(found["v"], np.full((2, 2), 1.5))


def test_a_pullback_may_be_called_again_and_from_many_threads():
    q, k, v = (draw(4, 200, 16, seed=i).astype(np.float32) for i in range(3))
    output, pullback = attention_vjp(q, k, v, causal=True, implementation="native")
    asked = [draw(*output.shape, seed=i).astype(np.float32) for i in range(6)]
    alone = [bits(pullback(x)._asdict() | {"bias": q, "sinks": q}) for x in asked]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = pool.map(lambda x: bits(pullback(x)._asdict() | {"bias": q, "sinks": q}), asked)
            assert list(together) == alone
