"""Ids of byte-level vocabularies: their text, its words, and the labels of the tokens."""

import pytest

from regard.text.token_bytes import encode_spelled, spelling
from regard.text.token_labels import token_labels
from regard.training import text_task

WORDS = ["the", "café", "cat's", " ", "  ", "\n", "日本", "🐱", "e\u0301", "2,000", "“Déjà", "vu”", "—", "मैं"]


@pytest.fixture(scope="module")
def tokenizer():
    return text_task(" ".join(WORDS) * 40, bpe=300).tokenizer


def test_words_of_ids(tokenizer):
    found = tokenizer.from_ids(tokenizer("the café's cat, 2,000 cats").ids)
    words = {}
    for (start, end), word in zip(found.offsets, found.word_ids, strict=True):
        words[word] = words.get(word, "") + found.text[start:end]
    assert [*words.values()] == ["the", " café", "'s", " cat", ",", " 2", ",", "000", " cats"]


def test_bytes_that_are_no_character(tokenizer):
    found = encode_spelled((1, 2, 3), ("ĠcafÃ", "x", "<tool use>"), (False,) * 3, spelling(tokenizer.backend))
    assert found.text == " caf\ufffdx<tool use>"
    assert token_labels(found) == (r"caf\xc3", "x", "<tool use>")
    assert [found.text[slice(*span)] for span in found.offsets] == [" caf\ufffd", "x", "<tool use>"]


def test_special_tokens_have_no_text_and_end_a_word(tokenizer):
    found = encode_spelled((1, 0, 2), ("ca", "<|end|>", "t</w>"), (False, True, False), spelling(tokenizer.backend))
    assert (found.text, found.word_ids, found.offsets) == ("cat ", (0, None, 1), ((0, 2), (0, 0), (2, 3)))
