"""What a file says is shortened in messages."""

import json

import numpy as np
import pytest

import regard
from gguf_files import LLAMA, write_gguf
from regard import RegardError

LONG = "x" * 100_000
NEWER = {"transformers_version": "99.0"}  # whose fields are not known
MOST = 3000  # characters; the longest list in a message has 50 names


def message_of(path) -> str:
    with pytest.raises(RegardError) as caught:
        regard.load(path)
    return str(caught.value)


FIELDS = (
    *("model_type", "vocab_size", "hidden_act", "layer_norm_eps", "is_decoder", "position_embedding_type"),
    *("num_attention_heads", "an_unknown_field", "pruned_heads"),
)


@pytest.mark.parametrize(
    ("case", "fields"),
    [
        *(("bert/gelu", {field: LONG, **NEWER}) for field in FIELDS),
        ("bert/gelu", {LONG: 1, **NEWER}),
        ("gemma2/plain", {"layer_types": [LONG]}),
        ("gemma2/plain", {"attn_logit_softcapping": LONG}),
        ("llama/llama3", {"rope_scaling": {"rope_type": LONG}}),
        ("llama/llama3", {"rope_scaling": LONG}),
        ("llama/llama3", {"rope_parameters": [LONG]}),
        ("llama/llama3", {"eos_token_id": [LONG]}),
        ("gpt_neo/plain", {"attention_types": [[[LONG], 1]]}),
        ("clip/plain", {"text_config": LONG}),
    ],
)
def test_a_name_or_a_value_of_a_field_that_a_family_reads(changed, case, fields):
    message = message_of(changed(case, fields))
    assert len(message) < MOST
    assert case != "bert/gelu" or LONG[:20] in message


def test_many_unknown_fields(write_bert):
    message = message_of(write_bert({f"field_{number}": 1 for number in range(5000)} | NEWER))
    assert "unknown field field_0=1" in message
    assert "4980 more unknown fields" in message
    assert len(message) < MOST


def test_names_of_tensors(write_bert):
    tensors = {f"x{number}{LONG[:5000]}": np.ones(2, np.float32) for number in range(100)}
    message = message_of(write_bert(tensors=tensors))
    assert "unexpected x0xxx" in message
    assert "and 50 more" in message
    assert len(message) < 6000


@pytest.mark.parametrize(
    "content", [b"\xff" * 100_000, json.dumps([{"type": LONG, "path": ""}]).encode(), json.dumps([LONG]).encode()]
)
def test_modules_of_a_sentence_model(write_bert, content):
    folder = write_bert()
    (folder / "modules.json").write_bytes(content)
    assert len(regard.load(folder).sentence.problem) < MOST


def test_an_architecture_and_a_pooling_of_gguf(tmp_path):
    message = message_of(write_gguf(tmp_path / "m.gguf", architecture=LONG))
    assert "holds a model of architecture 'xxx" in message
    assert len(message) < MOST
    model = regard.load(write_gguf(tmp_path / "m.gguf", fields={**LLAMA, "pooling_type": LONG}))
    assert len(model.sentence.problem) < MOST
