"""Every argument of attention together, forward and backward, against PyTorch in float64.

The equation is written here once more, from the arrays `attends` and `added` of a case, and differentiated by autograd.
PyTorch's own attention functions are compared for the arguments that they support.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from attention_cases import PATHS, cut_into_blocks, random_case, t5_bucket
from regard import attention, attention_vjp
from regard.functional import ALiBi, DistanceBias, RelativePositionBias

STEP = 100
SEEDS = range(10_000, 12_400, STEP)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def close(ours, theirs, **where):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=str(where))


def leaf(array):
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def added_from(parameter, case):
    """Return the numbers that a case adds, ``... H T S``, as a function of what its bias is made from."""
    bias = case.options["bias"]
    if not isinstance(bias, ALiBi | DistanceBias | RelativePositionBias):
        return parameter.expand(case.added.shape)
    queries, keys = case.attends.shape[-2:]
    offset = np.asarray(case.options.get("query_offset", keys - queries))[..., None, None]
    distance = np.arange(keys) - (np.arange(queries)[:, None] + offset)  # ... T S
    if isinstance(bias, ALiBi):
        added = -parameter[:, None, None] * torch.tensor(np.abs(distance))[..., None, :, :]
    elif isinstance(bias, DistanceBias):
        added = parameter[:, torch.tensor(distance - bias.min_distance)].movedim(0, -3)
    else:
        buckets = [t5_bucket(int(d), bias.bidirectional, 8, bias.max_distance) for d in distance.flat]
        added = parameter[torch.tensor(buckets).reshape(distance.shape)].movedim(-1, -3)
    return added.reshape(case.added.shape) if len(case.attends.shape) == 2 else added.expand(case.added.shape)


def formula(case, q, k, v, added, sinks):
    """Return softmax(cap(q · kᵀ × scale) + added) · v over attended keys and the sink; 0 for a row without keys."""
    heads = q.shape[-3] if q.ndim > 2 else 1
    if k.ndim > 2:
        k, v = (x.repeat_interleave(heads // x.shape[-3], dim=-3) for x in (k, v))
    scores = q @ k.mT * case.scale
    if case.softcap is not None:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    attends = torch.tensor(case.attends)
    scores = torch.where(attends, scores + (0 if added is None else added), -torch.inf)
    if sinks is not None:
        column = sinks if scores.ndim == 2 else sinks[:, None, None]
        scores = torch.cat([scores, column.expand(*scores.shape[:-1], 1)], dim=-1)
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    weights = torch.where(empty, 0, torch.softmax(torch.where(empty, 0, scores), dim=-1))
    return weights[..., : attends.shape[-1]] @ v


def leaves(case):
    """Return the differentiable inputs of a case as tensors, by the names that the gradients have."""
    inputs = {"q": case.q, "k": case.k, "v": case.v, "sinks": case.sinks}
    if "bias" in case.options:
        inputs["bias"] = getattr(case.options["bias"], "parameter", case.options["bias"])
    return {name: leaf(x) for name, x in inputs.items() if x is not None}


@pytest.mark.parametrize("first", SEEDS)
def test_output_and_gradients_are_those_of_autograd(first):
    for seed in range(first, first + STEP):
        case = random_case(seed)
        inputs = leaves(case)
        added = None
        if "bias" in inputs:
            added = added_from(inputs["bias"], case)
            close(case.added, added, seed=seed)
        theirs = formula(case, inputs["q"], inputs["k"], inputs["v"], added, inputs.get("sinks"))
        d_output = np.random.default_rng(seed).standard_normal(theirs.shape)
        theirs.backward(torch.tensor(d_output))

        for implementation in PATHS:
            ours = attention(case.q, case.k, case.v, **case.options, implementation=implementation)
            close(ours, theirs, seed=seed, path=implementation)
        output, pullback = attention_vjp(case.q, case.k, case.v, **case.options)
        close(output, theirs, seed=seed)
        gradients = pullback(d_output)._asdict()
        assert {name for name, gradient in gradients.items() if gradient is not None} == inputs.keys()
        for name, tensor in inputs.items():
            assert gradients[name].shape == tuple(tensor.shape)
            close(gradients[name], tensor.grad, seed=seed, gradient=name)

        nothing_to_see = ~case.attends.any(-1)
        assert (output[nothing_to_see] == 0).all()
        assert (gradients["q"][nothing_to_see] == 0).all()


@pytest.mark.parametrize("first", SEEDS)
def test_output_and_gradients_are_those_of_scaled_dot_product_attention(first):
    compared = 0
    for seed in range(first, first + STEP):
        case = random_case(seed)
        if case.softcap is not None or case.sinks is not None:
            continue
        compared += 1
        inputs = leaves(case)
        added = added_from(inputs["bias"], case) if "bias" in inputs else torch.zeros(case.attends.shape)
        bias = torch.where(torch.tensor(case.attends), added.double(), -torch.inf)
        batched = [x.reshape(-1, *((1,) * (3 - x.ndim) + x.shape)[-3:]) for x in map(inputs.get, "qkv")]
        theirs = torch.nn.functional.scaled_dot_product_attention(
            *batched, attn_mask=bias.reshape(-1, *((1,) * (3 - bias.ndim) + bias.shape)[-3:]), scale=case.scale,
            enable_gqa=True,
        )  # fmt: skip
        output, pullback = attention_vjp(case.q, case.k, case.v, **case.options)
        theirs = theirs.reshape(output.shape)
        close(output, theirs, seed=seed)
        d_output = np.random.default_rng(seed).standard_normal(theirs.shape)
        theirs.backward(torch.tensor(d_output))
        gradients = pullback(d_output)._asdict()
        for name, tensor in inputs.items():
            close(gradients[name], tensor.grad, seed=seed, gradient=name)
    assert compared > STEP / 4


@st.composite
def spread_out(draw):
    """Return a call whose scores may be as far apart as thousands."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, groups, repeats = (draw(st.integers(1, 3)) for _ in range(3))
    queries, keys, dim, width = (draw(st.integers(1, 9)) for _ in range(4))
    q = rng.standard_normal((batch, groups * repeats, queries, dim)) * draw(st.sampled_from([0.1, 1.0, 30.0, 1e4]))
    k = rng.standard_normal((batch, groups, keys, dim))
    v = rng.standard_normal((batch, groups, keys, width))
    mask = rng.random((batch, 1, queries, keys)) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    bias = np.where(mask, rng.standard_normal(mask.shape), -np.inf)
    options = {
        "none": {},
        "mask": {"mask": mask},
        "bias": {"bias": bias},
        "causal": {"causal": True, "query_offset": 0},
    }
    return q, k, v, options[draw(st.sampled_from(sorted(options)))], draw(st.sampled_from([None, 0.3]))


@settings(max_examples=400, deadline=None)
@given(spread_out())
def test_scores_that_are_far_apart(case):
    *arrays, options, scale = case
    masks = [torch.from_numpy(x) for name, x in options.items() if name in ("mask", "bias")]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, arrays), *masks, is_causal="causal" in options, scale=scale, enable_gqa=True
    ).numpy()
    # Both round the scores; at a spread of 1e4 half an ulp of a score is that much of a weight.
    q, k, v = (np.abs(x).max() for x in arrays)
    rounding = 1e-14 + 4 * np.finfo(np.float64).eps * q * k * arrays[0].shape[-1]
    ours = attention(*arrays, **options, scale=scale)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=rounding * max(1.0, v))
