"""The most likely next tokens are those of a softmax, in order."""

import numpy as np
import pytest

import regard
from regard.views.next_tokens import likely_tokens


def test_the_most_likely_come_first_with_their_probability():
    tokenizer = regard.load("induction").tokenizer
    found = likely_tokens(np.log([0.1, 0.2, 0.4, 0.2, 0.1]), tokenizer, top=3)
    assert [each.id for each in found] == [2, 1, 3]
    assert [each.probability for each in found] == pytest.approx([0.4, 0.2, 0.2])
    assert [each.text for each in found] == [tokenizer.decode([i]) for i in (2, 1, 3)]


def test_a_row_without_a_token_has_its_number():
    logits = np.zeros(10_000)
    logits[9_999] = 5
    assert likely_tokens(logits, regard.load("induction").tokenizer, top=1)[0].text == "⟨9999⟩"
