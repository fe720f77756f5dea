"""What other libraries got wrong and `test_every_argument` does not draw: none of it may happen here."""

import numpy as np
import pytest

from attention_cases import PATHS
from regard import RegardError, Trace, attention, attention_vjp, explain_plan
from regard.functional import SegmentMask


def heads(rng):
    return [rng.standard_normal((2, 4, *shape)) for shape in ((5, 4), (7, 4), (7, 3))]


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


@pytest.mark.parametrize("path", PATHS)
def test_jax_float64_masks_overflow(rng, path):
    """The most negative float64 as a bias on float32 arrays masks nearly everything, without a warning."""
    q, k, v = (x.astype(np.float32) for x in heads(rng))
    keep = rng.random((5, 7)) < 0.5
    keep[:, 0] = True
    bias = np.where(keep, 0.0, np.finfo(np.float64).min)
    ours = attention(q, k, v, bias=bias, implementation=path)
    np.testing.assert_allclose(ours, attention(q, k, v, mask=keep, implementation=path), rtol=1e-6, atol=1e-7)


def test_pytorch_asking_for_weights_silently_loses_the_fast_path(rng):
    q = k = v = np.zeros((4096, 8), np.float32)
    plain = explain_plan(q, k, v).implementation
    assert plain == PATHS[-1]  # the kernel, where there is one
    assert explain_plan(q, k, v, trace=Trace(maps=True, only="*")).implementation == plain
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
        behind = position[rows, None] - position[keys]
        allowed = (behind >= 0) & (behind <= 300) & (ids[keys] == ids[rows, None])
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
