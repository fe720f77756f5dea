"""Tokens as they are read."""

import unicodedata

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from regard.text.encoding import Encoding
from regard.text.token_labels import numbered_labels, token_labels


def encoding(text, *tokens):
    """Return an encoding of (token, start, end) triples."""
    return Encoding(
        text=text,
        ids=tuple(range(len(tokens))),
        tokens=tuple(token for token, _, _ in tokens),
        special_tokens_mask=(False,) * len(tokens),
        word_ids=tuple(range(len(tokens))),
        offsets=tuple((start, end) for _, start, end in tokens),
    )


LABELS = [  # a text, its tokens with their spans, and their labels
    (
        "the café 🐱\n",
        [("the", 0, 3), ("Ġcaf", 3, 7), ("Ã©", 7, 8), ("ĠðŁ", 8, 10), ("Ĳ±", 9, 10), ("Ċ", 10, 11)],
        ("the", "caf", "é", r"\xf0\x9f", r"\x90\xb1", "\n"),
    ),
    (  # the end of a word is not a part of its label
        "Photo café </w>",
        [("pho", 0, 3), ("to</w>", 3, 5), ("caf", 6, 9), ("Ã©</w>", 9, 10), ("</w>", 11, 15)],
        ("pho", "to", "caf", "é", "</w>"),
    ),
    (  # other pieces stay as the vocabulary spells them
        "Playing Ãé č",
        [("play", 0, 4), ("##ing", 4, 7), ("ã", 8, 9), ("e", 9, 10), ("č", 11, 12)],
        ("play", "##ing", "ã", "e", "č"),
    ),
    ("🐱", [("[UNK]", 0, 1)], ("[UNK]",)),
]


@pytest.mark.parametrize(("text", "tokens", "labels"), LABELS)
def test_tokens_as_they_are_read(text, tokens, labels):
    assert token_labels(encoding(text, *tokens)) == labels


def test_every_byte_has_the_letter_of_the_tokenizers_library():
    split = ByteLevel(add_prefix_space=False, use_regex=False)
    for letter in map(chr, range(0xC0, 0x800)):  # two bytes each, the second any from 0x80 to 0xBF
        if letter.isprintable() and not letter.isspace():
            ((token, _),) = split.pre_tokenize_str(letter)
            assert token_labels(encoding(letter, (token, 0, 1))) == (letter,), hex(ord(letter))


def test_a_byte_of_a_character_is_no_character_of_the_same_name():
    split = ByteLevel(add_prefix_space=False, use_regex=False)
    for letter in map(chr, range(0xA1, 0x100)):  # the second byte of ½, the first of Ã: letters of the same name
        ((token, _),) = split.pre_tokenize_str(letter)
        parts = encoding(f"a{letter}b", ("a", 0, 1), *((byte, 1, 2) for byte in token), ("b", 2, 3))
        bytes_ = tuple(f"\\x{byte:02x}" for byte in letter.encode())
        assert token_labels(parts) == ("a", *bytes_, "b")
        assert token_labels(encoding(letter, ("▁", 0, 1), (letter, 0, 1))) == (" ", letter)


@pytest.mark.parametrize(("token", "most"), [("Ìģ", 0), ("Ã©", 61)])  # spelled in its place, or composed from afar
def test_a_long_run_of_marks_is_read_in_steps_for_each(monkeypatch, token, most):
    count, calls = 1000 if most else 100_000, 0

    def counted(letter):
        nonlocal calls
        calls += 1
        assert calls <= most * count
        return unicodedata.combining(letter) > 0

    monkeypatch.setattr("regard.text.token_labels.is_mark", counted)
    text = "e" + count * "\u0301"
    labels = token_labels(encoding(text, ("e", 0, 1), *((token, 1 + i, 2 + i) for i in range(count))))
    assert labels[1] == ("\u0301", "é")[most > 0]


def test_labels_that_repeat_in_any_case_are_numbered():
    tokens = [("The", 0, 3), ("Ġcat", 3, 7), ("Ġthe", 7, 11), ("the", 11, 14)]
    assert numbered_labels(encoding("The cat thethe", *tokens)) == ("The:1", "cat", "the:2", "the:3")
