"""The decoders on tiny checkpoints: what they accept, what they refuse, and what a run and a batch of texts are."""

import dataclasses
import functools
import json

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from golden import load
from regard import RegardError, Trace
from regard.formats.safetensors import SafetensorsFile
from regard.models import LanguageModel
from regard.models.encoder_decoder import EncoderDecoder
from sweeps import sweep_except

CASES = golden.cases(LanguageModel, without=EncoderDecoder)
WRITING = golden.cases(LanguageModel)
TIED = ["gpt2/plain", "llama/tied", "mistral/tied", "qwen2/types", "qwen3/types", "gemma2/plain", "gpt_oss/types"]
TIED = [*TIED, "gpt_neox/sequential", "phi3/partial", "opt/plain", "gpt_neo/plain", "gemma3_text/plain"]
TABLES = ("embed_tokens.weight", "wte.weight", "embed_in.weight")
LONG, SHORT = np.array([7, 20, 3, 11, 15, 9, 8, 21]), np.array([12, 6, 19])


@pytest.fixture
def write_decoder(tmp_path):
    """Return a function that writes a tiny Llama with changes to its configuration and tensors."""

    def write(config=None, changed=None, drop=(), folder="tiny"):
        return tiny_decoder.write(tmp_path / folder, config, changed, drop)

    return write


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(WRITING), WRITING))  # all: test_golden.py
def test_what_it_goes_on_with_is_what_transformers_does(case):
    expected = SafetensorsFile(golden.FOLDER / case / "expected.safetensors")
    model = dataclasses.replace(load(case), end_ids=())
    prompt = model.tokenizer.from_ids(expected["ids"][0][: expected["lengths"][0]].tolist())
    ids = model.generate(prompt, max_new_tokens=64).ids
    assert len(ids) == 64 or len(ids) == model.max_length - 1
    assert list(ids) == expected["greedy"][: len(ids)].tolist()


@functools.cache  # for two tests
def texts_alone(case):
    """Return a model without a token that ends a text, three texts, and the tokens that each goes on with alone."""
    model = dataclasses.replace(load(case), end_ids=())
    texts = [model.tokenizer.from_ids(ids) for ids in (LONG, SHORT, LONG[::-1][:5])]
    return model, texts, [model.generate(text, max_new_tokens=16).ids for text in texts]


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(WRITING), WRITING))
def test_a_batch_goes_on_as_each_text_alone(case):
    model, texts, alone = texts_alone(case)
    batch = model.generate(texts, max_new_tokens=16)
    assert [one.ids for one in batch] == alone
    assert all(len(one.ids) == 16 for one in batch)


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(WRITING), WRITING))
def test_a_text_that_ends_leaves_the_batch(case):
    model, texts, alone = texts_alone(case)
    stops = {alone[1][3], alone[2][7]}
    batch = model.generate(texts, max_new_tokens=16, stop=[*stops])
    for one, ids in zip(batch, alone, strict=True):
        end = next((at for at, token in enumerate(ids) if token in stops), None)
        assert one.ids == ids[: None if end is None else end + 1]
        assert one.finish_reason == ("length" if end is None else "stop")


def test_a_run_names_every_step(write_decoder):
    model = regard.load(write_decoder())
    trace = Trace()
    output = model("cats", trace=trace)
    assert isinstance(model, LanguageModel)
    block = [
        *(f"attn.{name}" for name in ("q", "k", "v", "scores", "biased", "weights", "context", "output")),
        "attn_residual", "mlp.gate", "mlp.up", "mlp.hidden", "mlp.output", "output",
    ]  # fmt: skip
    assert trace.names() == (
        "token_embeddings", "embeddings", *(f"blocks.{i}.{name}" for i in range(2) for name in block), "final_norm",
    )  # fmt: skip
    assert trace["blocks.1.attn.k"].shape == (1, 3, 4, 4)
    assert trace["blocks.0.mlp.gate"].shape == (1, 4, 20)
    np.testing.assert_array_equal(trace["final_norm"], output.hidden)
    np.testing.assert_allclose(output.logits, output.hidden @ tiny_decoder.tensors()["lm_head.weight"].T, atol=1e-5)


def test_what_only_some_families_have_is_named_too():
    trace = Trace()
    load("gpt_oss/plain")(SHORT, trace=trace)
    assert (np.count_nonzero(trace["blocks.0.mlp.experts"], axis=-1) == 2).all()
    trace = Trace()
    load("gemma2/capped")(SHORT, trace=trace)
    assert np.abs(trace["blocks.0.attn.capped"]).max() < 0.7 < np.abs(trace["blocks.0.attn.scores"]).max()


def names_of_transformers_5(name):
    if "lm_head" in name:
        return name.removeprefix("language_model.")
    return f"model.{name}".replace("language_model.model", "language_model")


@pytest.mark.parametrize(
    ("rename", "has_head"),
    [(names_of_transformers_5, True), (lambda name: name.replace("model.model", "model"), False)],
)
def test_the_part_that_reads_texts_has_several_names(changed, rename, has_head):
    """As transformers 5 has them, and in a model saved without its head."""
    without = () if has_head else ("language_model.lm_head.weight",)
    expected, model = load("gemma3/untied"), regard.load(changed("gemma3/untied", rename=rename, without=without))
    np.testing.assert_allclose(model(SHORT).hidden, expected(SHORT).hidden, atol=2e-5)
    assert model.config.ignored[0] == "vision_config"
    if has_head:
        np.testing.assert_allclose(model(SHORT).logits, expected(SHORT).logits, atol=2e-5)
    else:
        with pytest.raises(RegardError, match="it was saved without its head"):
            model(SHORT).logits  # noqa: B018


@pytest.mark.parametrize("tied", [True, False])
def test_the_part_of_llama_4_that_reads_texts_says_itself_whether_its_head_is_tied(changed, tied):
    """What the whole says has no effect in transformers."""
    part = json.loads((golden.FOLDER / "llama4/plain/config.json").read_text())["text_config"]
    fields = {"text_config": part | {"tie_word_embeddings": tied}, "tie_word_embeddings": not tied}
    assert regard.load(changed("llama4/plain", fields)).config.tied is tied


def test_the_end_of_a_text_may_stand_with_the_part_that_reads_texts(changed):
    assert load("gemma3/plain").end_ids == (1,)
    assert regard.load(changed("gemma3/plain", {"eos_token_id": [1, 5]})).end_ids == (1, 5)


@pytest.mark.parametrize(
    ("case", "older"),
    [
        ("llama/plain", {"rope_theta": 10_000.0}),
        ("llama/plain", {"rope_theta": 10_000.0, "rope_scaling": None, "attention_bias": "absent"}),
        ("llama/linear", {"rope_theta": 10_000.0, "rope_scaling": {"type": "linear", "factor": 2.5}}),
        (
            "llama/llama3",
            {
                "rope_theta": 500.0,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            },
        ),
        ("llama/dynamic", {"rope_scaling": {"rope_type": "dynamic", "type": "dynamic", "factor": 5.0}}),
        (
            "qwen2/types",
            {
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 20},
                "head_dim": 4,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            },
        ),
        ("qwen2/windows", {"layer_types": "absent"}),
        ("gemma2/plain", {"layer_types": "absent", "hidden_act": "gelu_pytorch_tanh", "cache_implementation": "x"}),
        ("gpt_oss/plain", {"experts_per_token": 2, "initial_context_length": 4096, "rope_theta": 150_000}),
        (
            "llama/plain",
            {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}},
        ),
        ("gpt2/plain", {"n_special": 0, "predict_special_tokens": True, "_num_labels": 1}),
        ("gpt2/plain", {"output_past": True, "num_labels": 1, "is_decoder": False}),
        (
            "llama/plain",
            {"is_decoder": True, "unsloth_fixed": True, "unsloth_version": "2025.1", "finetuning_task": "x"},
        ),
        ("gemma2/plain", {"sliding_window_size": 3}),
        ("gpt2/plain", {"n_ctx": 16, "tie_word_embeddings": "absent", "n_inner": "absent"}),
    ],
)
def test_older_configurations_say_the_same(changed, case, older):
    folder = changed(
        case, older, drop=[*(name for name, value in older.items() if value == "absent"), "rope_parameters"]
    )
    assert np.array_equal(regard.load(folder, dtype=np.float64)(LONG).hidden, load(case)(LONG).hidden)


@pytest.mark.parametrize(
    ("case", "prefix", "extra"),
    [
        ("gpt2/plain", "transformer.", {"h.0.attn.bias": np.ones((1, 1, 80, 80)), "h.1.attn.masked_bias": np.ones(())}),
        ("llama/tied", "", {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2)}),
        ("gpt_neox/sequential", "gpt_neox.", {"layers.1.attention.masked_bias": np.ones(())}),
    ],
)
def test_names_that_older_files_have(changed, case, prefix, extra):
    extra = {name: value.astype(np.float16) for name, value in extra.items()}
    folder = changed(case, rename=lambda name: name.removeprefix(prefix), extra=extra)
    model = regard.load(folder, dtype=np.float64)
    assert np.array_equal(model(LONG).logits, load(case)(LONG).logits)


def head_of(case):
    return "embed_out.weight" if case.startswith("gpt_neox") else "lm_head.weight"


def stored(case):
    file = SafetensorsFile(golden.FOLDER / case / "model.safetensors")
    return {name: np.array(file[name]) for name in file}


@pytest.mark.parametrize("case", TIED)
def test_the_embeddings_once_more_are_the_head(changed, case):
    (table,) = (value for name, value in stored(case).items() if name.endswith(TABLES))
    model = regard.load(changed(case, extra={head_of(case): table}), dtype=np.float64)
    assert model.lm_head is None
    assert np.array_equal(model(LONG).logits, load(case)(LONG).logits)


@pytest.mark.parametrize("case", ["gpt2/untied", "gpt_neox/half", "llama/plain", "mistral/window", "gpt_oss/plain"])
@pytest.mark.parametrize("is_classifier", [False, True])
def test_a_decoder_without_its_head_has_vectors_alone(changed, case, is_classifier):
    """As models of sentences are saved, and classifiers."""
    prefix = {"gpt2/untied": "transformer.", "gpt_neox/half": "gpt_neox."}.get(case, "model.")
    folder = changed(
        case,
        rename=str if is_classifier else lambda name: name.removeprefix(prefix),
        without=[head_of(case)],
        extra={"score.weight": np.zeros((2, 12), np.float32)} if is_classifier else None,
    )
    model = regard.load(folder, dtype=np.float64)
    output = model(LONG)
    assert np.array_equal(output.hidden, load(case)(LONG).hidden)
    assert model.embed(["w5 w6", "w7"], pooling="lasttoken").shape == (2, 12)
    for ask in (lambda: output.logits, lambda: model.generate(LONG), lambda: next(model.stream("w5"))):
        with pytest.raises(RegardError, match=r"has no logits: it was saved without its head"):
            ask()


def test_fields_can_be_ignored_by_name(changed):
    folder = changed("llama/plain", {"odd": 1, "odder": {"a": 2}, "transformers_version": "99.0"})
    assert regard.load(folder, ignore=("odd", "odder")).config.num_layers == 2
    with pytest.raises(RegardError, match=r"unknown field odder="):
        regard.load(folder, ignore=["odd"])


def test_fields_that_transformers_does_not_have_are_ignored_and_named(changed):
    """They change nothing there; of a newer version, or of a model with code of its own, that is not known."""
    odd = {"max_sequence_length": 9, "odd": 1, "custom_pipelines": {}}
    model = regard.load(changed("llama/plain", odd))
    assert model.config.ignored == ("custom_pipelines", "max_sequence_length", "odd")
    assert model.config == regard.load(golden.FOLDER / "llama/plain").config
    for more in ({"transformers_version": "99.0"}, {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}):
        with pytest.raises(RegardError, match="unknown field max_sequence_length=9; unknown field odd=1"):
            regard.load(changed("llama/plain", {**odd, **more}))
    assert regard.load(changed("llama/plain", {**odd, "transformers_version": "4.20.1"})).config.ignored
    assert regard.load(changed("llama/plain", {**odd, "auto_map": {"AutoTokenizer": "x"}})).config.ignored


NO_NAMES = r"ignore takes names of fields, such as \['quantization_config'\], got"
NOT_UNKNOWN = "ignore names '{}', which is not an unknown field of the configuration"


@pytest.mark.parametrize(
    ("ignore", "message"),
    [
        *((ignore, NO_NAMES) for ignore in ("odd", 5, [5], None)),
        *(([name], NOT_UNKNOWN.format(name)) for name in ("hidden_size", "rope_parameters", "absent")),
    ],
)
def test_only_a_field_that_is_there_and_is_not_read_can_be_ignored(changed, ignore, message):
    with pytest.raises(RegardError, match=message):
        regard.load(changed("llama/plain", {}), ignore=ignore)


@pytest.mark.parametrize("cap", [1e30, 1e-30])
def test_a_cap_at_the_edge_gives_scores(changed, cap):
    model = regard.load(changed("gemma2/plain", {"final_logit_softcapping": cap, "attn_logit_softcapping": cap}))
    assert np.isfinite(model(LONG).logits).all()


LLAMA3 = {"low_freq_factor": 1, "high_freq_factor": 4}


@pytest.mark.parametrize(
    ("rope", "limit"),
    [
        ({"rope_type": "default"}, 40),
        ({"rope_type": "linear", "factor": 2.5}, 100),
        ({"rope_type": "dynamic", "factor": 2}, 80),
        ({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 20}, 80),
        ({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 20, "beta_slow": None}, 40),
        ({"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 10, **LLAMA3}, 40),
    ],
)
def test_a_stretched_rotation_reaches_further(write_decoder, rope, limit):
    model = regard.load(write_decoder({"rope_parameters": {"rope_theta": 100.0, **rope}}))
    assert model.max_length == limit
    with pytest.raises(RegardError, match=f"accepts at most {limit};"):
        model("x" * (limit + 1))


def test_no_scaling_reaches_beyond_what_can_be_counted(write_decoder):
    for kind in ("yarn", "linear", "dynamic"):
        rope = {"rope_theta": 100.0, "rope_type": kind, "factor": 1e308}
        assert regard.load(write_decoder({"rope_parameters": rope})).max_length == 2**29


def test_dynamic_rotation_depends_on_the_length_of_each_text_alone(write_decoder):
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}
    model = regard.load(write_decoder({"rope_parameters": rope, "max_position_embeddings": 10}), dtype=np.float64)
    both = model(["y" * 8, "x" * 25, "z" * 14]).hidden
    for row, text in enumerate(["y" * 8, "x" * 25, "z" * 14]):
        np.testing.assert_allclose(both[row, : len(text)], model(text).hidden[0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("edit", [None, regard.edits.ablate((1, 0), (1, 1), (1, 2), (1, 3))])
def test_predictions_are_the_likeliest_tokens_of_the_run(edit):
    model = regard.load("induction")
    found = model.predictions("qzkfqz", k=3, edit=edit)
    logits = model("qzkfqz", edit=edit).logits[0, -1].astype(np.float64)
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    order = np.argsort(-probabilities)[:3]
    assert [each.id for each in found] == order.tolist()
    assert [each.text for each in found] == [model.tokenizer.decode([i]) for i in order]
    np.testing.assert_allclose([each.probability for each in found], probabilities[order], rtol=1e-6)
    assert (found[0].text == "k") == (edit is None)
