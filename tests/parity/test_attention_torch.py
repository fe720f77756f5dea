"""`attention` against PyTorch's scaled_dot_product_attention in float64, over random shapes and masks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from regard import attention


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, groups, repeats = (draw(st.integers(1, 3)) for _ in range(3))
    queries, keys, dim, width = (draw(st.integers(1, 9)) for _ in range(4))
    spread = draw(st.sampled_from([0.1, 1.0, 30.0, 1e4]))
    q = rng.standard_normal((batch, groups * repeats, queries, dim)) * spread
    k = rng.standard_normal((batch, groups, keys, dim))
    v = rng.standard_normal((batch, groups, keys, width))
    kind = draw(st.sampled_from(["none", "mask", "bias", "causal"]))
    mask = rng.random((batch, 1, queries, keys)) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    bias = np.where(mask, rng.standard_normal(mask.shape), -np.inf)
    scale = draw(st.sampled_from([None, 0.3]))
    return q, k, v, kind, mask, bias, scale


@settings(max_examples=400, deadline=None)
@given(cases())
def test_attention_agrees_with_pytorch_in_float64(case):
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v, kind, mask, bias, scale = case
    ours = attention(q, k, v, scale=scale, **{
        "none": {}, "mask": {"mask": mask}, "bias": {"bias": bias}, "causal": {"causal": True, "query_offset": 0},
    }[kind])  # fmt: skip
    theirs = scaled_dot_product_attention(
        *(torch.from_numpy(x) for x in (q, k, v)),
        attn_mask={"mask": torch.from_numpy(mask), "bias": torch.from_numpy(bias)}.get(kind),
        is_causal=kind == "causal",
        scale=scale,
        enable_gqa=True,
    ).numpy()
    # Both round the scores; at a spread of 1e4 half an ulp of a score is that much of a weight.
    rounding = 1e-14 + 4 * np.finfo(np.float64).eps * np.abs(q).max() * np.abs(k).max() * q.shape[-1]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=rounding * max(1.0, np.abs(v).max()))


def test_torch_tensors_come_back_as_torch_tensors_with_gradients():
    import torch

    q, k, v = (torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    ours = attention(q, k, v, causal=True)
    assert isinstance(ours, torch.Tensor)
    assert torch.autograd.gradcheck(lambda *x: attention(*x, causal=True), (q, k, v))
