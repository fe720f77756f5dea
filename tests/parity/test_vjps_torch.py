"""Gradients of the equations against PyTorch's autograd, in float64 and in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as T

from regard import functional as F
from regard.functional.variable import Variable, gradients

RNG = np.random.default_rng(1)
X, W, B = RNG.standard_normal((3, 11, 40)), RNG.standard_normal((40, 24)), RNG.standard_normal(24)
SCALE, SHIFT = RNG.standard_normal(40), RNG.standard_normal(40)
TARGETS = RNG.integers(0, 40, (3, 11))
TARGETS[0, :4] = -100
Q, K, V = RNG.standard_normal((3, 2, 5, 19, 8))

# The arrays; regard's function of them; PyTorch's.
CASES = {
    "linear": ((X, W, B), F.linear, lambda x, w, b: T.linear(x, w.T, b)),
    "layer_norm": ((X, SCALE, SHIFT), F.layer_norm, lambda x, w, b: T.layer_norm(x, (40,), w, b)),
    "rms_norm": ((X, SCALE), F.rms_norm, lambda x, w: T.rms_norm(x, (40,), w, 1e-6)),
    "gelu": ((3 * X,), F.gelu, T.gelu),
    "gelu, tanh": ((3 * X,), lambda x: F.gelu(x, "tanh"), lambda x: T.gelu(x, approximate="tanh")),
    "gelu far out": ((60 * X,), F.gelu, T.gelu),
    "silu": ((30 * X,), F.silu, T.silu),
    "relu": ((X,), F.relu, T.relu),
    "swiglu": ((X, 2 * X[::-1]), F.swiglu, lambda gate, up: T.silu(gate) * up),
    "softmax": ((5 * X,), F.softmax, lambda x: T.softmax(x, -1)),
    "embedding": (
        (X[0],),
        lambda table: F.embedding(table, TARGETS % 11),
        lambda table: T.embedding(torch.tensor(TARGETS % 11), table),
    ),
    "cross_entropy": (
        (5 * X,),
        lambda x: F.cross_entropy(x, TARGETS),
        lambda x: T.cross_entropy(x.reshape(-1, 40), torch.tensor(TARGETS).reshape(-1)),
    ),
    "cross_entropy, smoothed": (
        (100 * X,),
        lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.1),
        lambda x: T.cross_entropy(x.reshape(-1, 40), torch.tensor(TARGETS).reshape(-1), label_smoothing=0.1),
    ),
    "attention": (
        (Q, K, V),
        lambda q, k, v: F.attention(q, k, v, causal=True),
        lambda q, k, v: T.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_pytorch(name, dtype, tolerance):
    arrays, ours, theirs = CASES[name]
    variables = [Variable(x.astype(dtype)) for x in arrays]
    tensors = [torch.tensor(x.astype(dtype), requires_grad=True) for x in arrays]
    y, expected = ours(*variables), theirs(*tensors)
    weights = np.random.default_rng(2).standard_normal(y.shape).astype(dtype)
    expected.backward(torch.tensor(weights))
    for found, tensor in zip(gradients(np.sum(y * weights), variables), tensors, strict=True):
        wanted = tensor.grad.numpy()
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
