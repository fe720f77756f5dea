"""Words and labels are those of the text, whatever a vocabulary spells a space or a byte with."""

import functools

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from regard.text import SubwordTokenizer
from regard.text.token_labels import token_labels

PARTS = [
    "the", "café", "don't", " ", "  ", "\n", "日本", "🐱", "e\u0301", "2,000", "“Déjà", "—", "मैं", "ÉTÉ", "한글",
    "a_b", "½©", "👩🏽\u200d🚀", "🙂\u200d↔\ufe0f",
]  # fmt: skip
TEXTS = [" ".join(PARTS), "the cat sat on the mat", "don't go, the café is shut"] * 5
SPACE = "▁"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA3 = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def llama(*, prefix):
    """Return a tokenizer as those of Llama 2 and Mistral, which take no text apart, or, without prefix, Gemma's."""
    merges = [("t", "h"), ("th", "e"), (SPACE, "the"), (SPACE, "c"), ("a", "t"), (f"{SPACE}c", "at"), (SPACE, SPACE)]
    pieces = ["<unk>", *BYTES, *"".join(merges[0]), *f"{SPACE}eacon'.,", *map("".join, merges)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps, strip = [normalizers.Replace(" ", SPACE)], []
    if prefix:
        steps, strip = [normalizers.Prepend(SPACE), *steps], [decoders.Strip(" ", 1, 0)]
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")  # spaces are none by then
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def unigram():
    """Return a tokenizer as those of T5 and XLM-RoBERTa."""
    letters = sorted({*"".join(TEXTS)} - {" ", "\n"})
    pieces = [("<unk>", 0.0), (f"{SPACE}the", -2.0), (f"{SPACE}ca", -3.0), (SPACE, -4.0), *((x, -6.0) for x in letters)]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s"), " ")
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer


def byte_level(split=None, normalizer=None):
    """Return a tokenizer as GPT-2's, or with the expression of Llama 3, or normalised as Qwen's."""
    tokenizer = Tokenizer(BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    steps = [] if split is None else [pre_tokenizers.Split(Regex(split), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def clip():
    """Return a tokenizer as CLIP's, which lower-cases and marks the ends of words."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate([*letters, *(f"{x}</w>" for x in letters), "th", "the</w>"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("t", "h"), ("th", "e</w>")], end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def bert():
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        TEXTS, WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    return tokenizer


BACKENDS = {
    "Llama 2": lambda: llama(prefix=True),
    "Gemma": lambda: llama(prefix=False),
    "T5": unigram,
    "GPT-2": byte_level,
    "Llama 3": lambda: byte_level(LLAMA3),
    "Qwen": lambda: byte_level(LLAMA3, normalizers.NFC()),
    "CLIP": clip,
    "BERT": bert,
}


@functools.cache
def made(name):
    return SubwordTokenizer(BACKENDS[name]())


texts = st.lists(st.sampled_from([*PARTS, ", ", ". ", "x"]) | st.text("abé 字!\n", max_size=4), max_size=12).map(
    "".join
)


def without_space(text):
    return "".join(text.split())


@pytest.mark.parametrize("name", BACKENDS)
@given(text=texts)
def test_words_are_the_text_and_end_at_spaces(text, name):
    read = made(name)(text)
    words = [word for word, positions in read.word_groups() if word.strip()]
    assert without_space("".join(words)) == without_space(text)
    assert not [word for word in words if len(word.split()) > 1]


@pytest.mark.parametrize("name", BACKENDS)
@given(text=texts)
def test_no_label_has_a_sign_of_a_vocabulary(text, name):
    labels = token_labels(made(name)(text))
    assert not [label for label in labels if SPACE in label or "<0x" in label or "Ã" in label or "Ġ" in label]


@pytest.mark.parametrize("name", ["Llama 2", "Gemma", "GPT-2", "Llama 3"])
@given(text=texts.map(str.strip))
def test_ids_alone_give_the_same_words(text, name):
    tokenizer = made(name)
    read = tokenizer(text)
    again = tokenizer.from_ids(read.ids)
    assert again.text == tokenizer.decode(read.ids) == text
    assert token_labels(again) == token_labels(read)
    if name in ("Llama 2", "Gemma"):
        assert again.word_ids == read.word_ids
    else:
        assert (again.tokens, again.offsets) == (read.tokens, read.offsets)


@pytest.mark.parametrize("name", ["Llama 2", "Gemma", "GPT-2", "Llama 3"])
def test_joined_emoji_are_one_word(name):
    emoji = ["👩🏽\u200d🚀", "👩\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "🙂\u200d↔\ufe0f", "👍🏿"]
    tokenizer = made(name)
    read = tokenizer.from_ids(tokenizer(" ".join(emoji)).ids)
    assert [word.strip() for word, _ in read.word_groups()] == emoji


def test_a_special_token_ends_a_word():
    backend = llama(prefix=True)
    backend.add_special_tokens([AddedToken("<end>", normalized=False)])
    read = SubwordTokenizer(backend)("the cat<end>sat")
    assert [word for word, _ in read.word_groups()] == ["the", "cat", "<end>", "sat"]
