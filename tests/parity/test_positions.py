"""Rotary positions, T5's buckets and ALiBi's slopes are those of the models in transformers."""

import importlib

import numpy as np
import pytest
import torch

from regard.functional import alibi_slopes, relative_position_buckets, rotary_frequencies

SCALINGS = [
    {"rope_type": "default"},
    *({"rope_type": "linear", "factor": factor} for factor in (1.0, 2.5, 8.0)),
    *(
        {"rope_type": "dynamic", "factor": factor, "original_max_position_embeddings": original}
        for factor in (1.0, 2.0, 6.5)
        for original in (64, 2048)
    ),
    *(
        {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **more}
        for factor, original in ((4.0, 64), (32.0, 2048), (1.0, 4096))
        for more in (
            {},
            {"beta_fast": 16.0, "beta_slow": 2.0},
            {"attention_factor": 1.3},
            {"mscale": 0.7, "mscale_all_dim": 1.2},
            {"truncate": False},
        )
    ),
    *(
        {
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        for factor, low, high in ((8.0, 1.0, 4.0), (32.0, 0.5, 10.0), (1.0, 1.0, 2.0), (16.0, 1.0, 1.0))
        for original in (64, 8192)
    ),
]  # fmt: skip


def module(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def llama(transformers, scaling, dim, base):
    """Return the configuration of a Llama whose heads have `dim` features."""
    original = scaling.get("original_max_position_embeddings", 64)
    # For dynamic scaling transformers takes the length that a model was trained for from the model itself.
    longest = original if scaling["rope_type"] == "dynamic" else int(original * scaling.get("factor", 1.0))
    return transformers.LlamaConfig(
        hidden_size=2 * dim, num_attention_heads=2, head_dim=dim, max_position_embeddings=longest,
        rope_parameters={**scaling, "rope_theta": base},
    )  # fmt: skip


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("dim", [4, 64, 128])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: " ".join(map(str, s.values())))
def test_frequencies_and_magnitude(transformers, scaling, dim, base):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = llama(transformers, scaling, dim, base)
    kind = scaling["rope_type"]
    plain = module("llama").LlamaRotaryEmbedding.compute_default_rope_parameters
    for length in (16, 64, 100, 3000, 10_000) if kind == "dynamic" else (16,):
        theirs, magnitude = (plain if kind == "default" else ROPE_INIT_FUNCTIONS[kind])(config, seq_len=length)
        ours, our_magnitude = rotary_frequencies(dim, base=base, scaling=scaling, length=length)
        assert ours.dtype == np.float64
        # Theirs are of float32: a power, a division and a product or two, each rounded; the ramp's ends cancel.
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-12)
        assert our_magnitude == pytest.approx(magnitude, rel=1e-12)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 16), (64, 300), (6, 5), (32, 50)])
def test_buckets_of_t5(transformers, buckets, longest, bidirectional):
    distances = np.arange(-300, 301)
    theirs = module("t5").T5Attention._relative_position_bucket(
        torch.tensor(distances), bidirectional=bidirectional, num_buckets=buckets, max_distance=longest
    )
    ours = relative_position_buckets(distances, bidirectional=bidirectional, num_buckets=buckets, max_distance=longest)
    np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("heads", range(1, 33))
def test_slopes_of_bloom(transformers, heads):
    alibi = module("bloom").build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)  # H 1 S: slope · key
    np.testing.assert_allclose(alibi_slopes(heads)[:, None] * np.arange(5), alibi[:, 0].numpy(), rtol=1e-6, atol=0)
