"""The relatives of BERT on tiny checkpoints: what they accept, what they refuse, and where their tokens stand."""

import numpy as np
import pytest

import golden
import regard
from golden import load
from regard import RegardError, Trace, nn
from regard.formats.safetensors import SafetensorsFile
from regard.models import LanguageModel, TextModel

CASES = golden.cases(TextModel, without=LanguageModel)
LONG, SHORT = [7, 20, 3, 11, 15, 9], [12, 6, 19]


NAMES = {  # of some arrays, with their shapes
    "bert/gelu": {"blocks.1.attn.q_proj.weight": (12, 12), "blocks.0.mlp.up_proj.weight": (12, 20)},
    "llama/plain": {"blocks.1.attn.q_proj.weight": (12, 24), "blocks.0.mlp.gate_proj.weight": (12, 20)},
    "t5/gated": {
        "decoder.blocks.0.cross_attn.q_proj.weight": (12, 15), "encoder.position_bias.parameter": (8, 3),
        "decoder.blocks.0.mlp.gate_proj.weight": (12, 20),
    },
    "bart/scaled": {
        "encoder.embedding.position_embedding.weight": (66, 12), "decoder.blocks.0.mlp.up_proj.weight": (12, 7),
        "lm_head.bias": (23,),
    },
}  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *(case for case in NAMES if case not in CASES)])
def test_parameters_follow_the_vocabulary(case):
    arrays = nn.parameters(load(case))
    assert NAMES.get(case, {}).items() <= {name: x.shape for name, x in arrays.items()}.items()
    if case in CASES:
        norm = "final_norm.weight" if case.startswith("clip") else "embedding_norm.weight"
        assert {"token_embedding.weight", norm, "blocks.1.attn.q_proj.weight"} <= arrays.keys()
        if case.split("/")[0] not in ("modernbert", "nomic_bert", "deberta-v2"):
            assert {"position_embedding.weight", "blocks.1.attn.q_proj.bias"} <= arrays.keys()
    if case in CASES and not case.startswith("albert"):
        assert len(arrays) == len(set(map(id, arrays.values())))


def test_layers_of_albert_share_the_block_of_their_group():
    groups, shared = load("albert/groups").blocks, load("albert/shared").blocks
    assert [groups.index(block) for block in groups] == [0, 0, 0, 3, 3]
    assert shared[0] is shared[1]


def test_narrow_embeddings_are_widened():
    trace = Trace()
    model = load("electra/narrow")
    model(SHORT, trace=trace)
    assert trace["normed_embeddings"].shape == (1, 3, 8)
    expected = trace["normed_embeddings"] @ model.embedding_proj.weight + model.embedding_proj.bias
    np.testing.assert_allclose(trace["projected_embeddings"], expected, rtol=1e-12)
    np.testing.assert_array_equal(trace["blocks.0.hook_resid_pre"], trace["projected_embeddings"])


def test_the_rows_up_to_that_of_padding_are_no_places():
    model = load("roberta/padding")
    limit = model.config.max_positions - model.config.pad_id - 1
    assert model.max_length == limit == 6
    assert model(LONG).hidden.shape == (1, limit, 12)
    with pytest.raises(RegardError, match=r"7 tokens, but .* accepts at most 6; shorten it by 1"):
        model([*LONG, 8])


@pytest.mark.parametrize(
    ("case", "lacking", "norm"),
    [
        ("bert/gelu", "encoder.layer.0.output.dense.bias", "embeddings.LayerNorm.bias"),
        ("distilbert/gelu", "transformer.layer.1.attention.out_lin.bias", "embeddings.LayerNorm.bias"),
        ("roberta/gelu", "encoder.layer.1.attention.output.dense.bias", "embeddings.LayerNorm.bias"),
        ("xlm-roberta/gelu", "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm.bias"),
        ("t5/relu", "decoder.block.1.layer.1.EncDecAttention.k.weight", "encoder.final_layer_norm.weight"),
        ("bart/tied", "model.decoder.layers.1.encoder_attn.k_proj.bias", "model.encoder.layernorm_embedding.bias"),
        ("llama/plain", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"),
    ],
)
def test_missing_unexpected_and_misshapen_tensors_are_named_at_once(changed, case, lacking, norm):
    extra = {"encoder.odd": np.zeros(1, np.float32), norm: np.zeros(5, np.float32)}
    with pytest.raises(RegardError) as error:
        regard.load(changed(case, without=[lacking], extra=extra))
    for part in (
        f"missing {lacking}",
        "unexpected encoder.odd",
        f"{norm} has shape (5,), the configuration requires (12,)",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("case", ["albert/shared", "bert/gelu", "deberta-v2/plain", "mpnet/plain", "roberta/first"])
def test_the_oldest_names_of_a_norm(changed, case):
    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = changed(case, rename=old)
    assert any(name.endswith("LayerNorm.gamma") for name in SafetensorsFile(folder / "model.safetensors"))
    assert np.array_equal(load(folder)(LONG).hidden, load(case)(LONG).hidden)
    both = changed(case, extra={"embeddings.LayerNorm.gamma": np.ones(12, np.float32)})
    with pytest.raises(RegardError, match=r"unexpected embeddings\.LayerNorm\.gamma"):
        regard.load(both)
