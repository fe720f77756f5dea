"""Texts that the page runs itself, and what the models predict for them."""

import numpy as np
import pytest
from explorations import explored, recorded, whole

import golden
import regard
from regard.explorer.exploration import Exploration
from regard.functional import softmax
from regard.models.images.model import ImageModel


def test_a_text_that_is_run_in_the_page_is_a_run_of_its_own_and_can_be_ablated(short, bert):
    live = short.run_text("cat on mats")
    assert (live["run"], live["metadata"]["text"]) == (1, "cat on mats")
    expected = recorded(bert, "cat on mats")["blocks.1.attn.weights"][0, 2]
    np.testing.assert_array_equal(whole(short, 1, 1, 2), expected)
    assert [short.run_text(text)["run"] for text in ("cat", "mats", "cat", "cat on mats")] == [2, 3, 2, 1]
    after = short.ablate([(0, 1)], run=1)["metadata"]
    assert (after["base_run"], after["text"]) == (1, "cat on mats")


def test_runs_that_left_the_memory_are_run_again(short, bert):
    words = ["cat", "sat", "on", "mat", "the", "cat sat", "cat on", "the mat", "the cat", "on the mat"]
    numbers = [short.run_text(text)["run"] for text in words]
    expected = recorded(bert, words[0])["blocks.0.attn.weights"][0, 1]
    np.testing.assert_array_equal(whole(short, numbers[0], 0, 1), expected)


def test_it_opens_on_a_head_of_its_own():
    model = regard.load("minilm")
    exploration = explored(model, "hello")
    text = "The animal didn't cross the street because it was too tired"
    alone = explored(model, text).manifest()["runs"][0]["initial"]
    assert exploration.run_text(text)["metadata"]["initial"] == alone


def test_models_are_those_given_and_those_on_this_machine(short, bert):
    assert short.live_models[0] == bert.name
    assert {"minilm", "induction"} <= set(short.live_models)
    live = short.run_text("qzkfqz", model="induction")["metadata"]
    assert live["model"] == "induction"
    assert len(live["layers"]) == len(regard.load("induction").blocks)


@pytest.fixture(scope="module")
def language():
    """Return a small model that predicts, its text, and its logits ``T V``."""
    model = regard.load("induction")
    return model, "qzkfqz", np.asarray(model("qzkfqz").logits[0], np.float64)


@pytest.mark.parametrize("position", [None, 0, 3])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_distribution_of_the_next_token_is_that_of_the_logits(language, position, temperature):
    model, text, logits = language
    found = explored(model, text).next_tokens(0, position=position, temperature=temperature)
    shares = softmax(logits[-1 if position is None else position] / temperature)
    order = np.argsort(-shares, kind="stable")[:20]
    assert [each["token"] for each in found["tokens"]] == order.tolist()
    np.testing.assert_allclose([each["probability"] for each in found["tokens"]], shares[order], rtol=1e-5)
    assert found["rest"] == pytest.approx(max(0.0, 1 - shares[order].sum()), abs=1e-5)
    assert found["entropy"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-5)


def test_a_token_is_drawn_as_often_as_it_is_likely(language):
    model, text, logits = language
    exploration = explored(model, text)
    shares = softmax(logits[2] / 3)
    drawn = [exploration.next_tokens(0, position=2, temperature=3, seed=n)["drawn"] for n in range(400)]
    assert drawn[7] == exploration.next_tokens(0, position=2, temperature=3, seed=7)["drawn"]
    counts = np.bincount([each["token"] for each in drawn], minlength=len(shares))
    deviations = (counts - 400 * shares) / np.sqrt(400 * shares * (1 - shares) + 1)
    assert np.abs(deviations).max() < 5


def test_the_prediction_of_an_ablated_run_is_its_own(language):
    model, text, _ = language
    exploration = explored(model, text)
    number = exploration.ablate([(1, 0), (1, 1)])["run"]
    logits = model(text, edit=regard.edits.ablate((1, 0), (1, 1))).logits[0, -1]
    found = exploration.next_tokens(number)["tokens"][0]
    assert found["token"] == int(logits.argmax())
    assert found["probability"] == pytest.approx(float(softmax(np.asarray(logits, np.float64)).max()), rel=1e-5)


def test_the_lens_of_a_position_is_the_logit_lens(causal):
    text = "some text that is long"
    trace = regard.Trace()
    causal(text, trace=trace)
    lens = regard.metrics.logit_lens(causal, trace, k=3)
    found = explored(causal, text).lens(0, position=2)
    assert found["token"] == lens.target[0, 2]
    for n, layer in enumerate(found["layers"]):
        assert layer["step"] == lens.names[n]
        assert [each["token"] for each in layer["tokens"]] == lens.ids[n, 0, 2].tolist()
        np.testing.assert_allclose(
            [each["probability"] for each in layer["tokens"]], lens.probabilities[n, 0, 2], rtol=1e-4
        )
        assert layer["rank"] == lens.target_rank[n, 0, 2]


def test_the_whole_model_adds_up_to_the_logit(language):
    model, text, logits = language
    found = explored(model, text).residual_stream(0, position=4)
    adds = [layer["adds"] for layer in found["layers"]]
    total = found["embeddings"] + found["bias"] + sum(each["attn"] + each["mlp"] for each in adds)
    assert found["token"] == int(logits[4].argmax())
    assert found["logit"] == pytest.approx(logits[4].max(), rel=1e-5)
    assert total == pytest.approx(found["logit"], rel=1e-4)
    for layer, each in zip(model.blocks, adds, strict=True):
        assert len(each["heads"]) == layer.attn.num_heads


@pytest.mark.parametrize("case", ["granite/biased", "gemma2/plain", "llama/plain"])
def test_the_lengths_of_the_whole_model_are_those_of_what_is_added(case):
    model, text, trace = regard.load(golden.FOLDER / case), "some text", regard.Trace()
    model(text, trace=trace)
    found, before = explored(model, text).residual_stream(0, position=1)["layers"], trace["embeddings"]
    for i, layer in enumerate(found):
        middle, after = trace[f"blocks.{i}.attn_residual"], trace[f"blocks.{i}.output"]
        assert layer["attn"] == pytest.approx(np.linalg.norm((middle - before)[0, 1]), rel=1e-4)
        assert layer["mlp"] == pytest.approx(np.linalg.norm((after - middle)[0, 1]), rel=1e-4)
        before = after


@pytest.mark.parametrize("case", golden.one_of_each(golden.cases(ImageModel)))
def test_a_picture_is_run_again_as_it_was_seen(rng, case):
    model, trace = regard.load(golden.FOLDER / case), regard.Trace()
    output = model(rng.integers(0, 256, (*model.config.image_size, 3), np.uint8), trace=trace)
    exploration = Exploration(trace, models=[model])
    layers = exploration.residual_stream(0, position=2)["layers"]
    expected = [np.linalg.norm(trace[f"blocks.{i}.output"][0, 2].astype(float)) for i in range(model.config.num_layers)]
    assert [layer["output"] for layer in layers] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(exploration.runs[0].output.hidden, output.hidden)

    number = exploration.ablate([(0, 1)])["run"]
    seen = [exploration.describe(run)["picture"] for run in (0, number)]
    assert seen[0] == seen[1] is not None
    one, each = exploration.runs[0].again(), exploration.runs[0].again(3)
    np.testing.assert_allclose(each.hidden, np.repeat(one.hidden, 3, axis=0), rtol=0, atol=1e-5)


def test_the_lengths_of_the_whole_model_are_those_of_its_steps(bert, causal, bart):
    for model, text in ((bert, "the cat sat"), (causal, "some text"), (bart, "some text")):
        trace = regard.Trace()
        model(text, trace=trace)
        exploration = explored(model, text)
        found = exploration.residual_stream(0, position=1)
        for layer, description in zip(found["layers"], exploration.manifest()["runs"][0]["layers"], strict=True):
            prefix = description["name"].removesuffix("attn")
            for part, name in (("attn", "attn.output"), ("mlp", "mlp.output"), ("output", "output")):
                expected = np.linalg.norm(trace[f"{prefix}{name}"][0, 1].astype(np.float64))
                assert layer[part] == pytest.approx(expected, rel=1e-5)
