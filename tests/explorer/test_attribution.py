"""What mattered, for the page: the answers are those of `regard.metrics.attribute`, and refusals are sentences."""

from __future__ import annotations

import json

import numpy as np
import pytest
from explorations import explored

import regard
from regard import RegardError, Trace
from regard.explorer import Exploration, attribution as attribution_module
from regard.explorer.query import dispatch
from regard.metrics import ATTRIBUTION_METHODS, attribute

TEXT = "qzkfbdqzk"  # after the second "k", as after the first, comes "f"


@pytest.fixture(scope="module")
def model():
    return regard.load("induction")


@pytest.fixture(scope="module")
def decoder(model):
    return explored(model, TEXT)


def assert_is(answer, found):
    """Assert that an answer has the very numbers of an attribution."""
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert answer["method"] == found.method
    assert answer["metric"] == found.metric
    assert answer["value"] == found.value
    assert answer["baseline_value"] == found.baseline_value
    assert answer["scores"] == found.scores.tolist()
    assert answer["attended"] == found.attended.tolist()


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_answers_are_those_of_the_metric(decoder, model, method):
    assert_is(decoder.attribution(0, method=method, to="d"), attribute(model, TEXT, "d", method=method))


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_answers_of_an_encoder_are_those_of_the_metric(bert, method):
    answer = explored(bert, "the cat sat").attribution(0, method=method, to="on mats")
    assert_is(answer, attribute(bert, "the cat sat", "on mats", method=method))
    assert (answer["to"], answer["token"], answer["likely"]) == ("on mats", None, None)


def test_answers_of_an_encoder_decoder_are_those_of_the_metric(bart):
    encoding = bart.tokenizer.from_ids([0, 5, 9, 2])
    trace = Trace(maps=True)
    output = bart([encoding], trace=trace)
    answer = Exploration(trace, models=[bart]).attribution(0)
    most = int(np.asarray(output.logits)[0, -1].argmax())
    assert answer["token"] == most
    assert_is(answer, attribute(bart, encoding, most, method="gradient"))


def test_the_default_target_is_the_most_likely_next_token(decoder, model):
    answer = decoder.attribution(0)
    assert_is(answer, attribute(model, TEXT, "f"))
    assert answer["token"] == model.tokenizer("f").ids[0]
    logits = np.asarray(model(TEXT).logits[0, -1], np.float64)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert [each["token"] for each in answer["likely"]] == np.argsort(-shares)[:8].tolist()
    assert [each["probability"] for each in answer["likely"]] == pytest.approx(np.sort(shares)[::-1][:8], abs=1e-6)
    assert answer["likely"][0]["text"] == "f"


def test_a_next_token_may_follow_any_token(decoder, model):
    answer = decoder.attribution(0, position=2, to="f")
    assert_is(answer, attribute(model, TEXT, "f", position=2))
    first = decoder.attribution(0, position=2)["likely"][0]["token"]
    assert first == int(np.asarray(model(TEXT).logits)[0, 2].argmax())


def test_a_token_may_be_given_by_its_id(decoder):
    by_text, by_id = decoder.attribution(0, to="d"), decoder.attribution(0, token=3)
    assert by_text == by_id


def test_a_text_is_compared_with_the_other_one_or_with_itself(bert):
    two = explored(bert, "the cat sat", "on mats")
    assert [run["attribution"]["default_text"] for run in two.manifest()["runs"]] == ["on mats", "the cat sat"]
    assert_is(two.attribution(1), attribute(bert, "on mats", "the cat sat"))
    one = explored(bert, "the cat sat")
    assert_is(one.attribution(0), attribute(bert, "the cat sat", "the cat sat"))
    for same in (None, "The CAT  sat"):  # the same tokens
        with pytest.raises(RegardError, match="as similar to itself as can be"):
            one.attribution(0, method="gradient", to=same)


def test_the_manifest_lists_the_methods_of_the_registry(decoder, bert):
    manifest = decoder.manifest()
    assert [method["key"] for method in manifest["attribution_methods"]] == list(ATTRIBUTION_METHODS)
    assert manifest["runs"][0]["attribution"] == {
        "blocked_by": None,
        "method": "gradient",
        "target": "token",
        "default_text": None,
        "has_positions": True,
    }
    of_encoder = explored(bert, "the cat").manifest()["runs"][0]["attribution"]
    assert (of_encoder["method"], of_encoder["target"], of_encoder["has_positions"]) == ("integrated", "text", False)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"run": 3}, "there is no run 3"),
        ({"run": 0, "method": "saliency"}, "method must be one of gradient, integrated, relevance, got 'saliency'"),
        ({"run": 0, "to": "two words"}, "tokens of"),
        ({"run": 0, "to": ""}, "give a next token as text or as its id"),
        ({"run": 0, "token": 9999}, "there is no token 9999"),
        ({"run": 0, "token": "f"}, "token is a whole number"),
        ({"run": 0, "token": 3, "to": "d"}, "not both"),
        ({"run": 0, "position": 9}, "there is no token 9: choose from 0 to 8"),
        ({"run": 0, "steps": 3}, "attribution takes run, method, to, token, position; not steps"),
        ({}, "attribution needs run"),
    ],
)
def test_what_is_not_there_is_said(decoder, asked, says):
    with pytest.raises(RegardError, match=says):
        dispatch(decoder, "attribution", asked)


def test_the_api_answers_with_the_exploration_s_numbers(decoder):
    asked = {"run": 0, "method": "relevance", "to": "d", "position": 5}
    answer = dispatch(decoder, "attribution", asked)
    assert answer == decoder.attribution(0, method="relevance", to="d", position=5)


def test_a_saved_trace_says_that_it_needs_a_model(model):
    trace = Trace(maps=True)
    model(TEXT, trace=trace)
    saved = Exploration(trace)
    says = "What mattered takes the gradients of a model"
    assert saved.manifest()["runs"][0]["attribution"]["blocked_by"].startswith(says)
    assert saved.default_attributions(0) == {}
    with pytest.raises(RegardError, match=says):
        saved.attribution(0)


def test_an_ablated_run_says_that_the_heads_are_missing(decoder):
    done = decoder.ablate([[0, 1]])
    assert "choose A" in done["metadata"]["attribution"]["blocked_by"]
    with pytest.raises(RegardError, match="with all its heads: choose A"):
        decoder.attribution(done["run"])


def test_a_long_text_is_refused(monkeypatch, model):
    monkeypatch.setattr(attribution_module, "MAX_ATTRIBUTED_TOKENS", 5)
    with pytest.raises(RegardError, match="at most 5 tokens; this text has 9"):
        explored(model, TEXT).attribution(0)


def test_maps_that_take_too_much_memory_are_refused(monkeypatch, decoder):
    monkeypatch.setattr(attribution_module, "_MAX_MAP_BYTES", 8 * 81 * 44 - 1)
    with pytest.raises(RegardError, match="Attention relevance holds the weights of all heads"):
        decoder.attribution(0, method="relevance")
    decoder.attribution(0, method="gradient")


def test_work_is_left_off_when_nobody_waits(decoder):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        dispatch(decoder, "attribution", {"run": 0, "method": "integrated"}, check)


def test_a_page_holds_the_answers_for_the_default_target(decoder, bert):
    held = decoder.default_attributions(0)
    assert list(held) == ["gradient", "relevance"]  # integrated gradients are not this model's default
    for method, answer in held.items():
        exact = decoder.attribution(0, method=method)
        np.testing.assert_allclose(answer["scores"], exact["scores"], rtol=1e-5)
        assert {**answer, "scores": 0, "attended": 0} == {**exact, "scores": 0, "attended": 0}
    own = explored(bert, "the cat sat").default_attributions(0)
    assert list(own) == list(ATTRIBUTION_METHODS)
    assert own["integrated"]["to"] == "the cat sat"
    assert "as similar to itself" in own["gradient"]["error"]


def test_a_page_of_a_longer_text_holds_what_is_quick(monkeypatch, bert):
    monkeypatch.setattr(attribution_module, "_MAX_FILE_GRADIENTS", 5 * 31)
    assert list(explored(bert, "the cat sat").default_attributions(0)) == ["gradient", "relevance"]
