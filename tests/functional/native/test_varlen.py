"""The kernel's attention of many sequences: the same bits in any batch, in pages or not, and nothing read outside."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

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


def paged(x, page_size, seed=1):
    """Return `x` in pages in a random order, beside NaN, and the block table."""
    needed = -(-KEYS // page_size)
    order = np.random.default_rng(seed).permutation(needed.sum())
    table = np.full((KEYS.size, needed.max()), -1, np.int32)
    pages = np.full((needed.sum(), page_size, *x.shape[1:]), 77 if x.dtype == np.int8 else np.nan).astype(x.dtype)
    for n, end in enumerate(needed.cumsum()):
        table[n, : needed[n]] = order[end - needed[n] : end]
        for i, page in enumerate(table[n, : needed[n]]):
            rows = x[STARTS_K[n] + i * page_size : min(STARTS_K[n] + (i + 1) * page_size, STARTS_K[n + 1])]
            pages[page, : len(rows)] = rows
    return pages, table


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
    (pages_k, table), (pages_v, _) = paged(k, page_size), paged(v, page_size)
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
    (pages_k, table), (pages_v, _) = paged(k8, 16), paged(v8, 16)
    k_scale, v_scale = (paged(x, 16)[0] for x in scales) if each_token else scales
    ours = call(q, pages_k, pages_v, k_scale=k_scale, v_scale=v_scale, block_table=table)
    assert ours.tobytes() == wide.tobytes()
    assert instruction_set


def test_a_cache_of_heads_first_is_read_through_its_strides():
    q, k, v = arrays()
    (pages_k, table), (pages_v, _) = paged(k, 16), paged(v, 16)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (pages_k, pages_v)]
    ours = call(q, *heads_first, block_table=table)
    assert ours.tobytes() == call(q, k, v).tobytes()


def test_gradients_have_the_same_bits_for_any_number_of_threads(instruction_set, threads):
    q, k, v = arrays()
    d_output = np.random.default_rng(5).standard_normal((len(q), H, Dv), np.float32)
    found = []
    for count in (1, 2, 4):
        threads(count)
        _, pullback = attention_varlen_vjp(q, k, v, STARTS_Q, STARTS_K, **OPTIONS, implementation="native")
        found.append([x.tobytes() for x in pullback(d_output)[:3]])
    assert found[0] == found[1] == found[2]
    _, pullback = attention_varlen_vjp(*(x.astype(np.float64) for x in (q, k, v)), STARTS_Q, STARTS_K, **OPTIONS)
    wide = pullback(d_output.astype(np.float64))
    for ours, name in zip(found[0], ("q", "k", "v"), strict=True):
        expected = getattr(wide, name)
        ours = np.frombuffer(ours, np.float32).reshape(expected.shape)
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
INT8, ONE = PAGES.astype(np.int8), np.array([0, 2], np.int32)


@pytest.mark.parametrize(
    "changed",
    [
        {"block_table": np.array([[0, 3]], np.int32)},
        {"block_table": np.array([[0, -1]], np.int32)},
        {"block_table": np.array([[0, 2**31 - 1]], np.int32)},
        {"block_table": np.array([[0]], np.int32)},
        {"block_table": np.array([[0, 1], [1, 2]], np.int32)},
        {"block_table": np.array([0, 1], np.int32)},
        {"block_table": np.array([[0, 1]])},
        {"k": PAGES[:, :0], "v": PAGES[:, :0]},
        {"k": PAGES[:2]},
        {"k": PAGES[..., :3]},
        {"k": PAGES[:, :, :0], "v": PAGES[:, :, :0]},
        {"v": PAGES[:, :7]},
        {"v": PAGES[0]},
        {"k": PAGES.astype(np.float64)},
        {"k": INT8, "k_dtype": "int8"},
        {"k": INT8, "k_dtype": "int8", "k_scale": np.ones(2, np.float32)},
        {"k": INT8, "k_dtype": "int8", "k_scale": np.ones((3, 7, 1), np.float32)},
        {"k": INT8, "k_dtype": "int8", "k_scale": np.ones(1)},
        {"k_scale": np.ones(1, np.float32)},
        {"cu_seqlens_q": np.array([0, 3], np.int32)},
        {"cu_seqlens_q": np.array([-1, 2], np.int32)},
        {"cu_seqlens_q": np.array([0, 2])},
        {"cu_seqlens_k": np.array([9, 0], np.int32)},
        {"cu_seqlens_k": np.array([0, 2**31 - 1], np.int32)},
        {"cu_seqlens_k": np.array([0], np.int32)},
        {"cu_seqlens_k": np.array([], np.int32)},
        {"key_begin": np.zeros(3, np.int32)},
        {"key_end": np.zeros(2)},
        {"distance_bias": np.zeros((2, 10 + kernel.BLOCK_QUERIES if kernel else 0), np.float32)},
        {"distance_bias": np.zeros(200, np.float32)},
        {"distance_bias": np.zeros((2, 2, 200), np.float32)},
        {"block_table": None},
    ],
)
def test_what_would_be_read_outside_is_an_error_of_the_kernel_too(changed):
    given = {
        "q": Q, "k": PAGES, "v": PAGES, "cu_seqlens_q": ONE, "cu_seqlens_k": np.array([0, 9], np.int32),
        "block_table": np.array([[0, 1]], np.int32),
    }  # fmt: skip
    kernel.VarlenCall(kernel.DType.float32, scale=1.0, **given)
    given |= changed
    if "k_dtype" in given:
        given["k_dtype"] = getattr(kernel.DType, given["k_dtype"])
    with pytest.raises(ValueError, match=r"."):
        kernel.VarlenCall(kernel.DType.float32, scale=1.0, **given)


@pytest.mark.parametrize("shape", [(2, 2, 3), (1, 2, 4), (2, 1, 4), (2, 4)])
def test_an_output_that_does_not_fit_is_an_error(shape):
    made = kernel.VarlenCall(kernel.DType.float32, Q, Q, Q, ONE, ONE, 1.0)
    with pytest.raises(ValueError, match="output has the wrong shape"):
        made.forward(np.empty(shape, np.float32))
    with pytest.raises(ValueError, match="row_max has the wrong shape"):
        made.forward(np.empty(Q.shape, np.float32), np.empty((2, 1), np.float32), np.empty((2, 2)))
    stats = np.ones((2, 2), np.float32), np.ones((2, 2)), np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match="d_k has the wrong shape"):
        made.backward(Q, Q, *stats, np.empty_like(Q), np.empty(shape, np.float32), np.empty_like(Q))


def test_a_table_that_changes_after_it_was_checked_is_not_read_again():
    table = np.array([[0, 1]], np.int32)
    made = kernel.VarlenCall(
        kernel.DType.float32, Q, PAGES, PAGES, ONE, np.array([0, 9], np.int32), 1.0, block_table=table
    )
    table[:] = 2**30
    output = np.empty_like(Q)
    assert made.forward(output) == []
    np.testing.assert_allclose(output, 1, rtol=1e-6)
