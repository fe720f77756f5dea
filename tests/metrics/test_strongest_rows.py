"""The strongest rows of a head over many texts, held against every pair of every text."""

import itertools

import numpy as np
import pytest

from fake_traces import recorded
from regard._utils.errors import RegardError
from regard.metrics import PAIR_KINDS, strongest_rows

SENTENCES = [
    "The animal did not cross the street because it was too tired.",
    "The cat sat on the mat, and the cat slept.",
    "Unbelievably friendly dogs look at it.",
    "A nurse told the doctor that she was late.",
    "Rain.",
    "The cat sat on the mat, and the cat slept.",  # twice: equal weights keep the order of the texts
]

IS_PAIR = {
    "any": lambda ids, i, j: True,
    "other": lambda ids, i, j: i != j and j > 0,
    "far": lambda ids, i, j: abs(i - j) >= 5 and j > 0,
    "previous_token": lambda ids, i, j: j == i - 1,
    "next_token": lambda ids, i, j: j == i + 1,
    "repeated": lambda ids, i, j: i != j and ids[i] == ids[j],
    "induction": lambda ids, i, j: 0 < j <= i and ids[j - 1] == ids[i],
}


def every_row(model, layer, head, kind):
    """Return the largest weight of each row with such a pair, one cell after the other, the strongest first."""
    found = []
    for index, text in enumerate(SENTENCES):
        trace = recorded(model, text)
        weights = np.asarray(trace[f"blocks.{layer}.attn.weights"])[0, head]
        encoding = model.tokenizer(text)
        words = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        for i in words:
            pairs = [(weights[i, j], j) for j in words if IS_PAIR[kind](encoding.ids, i, j)]
            weight, j = max(pairs, key=lambda pair: (pair[0], -pair[1]), default=(0, 0))
            if weight > 0:
                found.append((float(weight), index, i, j))
    return sorted(found, key=lambda row: (-row[0], *row[1:]))


@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize(("layer", "head"), [(0, 2), (4, 11)])
def test_they_are_those_of_all_rows_one_by_one(minilm, kind, layer, head):
    expected = every_row(minilm, layer, head, kind)
    found = strongest_rows(minilm, SENTENCES, layer, head, 9, pair=kind, batch_size=2)
    assert len(found) == min(9, len(expected))
    known = {(index, i, j): weight for weight, index, i, j in expected}
    for row, (weight, index, *_) in zip(found, expected, strict=False):
        assert row.weight == pytest.approx(weight, abs=2e-6)  # of the same weights, computed in a batch and alone
        assert (row.index, row.text) == (index, SENTENCES[index])
        assert row.weight == pytest.approx(known[row.index, row.row, row.col], abs=2e-6)


def test_the_words_are_those_of_the_text(minilm):
    (first, *_) = strongest_rows(minilm, [SENTENCES[0]], 2, 3, 1)
    encoding = minilm.tokenizer(SENTENCES[0])
    assert first.query == SENTENCES[0][slice(*encoding.offsets[first.row])]
    assert first.key == SENTENCES[0][slice(*encoding.offsets[first.col])]


def test_a_text_that_was_cut_is_the_part_that_was_read(minilm):
    (first, *_) = strongest_rows(minilm, ["cat dog " * 600], 2, 3, 1, truncate=True)
    assert first.text == ("cat dog " * 255).rstrip()  # 510 tokens between [CLS] and [SEP]
    assert minilm(first.text).hidden.shape[1] == 512


@pytest.mark.parametrize("kind", ["other", "repeated", "induction"])
def test_of_a_decoder(induction, kind):
    (first, *_) = strongest_rows(induction, ["qzkfbdqzk", "abcabc"], 1, 0, 5, pair=kind)
    trace = recorded(induction, first.text)
    weights = np.asarray(trace["blocks.1.attn.weights"])[0, 0]
    ids = induction.tokenizer(first.text).ids
    assert IS_PAIR[kind](ids, first.row, first.col)
    assert first.weight == pytest.approx(weights[first.row, first.col], abs=2e-6)


def test_texts_are_read_one_window_at_a_time(minilm):
    """An endless corpus is read no further than what is asked of it: texts need no length."""
    read = itertools.count()
    endless = (SENTENCES[next(read) % 5] for _ in itertools.count())

    def stop(done, total):
        assert total is None
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strongest_rows(minilm, endless, 0, 0, progress=stop, batch_size=4)
    assert next(read) <= 4096


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((SENTENCES, 6, 0), "no layer 6 head 0"),
        ((SENTENCES, 0, 12), "no layer 0 head 12"),
        ((SENTENCES, -1, 0), "layer"),
        ((SENTENCES, 0, 0, 0), "k must be"),
        (([], 0, 0), "no text"),
        (("one text", 0, 0), "texts are an iterable"),
    ],
)
def test_what_is_wrong_is_said(minilm, arguments, said):
    with pytest.raises(RegardError, match=said):
        strongest_rows(minilm, *arguments)


def test_a_kind_of_pairs_that_is_none(minilm):
    with pytest.raises(RegardError, match="pair must be one of any, other"):
        strongest_rows(minilm, SENTENCES, 0, 0, pair="sideways")


def test_a_model_of_pictures_has_no_sentences():
    with pytest.raises(RegardError, match="an encoder or a decoder of texts"):
        strongest_rows(object(), SENTENCES, 0, 0)
