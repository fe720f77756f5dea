"""Functions of indices and scores beside PyTorch's FlexAttention; linear attention by its autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask as theirs_block_mask, flex_attention

from regard import (
    attention_vjp,
    create_block_mask,
    linear_attention,
    linear_attention_vjp,
)
from regard.functional import ScoreMod

CASES_PER_TEST = 4


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Let FlexAttention compute as it is written: else it traces itself anew for each function and shape."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def mask_mods(rng, batch, heads, length):
    """Return functions of an array library: what they index is made by `to`."""
    ids, back = np.sort(rng.integers(0, 3, (batch, length))), rng.integers(0, length, heads)
    table, step = rng.random((heads, length, length)) < 0.5, int(rng.integers(2, 9))
    return [
        lambda to: lambda b, h, q_idx, kv_idx: q_idx >= kv_idx,
        lambda to: lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx <= to(back)[h]),
        lambda to: lambda b, h, q_idx, kv_idx: to(ids)[b, q_idx] == to(ids)[b, kv_idx],
        lambda to: lambda b, h, q_idx, kv_idx: to(table)[h, q_idx, kv_idx],
        lambda to: lambda b, h, q_idx, kv_idx: ((q_idx - kv_idx) % step == 0) | (kv_idx < step),
    ]


def score_mods(rng, batch, heads, length):
    """Return functions with their derivatives, as above; None: none."""
    slopes, table = rng.random(heads), rng.standard_normal((batch, length, length))
    return [
        None,
        (lambda to: lambda s, b, h, q_idx, kv_idx: s + to(slopes)[h] * (kv_idx - q_idx), 1),
        (lambda to: lambda s, b, h, q_idx, kv_idx: s + to(table)[b, q_idx, kv_idx], 1),
        (lambda to: lambda s, b, h, q_idx, kv_idx: s * to(slopes)[h], lambda s, b, h, *_: slopes[h] + 0 * s),
        (lambda to: lambda s, b, h, q_idx, kv_idx: s * s / 4 + s, lambda s, *_: s / 2 + 1),
    ]


def formula(q, k, v, mask_mod, score_mod, scale=None):
    """Return attention on the whole map, for its gradients: FlexAttention has none on the CPU."""
    b, h = torch.arange(q.shape[0])[:, None, None, None], torch.arange(q.shape[1])[:, None, None]
    indices = (b, h, torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :])
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *indices)
    weights = torch.where(mask_mod(*indices), scores, -torch.inf).softmax(-1)
    return torch.nan_to_num(weights) @ v  # 0 for a query without keys


@pytest.mark.parametrize("mask_kind", range(5))
@pytest.mark.parametrize("score_kind", range(5))
def test_random_cases_and_their_gradients(mask_kind, score_kind):
    """Several arrays for each pair of functions."""
    rng = np.random.default_rng([mask_kind, score_kind])
    batch, groups, repeats = (int(rng.integers(1, 3)) for _ in range(3))
    heads, queries, keys = groups * repeats, *(int(n) for n in rng.choice([7, 40, 64, 100, 130], 2))
    mask_mod = mask_mods(rng, batch, heads, max(queries, keys))[mask_kind]
    score_mod = score_mods(rng, batch, heads, max(queries, keys))[score_kind]
    theirs, modified = mask_mod(torch.as_tensor), None if score_mod is None else score_mod[0](torch.as_tensor)
    blocks = theirs_block_mask(theirs, batch, heads, queries, keys, device="cpu")
    kept = create_block_mask(mask_mod(np.asarray), batch, heads, queries, keys)
    bias = None if score_mod is None else ScoreMod(score_mod[0](np.asarray), score_mod[1])
    for _ in range(CASES_PER_TEST):
        q, d_output = rng.standard_normal((2, batch, heads, queries, 8))
        k, v = rng.standard_normal((2, batch, groups, keys, 8))
        tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
        plain = (x.detach() for x in tensors)
        expected = flex_attention(*plain, score_mod=modified, block_mask=blocks, enable_gqa=True)
        formula(*tensors, theirs, modified).backward(torch.tensor(d_output))
        for mask in (kept, mask_mod(np.asarray)):
            output, pullback = attention_vjp(q, k, v, mask=mask, bias=bias)
            np.testing.assert_allclose(output, expected.numpy(), rtol=1e-9, atol=1e-10)
            for gradient, tensor in zip(pullback(d_output), tensors, strict=False):
                np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("by_feature", [False, True])
@pytest.mark.parametrize("rule", [(), ("decay",), ("beta",), ("decay", "beta")], ids=" ".join)
def test_linear_attention_is_differentiated_by_pytorch(rule, by_feature):
    """As by its own pullback, which `tests/functional/test_linear_attention.py` holds against differences."""
    rng = np.random.default_rng(3)
    batch, heads, groups, length, dim, width = 2, 4, 2, 70, 5, 3
    k = rng.standard_normal((batch, groups, length, dim))
    inputs = {
        "q": rng.standard_normal((batch, heads, length, dim)), "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": rng.standard_normal((batch, groups, length, width)),
        "state": rng.standard_normal((batch, groups, dim, width)),
        "decay": -rng.random((batch, groups, length, dim if by_feature else 1)),
        "beta": rng.random((batch, groups, length)),
    }  # fmt: skip
    inputs = {name: x for name, x in inputs.items() if name not in ("decay", "beta") or name in rule}
    result, pullback = linear_attention_vjp(**inputs)
    d_result = [rng.standard_normal(x.shape) for x in result]
    gradients = pullback(*d_result)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}
    found = linear_attention(**tensors, chunk_size=5)
    sum((x * torch.tensor(d)).sum() for x, d in zip(found, d_result, strict=True)).backward()
    for ours, theirs in zip(found, result, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-10, atol=1e-11)
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor.grad.numpy(), getattr(gradients, name), rtol=1e-9, atol=1e-10, err_msg=name)
