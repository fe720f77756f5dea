"""Small random BERTs that transformers writes: every option that the family reads, every way it is stored."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import Trace

IDS = np.array([[2, 7, 11, 3, 5], [2, 13, 17, 19, 3]])
CONFIGS = {
    "gelu": {},
    "tanh": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    "relu": {"hidden_act": "relu", "num_hidden_layers": 3, "num_attention_heads": 1},
    "wide": {"hidden_size": 28, "num_attention_heads": 7, "intermediate_size": 11, "type_vocab_size": 3},
}
SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 7,
}


@pytest.fixture
def write(transformers, tmp_path):
    """Return a function that lets transformers write a model, with a vocabulary, and returns it in float64."""

    def write(kind="BertModel", dtype="float32", **options):
        import torch

        torch.manual_seed(5)
        config = transformers.BertConfig(**SIZES | options, attn_implementation="eager")
        model = getattr(transformers, kind)(config)
        with torch.no_grad():
            for parameter in model.parameters():  # away from the zeros and ones that hide a forgotten term
                parameter.normal_(0, 0.5)
        model = model.to(getattr(torch, dtype)).eval()
        model.save_pretrained(tmp_path)
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(18))]
        (tmp_path / "vocab.txt").write_text("\n".join(pieces))
        return model.double()

    return write


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_every_option(write, tmp_path, options, dtype, tolerance):
    import torch

    peer = write(**options)
    trace = Trace()
    ours = regard.load(tmp_path, dtype=dtype)(IDS, trace=trace)
    with torch.no_grad():
        theirs = peer(torch.tensor(IDS), output_attentions=True)
    assert ours.hidden.dtype == dtype
    np.testing.assert_allclose(ours.hidden, theirs.last_hidden_state.numpy(), rtol=0, atol=tolerance)
    for layer, weights in enumerate(theirs.attentions):
        np.testing.assert_allclose(trace[f"blocks.{layer}.attn.weights"], weights.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float64"])
def test_weights_stored_in_other_types(write, tmp_path, stored):
    import torch

    peer = write(dtype=stored)
    with torch.no_grad():
        theirs = peer(torch.tensor(IDS)).last_hidden_state.numpy()
    np.testing.assert_allclose(regard.load(tmp_path, dtype=np.float64)(IDS).hidden, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "kind", ["BertForMaskedLM", "BertForSequenceClassification", "BertForPreTraining", "BertForQuestionAnswering"]
)
def test_the_encoder_inside_a_model_with_a_head(write, tmp_path, kind):
    import torch

    peer = write(kind)
    with torch.no_grad():
        theirs = peer.bert(torch.tensor(IDS)).last_hidden_state.numpy()
    np.testing.assert_allclose(regard.load(tmp_path, dtype=np.float64)(IDS).hidden, theirs, rtol=0, atol=1e-10)


def test_weights_in_several_files(write, tmp_path):
    import torch

    peer = write()
    (tmp_path / "model.safetensors").unlink()
    peer.float().save_pretrained(tmp_path, max_shard_size="3KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    with torch.no_grad():
        theirs = peer.double()(torch.tensor(IDS)).last_hidden_state.numpy()
    np.testing.assert_allclose(regard.load(tmp_path, dtype=np.float64)(IDS).hidden, theirs, rtol=0, atol=1e-10)
