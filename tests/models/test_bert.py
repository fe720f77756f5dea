"""The bert family on tiny checkpoints: what it accepts, what it refuses, and that it says all of it at once."""

import os

import numpy as np
import pytest

import regard
import tiny_bert
from regard import RegardError, Trace


def test_a_run_names_every_step(write_bert):
    model = regard.load(write_bert())
    trace = Trace()
    output = model("the cats sat", trace=trace)
    assert output.encodings[0].tokens == ("[CLS]", "the", "cat", "##s", "sat", "[SEP]")
    assert trace.names()[:5] == (
        "token_embeddings", "position_embeddings", "type_embeddings", "embeddings", "normed_embeddings",
    )  # fmt: skip
    assert trace["blocks.1.attn.weights"].shape == (1, 3, 6, 6)
    assert trace["blocks.0.mlp.hidden"].shape == (1, 6, 20)
    np.testing.assert_array_equal(trace["blocks.1.output"], output.hidden)
    assert (trace.model, trace.encodings) == (model.name, output.encodings)


def test_integer_weights_are_refused(write_bert):
    folder = write_bert(tensors={"embeddings.LayerNorm.bias": np.zeros(12, np.int32)})
    with pytest.raises(RegardError, match=r"LayerNorm\.bias .* stored as int32"):
        regard.load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, r"no config\.json in .*tiny"),
        ("config.json", b"{", r"config\.json is not valid JSON"),
        ("config.json", b"[" * 100_000, r"config\.json is not valid JSON"),
        ("config.json", b"[]", r"config.json must hold a JSON object, got list"),
        ("config.json", b"\xff", r"config\.json"),
        ("model.safetensors", None, r"neither model\.safetensors nor model\.safetensors\.index\.json"),
        ("model.safetensors", b"", r"model\.safetensors"),
        ("model.safetensors", b"\x80\x04pickle", r"model\.safetensors"),
        ("vocab.txt", b"the\ncat", r"vocab\.txt"),
    ],
)
def test_files_that_are_missing_or_damaged(write_bert, name, content, message):
    folder = write_bert()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(RegardError, match=message):
        regard.load(folder)


def test_too_many_tokens_says_the_limit_and_what_to_do(write_bert):
    model = regard.load(write_bert())
    assert model("a b c d e").hidden.shape == (1, 7, 12)
    with pytest.raises(
        RegardError, match=r"8 tokens \(2 of them special tokens.*, but .* accepts at most 7; shorten it by 1"
    ):
        model("a b c d e f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([], "the text is empty"),
        (np.zeros((1, 0), int), "the text is empty"),
        (np.zeros((1, 2)), r"integer ids of shape T or B T, got float64"),
        ([[]], "the text is empty"),
        ([[1, 2], [3.5]], "a batch has a str, an Encoding or ids for each text"),
        ([[1, 2], []], "a batch has a str, an Encoding or ids for each text"),
        (np.array([23]), "not among the 23 ids|id 23"),
    ],
)
def test_what_is_no_text(write_bert, text, message):
    with pytest.raises(RegardError, match=message):
        regard.load(write_bert())(text)


def test_ids_of_several_texts_are_padded_as_the_texts_are(write_bert):
    model = regard.load(write_bert())
    rows = [[2, 7, 8, 3], [2, 9, 3], (2, 3)]
    found = model(rows)
    assert [encoding.ids for encoding in found.encodings] == [tuple(row) for row in rows]
    np.testing.assert_array_equal(found.hidden, model([model.tokenizer.from_ids(row) for row in rows]).hidden)
    np.testing.assert_array_equal(model(iter(rows)).hidden, found.hidden)


def test_an_empty_text_is_its_special_tokens(write_bert):
    assert regard.load(write_bert())("").encodings[0].tokens == ("[CLS]", "[SEP]")


@pytest.mark.parametrize("stray", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "encoder.layer.1.attention.self.query.weight"])
def test_a_number_that_is_not_finite_is_told_with_its_tensor(write_bert, name, stray):
    value = tiny_bert.tensors()[name]
    value[-1, -1] = stray
    folder = write_bert(tensors={name: value})
    with pytest.raises(RegardError, match=rf"^{name} of {folder} has numbers that are not fin"):
        regard.load(folder)


def test_large_numbers_are_finite_as_long_as_the_precision_holds_them(write_bert):
    name = "embeddings.word_embeddings.weight"
    value = np.full((23, 12), 3e38, np.float32)  # their sum is more than float32 holds
    assert regard.load(write_bert(tensors={name: value})).token_embedding.weight.max() == np.float32(3e38)
    wide = write_bert(tensors={name: value.astype(np.float64) * 10})
    with pytest.raises(RegardError, match="not finite in float32"):
        regard.load(wide)
    assert regard.load(wide, dtype=np.float64).token_embedding.weight.max() > 1e39


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_in_place_of_the_configuration_is_not_waited_for(write_bert):
    folder = write_bert()
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(RegardError, match=r"config\.json: it is not a regular file"):
        regard.load(folder)


def test_what_is_no_precision_and_no_name(write_bert):
    for dtype in ("foo", 3, "float16,", np.float16):
        with pytest.raises(RegardError, match="dtype must be float32 or float64, got "):
            regard.load(write_bert(), dtype=dtype)
    with pytest.raises(RegardError, match="load takes the name of a model, a folder or a GGUF file, got None"):
        regard.load(None)
