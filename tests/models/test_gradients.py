"""`model.gradients`: every step against differences of edited runs, and what it refuses."""

import numpy as np
import pytest

import golden
import tiny_decoder
from regard import RegardError, Trace, functional as F, load
from regard.models import toy
from regard.models.pooling import Pooling
from regard.nn import value_and_gradients

CASES = ("bert/gelu", "roberta/padding", "distilbert/tanh", "gpt2/plain", "llama/llama3", "qwen3/windows")
CASES = (*CASES, "gemma2/capped", "gpt_oss/plain", "t5/gated", "bart/scaled", "gpt_neox/plain", "olmo2/plain")
CASES = (
    *CASES,
    "mixtral/plain",
    "qwen3_moe/plain",
    "qwen3_next/mixed",
    "gemma4_text/experts",
    "gemma4_text/inputs",
    "deepseek_v3/plain",
    "deepseek_v3/biased",
    "modernbert/plain",
    "mpnet/plain",
    "albert/groups",
    "deberta-v2/near",
    "deberta-v2/own",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load(tiny_decoder.write(tmp_path_factory.mktemp("tiny") / "tiny"), dtype=np.float64)


def model_and_inputs(case):
    model, texts, expected, _ = golden._run(golden.FOLDER / case, np.float64)
    target = {}
    if "target_ids" in expected:
        target["target"] = golden._texts(model, expected["target_ids"], expected["target_lengths"])
    return model, texts, target


def weighted(output):
    return np.sum(output.hidden * np.cos(np.arange(output.hidden.size)).reshape(output.hidden.shape))


@pytest.mark.parametrize("case", CASES)
def test_every_step_has_the_gradient_that_an_edit_of_it_shows(case):
    model, texts, target = model_and_inputs(case)
    trace = Trace()
    model(texts, trace=trace, **target)
    found = model.gradients(texts, weighted, at="*", **target)
    assert found.gradients.names() == found.values.names() == trace.names()
    linear = model.gradients(texts, weighted, at=("*.q", "*.k", "*.v", "*.context", "*.output"), **target).gradients
    rng = np.random.default_rng(0)
    for name, value in ((name, trace[name]) for name in trace.names()):
        np.testing.assert_allclose(found.values[name], value, rtol=1e-9, atol=1e-12)
        assert found.gradients.axes(name) == trace.axes(name)
        if name in linear:  # with the weights computed anew in place of the whole map
            np.testing.assert_allclose(linear[name], found.gradients[name], rtol=1e-9, atol=1e-10)
        direction = rng.standard_normal(value.shape) * np.isfinite(value)
        if name.endswith("experts"):
            direction *= value > 0  # other experts are not computed

        def edited(step, name=name, direction=direction):
            return weighted(model(texts, edit={name: lambda x: x + step * direction}, **target))

        gradient = found.gradients[name] * direction
        np.testing.assert_allclose(gradient.sum(), (edited(1e-6) - edited(-1e-6)) / 2e-6, rtol=1e-6, atol=1e-6)


def test_the_gradient_at_one_step_alone_is_that_of_all_together(minilm):
    """Fused calls of the kernel take the steps before the one that is named."""
    together = minilm.gradients("The cat sat.", weighted, at="*").gradients
    for name in together.names():
        if name.startswith(("embeddings", "blocks.0.", "blocks.5.")):
            alone = minilm.gradients("The cat sat.", weighted, at=name).gradients[name]
            bound = 1e-4 * np.abs(together[name]).max()
            np.testing.assert_allclose(alone, together[name], rtol=1e-3, atol=bound, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_checkpointed_blocks_give_the_same_gradients(case):
    model, texts, target = model_and_inputs(case)
    for at in ("*", ("*.output", "*.k", "*.v")):
        whole, again = (
            model.gradients(texts, weighted, at=at, parameters="*", checkpoint=checkpoint, **target)
            for checkpoint in (False, True)
        )
        assert again.value == pytest.approx(whole.value, rel=1e-12)
        assert again.gradients.names() == whole.gradients.names()
        for name in whole.gradients.names():
            np.testing.assert_allclose(again.gradients[name], whole.gradients[name], rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(again.values[name], whole.values[name], rtol=1e-12, atol=1e-14)
        assert again.parameters.keys() == whole.parameters.keys()
        for name, x in whole.parameters.items():
            np.testing.assert_allclose(again.parameters[name], x, rtol=1e-9, atol=1e-11)


def test_the_loss_is_the_mean_surprise_of_each_next_token(tiny):
    ids = [[5, 7, 99, 4], [3, 200]]
    found = tiny.gradients([tiny.tokenizer.from_ids(row) for row in ids])
    surprises = []
    for row in ids:
        logits = tiny(tiny.tokenizer.from_ids(row)).logits[0]
        surprises += [-np.log(F.softmax(logits[i]))[row[i + 1]] for i in range(len(row) - 1)]
    assert found.value == pytest.approx(np.mean(surprises), rel=1e-12)
    assert all(name.endswith(".output") for name in found.gradients.names())
    assert len(found.gradients.names()) == 3 * tiny.config.num_layers  # attention, feed-forward, block


def test_parameters_are_chosen_by_name(tiny):
    def logit(output):
        return output.logits[0, -1, 65] - output.logits[0, -1, 66]

    found = tiny.gradients("abc", logit, at="*.v", parameters=("*.q_proj.weight", "final_norm.weight"))
    _, expected = value_and_gradients(tiny, lambda model: logit(model("abc")))
    wanted = {name for name in expected if name.endswith("q_proj.weight")} | {"final_norm.weight"}
    assert found.parameters.keys() == wanted
    for name, gradient in found.parameters.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-12, atol=1e-15)
    assert found.gradients.model == tiny.name
    assert found.gradients.encodings[0].tokens == found.values.encodings[0].tokens


def test_no_step_is_needed_for_gradients_of_parameters(tiny):
    found = tiny.gradients("abc", at=(), parameters="final_norm.weight")
    assert not list(found.gradients.names())
    assert list(found.parameters) == ["final_norm.weight"]


def test_values_are_recorded_apart(tiny):
    found = tiny.gradients("abc", at="final_norm", only=("*.weights", "final_norm"))
    assert found.gradients.names() == ("final_norm",)
    assert set(found.values.names()) == {"blocks.0.attn.weights", "blocks.1.attn.weights", "final_norm"}
    trace = Trace()
    tiny("abc", trace=trace)
    for name in found.values.names():
        np.testing.assert_allclose(found.values[name], trace[name], rtol=1e-12)


@pytest.mark.parametrize("modes", [("mean", "max"), ("cls",), ("lasttoken", "weightedmean", "mean_sqrt_len")])
def test_a_pooled_vector_has_gradients(modes):
    model, texts, _ = model_and_inputs("bert/gelu")

    def metric(output):
        vector = Pooling(modes)(output.hidden[0])
        return np.sum(vector * np.cos(np.arange(vector.size)))

    gradient = model.gradients(texts, metric, at="embeddings").gradients["embeddings"]
    direction = np.random.default_rng(0).standard_normal(gradient.shape)

    def edited(step):
        return metric(model(texts, edit={"embeddings": lambda x: x + step * direction}))

    np.testing.assert_allclose((gradient * direction).sum(), (edited(1e-6) - edited(-1e-6)) / 2e-6, rtol=1e-6)


def test_the_layer_of_the_lessons_has_gradients():
    model = toy("the cat sat", positions="learned")
    found = model.gradients("the cat sat", lambda o: o.hidden[0, 2, 0], at="*.weights", parameters="position_table")
    assert found.gradients["blocks.0.attn.weights"].shape == (1, 1, 3, 3)
    assert np.abs(found.gradients["blocks.0.attn.weights"][0, 0, :2]).max() == 0  # of other tokens
    assert found.parameters["position_table"].shape == (3, 8)


def test_what_is_refused(tiny):
    encoder, texts, _ = model_and_inputs("bert/gelu")
    for call, message in (
        (lambda: tiny.gradients("abc", at="blocks.9.output"), r"at= matched no step of this run: 'blocks.9.output'"),
        (lambda: tiny.gradients("abc", parameters="*.qproj"), r"parameters= matched no array"),
        (lambda: tiny.gradients("abc", "los"), r"metric must be a function of the output, or one of loss"),
        (
            lambda: tiny.gradients("abc", lambda o: o.logits),
            r"the metric must be one number .* got an array \(1, 3, 257\)",
        ),
        (lambda: tiny.gradients("abc", lambda o: 1.0), r"got 1\.0"),
        (lambda: tiny.gradients("a"), r"at least two tokens"),
        (lambda: tiny.gradients("abc", at=3), r"at is a name or several"),
        (lambda: tiny.gradients("abc", at=()), r"nothing was asked for: name steps in at= or arrays in parameters="),
        (lambda: encoder.gradients(texts), r"an encoder has no logits"),
    ):
        with pytest.raises(RegardError, match=message):
            call()
