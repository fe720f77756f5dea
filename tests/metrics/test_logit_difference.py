"""The logit difference of many texts against one run for each."""

import numpy as np
import pytest

import regard
from regard import RegardError, edits
from regard.metrics import logit_difference

TEXTS = ["qzkfqz", "abcab", "kkfkkf", "z", "abcac"]
ANSWERS = [("k", "f"), ("c", "b"), ("k", 3), (5, 6), ("a", "c")]


@pytest.mark.parametrize("batch_size", [1, 2, 32])
@pytest.mark.parametrize("edit", [None, edits.ablate((1, 0), (1, 2))])
def test_it_is_the_difference_of_both_logits_of_each_text(induction, batch_size, edit):
    found = logit_difference(induction, iter(TEXTS), iter(ANSWERS), edit=edit, batch_size=batch_size)
    for value, text, pair in zip(found, TEXTS, ANSWERS, strict=True):
        logits = induction(text, edit=edit).logits[0, -1]
        one, other = (x if isinstance(x, int) else induction.tokenizer(x).ids[0] for x in pair)
        assert value == pytest.approx(float(logits[one]) - float(logits[other]), rel=1e-5, abs=1e-5)
    assert found.dtype == np.float64
    assert len(set(found.round(3))) == len(TEXTS)


def test_mistakes(induction, write_bert):
    with pytest.raises(RegardError, match="give two answers for each text, got 1 texts and 2 answers"):
        logit_difference(induction, ["abc"], [("a", "b"), ("b", "c")])
    with pytest.raises(RegardError, match="give two answers for each text"):
        logit_difference(induction, ["abc"], ["a"])
    with pytest.raises(RegardError, match="texts is an iterable of texts, got one"):
        logit_difference(induction, "abc", [("a", "b")])
    with pytest.raises(RegardError, match="'ab' is 2 tokens"):
        logit_difference(induction, ["abc"], [("ab", "c")])
    with pytest.raises(RegardError, match="is not a decoder"):
        logit_difference(regard.load(write_bert()), ["abc"], [("a", "b")])
