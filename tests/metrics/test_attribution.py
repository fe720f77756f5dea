"""Attribution: sums and symmetries that hold by definition, errors, and estimates beside exact patching."""

import numpy as np
import pytest

import regard
from fake_traces import recorded
from regard import RegardError, Trace
from regard.metrics import ATTRIBUTION_METHODS, attribute, attribute_generation, attribution_patching
from regard.models import toy
from regard.trace.edits import patch

SENTENCE = "the cat sat on the mat"


@pytest.fixture(scope="module")
def small():
    return toy(SENTENCE, num_heads=2, seed=1)


def edited(step, function):
    return Trace(only=(), edit={step: function})


def last_sum(output):
    return output.hidden[0, -1].sum()


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_integrated_gradients_add_up_to_the_difference(small, batch_size):
    found = attribute(small, SENTENCE, last_sum, method="integrated", steps=64, batch_size=batch_size)
    assert found.value != pytest.approx(found.baseline_value, abs=0.1)
    assert found.scores.sum() == pytest.approx(found.value - found.baseline_value, abs=1e-4)
    assert found.completeness_gap == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("method", ["gradient", "integrated"])
def test_a_linear_function_of_the_embeddings_is_attributed_exactly(method):
    """With weights held at uniform by zero queries the toy layer is linear: scores are the parts of the sum."""
    model = toy(SENTENCE, seed=3, positions="none")
    block = regard.nn.parameters(model)
    name = next(name for name in block if name.endswith("q_proj.weight"))
    linear = regard.nn.with_parameters(model, {name: 0 * block[name]})
    direction = np.arange(1.0, 9.0)
    steps = {"steps": 3} if method == "integrated" else {}
    found = attribute(linear, SENTENCE, lambda o: (o.hidden[0, 2] * direction).sum(), method=method, **steps)

    def alone(i):
        def keep(x):
            kept = np.zeros_like(x)
            kept[:, i] = x[:, i]
            return kept

        return float((linear(SENTENCE, trace=edited("token_embeddings", keep)).hidden[0, 2] * direction).sum())

    nothing = float((linear(SENTENCE, trace=edited("token_embeddings", np.zeros_like)).hidden[0, 2] * direction).sum())
    expected = [alone(i) - nothing for i in range(6)]
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_scores_are_in_proportion_to_the_number(small, method):
    once, twice = (attribute(small, SENTENCE, lambda o, k=k: k * last_sum(o), method=method) for k in (1.0, 2.0))
    np.testing.assert_allclose(twice.scores, 2 * once.scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_a_checkpointed_run_gives_the_same_scores(method):
    model, options = regard.load("induction"), {"method": method} | ({"steps": 3} if method == "integrated" else {})
    kept, again = (attribute(model, "qzkfqzk", "f", checkpoint=c, **options) for c in (False, True))
    np.testing.assert_allclose(again.scores, kept.scores, rtol=0, atol=1e-5 * np.abs(kept.scores).max())


def test_relevance_is_never_negative_and_each_token_has_at_least_itself(minilm):
    found = attribute(minilm, "The cat sat on the mat", "A kitten rested", method="relevance")
    assert found.relevance.shape == (8, 8)
    assert (found.relevance >= 0).all()
    assert (np.diag(found.relevance) >= 1).all()


def test_relevance_of_a_causal_model_comes_from_earlier_tokens(induction):
    found = attribute(induction, induction.tokenizer.from_ids(NEXT), 2, method="relevance")
    assert np.abs(np.triu(found.relevance, 1)).max() == 0
    assert found.scores.argmax() == 2  # the induction head of the last token attends to what came after the first 9


def test_attended_is_the_mean_weight(small):
    trace = recorded(small, SENTENCE, only="*.weights")
    found = attribute(small, SENTENCE, last_sum, method="gradient")
    np.testing.assert_allclose(found.attended, trace["blocks.0.attn.weights"][0].mean((0, 1)), atol=1e-7)
    assert found.attended.sum() == pytest.approx(1)


def test_what_was_attended_to_is_not_what_mattered(minilm):
    """Most weight goes to [CLS], where the words decide."""
    found = attribute(minilm, "The cat sat on the mat", "A kitten rested on a rug")
    assert found.method == "integrated"
    assert found.tokens[found.attended.argmax()] == "[CLS]"
    assert found.tokens[found.scores.argmax()] == "cat"


def test_patching_effects_are_exact_where_the_rest_is_linear(small):
    """After the last step that is patched the number is linear in it: the estimate is the exact change."""
    corrupted = "the cat sat on the the"
    found = attribution_patching(small, SENTENCE, corrupted, last_sum, at="blocks.0.attn.context")
    other = recorded(small, corrupted)
    exact = last_sum(small(SENTENCE, trace=Trace(only=(), edit=patch(other, "blocks.0.attn.context")))) - last_sum(
        small(SENTENCE)
    )
    assert abs(exact) > 1e-3
    assert found.heads().shape == (1, 2)
    assert found.heads().sum() == pytest.approx(float(exact), rel=1e-3)
    assert found.effects.axes("blocks.0.attn.context") == "B H T"


def test_patching_with_the_same_text_changes_nothing():
    found = attribution_patching(regard.load("induction"), "qzkqz", "qzkqz", "k", at="blocks.*.output")
    assert found.value == pytest.approx(found.corrupted_value, abs=1e-6)
    assert found.positions().shape == (2, 5)
    assert np.abs(found.positions()).max() < 1e-5


NOT_ONE = "give one text, or one as tokens, got list"
NEXT = (5, 9, 2, 7, 5, 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: attribute(m, ["qzkqz", "qzkqz"], "f"), NOT_ONE),
        (lambda m: attribution_patching(m, ["qzkqz"], "qzkqz", "f"), NOT_ONE),
        (lambda m: attribution_patching(m, "qzkqz", "qzkq", "k"), "same number of tokens, got 5 and 4"),
        (lambda m: attribute(m, "qzkqz", " "), "induction has no token for ' '"),
        (lambda m: attribute(m, "qzkfb", "f", position=5), "there is no token 5 to follow: the text has 5"),
        (lambda m: attribute(m, m.tokenizer.from_ids(NEXT), 9999), "there is no token 9999"),
        (
            lambda m: attribute(m, "qzk", 7, versus=m.tokenizer.decode([7])),
            "to and versus are the same token, '.': their",
        ),
        (lambda m: attribute_generation(m, ["qzk", "fqz"], max_new_tokens=1), "give one text that the model continues"),
        (
            lambda m: attribute_generation(m, m.generate("qzkfqz", max_new_tokens=2), max_new_tokens=3),
            "is generated already: leave out max_new_tokens",
        ),
    ],
)
def test_errors_of_a_decoder(induction, call, message):
    with pytest.raises(RegardError, match=message):
        call(induction)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "predicts no token: give a text"),
        ({"to": 3}, "predicts no token: give a text"),
        ({"to": "a dog", "method": "saliency"}, "method must be one of gradient, integrated, relevance, attnlrp"),
        ({"to": "a dog", "method": ["gradient"]}, r"method must be one of .*, got \['gradient'\]"),
        ({"to": "the cat sat", "method": "gradient"}, "as similar to itself as can be"),
        ({"to": "the cat sat", "method": "relevance"}, "as similar to itself as can be"),
        ({"to": "The Cat sat", "method": "gradient"}, "as similar to itself as can be"),
        ({"to": "a dog", "position": 2}, "position is for the next token of a decoder"),
        ({"to": last_sum, "position": 2}, "position is for the next token of a decoder"),
        ({"to": "a dog", "score": "odds"}, "score must be logit or log_probability"),
        ({"to": last_sum, "versus": "x"}, "leave it out where to is a function"),
        ({"to": "a dog", "versus": "A dog"}, "to and versus are the same text: their difference is 0"),
        ({"to": "a dog", "score": "log_probability"}, "score is for a next token: leave it out"),
        ({"to": last_sum, "score": "logit"}, "score is for a next token: leave it out"),
        ({"to": "a dog", "method": "gradient", "baseline": "junk"}, "method gradient takes no baseline: leave out"),
        ({"to": "a dog", "method": "relevance", "baseline": np.zeros(3)}, "relevance takes no baseline"),
        ({"to": "a dog", "method": "relevance", "steps": 32, "batch_size": 4}, "no steps or batch_size: .*integr"),
        ({"to": "a dog", "method": "integrated", "steps": 0}, "steps"),
        ({"to": "a dog", "method": "integrated", "baseline": np.zeros(3)}, "shape of the embeddings"),
        ({"to": "a dog", "method": "integrated", "baseline": "mean"}, "no such token for a baseline"),
    ],
)
def test_errors_of_an_encoder(minilm, options, message):
    with pytest.raises(RegardError, match=message):
        attribute(minilm, "the cat sat", **options)


def test_a_generation_is_of_a_decoder(minilm):
    with pytest.raises(RegardError, match="is not a decoder"):
        attribute_generation(minilm, "the cat")


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
@pytest.mark.parametrize(
    ("metric", "got"),
    [(lambda _: 1.0, r"got 1\.0"), (lambda o: o.hidden, "got an array"), (lambda _: "high", "got 'high'")],
    ids=["constant", "array", "text"],
)
def test_a_metric_is_one_number_that_is_computed_from_the_output(small, method, metric, got):
    with pytest.raises(RegardError, match=f"the metric must be one number .* {got}"):
        attribute(small, SENTENCE, metric, method=method)


def test_a_number_may_be_an_array_of_one(small):
    found, same = (
        attribute(small, SENTENCE, f, method="integrated", steps=2)
        for f in (last_sum, lambda o: last_sum(o).reshape(1))
    )
    assert (same.value, same.baseline_value) == (found.value, found.baseline_value)
    np.testing.assert_array_equal(same.scores, found.scores)


@pytest.mark.parametrize("baseline", ["pad", "mask", 103])
def test_a_token_as_baseline(minilm, baseline):
    found = attribute(minilm, "the cat sat", "a dog", method="integrated", baseline=baseline, steps=16)
    assert abs(found.completeness_gap) < 1e-2
    assert found.scores[[0, -1]] == pytest.approx(0)  # special tokens stay


def test_the_number_of_a_next_token(induction):
    ids = induction.tokenizer.from_ids(NEXT)
    logits = induction([ids]).logits[0, -1].astype(np.float64)
    options = {"method": "gradient"}
    assert attribute(induction, ids, 2, **options).value == pytest.approx(logits[2], rel=1e-5)
    assert attribute(induction, ids, 2, versus=7, **options).value == pytest.approx(logits[2] - logits[7], rel=1e-5)
    found = attribute(induction, ids, 7, score="log_probability", **options)
    assert found.value == pytest.approx(logits[7] - np.log(np.exp(logits).sum()), rel=1e-5)


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
@pytest.mark.parametrize("position", [2, -3])
def test_the_next_token_after_an_earlier_one_is_that_of_the_text_so_far(induction, method, position):
    ids = [5, 9, 2, 7, 5]
    whole = attribute(induction, induction.tokenizer.from_ids(ids), 7, position=position, method=method)
    part = attribute(induction, induction.tokenizer.from_ids(ids[:3]), 7, method=method)
    assert whole.metric == part.metric
    assert whole.value == pytest.approx(part.value, rel=1e-5)
    np.testing.assert_allclose(whole.scores[:3], part.scores, rtol=0, atol=1e-5 * np.abs(part.scores).max())
    np.testing.assert_allclose(whole.attended[:3], part.attended, atol=1e-6)
    assert not whole.scores[3:].any()
    assert not whole.attended[3:].any()


def test_a_text_is_the_token_that_it_is_after_an_earlier_one(induction):
    found = attribute(induction, "qzkfb", "f", position=2, method="gradient")
    assert found.value == pytest.approx(
        float(induction("qzkfb").logits[0, 2, induction.tokenizer("f").ids[0]]), rel=1e-5
    )


@pytest.mark.parametrize("position", [2, -1])
def test_the_most_probable_next_token_is_the_default(induction, position):
    token = int(induction("qzkfbdqzk").logits[0, position].argmax())
    found, same = (attribute(induction, "qzkfbdqzk", to, position=position, method="gradient") for to in (None, token))
    assert found.metric == same.metric
    np.testing.assert_array_equal(found.scores, same.scores)


def test_relevance_of_a_text_that_is_compared_with_itself_is_not_0(minilm):
    found = attribute(minilm, "the cat sat", "the cat sat", method="attnlrp")
    assert found.value == pytest.approx(1)
    assert found.scores.sum() > 0.3  # what biases and positions leave of it
    assert found.tokens[found.scores.argmax()] == "cat"


def test_a_generation_is_attributed_token_by_token(induction):
    found = attribute_generation(induction, "qzkfqz", method="attnlrp", max_new_tokens=3)
    generated = induction.generate("qzkfqz", max_new_tokens=3)
    again = attribute_generation(induction, generated, method="attnlrp")
    assert found.tokens == tuple("qzkfqz" + generated.text)
    assert found.scores.shape == found.attended.shape == (3, 9)
    for i, token in enumerate(generated.ids):
        row = attribute(induction, "qzkfqz" + generated.text[:i], token, method="attnlrp")
        assert found.values[i] == row.value
        for matrix, scores in ((found.scores, row.scores), (again.scores, row.scores), (found.attended, row.attended)):
            np.testing.assert_array_equal(matrix[i], np.pad(scores, (0, 3 - i)))
    assert found.scores[0].argmax() == 2  # k was copied from where it followed the first z
    columns = found.to_columns()
    assert len(columns["score"]) == 6 + 7 + 8
    assert columns["score"][6 + 4] == found.scores[1, 4]
    assert (columns["to_position"][6 + 4], columns["position"][6 + 4]) == (7, 4)
    assert found.to_xarray()["scores"].dims == ("N", "T")


@pytest.mark.parametrize("score", ["logit", "log_probability", None])
def test_a_generation_says_which_number_of_each_token_is_attributed(induction, score):
    found = attribute_generation(induction, "qzkfqz", method="attnlrp", score=score, max_new_tokens=2)
    output = induction(found.encoding)
    numbers = output.logits[0].astype(np.float64)
    if score == "log_probability":
        numbers -= np.log(np.exp(numbers).sum(-1, keepdims=True))
    assert found.score == (score or "logit")
    expected = [numbers[at - 1, found.encoding.ids[at]] for at in (6, 7)]
    np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-5)


def test_what_makes_a_sentence_vector_is_its_similarity_to_itself(minilm):
    found = attribute(minilm, "the cat sat", "the cat sat")
    assert found.method == "integrated"
    assert found.value == pytest.approx(1)
    assert abs(found.completeness_gap) < 1e-3


def test_work_is_left_off_between_runs(small):
    left = iter(range(3))

    def check():
        if next(left, None) is None:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        attribute(small, SENTENCE, last_sum, method="integrated", steps=64, check=check)


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS.values(), ids=lambda method: method.name)
def test_an_entry_says_what_its_scores_are(minilm, method):
    found = attribute(minilm, "The cat sat on the mat", "A kitten rested", method=method.name)
    assert method.is_signed or (found.scores >= 0).all()
    assert (found.relevance is not None) == method.holds_maps
    assert (found.baseline_value is not None) == method.has_steps
    assert all((method.title, method.description, method.caveat, method.paper))
