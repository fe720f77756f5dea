"""The encoder-decoders on tiny checkpoints: what is read, what is written, and what is kept between tokens."""

import json

import numpy as np
import pytest

import golden
import regard
from golden import load
from regard import RegardError, Trace
from regard.models import LanguageModel
from regard.models.encoder_decoder import EncoderDecoder

CASES = golden.cases(EncoderDecoder)
TEXT, TARGET = [7, 20, 3, 11, 15, 9], [0, 6, 19, 8, 12]


@pytest.mark.parametrize("case", CASES)
def test_a_target_token_by_token_is_the_target_at_once(case):
    model = load(case)
    trace = Trace()
    whole = model(TEXT, TARGET, trace=trace)
    state = model.init_cross_attention_cache(model.encode(np.array([TEXT])), None)
    for t, token in enumerate(TARGET):
        step = Trace()
        hidden, state = model.decode_step(np.array([[token]]), state, trace=step)
        np.testing.assert_allclose(hidden[0, 0], whole.hidden[0, t], rtol=1e-11, atol=1e-12)
        name = "decoder.blocks.0.attn.weights"
        np.testing.assert_allclose(step[name][..., 0, :], trace[name][..., t, : t + 1], rtol=1e-11, atol=1e-12)
    assert state.end == len(TARGET)


@pytest.mark.parametrize("case", CASES)
def test_what_is_looked_at_across_is_computed_once(case):
    model = load(case)
    first, then = Trace(), Trace()
    hidden, state = model.prefill(np.array([TEXT, TEXT]), trace=first)
    start = np.array([[model.config.start_id]] * 2)
    np.testing.assert_array_equal(hidden, model([model.tokenizer.from_ids(TEXT)] * 2, start).hidden)
    model.decode_step(start, state, trace=then)
    keys = "decoder.blocks.0.cross_attn.k"
    assert first[keys].shape[-2] == len(TEXT)
    assert keys not in then
    assert "decoder.blocks.0.cross_attn.q" in then
    assert not any(name.startswith("encoder.") for name in then)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_run_names_every_step(family):
    model = load({"t5": "t5/gated", "bart": "bart/scaled"}[family])
    trace = Trace()
    output = model(TEXT, TARGET, trace=trace)
    attn = ("q", "k", "v", "scores", "biased", "weights", "context", "output")
    cross = ("q", "scores", "weights", "context", "output")
    plain = tuple(name for name in attn if name != "biased")  # nothing is hidden from the encoder, nothing added
    embedded = {
        "t5": ["token_embeddings"],
        "bart": ["token_embeddings", "position_embeddings", "embeddings", "normed_embeddings"],
    }[family]
    mlp = [f"mlp.{name}" for name in (("gate", "up") if family == "t5" else ()) + ("hidden", "output")]
    last = ["final_norm"] if family == "t5" else []

    def block(steps):
        return [*(f"attn.{name}" for name in steps), "attn_residual"]

    of_encoder = [*block(attn if family == "t5" else plain), *mlp, "output"]
    of_decoder = [*block(attn), *(f"cross_attn.{name}" for name in cross), "cross_attn_residual", *mlp, "output"]
    assert trace.names() == (
        *(f"encoder.{name}" for name in embedded),
        *(f"encoder.blocks.{i}.{name}" for i in range(model.config.num_layers) for name in of_encoder),
        *(f"encoder.{name}" for name in last),
        "decoder.blocks.0.cross_attn.k", "decoder.blocks.0.cross_attn.v",
        *(f"decoder.{name}" for name in embedded),
        *(f"decoder.blocks.0.{name}" for name in of_decoder),
        *(f"decoder.{name}" for name in last),
    )  # fmt: skip
    assert isinstance(model, LanguageModel)
    assert trace["decoder.blocks.0.cross_attn.weights"].shape[-2:] == (len(TARGET), len(TEXT))
    assert (trace.model, trace.encodings) == (model.name, output.memory_encodings)
    assert all(step.formula for step in trace.steps())


@pytest.mark.parametrize("case", CASES)
def test_without_a_target_the_decoder_reads_what_every_target_begins_with(case):
    model = load(case)
    output = model([model.tokenizer.from_ids(TEXT)] * 2)
    assert [encoding.ids for encoding in output.encodings] == [(model.config.start_id,)] * 2
    np.testing.assert_array_equal(output.hidden, model(np.array([TEXT] * 2), [[model.config.start_id]] * 2).hidden)
    np.testing.assert_array_equal(model.forward(np.array([TEXT] * 2)), output.hidden)
    assert output.logits.shape == (2, 1, 23)


def test_a_string_stands_behind_the_start_and_without_the_end():
    model = load("t5/relu")
    assert model("w5 w6", "w7 w8").encodings[0].ids == (0, 7, 8)
    assert model("w5 w6", "w7 w8 <pad>").encodings[0].special_tokens_mask == (
        True,
        False,
        False,
        False,
    )  # it is of the text
    assert [e.ids for e in model(["w5", "w6"], ["w7 w8", "w9"]).encodings] == [(0, 7, 8), (0, 9)]
    assert model("w5 w6", "").encodings[0].ids == (0,)
    for given in ([7, 8], np.array([7, 8]), np.array([[7, 8]]), model.tokenizer("w7 w8"), [model.tokenizer("w7 w8")]):
        assert model("w5 w6", given).encodings[0].ids == (7, 8)


def test_the_special_tokens_at_the_end_of_a_string_are_not_read(changed):
    """The tokens of a target predict each the next one; the last of all predicts the end."""
    from tokenizers.processors import TemplateProcessing

    model = regard.load(changed("bart/tied"))
    model.tokenizer.backend.add_special_tokens(["w1", "w2"])
    model.tokenizer.backend.post_processor = TemplateProcessing(
        single="w1 $A w2", special_tokens=[("w1", 1), ("w2", 2)]
    )
    assert model("w5", "w7").memory_encodings[0].ids == (1, 5, 2)
    assert model("w5", "w7").encodings[0].ids == (2, 1, 7)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (["w5", "w6"], "w7", "got 1 targets for 2 texts"),
        ("w5", ["w7", "w8"], "got 2 targets for 1 texts"),
        ("w5", [], "the text is empty"),
        ("w5", [[7, 8], [9]], "got 2 targets for 1 texts"),
        ("w5", [23], "not among the 23 ids|id 23"),
        ("w5", 0.5, "a text must be a str, an Encoding or integer ids"),
        ([], "w7", "the text is empty"),
        ("w5", "w7 " * 64, "65 tokens"),
        ("w5 " * 65, "w7", "65 tokens"),
    ],
)
def test_what_is_no_text_or_no_target(text, target, message):
    with pytest.raises(RegardError, match=message):
        load("bart/tied")(text, target)


def test_far_distances_are_one_to_t5_so_that_no_text_is_too_long():
    model = regard.load(golden.FOLDER / "t5/relu")
    assert model([5, 6] * 700, [7] * 600).hidden.shape == (1, 600, 12)


def test_an_edit_of_what_is_looked_at_across():
    model = load("bart/tied")

    def only_the_first(weights):
        weights[:] = 0
        weights[..., 0] = 1
        return weights

    edit = {"decoder.blocks.1.cross_attn.weights": only_the_first}
    trace = Trace(edit=edit)
    edited = model(TEXT, TARGET, trace=trace)
    np.testing.assert_array_equal(edited.hidden, model(TEXT, TARGET, edit=edit).hidden)
    assert np.abs(edited.hidden - model(TEXT, TARGET).hidden).max() > 1e-3
    v = Trace()
    model(TEXT, TARGET, trace=v)
    np.testing.assert_allclose(
        trace["decoder.blocks.1.cross_attn.context"],
        np.repeat(v["decoder.blocks.1.cross_attn.v"][:, :, :1], len(TARGET), axis=2),
        rtol=1e-12,
    )


def test_an_edit_reaches_what_is_written():
    model = load("t5/silu")
    edit = {"encoder.final_norm": np.zeros_like}
    plain = model.generate("w5 w6 w7", max_new_tokens=6)
    edited = model.generate("w5 w6 w7", max_new_tokens=6, trace=Trace(only=(), edit=edit))
    blind = model.generate("w9 w10 w11", max_new_tokens=6, trace=Trace(only=(), edit=edit))
    assert plain.ids != edited.ids == blind.ids


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_recorded_as_if_it_had_been_read(case):
    model = load(case)
    trace = Trace(only="*attn.weights")
    generated = model.generate("w5 w6 w7", max_new_tokens=7, trace=trace)
    assert generated.prompt.text == "w5 w6 w7"
    assert generated.encoding.ids == (model.config.start_id, *generated.ids)
    read = Trace(only="*attn.weights")
    model("w5 w6 w7", generated.encoding, trace=read)
    for name in read.names():
        np.testing.assert_array_equal(trace[name], read[name])
    logits = model("w5 w6 w7", generated.encoding).logits[0]
    expected = logits.argmax(-1)[:-1].tolist()
    if model.forced.eos is not None:
        expected[-1] = model.forced.eos
    assert expected == list(generated.ids)


def test_writing_ends_at_the_end_or_where_no_more_can_be_looked_at(changed):
    model = load("bart/tied")
    assert (model.max_length, model.end_ids) == (64, (2,))
    written = model.generate("w5 w6 w7", max_new_tokens=100)
    assert (written.finish_reason, len(written.ids)) == ("max_context", 63)  # and the one at the start
    ending = regard.load(changed("bart/tied", {"eos_token_id": written.ids[0]}))
    assert ending.generate("w5 w6 w7").finish_reason == "eos"


SHARED = {"t5/relu": "shared.weight", "bart/tied": "model.shared.weight"}


@pytest.mark.parametrize("case", SHARED)
@pytest.mark.parametrize("stored", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"])
def test_one_table_may_be_stored_under_any_of_its_names(changed, case, stored):
    stored = stored if stored == "lm_head.weight" or case == "t5/relu" else f"model.{stored}"
    model = regard.load(changed(case, rename=lambda name: stored if name == SHARED[case] else name), dtype=np.float64)
    np.testing.assert_array_equal(model(TEXT, TARGET).logits, load(case)(TEXT, TARGET).logits)


def test_bart_without_its_head_s_prefix(changed):
    bare = changed("bart/tied", rename=lambda name: name.removeprefix("model."))
    np.testing.assert_array_equal(
        regard.load(bare, dtype=np.float64)(TEXT, TARGET).hidden, load("bart/tied")(TEXT, TARGET).hidden
    )


@pytest.mark.parametrize("where", ["config", "generation_config"])
def test_tokens_that_the_files_want_first_and_last(changed, where):
    """Those of BART's summaries and of translators; transformers writes the same."""
    wanted = {"forced_bos_token_id": 7, "forced_eos_token_id": [9, 11]}
    folder = changed("bart/tied", {"eos_token_id": 9, **(wanted if where == "config" else {})})
    if where == "generation_config":
        wanted["decoder_start_token_id"] = load("bart/tied").start_id
        (folder / "generation_config.json").write_text(json.dumps(wanted))
    done = regard.load(folder).generate("w5 w6 w7", max_new_tokens=6)
    assert (done.ids[0], done.ids[-1], len(done.ids)) == (7, 9, 6)
    assert done.finish_reason == "length"
    both = regard.load(folder).generate(["w5 w6 w7", "w8"], max_new_tokens=6)
    assert both[0].ids == done.ids
    assert both[1].ids[0] == 7


def test_what_a_target_begins_with_may_stand_in_generation_config(changed):
    folder = changed("t5/relu")
    (folder / "generation_config.json").write_text('{"decoder_start_token_id": 6}')
    assert regard.load(folder).start_id == 6
    (folder / "generation_config.json").write_text('{"decoder_start_token_id": 23}')
    with pytest.raises(RegardError, match="decoder_start_token_id must be a whole number from 0 to 22"):
        regard.load(folder)


@pytest.mark.parametrize(("case", "start"), [("t5/relu", 4), ("mt5/plain", 0)])
def test_what_a_target_begins_with_where_nothing_is_said(changed, case, start):
    """The padding token for a T5, 0 for an mT5."""
    assert regard.load(changed(case, {"pad_token_id": 4}, drop=("decoder_start_token_id",))).start_id == start


def test_a_special_token_without_an_embedding_is_told_when_it_is_used(changed):
    from tokenizers import Tokenizer

    folder = changed("bart/tied")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    model = regard.load(folder)
    assert model("w5").hidden.shape == (1, 1, 12)
    with pytest.raises(RegardError, match="id 23 is outside the vocabulary, which has ids 0 to 22"):
        model("w5 <mask>")
