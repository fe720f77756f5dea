"""The gated delta rule against the two functions of transformers, by chunks and token by token."""

import numpy as np
import pytest
import torch

from regard import linear_attention


@pytest.mark.parametrize("function", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
@pytest.mark.parametrize("chunk_size", [1, 16, 64])
@pytest.mark.parametrize("length", [1, 70])
def test_the_rule_of_transformers(transformers, function, chunk_size, length):
    from transformers.models.qwen3_next import modeling_qwen3_next

    rng = np.random.default_rng(length)
    q, k = rng.standard_normal((2, 2, 2, length, 6))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    v, beta = rng.standard_normal((2, 4, length, 5)), rng.random((2, 4, length))
    decay, state = -3 * rng.random((2, 4, length)), rng.standard_normal((2, 4, 6, 5))
    theirs = getattr(modeling_qwen3_next, function)(
        *(torch.tensor(x.swapaxes(1, 2), dtype=torch.float32) for x in (q, k, v)),
        g=torch.tensor(decay.swapaxes(1, 2)).float(),
        beta=torch.tensor(beta.swapaxes(1, 2)).float(),
        initial_state=torch.tensor(state).float(),
        output_final_state=True,
    )
    shared = {"decay": decay[..., None], "beta": beta, "state": state, "chunk_size": chunk_size}
    ours = linear_attention(np.repeat(q, 2, axis=1), np.repeat(k, 2, axis=1), v, **shared)
    for found, expected in zip(ours, (theirs[0].transpose(1, 2), theirs[1]), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)
