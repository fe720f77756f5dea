"""Tokenizers built from the metadata of GGUF files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gguf_files import SENTENCEPIECE, TOKENIZER, TOKENS, UNIGRAM, WORDPIECE, as_read
from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer
from regard.text.gguf_pre_tokenizers import PRE_TOKENIZERS


def built(base, **changes):
    """Build a tokenizer with some keys changed, or left out where the value is None, as a file would give them."""
    given = {**base, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}
    return SubwordTokenizer.from_gguf(as_read(given), "m.gguf")


# Byte-level.


def test_merges_are_made_in_their_order():
    assert built(TOKENIZER)("the cat the").tokens == ("t", "he", "Ġcat", "Ġthe")


def test_special_tokens_of_a_text_are_found_whole():
    tokenizer = built(TOKENIZER)
    assert tokenizer("a<|im_end|>b").ids == (tokenizer.token_to_id("a"), 2, tokenizer.token_to_id("b"))
    assert tokenizer.decode([2, TOKENS.index("a")]) == "a"


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("smollm", "  12", ("ĠĠ", "1", "2")),
        ("gpt-2", "  12", ("Ġ", "Ġ", "12")),
        ("llama-bpe", "A12 1212", ("A", "12", "Ġ", "12", "1", "2")),
        ("qwen2", "12", ("1", "2")),
        ("default", "12", ("12",)),
    ],
)
def test_the_name_says_how_a_text_is_cut_before(pre, text, tokens):
    assert built(TOKENIZER, pre=pre, add_bos_token=False)(text).tokens == tokens


def test_the_page_has_every_name_and_those_for_the_same_in_one_line():
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    part = page[page.index("`tokenizer.ggml.pre`. Those") : page.index("Any other name is an error")]
    lines = [re.findall("`([^`]+)`", line) for line in part.splitlines() if line.startswith("- ")]
    assert [name for line in lines for name in line] == list(PRE_TOKENIZERS)
    assert all(PRE_TOKENIZERS[name] is PRE_TOKENIZERS[line[0]] for line in lines for name in line)


def test_composed_characters_are_one_for_qwen2_only():
    decomposed = "e\u0301"
    assert built(TOKENIZER, pre="qwen2")(decomposed).tokens == ("Ã©",)
    assert built(TOKENIZER, pre="gpt-2")(decomposed).tokens == ("e", "Ì", "ģ")


def test_every_byte_comes_back():
    tokenizer = built(TOKENIZER)
    text = "".join(map(chr, range(300))) + "猫 😀\u200d"
    assert tokenizer.decode(tokenizer(text).ids) == text


def test_ends_are_added_as_the_file_says():
    assert built(TOKENIZER, add_bos_token=True)("a").tokens == ("<|im_start|>", "a")
    both = built(TOKENIZER, add_bos_token=True, add_eos_token=True)("a")
    assert both.tokens == ("<|im_start|>", "a", "<|im_end|>")
    assert both.special_tokens_mask == (True, False, True)
    assert built(TOKENIZER, pre="llama-bpe", add_bos_token=None)("a").tokens == ("<|im_start|>", "a")


def test_padding_is_the_token_that_is_named():
    assert built(TOKENIZER).pad_id == 0
    assert built(TOKENIZER, padding_token_id=None).pad_id is None


@pytest.mark.parametrize("pre", ["smollm", "qwen2", "llama-bpe", "gpt-2", "default"])
def test_no_space_is_put_before_bytes_whatever_the_file_says(pre):
    """llama.cpp reads add_space_prefix with SentencePiece alone; a space before every piece would be worse."""
    text = "the cat, 12!"
    plain = built(TOKENIZER, pre=pre, add_bos_token=False)(text)
    with_key = built(TOKENIZER, pre=pre, add_bos_token=False, add_space_prefix=True)
    assert with_key(text).tokens == plain.tokens
    assert with_key.decode(with_key(text).ids) == text


# WordPiece, in which the pieces that begin a word are marked.


def test_pieces_that_begin_a_word_are_those_that_are_marked():
    tokenizer = built(WORDPIECE)
    assert tokenizer("The cats [MASK].").tokens == ("[CLS]", "the", "cat", "##s", "[MASK]", ".", "[SEP]")
    assert tokenizer.decode(tokenizer("the cats.").ids) == "the cats."
    assert (tokenizer.pad_id, tokenizer.mask_id) == (0, 4)


def test_a_vocabulary_with_capitals_is_cased():
    """Older files do not say whether letters are lower-cased."""
    cased = [*WORDPIECE["tokenizer.ggml.tokens"], "▁The"]
    both = {"tokens": cased, "token_type": [*WORDPIECE["tokenizer.ggml.token_type"], 1]}
    assert built(WORDPIECE, **both)("The the").tokens == ("[CLS]", "The", "the", "[SEP]")
    assert built(WORDPIECE, **both, **{"normalizer.lowercase": True})("The").tokens == ("[CLS]", "the", "[SEP]")
    assert built(WORDPIECE)("Café").tokens == ("[CLS]", "caf", "##e", "[SEP]")
    kept = built(WORDPIECE, **{"normalizer.lowercase": True, "normalizer.strip_accents": False})
    assert kept("Café").tokens == ("[CLS]", "caf", "##é", "[SEP]")


def test_a_capital_in_a_special_token_makes_no_vocabulary_cased():
    tokens = [*WORDPIECE["tokenizer.ggml.tokens"], "<Start>", "▁<USER>"]
    types = [*WORDPIECE["tokenizer.ggml.token_type"], 3, 4]
    assert built(WORDPIECE, tokens=tokens, token_type=types)("The").tokens == ("[CLS]", "the", "[SEP]")


@pytest.mark.parametrize("bos", [None, True, False])
@pytest.mark.parametrize("eos", [None, True, False])
@pytest.mark.parametrize("sep", [None, True, False])
def test_the_tokens_around_a_text_are_left_out_where_the_file_says_so(bos, eos, sep):
    """The converter says False of a separator where the end of a text is one."""
    encoding = built(WORDPIECE, add_bos_token=bos, add_eos_token=eos, add_sep_token=sep)("the cat")
    says_no = False in (eos, sep) and True not in (eos, sep)
    assert encoding.tokens == (*(["[CLS]"] if bos is not False else []), "the", "cat", *([] if says_no else ["[SEP]"]))


def test_the_tokens_around_a_text_are_those_that_the_file_names():
    named = built(WORDPIECE, cls_token_id=3, seperator_token_id=2)
    assert named("cat").ids == (3, 5, 2)


# The unigram model of SentencePiece. tests/parity holds its tables of characters.


def test_pieces_of_the_likeliest_sum_are_chosen_and_the_text_ends():
    tokenizer = built(UNIGRAM)
    assert tokenizer("the  t?<x>").tokens == ("▁the", "▁", "t", "?", "<x>", "</s>")
    assert tokenizer("?").ids[1] == 2
    for prefix in (False, None):  # llama.cpp puts no space before a text where the file does not say so
        assert built(UNIGRAM, add_eos_token=False, add_space_prefix=prefix)("the").tokens == ("t", "he")


def test_special_tokens_that_the_file_does_not_name_are_those_of_llama_cpp():
    bare = dict.fromkeys(("token_type", "eos_token_id", "unknown_token_id"))
    tokenizer = built(UNIGRAM, **bare)
    assert tokenizer("the ?").ids == (3, 4, 2, 1)
    assert tokenizer.pad_id == 0
    typed = built(UNIGRAM, eos_token_id=None, tokens=["<unk>", "</s>", "<pad>", *UNIGRAM["tokenizer.ggml.tokens"][3:]],
                  token_type=[2, 3, 3, 1, 1, 1, 1, 4])  # fmt: skip
    assert typed("?").ids == (4, 0, 1)
    without = dict.fromkeys(("bos_token_id", "eos_token_id", "unknown_token_id"))
    assert built(SENTENCEPIECE, **without, add_eos_token=True)("the").tokens == ("<s>", "▁the", "</s>")


# As SentencePiece makes them. tests/parity holds this kind against SentencePiece itself.


def test_pieces_of_the_highest_score_are_made_first():
    assert built(SENTENCEPIECE)("the cat").tokens == ("<s>", "▁the", "▁cat")


def test_what_is_no_piece_is_bytes():
    assert built(SENTENCEPIECE)("a猫").tokens == ("<s>", "▁", "a", "<0xE7>", "<0x8C>", "<0xAB>")


def test_words_and_spans_are_told():
    encoding = built(SENTENCEPIECE)("the cat on  it")
    assert [word for word, _ in encoding.word_groups()] == ["<s>", "the", "cat", "on", "it"]


def test_a_text_comes_back():
    tokenizer = built(SENTENCEPIECE)
    text = "the  cat\n\té 猫 😀."
    assert tokenizer.decode(tokenizer(text).ids) == text


def test_a_space_is_put_before_a_text_unless_the_file_says_otherwise():
    assert built(SENTENCEPIECE, add_space_prefix=False)("at").tokens == ("<s>", "at")
    assert built(SENTENCEPIECE, add_space_prefix=False)(" at").tokens == ("<s>", "▁", "at")


def test_what_a_person_has_defined_is_found_whole():
    tokenizer = built(SENTENCEPIECE, add_space_prefix=False)
    assert tokenizer("a<user>a").tokens == ("<s>", "a", "<user>", "a")
    assert tokenizer.decode(tokenizer("a<user>a").ids) == "a<user>a"


# What is refused.

COUNT = len(TOKENS)


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (TOKENIZER, {"model": "rwkv"}, "its tokenizer has kind 'rwkv'; supported: 'gpt2', 'llama', 't5', 'bert'"),
        (TOKENIZER, {"model": 5}, r"tokenizer\.ggml\.model must be a str, got 5"),
        (TOKENIZER, {"pre": "llama-4"}, r"\(tokenizer\.ggml\.pre\) is 'llama-4', .*; the nearest known are 'llama4', "),
        (TOKENIZER, {"pre": "chameleon"}, r"is 'chameleon', .*; known are default, gpt-2, "),  # falcon is not near
        (TOKENIZER, {"pre": None}, r"ggml\.pre\) is missing, .* 'default', is .*; known are default, gpt-2, "),
        (TOKENIZER, {"pre": ""}, r"\(tokenizer\.ggml\.pre\) is missing, "),
        (TOKENIZER, {"pre": "?"}, r"is '\?', which .*; known are default, gpt-2, .*--pre-tokenizer NAME"),
        (TOKENIZER, {"tokens": None}, r"tokenizer\.ggml\.tokens must be a list of strings, but is missing"),
        (TOKENIZER, {"tokens": 5}, r"tokenizer\.ggml\.tokens must be a list of strings$"),
        (TOKENIZER, {"merges": None}, r"tokenizer\.ggml\.merges must be a list of strings, but is missing"),
        (TOKENIZER, {"merges": ["ab"]}, "'ab' of its merges is not a pair of pieces"),
        (TOKENIZER, {"merges": ["q zz"]}, "zz"),
        (TOKENIZER, {"token_type": [1]}, f"token_type must have a number for each of the {COUNT} tokens"),
        (TOKENIZER, {"bos_token_id": COUNT}, f"bos_token_id is {COUNT}, but there are {COUNT} tokens"),
        (TOKENIZER, {"bos_token_id": -1}, "bos_token_id is -1"),
        (TOKENIZER, {"bos_token_id": None, "add_bos_token": True}, "add_bos_token is true, but there is no bos token"),
        (TOKENIZER, {"add_bos_token": 1}, "add_bos_token must be a bool, got 1"),
        (UNIGRAM, {"precompiled_charsmap": [1, 2]}, r"precompiled_charsmap must be bytes, got "),
        (UNIGRAM, {"precompiled_charsmap": np.uint8([1])}, r"charsmap has 1 bytes, but announces a trie of 1"),
        (WORDPIECE, {"tokens": ["a" * 200] * 15}, "it has a piece of 202 characters; the limit is 128"),
        (SENTENCEPIECE, {"scores": None}, r"scores must have a number for each of the \d+ tokens"),
        (SENTENCEPIECE, {"scores": [float("nan")] * len(SENTENCEPIECE["tokenizer.ggml.tokens"])}, "scores must have"),
    ],
)  # fmt: skip
def test_what_is_not_sound_is_named(base, changes, message):
    with pytest.raises(RegardError, match=rf"\Athe tokenizer of m\.gguf cannot be built: .*{message}"):
        built(base, **changes)


def test_a_piece_longer_than_any_is_refused():
    tokens = [*SENTENCEPIECE["tokenizer.ggml.tokens"], "a" * 10_000]
    longer = {key: [*SENTENCEPIECE[f"tokenizer.ggml.{key}"], 1] for key in ("scores", "token_type")}
    with pytest.raises(RegardError, match="it has a piece of 10000 characters; the limit is 128"):
        built(SENTENCEPIECE, tokens=tokens, **longer)


def test_a_template_that_is_no_text():
    with pytest.raises(RegardError, match=r"tokenizer\.chat_template must be a string"):
        SubwordTokenizer.from_gguf(as_read({**TOKENIZER, "tokenizer.chat_template": 5}))
