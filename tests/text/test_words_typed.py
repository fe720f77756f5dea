"""Words of byte-level tokenizers are those that were typed, with the marks above and below their letters."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from small_tokenizers import byte_level

from regard.cli.input import missing_word
from regard.models.generation.detokenizer import append_tokens
from regard.text import SubwordTokenizer
from regard.text.combining_marks import is_mark

TYPED = [
    "मैं घर जाता हूँ",
    "बिल्ली चटाई पर बैठी",
    "ผู้ใหญ่ หา ผ้าใหม่",
    "ذهبَ الولدُ",
    "שָׁלוֹם עוֹלָם",
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m a\u0323\u0301b",
    "क्\u200dष می\u200cخواهم",
    "1\ufe0f\u20e3 \u2764\ufe0f",
]
KINDS = ("GPT2Tokenizer", "Qwen2Tokenizer", "RobertaTokenizer")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """A tokenizer of each class, by which a text is cut in its own way."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        byte_level().model.save(str(folder))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
        made[kind] = SubwordTokenizer.from_folder(folder)
    return made


def words(encoding):
    return [word for word, at in encoding.word_groups() if not encoding.special_tokens_mask[at[0]]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TYPED)
def test_words_are_those_that_were_typed(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    encoding = tokenizer(text)
    assert words(encoding) == text.split()
    generated = append_tokens(tokenizer("a"), tokenizers["GPT2Tokenizer"](f" {text}").ids, tokenizer)
    assert words(generated) == ["a", *text.split()]


@pytest.mark.parametrize("text", TYPED[:-1])
def test_words_of_ids_are_those_that_were_typed(tokenizers, text):
    assert words(tokenizers["GPT2Tokenizer"].from_ids(tokenizers["GPT2Tokenizer"](text).ids)) == text.split()


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_a_mark_and_is_no_letter_is_a_word_of_its_own(tokenizers, kind):
    found = words(tokenizers[kind]("cafe\u0301, 1\u0301a"))
    assert [word for word in found if word.strip()] == ["cafe\u0301", ",", "1\u0301", "a"]


MARKED = st.text(st.sampled_from("ab1, \n\u00a0é字!") | st.characters(categories=["Mn", "Mc", "Lo", "Zs"]), max_size=12)


@given(text=MARKED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_word_begins_with_a_mark_only_after_white_space(tokenizers, kind, text):
    encoding = tokenizers[kind](text)
    for word, at in encoding.word_groups():
        start = encoding.offsets[at[0]][0]
        if start < len(text) and not encoding.special_tokens_mask[at[0]] and is_mark(text[start]):
            assert not start or text[start - 1].isspace(), (text, word)


@given(text=MARKED)
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_typed_is_in_words(tokenizers, kind, text):
    encoding = tokenizers[kind](text)
    ids = [word for word in encoding.word_ids if word is not None]
    assert ids == sorted(ids)
    assert "".join("".join(words(encoding)).split()) == "".join(text.split())


def test_words_of_white_space_are_no_words_to_name(tokenizers):
    encoding = tokenizers["GPT2Tokenizer"]("a  b\u00a0mat\n\nc")
    assert words(encoding) == ["a", " ", "b", "\u00a0", "mat", "\n", "\n", "c"]
    assert str(missing_word("dog", encoding)).endswith("its words are a, b, mat, c")
