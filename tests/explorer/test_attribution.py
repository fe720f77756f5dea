"""What mattered, for the page: the answers are those of `regard.metrics.attribute`, and refusals are sentences."""

import json
from dataclasses import replace

import numpy as np
import pytest
from explorations import Left, explored, recorded

from regard import RegardError, Trace
from regard.explorer import Exploration
from regard.explorer.queries import attribution as attribution_module
from regard.explorer.queries.attribution import default_attributions
from regard.explorer.query import dispatch
from regard.metrics import ATTRIBUTION_METHODS, attribute

TEXT = "qzkfbdqzk"  # after the second "k", as after the first, comes "f"


@pytest.fixture(scope="module")
def decoder(induction):
    return explored(induction, TEXT)


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
def test_answers_are_those_of_the_metric(decoder, induction, method):
    answer = dispatch(decoder, "attribution", {"run": 0, "method": method, "to": "d", "position": 5})
    assert_is(answer, attribute(induction, TEXT, "d", method=method, position=5))
    assert decoder.attribution(0, method=method, token=3, position=5) == answer


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_answers_of_an_encoder_are_those_of_the_metric(bert, method):
    answer = explored(bert, "the cat sat").attribution(0, method=method, to="on mats")
    assert_is(answer, attribute(bert, "the cat sat", "on mats", method=method))
    assert (answer["to"], answer["token"], answer["likely"]) == ("on mats", None, None)


def test_answers_of_an_encoder_decoder_are_those_of_the_metric(bart):
    encoding = bart.tokenizer.from_ids([0, 5, 9, 2])
    trace = Trace(maps=True, only="*")
    output = bart([encoding], trace=trace)
    answer = Exploration(trace, models=[bart]).attribution(0)
    most = int(np.asarray(output.logits)[0, -1].argmax())
    assert answer["token"] == most
    assert_is(answer, attribute(bart, encoding, most, method="gradient"))


def test_the_default_target_is_the_most_likely_next_token(decoder, induction):
    answer = decoder.attribution(0)
    assert_is(answer, attribute(induction, TEXT, "f"))
    assert answer["token"] == induction.tokenizer("f").ids[0]
    logits = np.asarray(induction(TEXT).logits[0, -1], np.float64)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert [each["token"] for each in answer["likely"]] == np.argsort(-shares)[:8].tolist()
    assert [each["probability"] for each in answer["likely"]] == pytest.approx(np.sort(shares)[::-1][:8], abs=1e-6)
    assert answer["likely"][0]["text"] == "f"


def test_a_next_token_may_follow_any_token(decoder, induction):
    answer = decoder.attribution(0, position=2, to="f")
    assert_is(answer, attribute(induction, TEXT, "f", position=2))
    first = decoder.attribution(0, position=2)["likely"][0]["token"]
    assert first == int(np.asarray(induction(TEXT).logits)[0, 2].argmax())


def test_a_text_is_compared_with_the_other_one_or_with_itself(bert):
    two = explored(bert, "the cat sat", "on mats")
    assert [run["attribution"]["default_text"] for run in two.manifest()["runs"]] == ["on mats", "the cat sat"]
    assert_is(two.attribution(1), attribute(bert, "on mats", "the cat sat"))
    assert_is(explored(bert, "the cat sat").attribution(0), attribute(bert, "the cat sat", "the cat sat"))


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


def test_a_run_says_what_it_lacks(decoder, induction):
    saved = Exploration(recorded(induction, TEXT))
    says = "What mattered takes the gradients of a model"
    assert saved.manifest()["runs"][0]["attribution"]["blocked_by"].startswith(says)
    assert default_attributions(saved, 0) == {}
    assert "choose A" in decoder.ablate([[0, 1]])["metadata"]["attribution"]["blocked_by"]


def test_a_long_text_and_maps_that_take_too_much_memory_are_refused(monkeypatch, decoder):
    monkeypatch.setattr(attribution_module, "_MAX_MAP_BYTES", 8 * 81 * 44 - 1)
    with pytest.raises(RegardError, match="Attention relevance holds the weights of all heads"):
        decoder.attribution(0, method="relevance")
    decoder.attribution(0, method="gradient")
    monkeypatch.setattr(attribution_module, "MAX_ATTRIBUTED_TOKENS", 5)
    with pytest.raises(RegardError, match="at most 5 tokens; this text has 9"):
        decoder.attribution(0)


def test_work_is_left_off_when_nobody_waits(decoder):
    with pytest.raises(InterruptedError):
        dispatch(decoder, "attribution", {"run": 0, "method": "integrated"}, Left(6))


def test_a_page_holds_the_answers_for_the_default_target(decoder, bert, monkeypatch):
    held = default_attributions(decoder, 0)
    assert list(held) == ["gradient", "relevance", "attnlrp"]  # integrated gradients are not this model's default
    for method, answer in held.items():
        exact = decoder.attribution(0, method=method)
        np.testing.assert_allclose(answer["scores"], exact["scores"], rtol=1e-5)
        assert {**answer, "scores": 0, "attended": 0} == {**exact, "scores": 0, "attended": 0}
    own = default_attributions(explored(bert, "the cat sat"), 0)
    assert list(own) == list(ATTRIBUTION_METHODS)
    assert own["integrated"]["to"] == "the cat sat"
    assert "as similar to itself" in own["gradient"]["error"]
    monkeypatch.setattr(attribution_module, "_MAX_FILE_GRADIENTS", 5 * 31)  # of a longer text, what is quick
    assert list(default_attributions(explored(bert, "the cat sat"), 0)) == ["gradient", "relevance", "attnlrp"]


def test_the_likely_tokens_are_read_from_the_record_and_not_computed_again(induction):
    exploration = explored(induction, TEXT)
    assert exploration.attribution(0)["likely"] == exploration.next_tokens(0)["tokens"][:8]
    assert "unedited" not in vars(exploration.run(0))


def overflowing(model):
    """Return a model whose last norm multiplies by infinity."""
    norm = model.final_norm
    return replace(model, final_norm=replace(norm, weight=np.full_like(norm.weight, np.inf)))


def test_what_is_not_finite_is_said(induction):
    exploration = explored(overflowing(induction), TEXT)
    with pytest.raises(RegardError, match=r"^predictions are NaN or infinite: the model overflows for this text"):
        exploration.attribution(0)
    assert {each["error"] for each in default_attributions(exploration, 0).values()} == {
        "predictions are NaN or infinite: the model overflows for this text"
    }
