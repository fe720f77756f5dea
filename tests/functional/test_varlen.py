"""Attention over sequences of different lengths, against the formula in float64, one sequence after the other."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attention_cases import PATHS, chance, paged
from regard import attention_varlen, attention_varlen_vjp, merge_partials


@dataclass
class Batch:
    """Sequences, the options of a call, and their meaning: which keys a query attends to, and what is added."""

    q: np.ndarray  # Tq H D
    k: np.ndarray  # Tk G D
    v: np.ndarray  # Tk G Dv
    starts_q: np.ndarray
    starts_k: np.ndarray
    options: dict[str, Any]

    @property
    def arrays(self):
        return self.q, self.k, self.v, self.starts_q, self.starts_k


def draw(seed, *, queries=None, dtype=np.float64, heads=(4, 2), dim=5, width=3):
    """Draw sequences, some of them empty, and options."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    of_q = rng.integers(0, queries or rng.choice([2, 5, 80]), count)
    of_k = rng.integers(0, rng.choice([5, 100, 700]), count)
    starts_q, starts_k = (np.append(0, x.cumsum()).astype(np.int32) for x in (of_q, of_k))
    options = {"causal": chance(rng, 0.5)}
    if chance(rng, 0.5):
        options["window_size"] = tuple(int(x) for x in rng.integers(-1, 40, 2))
    if chance(rng, 0.3):
        options["softcap"] = 3.0
    if chance(rng, 0.4):
        options["alibi_slopes"] = rng.random((count, heads[0]) if chance(rng, 0.5) else heads[0])
    if chance(rng, 0.3):
        options["softmax_scale"] = 0.3
    if chance(rng, 0.4):
        options["attention_chunk"] = int(rng.integers(1, 50))
    if chance(rng, 0.4):
        options["sinks"] = np.append(rng.standard_normal(heads[0] - 1) * 3, -np.inf)
    q = rng.standard_normal((starts_q[-1], heads[0], dim)).astype(dtype)
    k = rng.standard_normal((starts_k[-1], heads[1], dim)).astype(dtype)
    v = rng.standard_normal((starts_k[-1], heads[1], width)).astype(dtype)
    return Batch(q, k, v, starts_q, starts_k, options)


def formula(batch):
    """Return the output and the log-sum-exp in float64."""
    q, k, v = (x.astype(np.float64) for x in (batch.q, batch.k, batch.v))
    heads, repeats = q.shape[1], q.shape[1] // k.shape[1]
    output, lse = np.zeros((*q.shape[:2], v.shape[-1])), np.zeros(q.shape[:2])
    left, right = batch.options.get("window_size", (-1, -1))
    slopes = batch.options.get("alibi_slopes", np.zeros(heads))
    spans = [itertools.pairwise(starts) for starts in (batch.starts_q, batch.starts_k)]
    for n, ((a, b), (c, d)) in enumerate(zip(*spans, strict=True)):
        key, position = np.arange(d - c), np.arange(b - a)[:, None] + (d - c) - (b - a)
        attends = np.ones((b - a, d - c), bool)
        if left >= 0:
            attends &= key >= position - left
        if right >= 0:
            attends &= key <= position + right
        if batch.options["causal"]:
            attends &= key <= position
        if chunk := batch.options.get("attention_chunk"):
            attends &= key // chunk == position // chunk
        for h in range(heads):
            scores = q[a:b, h] @ k[c:d, h // repeats].T * batch.options.get("softmax_scale", q.shape[-1] ** -0.5)
            if cap := batch.options.get("softcap"):
                scores = cap * np.tanh(scores / cap)
            slope = (slopes[n] if slopes.ndim == 2 else slopes)[h]
            scores = np.where(attends, scores - slope * abs(position - key), -np.inf)
            sink = batch.options.get("sinks", np.full(heads, -np.inf))[h]
            highest = scores.max(-1, keepdims=True, initial=max(sink, -1e300))
            exponentials = np.exp(scores - highest)
            total = exponentials.sum(-1, keepdims=True) + np.exp(sink - highest)
            with np.errstate(divide="ignore"):
                lse[a:b, h] = np.where(total == 0, -np.inf, highest + np.log(total))[:, 0]
            output[a:b, h] = exponentials / np.where(total == 0, 1, total) @ v[c:d, h // repeats]
    return output, lse


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(12))
def test_every_sequence_is_the_formula(path, seed):
    batch = draw(seed)
    output, lse = formula(batch)
    ours = attention_varlen(*batch.arrays, **batch.options, implementation=path)
    part = attention_varlen(*batch.arrays, **batch.options, implementation=path, return_lse=True)
    np.testing.assert_allclose(ours, output, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(part.output, output, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(part.lse, lse, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("queries", [2, 80])
def test_pages_are_the_keys_that_the_block_table_names(path, page_size, queries):
    batch = draw(page_size + 20, queries=queries)
    (k, table), (v, _) = (paged(x, batch.starts_k, page_size) for x in (batch.k, batch.v))
    ours = attention_varlen(
        batch.q, k, v, batch.starts_q, batch.starts_k, **batch.options, block_table=table, implementation=path
    )
    np.testing.assert_allclose(ours, formula(batch)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(path, dtype):
    batch = draw(4, dtype=dtype)
    ours = attention_varlen(*batch.arrays, **batch.options, implementation=path)
    assert ours.dtype == dtype
    error = 2e-6 if dtype == np.float32 else float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(ours.astype(np.float64), formula(batch)[0], rtol=error, atol=error)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_cache_of_half_precision_is_read_by_queries_of_float32(path, dtype):
    batch = draw(5, dtype=dtype)
    batch.q = batch.q.astype(np.float32)
    (k, table), (v, _) = (paged(x, batch.starts_k, 16) for x in (batch.k, batch.v))
    for keys, values, pages in ((batch.k, batch.v, None), (k, v, table)):
        ours = attention_varlen(
            batch.q, keys, values, batch.starts_q, batch.starts_k,
            **batch.options, block_table=pages, implementation=path,
        )  # fmt: skip
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, formula(batch)[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("each_token", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_int8_with_scales_is_the_formula_of_the_dequantised_cache(path, each_token, dtype):
    rng = np.random.default_rng(7)
    batch = draw(6, dtype=dtype)
    k8, v8 = (rng.integers(-128, 128, x.shape).astype(np.int8) for x in (batch.k, batch.v))
    scales = [(rng.random(k8.shape[:2] if each_token else k8.shape[1]) / 50).astype(np.float32) for _ in range(2)]
    batch.k, batch.v = (x * scale[..., None].astype(np.float64) for x, scale in zip((k8, v8), scales, strict=True))
    expected = formula(batch)[0]
    (pages_k, table), (pages_v, _) = (paged(x, batch.starts_k, 16, spare=1) for x in (k8, v8))
    of_pages = [paged(x, batch.starts_k, 16)[0] for x in scales] if each_token else scales
    error = {8: 1e-10, 4: 5e-6, 2: 2**-7}[np.dtype(dtype).itemsize]
    for keys, values, (k_scale, v_scale), pages in ((k8, v8, scales, None), (pages_k, pages_v, of_pages, table)):
        ours = attention_varlen(
            batch.q, keys, values, batch.starts_q, batch.starts_k, **batch.options,
            k_scale=k_scale, v_scale=v_scale, block_table=pages, implementation=path,
        )  # fmt: skip
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours.astype(np.float64), expected, rtol=error, atol=error)


@pytest.mark.parametrize("path", PATHS)
def test_parts_of_the_keys_merge_to_the_whole(path):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 2, 4)) for n in (5, 30, 30))
    whole = attention_varlen(q, k, v, [0, 2, 5], [0, 20, 30], implementation=path, return_lse=True)
    parts = [
        attention_varlen(q, k[rows], v[rows], [0, 2, 5], ends, implementation=path, return_lse=True)
        for rows, ends in (([*range(8), *range(20, 24)], [0, 8, 12]), ([*range(8, 20), *range(24, 30)], [0, 12, 18]))
    ]
    merged = merge_partials(*parts)
    np.testing.assert_allclose(merged.output, whole.output, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(merged.lse, whole.lse, rtol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(6))
def test_gradients_are_those_of_finite_differences(path, seed):
    batch = draw(seed + 40, queries=6)
    direction = np.random.default_rng(seed)
    output, pullback = attention_varlen_vjp(*batch.arrays, **batch.options, implementation=path)
    np.testing.assert_allclose(output, formula(batch)[0], rtol=1e-10, atol=1e-12)
    d_output = direction.standard_normal(output.shape)
    found = pullback(d_output)
    given = {name: getattr(batch, name) for name in "qkv"}
    if "sinks" in batch.options:
        given["sinks"] = batch.options["sinks"]
    else:
        assert found.sinks is None
    for name, x in given.items():
        step, ends = direction.standard_normal(x.shape), []
        for size in (1e-6, -1e-6):
            changed = {name: x + size * step}
            moved = replace(batch, options=batch.options | changed) if name == "sinks" else replace(batch, **changed)
            ends.append((formula(moved)[0] * d_output).sum())
        expected = (ends[0] - ends[1]) / 2e-6
        assert (getattr(found, name) * step).sum() == pytest.approx(expected, rel=1e-6, abs=1e-7)
        assert getattr(found, name).shape == x.shape


@pytest.mark.parametrize("path", PATHS)
def test_no_sequence_and_no_token(path):
    empty = np.zeros((0, 2, 3), np.float32)
    assert attention_varlen(empty, empty, empty, [0], [0], implementation=path).shape == (0, 2, 3)
    ones = np.ones((4, 2, 3), np.float32)
    assert not attention_varlen(ones, empty, empty, [0, 4], [0, 0], implementation=path).any()
    assert attention_varlen(empty, ones, ones, [0, 0], [0, 4], implementation=path).shape == (0, 2, 3)
    bare, values = ones[..., :0], np.arange(4, dtype=np.float32)[:, None, None] * ones  # queries without numbers
    means = attention_varlen(bare, bare, values, [0, 2, 4], [0, 2, 4], implementation=path)[:, 0, 0]
    assert means.tolist() == [0.5, 0.5, 2.5, 2.5]
    output, pullback = attention_varlen_vjp(ones, empty, empty, [0, 4], [0, 0], implementation=path)
    assert not pullback(output).q.any()
    _, pullback = attention_varlen_vjp(empty, ones, ones, [0, 0], [0, 4], implementation=path)
    assert pullback(empty).k.shape == ones.shape
    assert not pullback(empty).k.any()


@pytest.mark.parametrize("path", PATHS)
def test_numbers_near_the_largest_do_not_overflow(path):
    q = np.full((2, 1, 4), 1e30, np.float32)
    k = np.full((3, 1, 4), 1e30, np.float32)
    v = np.arange(3, dtype=np.float32).reshape(3, 1, 1)
    ours = attention_varlen(q, k, v, [0, 1, 2], [0, 2, 3], implementation=path)
    np.testing.assert_allclose(ours.ravel(), [0.5, 2])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sink", [np.inf, 3e38, 800.0, -800.0, -3e38, -np.inf])
def test_sinks_of_all_magnitudes(path, sink):
    """Beside scores of 1: a sink takes all or nothing, and where there is no key it has no value."""
    q, k = np.ones((3, 1, 1), np.float32), np.ones((2, 1, 1), np.float32)
    options = {"sinks": np.array([sink], np.float32), "implementation": path}
    output, lse = attention_varlen(q, k, k, [0, 2, 3], [0, 2, 2], **options, return_lse=True)
    takes = sink > 1
    np.testing.assert_allclose(output.ravel(), [0, 0, 0] if takes else [1, 1, 0], rtol=1e-6)
    largest = min(sink, np.finfo(np.float32).max)
    np.testing.assert_allclose(lse.ravel(), [*[largest if takes else 1 + np.log(2)] * 2, largest], rtol=1e-6)
    output, pullback = attention_varlen_vjp(q, k, k, [0, 2, 3], [0, 2, 2], **options)
    for gradient in pullback(np.ones_like(output)):
        assert gradient is None or np.isfinite(gradient).all()


@pytest.mark.parametrize("path", PATHS)
def test_sinks_beside_numbers_near_the_largest(path):
    """The first sequence overflows in float32 and is computed again; its sink counts once."""
    q, k, v = np.full((3, 1, 4), 1e30, np.float32), np.full((4, 1, 4), 1e30, np.float32), np.ones((4, 1, 1), np.float32)
    q[2] = k[3] = 0
    starts, options = ([0, 2, 3], [0, 3, 4]), {"sinks": np.zeros(1, np.float32), "implementation": path}
    output, pullback = attention_varlen_vjp(q, k, v, *starts, **options)
    np.testing.assert_allclose(output.ravel(), [1, 1, 0.5])
    np.testing.assert_array_equal(attention_varlen(q, k, v, *starts, **options), output)
    np.testing.assert_allclose(pullback(np.ones_like(output)).sinks, [-0.25], rtol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_the_gradient_of_sinks_of_half_precision_is_rounded_once(path):
    """Of 2,000 equal sequences of a token each: in half precision their sum stops growing."""
    ones, starts = np.ones((2000, 1, 1), np.float32), np.arange(2001)
    output, pullback = attention_varlen_vjp(
        ones, ones, ones, starts, starts, sinks=np.zeros(1, np.float16), implementation=path
    )
    found, weight = pullback(np.ones_like(output)).sinks, 1 / (1 + np.exp(-1))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), -2000 * weight * (1 - weight), rtol=2**-11 * 1.01)


@pytest.mark.parametrize("path", PATHS)
def test_a_query_without_keys_beside_sinks_may_hold_nan(path):
    """Queries 0 to 2 are before the only key."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 1, 3)) for n in (4, 1, 1))
    q[:3] = np.nan
    options = {"causal": True, "sinks": np.zeros(1), "implementation": path}
    output, pullback = attention_varlen_vjp(q, k, v, [0, 4], [0, 1], **options)
    alone, of_the_last = attention_varlen_vjp(q[3:], k, v, [0, 1], [0, 1], **options)
    np.testing.assert_allclose(output, np.append(np.zeros((3, 1, 3)), alone, axis=0))
    found, expected = pullback(np.ones_like(output)), of_the_last(np.ones_like(alone))
    for name in ("k", "v", "sinks"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name))
    assert not found.q[:3].any()
