"""The kernel's attention of many sequences: the same bits in any batch, in pages or not, and nothing read outside."""

import ml_dtypes
import numpy as np
import pytest

from attention_cases import paged
from regard import attention_varlen, attention_varlen_vjp
from regard.functional import native

kernel = native.kernel()
H, G, D, Dv = 6, 2, 24, 16
QUERIES, KEYS = np.array([1, 70, 0, 3, 130, 1, 12]), np.array([600, 97, 20, 0, 200, 1100, 65])
STARTS_Q, STARTS_K = (np.append(0, x.cumsum()).astype(np.int32) for x in (QUERIES, KEYS))
OPTIONS = {"causal": True, "window_size": (150, -1), "alibi_slopes": np.linspace(0.01, 0.2, H), "softcap": 9.0}


def arrays(dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    sizes = (STARTS_Q[-1], H, D), (STARTS_K[-1], G, D), (STARTS_K[-1], G, Dv)
    return tuple(rng.standard_normal(size).astype(dtype) for size in sizes)


def in_pages(x, page_size):
    """Return `x` in pages in a random order, beside NaN, and the block table."""
    return paged(x, STARTS_K, page_size, spare=77 if x.dtype == np.int8 else np.nan)


def call(q, k, v, **options):
    return attention_varlen(q, k, v, STARTS_Q, STARTS_K, **options, implementation="native")


def test_a_sequence_has_the_bits_that_it_has_alone(instruction_set, threads):
    q, k, v = arrays()
    together = call(q, k, v, **OPTIONS)
    for n in range(KEYS.size):
        rows, keys = slice(*STARTS_Q[n : n + 2]), slice(*STARTS_K[n : n + 2])
        threads(n % 3 + 1)
        alone = attention_varlen(q[rows], k[keys], v[keys], [0, QUERIES[n]], [0, KEYS[n]], **OPTIONS)
        assert alone.tobytes() == together[rows].tobytes()
    assert instruction_set


@pytest.mark.parametrize("page_size", [1, 7, 16, 64, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_pages_change_no_bit(instruction_set, page_size, dtype):
    q, k, v = arrays(dtype)
    (pages_k, table), (pages_v, _) = in_pages(k, page_size), in_pages(v, page_size)
    together = call(q, k, v, **OPTIONS)
    assert call(q, pages_k, pages_v, **OPTIONS, block_table=table).tobytes() == together.tobytes()
    assert instruction_set


@pytest.mark.parametrize("each_token", [False, True])
def test_int8_has_the_bits_of_the_dequantised_cache(instruction_set, each_token):
    rng = np.random.default_rng(3)
    q, *others = arrays()
    k8, v8 = (rng.integers(-128, 128, x.shape).astype(np.int8) for x in others)
    shape = (STARTS_K[-1], G) if each_token else (G,)
    scales = [rng.random(shape, np.float32) / 50 for _ in range(2)]
    wide = call(q, *(x.astype(np.float32) * scale[..., None] for x, scale in zip((k8, v8), scales, strict=True)))
    assert call(q, k8, v8, k_scale=scales[0], v_scale=scales[1]).tobytes() == wide.tobytes()
    (pages_k, table), (pages_v, _) = in_pages(k8, 16), in_pages(v8, 16)
    k_scale, v_scale = (in_pages(x, 16)[0] for x in scales) if each_token else scales
    ours = call(q, pages_k, pages_v, k_scale=k_scale, v_scale=v_scale, block_table=table)
    assert ours.tobytes() == wide.tobytes()
    assert instruction_set


def test_a_cache_of_heads_first_is_read_through_its_strides():
    q, k, v = arrays()
    (pages_k, table), (pages_v, _) = in_pages(k, 16), in_pages(v, 16)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (pages_k, pages_v)]
    ours = call(q, *heads_first, block_table=table)
    assert ours.tobytes() == call(q, k, v).tobytes()


def test_gradients_have_the_same_bits_for_any_number_of_threads(instruction_set, same_bits):
    q, k, v = arrays()
    d_output = np.random.default_rng(5).standard_normal((len(q), H, Dv), np.float32)

    def gradients():
        _, pullback = attention_varlen_vjp(q, k, v, STARTS_Q, STARTS_K, **OPTIONS, implementation="native")
        return pullback(d_output)[:3]

    found = same_bits(gradients, (1, 2, 4))
    _, pullback = attention_varlen_vjp(*(x.astype(np.float64) for x in (q, k, v)), STARTS_Q, STARTS_K, **OPTIONS)
    wide = pullback(d_output.astype(np.float64))
    for ours, expected in zip(found, wide[:3], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-5)
    assert instruction_set


def test_gradients_of_one_sequence_that_is_not_finite_leave_the_others():
    q, k, v = arrays(np.float64)
    v[STARTS_K[4] + 3] = np.inf
    other = np.r_[: STARTS_Q[4], STARTS_Q[5] : len(q)]
    found = {}
    with np.errstate(all="ignore"):
        for path in ("native", "blockwise"):
            _, pullback = attention_varlen_vjp(q, k, v, STARTS_Q, STARTS_K, implementation=path)
            found[path] = pullback(np.ones((len(q), H, Dv))).q
    assert np.isnan(found["native"][STARTS_Q[4] : STARTS_Q[5]]).any()
    np.testing.assert_allclose(found["native"][other], found["blockwise"][other], rtol=1e-9, atol=1e-12)
    assert np.isfinite(found["native"][other]).all()


Q, PAGES = np.ones((2, 2, 4), np.float32), np.ones((3, 8, 1, 4), np.float32)
ONE = np.array([0, 2], np.int32)


def test_a_table_that_changes_after_it_was_checked_is_not_read_again():
    table = np.array([[0, 1]], np.int32)
    made = kernel.VarlenCall(
        kernel.DType.float32, Q, PAGES, PAGES, ONE, np.array([0, 9], np.int32), 1.0, block_table=table
    )
    table[:] = 2**30
    output = np.empty_like(Q)
    assert made.forward(output) == []
    np.testing.assert_allclose(output, 1, rtol=1e-6)
