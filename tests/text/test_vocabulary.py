import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.text import Vocabulary

LESSON = {"the": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4}  # lesson 003


def test_words_are_numbered_in_order_of_first_appearance():
    assert Vocabulary.from_text("the cat sat on the mat") == Vocabulary.from_mapping(LESSON)


def test_several_texts_share_one_numbering():
    assert Vocabulary.from_text(["the cat", "a cat"]).words == ("the", "cat", "a")


def test_from_text_lowercases_unless_told_not_to():
    assert Vocabulary.from_text("The the").words == ("the",)
    assert Vocabulary.from_text("The the", lowercase=False).words == ("The", "the")


@given(st.lists(st.text(), unique=True))
def test_a_mapping_in_any_order_gives_back_its_indices(words):
    shuffled = {words[i]: i for i in reversed(range(len(words)))}
    vocabulary = Vocabulary.from_mapping(shuffled)
    assert dict(zip(vocabulary.words, vocabulary.ids(vocabulary.words), strict=True)) == shuffled


def test_numpy_integers_are_indices():
    assert Vocabulary.from_mapping({"a": np.int64(1), "b": np.int64(0)}).words == ("b", "a")


def test_every_problem_of_a_mapping_is_in_the_message():
    indices = {"the": 0, "cat": 0, "sat": 2.5, "on": 11, "mat": -1, "dog": True}
    with pytest.raises(RegardError) as caught:
        Vocabulary.from_mapping(indices)
    message = str(caught.value)
    for problem in (
        "'the', 'cat' share index 0",
        "'sat' has the index 2.5, which is not an integer",
        "'dog' has the index True, which is not an integer",
        "'on': index 11 is outside 0 to 5",
        "'mat': index -1 is outside 0 to 5",
        "no word has index 1, 2, 3, 4, 5",
    ):
        assert problem in message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vocabulary(("a", "b", "a", "c", "b")), r"got several of 'a', 'b'$"),
        (lambda: Vocabulary("abc"), "split it first"),
        (lambda: Vocabulary(("a", 3, b"x")), "got 3, b'x'"),
        (lambda: Vocabulary(("a", "b")).ids(["z", "a", "y", "z"]), r"'z', 'y'$"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_membership_and_length():
    vocabulary = Vocabulary.from_mapping(LESSON)
    assert "cat" in vocabulary
    assert "dog" not in vocabulary
    assert len(vocabulary) == 5
    assert vocabulary.missing(["z", "cat", "y", "z"]) == ("z", "y")  # once, in order
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
