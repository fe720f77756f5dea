"""Saved models, read by transformers: edited ones, in float32 and bfloat16, in one file and in several."""

import numpy as np
import pytest
import torch
from written_models import IDS, written

import regard
from regard.nn import parameters
from regard.nn.gradients import with_parameters
from sweeps import sweep_after

KINDS = {
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "modernbert": "ModernBertForSequenceClassification",
    "gpt_neox": "GPTNeoXForCausalLM",
    "llama": "LlamaForCausalLM",
    "cohere": "CohereForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "deberta-v2": "DebertaV2ForTokenClassification",
}


@pytest.mark.parametrize("family", sweep_after(4, KINDS))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.no_grad()
def test_transformers_reads_a_saved_model(transformers, tmp_path, family, dtype):
    kind = getattr(transformers, KINDS[family])
    written(transformers, tmp_path / "model", family, kind=kind)
    model = regard.load(tmp_path / "model")
    name = next(name for name in parameters(model) if name.startswith("blocks.1.attn.q_proj.w"))
    model = with_parameters(model, {name: np.asarray(parameters(model)[name]) * np.float32(1.25)})
    model.save(tmp_path / "saved", dtype=dtype, shard_bytes=10_000)
    assert (tmp_path / "saved" / "model.safetensors.index.json").exists()
    peer, loaded = kind.from_pretrained(tmp_path / "saved", output_loading_info=True, dtype=torch.float32)
    assert not loaded["missing_keys"]
    assert not loaded["unexpected_keys"]
    expected = peer(input_ids=torch.tensor(IDS)).logits.numpy()
    ours = model if dtype == "float32" else regard.load(tmp_path / "saved")
    np.testing.assert_allclose(ours(np.array(IDS)).logits, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
