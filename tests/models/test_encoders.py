"""The relatives of BERT on tiny checkpoints: what they accept, what they refuse, and where their tokens stand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, Trace, nn
from regard.formats.safetensors import SafetensorsFile
from regard.models import LanguageModel, TextModel
from regard.models.checkpoint.config import ConfigReader
from regard.models.nomic_bert import NomicBertConfig

CASES = golden.cases(TextModel, without=LanguageModel)
LONG, SHORT = [7, 20, 3, 11, 15, 9], [12, 6, 19]


def load(case):
    return regard.load(golden.FOLDER / case, dtype=np.float64)


def test_distilbert_has_no_segments():
    trace = Trace()
    load("distilbert/gelu")(SHORT, trace=trace)
    assert trace.names()[:5] == (
        "token_embeddings", "position_embeddings", "embeddings", "normed_embeddings", "blocks.0.attn.q",
    )  # fmt: skip
    np.testing.assert_array_equal(trace["embeddings"], trace["token_embeddings"] + trace["position_embeddings"])


@pytest.mark.parametrize("case", CASES)
def test_parameters_follow_the_vocabulary(case):
    names = nn.parameters(load(case))
    norm = "final_norm.weight" if case.startswith("clip") else "embedding_norm.weight"
    assert {"token_embedding.weight", norm, "blocks.1.attn.q_proj.weight"} <= names.keys()
    if case.split("/")[0] not in ("modernbert", "nomic_bert", "deberta-v2"):
        assert {"position_embedding.weight", "blocks.1.attn.q_proj.bias"} <= names.keys()
    if not case.startswith("albert"):
        assert len(names) == len(set(map(id, names.values())))


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


def test_a_window_of_modernbert_reaches_to_both_sides():
    trace = Trace()
    load("modernbert/plain")(LONG, trace=trace)
    distance = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    for layer, reach in enumerate((6, 2, 2, 6)):
        np.testing.assert_array_equal((trace[f"blocks.{layer}.attn.weights"][0] > 0).all(0), distance <= reach)


@pytest.mark.parametrize("family", ["roberta", "camembert", "xlm-roberta"])
def test_positions_count_from_behind_that_of_padding_and_skip_it(family):
    model = load(f"{family}/padding")
    pad, table = model.config.pad_id, model.position_embedding.weight
    trace = Trace()
    model([7, pad, 8, 9], trace=trace)
    np.testing.assert_array_equal(trace["position_embeddings"][0], table[[pad + 1, pad, pad + 2, pad + 3]])
    assert trace.axes("position_embeddings") == "B T E"


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


@pytest.mark.parametrize(
    ("case", "prefix", "of_the_head"),
    [
        ("distilbert/gelu", "distilbert.", ["vocab_transform.weight", "vocab_projector.bias", "classifier.weight"]),
        ("roberta/gelu", "roberta.", ["lm_head.bias", "classifier.dense.weight", "roberta.embeddings.position_ids"]),
        ("xlm-roberta/gelu", "roberta.", ["lm_head.dense.weight", "roberta.pooler.dense.weight"]),
    ],
)
def test_the_encoder_inside_a_model_with_a_head(changed, case, prefix, of_the_head):
    extra = dict.fromkeys(of_the_head, np.zeros(3, np.float32))
    bare = ("pooler.dense.weight", "pooler.dense.bias")
    inside = changed(case, rename=lambda name: f"{prefix}{name}", extra=extra, without=bare)
    np.testing.assert_array_equal(regard.load(inside)(SHORT).hidden, regard.load(golden.FOLDER / case)(SHORT).hidden)


def test_what_has_no_part_in_the_computation_changes_nothing(changed):
    fields = {"dropout": 0.3, "qa_dropout": 0.4, "seq_classif_dropout": 0.5, "tie_weights_": True}
    other = regard.load(changed("distilbert/gelu", {**fields, "sinusoidal_pos_embds": True}))
    assert other.config == load("distilbert/gelu").config


@pytest.mark.parametrize("case", ["albert/shared", "deberta-v2/plain", "electra/wide", "mpnet/plain", "roberta/first"])
def test_the_oldest_names_of_a_norm(changed, case):
    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = changed(case, rename=old)
    assert any(name.endswith("LayerNorm.gamma") for name in SafetensorsFile(folder / "model.safetensors"))
    ids = np.arange(5, 13)
    assert np.array_equal(load(folder)(ids).hidden, load(case)(ids).hidden)


def test_nomic_bert_turns_with_its_own_base_by_default():
    fields = json.loads((golden.FOLDER / "nomic_bert/plain/config.json").read_text(encoding="utf-8"))
    del fields["rope_parameters"]
    assert NomicBertConfig.read(ConfigReader(fields, "config.json")).rope.base == 1000.0
