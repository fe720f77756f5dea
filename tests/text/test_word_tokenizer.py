import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.text import Encoding, Vocabulary, WordTokenizer

# Words that change length when they are lower-cased, every kind of space, and a sigma that depends on its place.
texts = st.text(st.one_of(st.sampled_from("İẞΣΑ \t\n\x1c\x85\xa0\u2003Ab"), st.characters(exclude_categories=["Cs"])))
lesson = Vocabulary.from_mapping({"the": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4})  # lesson 003


def test_the_lesson_003():
    encoding = WordTokenizer(lesson)("The cat sat on the mat")
    assert encoding == Encoding(
        text="The cat sat on the mat",
        ids=(0, 1, 2, 3, 0, 4),
        tokens=("the", "cat", "sat", "on", "the", "mat"),
        special_tokens_mask=(False,) * 6,
        word_ids=(0, 1, 2, 3, 4, 5),
        offsets=((0, 3), (4, 7), (8, 11), (12, 14), (15, 18), (19, 22)),
    )


@given(texts)
def test_tokens_are_those_of_the_lessons(text):
    assert list(WordTokenizer.from_text(text)(text).tokens) == text.lower().split()
    assert list(WordTokenizer.from_text(text, lowercase=False)(text).tokens) == text.split()


@given(texts)
def test_spans_slice_the_words_out_of_the_text(text):
    spans = WordTokenizer.from_text(text)(text).offsets
    assert [text[start:end] for start, end in spans] == text.split()


@given(texts, texts)
def test_every_policy_gives_one_row_for_each_token(known, text):
    vocabulary = Vocabulary.from_text([known, "<unk>"])
    for unknown in ("drop", "unk"):
        encoding = WordTokenizer(vocabulary, unknown=unknown)(text)
        assert tuple(vocabulary.words[row] for row in encoding.ids) == encoding.tokens
        assert encoding.word_ids == tuple(range(len(encoding)))


@given(texts, texts)
def test_dropped_words_are_exactly_the_unknown_ones(known, text):
    vocabulary = Vocabulary.from_text(known)
    encoding = WordTokenizer(vocabulary, unknown="drop")(text)
    assert list(encoding.tokens) == [word for word in text.lower().split() if word in vocabulary]
    assert [text[start:end].lower() for start, end in encoding.offsets] == list(encoding.tokens)


def test_unknown_words_become_unk_but_keep_their_place():
    encoding = WordTokenizer(Vocabulary(("cat", "<unk>")), unknown="unk")("Big cat runs")
    assert encoding.tokens == ("<unk>", "cat", "<unk>")
    assert encoding.ids == (1, 0, 1)
    assert [word for word, _ in encoding.word_groups()] == ["Big", "cat", "runs"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: WordTokenizer(lesson)("The dog sat dog ran"),
            "after lower-casing: 'dog', 'ran'; add them to it, or choose unknown='unk' or",
        ),
        (lambda: WordTokenizer(lesson, unknown="unk"), "needs the word '<unk>'"),
        (lambda: WordTokenizer(lesson, unknown="ignore"), "one of error, unk, drop, got 'ignore'"),
        (lambda: WordTokenizer(lesson)("cat\ud800"), r"lone surrogate \(U\+D800\) at character 3"),
        (lambda: WordTokenizer(lesson)(["the", "cat"]), "must be a str, got list"),
        (lambda: WordTokenizer(lesson).from_ids([0, 5, -1, 5]), r"not among the 5 ids of the vocabulary: 5, -1$"),
        *(
            (lambda ids=ids: WordTokenizer(lesson).from_ids(ids), "flat sequence of integers")
            for ids in ([1.0], ["cat"], [[0, 1]], 3)
        ),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_a_vocabulary_in_capitals_is_met_only_without_lowercasing():
    vocabulary = Vocabulary(("The",))
    assert WordTokenizer(vocabulary, lowercase=False)("The").ids == (0,)
    with pytest.raises(RegardError, match="after lower-casing: 'the'"):
        WordTokenizer(vocabulary)("The")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_text_without_words_has_no_tokens(text):
    assert WordTokenizer(lesson)(text) == Encoding(text, (), (), (), (), ())


@given(st.lists(st.integers(0, 4)))
def test_ids_alone_become_a_text_of_their_words(ids):
    tokenizer = WordTokenizer(lesson)
    encoding = tokenizer.from_ids(np.array(ids, dtype=np.int64))
    assert encoding.ids == tuple(ids)
    assert encoding == tokenizer(encoding.text)


def test_special_tokens_in_a_row_are_words_of_their_own():
    tokens, special, words = ("<s>", "[MASK]", "a"), (True, True, False), (None, None, 0)
    encoding = Encoding("a", (1, 2, 3), tokens, special, words, ((0, 0), (0, 0), (0, 1)))
    assert encoding.word_groups() == [("<s>", [0]), ("[MASK]", [1]), ("a", [2])]
