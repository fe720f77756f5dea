"""Every argument of attention together, forward and backward, against PyTorch in float64.

The equation is written here once more, from the arrays `attends` and `added` of a case, and differentiated by autograd.
PyTorch's own attention functions are compared for the arguments that they support.
"""

import numpy as np
import pytest
import torch

from attention_cases import PATHS, cut_into_blocks, random_case, t5_bucket
from regard import attention, attention_vjp
from regard.functional import ALiBi, DistanceBias, RelativePositionBias
from sweeps import sweep_after

STEP = 100
SEEDS = sweep_after(8, range(10_000, 12_400, STEP))


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
