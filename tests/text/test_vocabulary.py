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


def test_repeated_words_are_all_named():
    with pytest.raises(RegardError, match=r"got several of 'a', 'b'$"):
        Vocabulary(("a", "b", "a", "c", "b"))


def test_a_text_is_not_taken_for_its_letters():
    with pytest.raises(RegardError, match="split it first"):
        Vocabulary("abc")


def test_words_must_be_strings():
    with pytest.raises(RegardError, match="got 3, b'x'"):
        Vocabulary(("a", 3, b"x"))


def test_membership_and_length():
    vocabulary = Vocabulary.from_mapping(LESSON)
    assert "cat" in vocabulary
    assert "dog" not in vocabulary
    assert len(vocabulary) == 5


def test_missing_words_are_listed_once_in_order():
    assert Vocabulary(("a", "b")).missing(["z", "a", "y", "z"]) == ("z", "y")


def test_ids_name_all_missing_words():
    with pytest.raises(RegardError, match=r"'z', 'y'$"):
        Vocabulary(("a", "b")).ids(["z", "a", "y", "z"])


def test_a_vocabulary_that_was_used_pickles():
    vocabulary = Vocabulary.from_mapping(LESSON)
    assert "cat" in vocabulary
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
