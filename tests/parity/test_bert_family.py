"""Small random BERTs that transformers writes: every option that the family reads, every way it is stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regard
from regard import Trace

IDS = np.array([[2, 7, 11, 3, 5], [2, 13, 17, 19, 3]])
CASES = {  # options of the configuration, and how the weights are stored
    "gelu": ({}, "float32"),
    "tanh": ({"hidden_act": "gelu_new", "layer_norm_eps": 1e-5}, "float16"),
    "relu": ({"hidden_act": "relu", "num_hidden_layers": 3, "num_attention_heads": 1}, "bfloat16"),
    "wide": (
        {"hidden_size": 28, "num_attention_heads": 7, "intermediate_size": 11, "type_vocab_size": 3}, "float64",
    ),
    "several files": ({}, "float32"),
}  # fmt: skip
SIZES = {"vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 20, "max_position_embeddings": 7}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_every_option(transformers, tmp_path, case, dtype, tolerance):
    options, stored = CASES[case]
    torch.manual_seed(5)
    peer = transformers.BertModel(transformers.BertConfig(**SIZES | options, attn_implementation="eager"))
    with torch.no_grad():
        for parameter in peer.parameters():  # away from the zeros and ones that hide a forgotten term
            parameter.normal_(0, 0.5)
    peer = peer.to(getattr(torch, stored)).eval()
    peer.save_pretrained(tmp_path, max_shard_size="3KB" if case == "several files" else "1GB")
    assert (len(list(tmp_path.glob("model-*.safetensors"))) > 2) == (case == "several files")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(18))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    trace = Trace()
    ours = regard.load(tmp_path, dtype=dtype)(IDS, trace=trace)
    with torch.no_grad():
        theirs = peer.double()(torch.tensor(IDS), output_attentions=True)
    assert ours.hidden.dtype == dtype
    np.testing.assert_allclose(ours.hidden, theirs.last_hidden_state.numpy(), rtol=0, atol=tolerance)
    for layer, weights in enumerate(theirs.attentions):
        np.testing.assert_allclose(trace[f"blocks.{layer}.attn.weights"], weights.numpy(), rtol=0, atol=tolerance)
