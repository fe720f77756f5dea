"""Decoders in half precision: what a file stores beside the matrices keeps no family from the fused step."""

import json

import numpy as np
import pytest

import regard
import tiny_decoder
from regard import Trace, training
from regard.formats.safetensors import StreamedTensor, write_safetensors
from regard.functional import native

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="there is no kernel that runs a step")

SIZES = {
    "vocab_size": 257,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "intermediate_size": 96,
    "max_position_embeddings": 40,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
BIASED = {
    "glm": {"attention_bias": True, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 100.0}},
    "llama": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {},
}
STORED = {"BF16": lambda x: (x.view(np.uint32) >> 16).astype(np.uint16), "F16": np.float16, "F32": np.float32}


@pytest.fixture
def load(tmp_path, rng):
    """Return a function that writes a model of a family in a dtype, with random biases, and loads it."""

    def load(family, kind):
        config = SIZES | BIASED[family] | {"model_type": family}
        drawn = training.new_model(config, tiny_decoder.tokenizer(), std=0.2).tensors
        arrays = {}
        for name, x in drawn.items():
            x = (x if x.ndim > 1 else x + rng.standard_normal(x.shape)).astype(np.float32)
            part = np.asarray(STORED[kind](x))
            arrays[name] = StreamedTensor(kind, x.shape, lambda part=part: [part])
        (tmp_path / "config.json").write_text(json.dumps(config))
        tiny_decoder.backend().save(str(tmp_path / "tokenizer.json"))
        write_safetensors(tmp_path / "model.safetensors", arrays)
        return regard.load(tmp_path)

    return load


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("family", BIASED)
def test_a_step_of_a_model_with_biases_is_one_call_with_the_bits_of_its_layers(load, family, kind):
    model = load(family, kind)
    assert model.blocks[0].attn.q_proj.bias.any()
    ids = np.array([[5, 9, 200, 7]])
    _, state = model.prefill(ids)
    stepped, _ = model.decode_step(np.array([[11]]), state)
    assert vars(model)["_decoder_step"] is not None
    one_by_one, _ = model.decode_step(np.array([[11]]), state, trace=Trace())  # which wants every step
    np.testing.assert_array_equal(stepped, one_by_one)
