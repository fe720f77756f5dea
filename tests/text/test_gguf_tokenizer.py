"""Tokenizers built from the metadata of GGUF files."""

import re
from pathlib import Path

import numpy as np
import pytest

from gguf_files import GEMMA4, SENTENCEPIECE, TOKENIZER, TOKENS, UNIGRAM, WORDPIECE, as_read
from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer
from regard.text.gguf_pre_tokenizers import PRE_TOKENIZERS


def built(base, **changes):
    """Build a tokenizer with some keys changed, or left out where the value is None, as a file would give them."""
    given = {**base, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}
    return SubwordTokenizer.from_gguf(as_read(given), "m.gguf")


CAPITALS = {
    "tokens": [*WORDPIECE["tokenizer.ggml.tokens"], "▁The"],
    "token_type": [*WORDPIECE["tokenizer.ggml.token_type"], 1],
}
SPECIAL_CAPITALS = {
    "tokens": [*WORDPIECE["tokenizer.ggml.tokens"], "<Start>", "▁<USER>"],
    "token_type": [*WORDPIECE["tokenizer.ggml.token_type"], 3, 4],
}
LOWER, KEEPS_ACCENTS = {"normalizer.lowercase": True}, {"normalizer.strip_accents": False}
UNNAMED = dict.fromkeys(("token_type", "bos_token_id", "eos_token_id", "unknown_token_id"))
TYPED = {"tokens": ["<unk>", "</s>", "<pad>", *UNIGRAM["tokenizer.ggml.tokens"][3:]], "eos_token_id": None}
TYPED |= {"token_type": [2, 3, 3, 1, 1, 1, 1, 4]}
ENCODED = [  # a file, what is changed in it, a text and its tokens
    (TOKENIZER, {}, "the cat the", "t he Ġcat Ġthe"),
    *(
        (TOKENIZER, {"pre": pre, "add_bos_token": False}, text, tokens)
        for pre, text, tokens in (
            ("smollm", "  12", "ĠĠ 1 2"),
            ("gpt-2", "  12", "Ġ Ġ 12"),
            ("llama-bpe", "A12 1212", "A 12 Ġ 12 1 2"),
            ("qwen2", "12", "1 2"),
            ("default", "12", "12"),
            ("qwen2", "e\u0301", "Ã©"),  # composed for it only
            ("gpt-2", "e\u0301", "e Ì ģ"),
        )
    ),
    (TOKENIZER, {"add_bos_token": True}, "a", "<|im_start|> a"),
    (TOKENIZER, {"add_bos_token": True, "add_eos_token": True}, "a", "<|im_start|> a <|im_end|>"),
    (TOKENIZER, {"pre": "llama-bpe", "add_bos_token": None}, "a", "<|im_start|> a"),
    (WORDPIECE, {}, "The cats [MASK].", "[CLS] the cat ##s [MASK] . [SEP]"),
    # Older files do not say whether letters are lower-cased: a vocabulary with capitals is cased.
    (WORDPIECE, CAPITALS, "The the", "[CLS] The the [SEP]"),
    (WORDPIECE, CAPITALS | LOWER, "The", "[CLS] the [SEP]"),
    (WORDPIECE, SPECIAL_CAPITALS, "The", "[CLS] the [SEP]"),
    (WORDPIECE, {}, "Café", "[CLS] caf ##e [SEP]"),
    (WORDPIECE, LOWER | KEEPS_ACCENTS, "Café", "[CLS] caf ##é [SEP]"),
    (WORDPIECE, {"cls_token_id": 3, "seperator_token_id": 2}, "cat", "[SEP] cat [CLS]"),
    # The unigram model of SentencePiece, whose tables of characters tests/parity holds.
    (UNIGRAM, {}, "the  t?<x>", "▁the ▁ t ? <x> </s>"),
    (UNIGRAM, {"add_eos_token": False, "add_space_prefix": False}, "the", "t he"),
    (UNIGRAM, {"add_eos_token": False, "add_space_prefix": None}, "the", "t he"),  # as in llama.cpp
    # Pieces of SentencePiece, the highest score first; tests/parity holds them against SentencePiece itself.
    (SENTENCEPIECE, {}, "the cat", "<s> ▁the ▁cat"),
    (SENTENCEPIECE, {}, "a猫", "<s> ▁ a <0xE7> <0x8C> <0xAB>"),
    (SENTENCEPIECE, {"add_space_prefix": False}, "at", "<s> at"),
    (SENTENCEPIECE, {"add_space_prefix": False}, " at", "<s> ▁ at"),
    (SENTENCEPIECE, {"add_space_prefix": False}, "a<user>a", "<s> a <user> a"),
    (SENTENCEPIECE, {**UNNAMED, "token_type": SENTENCEPIECE["tokenizer.ggml.token_type"], "add_eos_token": True}, "the",
     "<s> ▁the </s>"),
    # Gemma 4, as llama.cpp splits it: at the breaks of lines alone, by its merges and not by scores.
    (GEMMA4, {}, "the cat", "<s> th e ▁cat"),
    (GEMMA4, {}, "at\n\n\nat  é", "<s> at \n\n \n at ▁ ▁ é"),
    (GEMMA4, {}, "a<user>猫", "<s> a <user> <0xE7> <0x8C> <0xAB>"),
    (GEMMA4, {"add_bos_token": False}, " the", "▁ th e"),
]  # fmt: skip
RETURNED = [  # the text of the tokens of a text, without special ones
    (TOKENIZER, {}, "".join(map(chr, range(300))) + "猫 😀\u200d"),
    (WORDPIECE, {}, "the cats."),
    (SENTENCEPIECE, {}, "the  cat\n\té 猫 😀."),
    (SENTENCEPIECE, {"add_space_prefix": False}, "a<user>a"),
    (GEMMA4, {}, "the  cat\n\n\n\té 猫 😀."),
    # llama.cpp reads add_space_prefix with SentencePiece alone; a space before every piece would be worse.
    *(
        (TOKENIZER, {"pre": pre, "add_bos_token": False, "add_space_prefix": True}, "the cat, 12!")
        for pre in ("smollm", "qwen2", "llama-bpe", "gpt-2", "default")
    ),
]


@pytest.mark.parametrize(("base", "changes", "text", "tokens"), ENCODED, ids=[text for _, _, text, _ in ENCODED])
def test_a_text_has_the_tokens_that_the_file_says(base, changes, text, tokens):
    assert built(base, **changes)(text).tokens == tuple(tokens.split(" "))


@pytest.mark.parametrize(("base", "changes", "text"), RETURNED)
def test_a_text_comes_back(base, changes, text):
    tokenizer = built(base, **changes)
    encoding = tokenizer(text)
    assert tokenizer.decode(encoding.ids) == text
    if base is TOKENIZER and changes:
        assert encoding.tokens == built(base, **changes | {"add_space_prefix": None})(text).tokens


def test_special_tokens():
    tokenizer, both = built(TOKENIZER), built(TOKENIZER, add_bos_token=True, add_eos_token=True)
    assert tokenizer("a<|im_end|>b").ids == (tokenizer.token_to_id("a"), 2, tokenizer.token_to_id("b"))
    assert tokenizer.decode([2, TOKENS.index("a")]) == "a"
    assert both("a").special_tokens_mask == (True, False, True)
    assert tokenizer.pad_id == 0
    assert built(TOKENIZER, padding_token_id=None).pad_id is None
    assert (built(WORDPIECE).pad_id, built(WORDPIECE).mask_id) == (0, 4)
    words = [word for word, _ in built(SENTENCEPIECE)("the cat on  it").word_groups()]
    assert words == ["<s>", "the", "cat", "on", "it"]


def test_special_tokens_that_the_file_does_not_name_are_those_of_llama_cpp():
    tokenizer = built(UNIGRAM, **UNNAMED)
    assert tokenizer("the ?").ids == (3, 4, 2, 1)
    assert tokenizer.pad_id == 0
    assert built(UNIGRAM)("?").ids[1] == 2
    assert built(UNIGRAM, **TYPED)("?").ids == (4, 0, 1)


@pytest.mark.parametrize("bos", [None, True, False])
@pytest.mark.parametrize("eos", [None, True, False])
@pytest.mark.parametrize("sep", [None, True, False])
def test_the_tokens_around_a_text_are_left_out_where_the_file_says_so(bos, eos, sep):
    """The converter says False of a separator where the end of a text is one."""
    encoding = built(WORDPIECE, add_bos_token=bos, add_eos_token=eos, add_sep_token=sep)("the cat")
    says_no = False in (eos, sep) and True not in (eos, sep)
    assert encoding.tokens == (*(["[CLS]"] if bos is not False else []), "the", "cat", *([] if says_no else ["[SEP]"]))


def test_the_page_has_every_name_and_those_for_the_same_in_one_line():
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    part = page[page.index("`tokenizer.ggml.pre`. Those") : page.index("Any other name is an error")]
    lines = [re.findall("`([^`]+)`", line) for line in part.splitlines() if line.startswith("- ")]
    assert [name for line in lines for name in line] == list(PRE_TOKENIZERS)
    assert all(PRE_TOKENIZERS[name] is PRE_TOKENIZERS[line[0]] for line in lines for name in line)


COUNT = len(TOKENS)
LONGER = {key: [*SENTENCEPIECE[f"tokenizer.ggml.{key}"], 1] for key in ("scores", "token_type")}
LONGER |= {"tokens": [*SENTENCEPIECE["tokenizer.ggml.tokens"], "a" * 10_000]}


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (TOKENIZER, {"model": "rwkv"}, "its tokenizer has kind 'rwkv'; supported: 'gpt2', 'llama', 'gemma4', "),
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
        (SENTENCEPIECE, LONGER, "it has a piece of 10000 characters; the limit is 128"),
        (TOKENIZER | {"tokenizer.chat_template": 5}, {}, r"tokenizer\.chat_template must be a string"),
        (SENTENCEPIECE, {"scores": None}, r"scores must have a number for each of the \d+ tokens"),
        (SENTENCEPIECE, {"scores": [float("nan")] * len(SENTENCEPIECE["tokenizer.ggml.tokens"])}, "scores must have"),
    ],
)  # fmt: skip
def test_what_is_not_sound_is_named(base, changes, message):
    with pytest.raises(RegardError, match=rf"\Athe tokenizer of m\.gguf cannot be built: .*{message}"):
        built(base, **changes)
