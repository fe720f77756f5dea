"""Model inputs as a tokenizer of transformers returns them: a mapping with input_ids."""

import re
from collections import UserDict

import numpy as np
import pandas
import pytest

import regard
from golden import load
from regard import RegardError, Trace, metrics
from regard.models import toy

LONG, SHORT = [7, 20, 3, 11, 15, 9], [12, 6, 19]
RIGHT = {"input_ids": [LONG, [*SHORT, 0, 0, 0]], "attention_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]]}
LEFT = {"input_ids": [LONG, [0, 0, 0, *SHORT]], "attention_mask": [[1] * 6, [0, 0, 0, 1, 1, 1]]}
TABLE = pandas.DataFrame({"text": ["the cat", "a dog"], "label": [0, 1]})
CASES = ("bert/gelu", "llama/plain", "t5/relu")


def as_lists(fields):
    return dict(fields)


def as_arrays(fields):
    return UserDict({name: np.array(values) for name, values in fields.items()})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", [as_lists, as_arrays])
def test_a_mapping_is_the_ids_that_it_holds(case, form):
    model = load(case)
    np.testing.assert_array_equal(model(form({"input_ids": LONG})).hidden, model(np.array(LONG)).hidden)
    full = {"input_ids": [LONG], "attention_mask": [[1] * 6], "token_type_ids": [[0] * 6]}
    np.testing.assert_array_equal(model(form(full)).hidden, model(np.array([LONG])).hidden)
    padded, texts = model(form(RIGHT)), model([model.tokenizer.from_ids(ids) for ids in (LONG, SHORT)])
    np.testing.assert_array_equal(padded.hidden, texts.hidden)
    assert padded.encodings == texts.encodings


@pytest.mark.parametrize("case", CASES[:2])
def test_lists_without_padding_may_differ_in_length(case):
    model = load(case)
    ragged = model({"input_ids": [LONG, SHORT], "attention_mask": [[1] * 6, [1] * 3]})
    np.testing.assert_array_equal(ragged.hidden, model(RIGHT).hidden)


@pytest.mark.parametrize("case", CASES)
def test_the_result_has_the_length_of_the_ids_however_much_is_padding(case):
    model = load(case)
    padded = {name: [[*row, 0, 0] for row in rows] for name, rows in RIGHT.items()}
    target = {"target": padded} if case == "t5/relu" else {}
    hidden = model(padded, **target).hidden
    assert hidden.shape[:2] == (2, 8)
    expected = model(RIGHT, **({"target": RIGHT} if target else {})).hidden
    np.testing.assert_allclose(hidden[0, :6], expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(hidden[1, :3], expected[1, :3], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_padding_on_the_left_is_not_attended_to_and_is_named_in_the_trace(case):
    model, trace = load(case), Trace()
    model(LEFT, trace=trace)
    encoding = trace.encodings[1]
    assert encoding.ids == (0, 0, 0, *SHORT)
    assert encoding.special_tokens_mask == (True,) * 3 + (False,) * 3
    assert encoding.word_ids == (None, None, None, 0, 1, 2)
    assert [encoding.text[slice(*offsets)] for offsets in encoding.offsets[3:]] == list(encoding.tokens[3:])
    weights = trace["encoder.blocks.1.attn.weights" if case == "t5/relu" else "blocks.1.attn.weights"][1]
    assert (weights[:, 3:, :3] == 0).all()
    np.testing.assert_allclose(weights[:, 3:].sum(-1), 1, rtol=1e-12)


def test_an_edited_run_takes_a_mapping():
    model = load("llama/plain")
    edit = {"blocks.1.attn.weights": np.zeros_like}
    edited = model(UserDict(RIGHT), edit=edit).hidden
    np.testing.assert_array_equal(edited[0], model(np.array([LONG]), edit=edit).hidden[0])
    assert not np.allclose(edited[0], model(RIGHT).hidden[0])


def test_a_target_may_be_a_mapping_too():
    model = load("t5/relu")
    tokens = model.tokenizer.from_ids
    expected = model([tokens(SHORT), tokens(SHORT)], [tokens(LONG), tokens(SHORT)])
    np.testing.assert_array_equal(model({"input_ids": [SHORT] * 2}, RIGHT).hidden, expected.hidden)


@pytest.mark.parametrize("inputs", [LEFT, RIGHT])
def test_each_text_is_continued_as_it_would_be_alone(inputs):
    model = load("llama/plain")
    alone = [model.generate(np.array(ids), max_new_tokens=7) for ids in (LONG, SHORT)]
    assert list(model.generate(inputs, max_new_tokens=7)) == alone
    assert model.generate({"input_ids": SHORT}, max_new_tokens=7) == alone[1]
    assert "".join(model.stream({"input_ids": SHORT}, max_new_tokens=7)) == alone[1].text


def test_embed_takes_padding_for_no_part_of_a_text(minilm):
    texts = ["The cat sat on the mat", "The cat"]
    encodings = [minilm.tokenizer(text) for text in texts]
    length = len(encodings[0])
    inputs = {
        "input_ids": [[*e.ids, *[0] * (length - len(e))] for e in encodings],
        "attention_mask": [[1] * len(e) + [0] * (length - len(e)) for e in encodings],
    }
    np.testing.assert_array_equal(minilm.embed(inputs), minilm.embed(texts))


def test_the_explorer_takes_one_text(tmp_path):
    model = regard.load("induction")
    encoding = model.tokenizer("qzkqz")
    regard.explore({"input_ids": [encoding.ids]}, model=model, html=tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size
    with pytest.raises(RegardError, match="one text, got 2"):
        regard.explore({"input_ids": [encoding.ids] * 2}, model=model, html=tmp_path / "two.html")
    assert not (tmp_path / "two.html").exists()


ENCODED = [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "needs input_ids, as a tokenizer of transformers returns them; its keys are none"),
        ({"text": "the cat", "b": 1}, "needs input_ids, .* its keys are text, b"),
        ({"input_ids": None}, "needs input_ids"),
        ({"input_ids": ENCODED, "offset_mapping": [], "labels": []}, "remove offset_mapping, labels"),
        ({"input_ids": "the cat"}, "input_ids must be integers of shape T or B T, got <U7"),
        ({"input_ids": np.zeros((1, 2))}, "input_ids must be integers of shape T or B T, got float64"),
        ({"input_ids": np.zeros((1, 2, 3), int)}, r"input_ids must .* got int64 of shape \(1, 2, 3\)"),
        ({"input_ids": [[[1]]]}, "input_ids must be integers"),
        ({"input_ids": 5}, "input_ids must be integers"),
        ({"input_ids": [[1, 99]]}, "not among the 23 ids of the vocabulary: 99"),
        (
            {"input_ids": ENCODED, "attention_mask": [1, 1]},
            r"attention_mask has rows of 2 entries, but input_ids has rows of 3",
        ),
        ({"input_ids": [ENCODED], "attention_mask": [[1] * 3] * 2}, "attention_mask has 2 rows, input_ids 1"),
        ({"input_ids": ENCODED, "attention_mask": [1, 1, 2]}, "attention_mask must be 0 or 1"),
        ({"input_ids": ENCODED, "attention_mask": [0.0, -1e9, 0]}, "attention_mask must be 0 or 1"),
        ({"input_ids": ENCODED, "attention_mask": [1, 0, 1]}, "text 0 .* between its tokens"),
        ({"input_ids": ENCODED, "attention_mask": [0, 0, 0]}, "text is empty"),
        ({"input_ids": []}, "text is empty"),
        ({"input_ids": [ENCODED, []]}, "text is empty"),
        ({"input_ids": ENCODED, "token_type_ids": [0, 1, 1]}, "token_type_ids must be 0"),
        ({"input_ids": [4] * 12}, "12 tokens, but .* accepts at most 11"),
        ({"the cat", "a dog"}, "a set has no order"),
        (frozenset({1, 2}), "a set has no order"),
        ({"a": 1}.keys(), "a set has no order"),
        (TABLE, "a table is not a text"),
    ],
)
def test_what_is_no_input(text, message):
    for_model = re.compile(message)
    model = load("bert/gelu")
    with pytest.raises(RegardError, match=for_model):
        model(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bert, _, __: bert.embed({"a": [1]}, pooling="cls"), "needs input_ids"),
        (lambda bert, _, __: bert.embed({"w1", "w2"}, pooling="cls"), "a set has no order"),
        (lambda bert, _, __: bert.embed(LEFT, pooling="cls"), "padding on the left"),
        (lambda bert, _, __: regard.explore(LEFT, model=bert, html="never.html"), "padding on the left|one text"),
        (lambda bert, _, __: regard.explore({"a": 1}, model=bert, html="never.html"), "needs input_ids"),
        (lambda _, llama, __: llama.generate({"a": 1}), "needs input_ids"),
        (lambda _, llama, __: llama.generate({"w1", "w2"}), "a set has no order"),
        (lambda _, llama, __: llama.stream(RIGHT), "stream takes one text"),
        (lambda _, __, t5: t5.generate(LEFT), "padding on the left"),
        (lambda _, __, t5: t5("w1", {"a": 1}), "needs input_ids"),
        (lambda _, __, t5: t5("w1", {"w1"}), "a set has no order"),
        (lambda bert, _, __: bert.embed(TABLE, pooling="cls"), "a table is not a text"),
        (lambda bert, _, __: next(bert.iter_traces(TABLE)), "a table is not a text"),
        (lambda bert, _, __: metrics.corpus_head_metrics(bert, TABLE), "a table is not a text"),
        (lambda _, llama, __: llama.generate(TABLE), "a table is not a text"),
        (lambda _, llama, __: metrics.logit_difference(llama, TABLE, []), "a table is not a text"),
        (lambda _, __, t5: t5(TABLE, ["w1", "w2"]), "a table is not a text"),
        (lambda *_: toy(TABLE), "a table is not a text"),
        (lambda *_: toy({"the cat": 1}), "a mapping is not a text"),
        (lambda *_: toy({"the cat", "a dog"}), "a set has no order"),
    ],
)
def test_every_other_place_that_takes_texts(call, message):
    with pytest.raises(RegardError, match=message):
        call(*map(load, CASES))
