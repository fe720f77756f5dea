"""Words of byte-level tokenizers are those that were typed, with the marks above and below their letters."""

import json
from unicodedata import normalize

import hypothesis.strategies as st
import pytest
from hypothesis import given
from small_tokenizers import SPECIAL, byte_level, write_vocab
from tokenizers import normalizers

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


def read(folder, **config):
    """Write a vocabulary of bytes, with the tokens that RoBERTa has around a text, and return its tokenizer."""
    byte_level().model.save(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    size = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary | {"<s>": size, "</s>": size + 1}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return SubwordTokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """A tokenizer of each class, by which a text is cut in its own way."""
    return {kind: read(tmp_path_factory.mktemp(kind), tokenizer_class=kind) for kind in KINDS}


def words(encoding):
    return [word for word, at in encoding.word_groups() if not encoding.special_tokens_mask[at[0]]]


SEPARATED = {  # texts of which words are not parted by spaces alone
    "cafe\u0301, 1\u0301a": ["cafe\u0301", ",", "1\u0301", "a"],
    "中\u0301文 x\u0301文 か\u3099っこう": ["中\u0301", "文", "x\u0301", "文", "か\u3099っこう"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*TYPED, *SEPARATED])
def test_words_are_those_that_were_typed(tokenizers, kind, text):
    tokenizer, plain = tokenizers[kind], tokenizers["GPT2Tokenizer"]
    encoding, typed = tokenizer(text), SEPARATED.get(text, text.split())
    assert [word for word in words(encoding) if word.strip()] == typed
    if text not in SEPARATED:
        assert words(encoding) == typed
        assert words(append_tokens(tokenizer("a"), plain(f" {text}").ids, tokenizer)) == ["a", *typed]
        assert text == TYPED[-1] or words(plain.from_ids(plain(text).ids)) == typed


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("が漢字", ["が", "漢", "字"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("中\u0301文", ["中\u0301", "文"]),
        ("naïve-がっこう", ["naïve", "-", "がっこう"]),
    ],
)
def test_words_that_bert_separates_stay_apart(tmp_path, text, wanted, lowercase, form):
    text, wanted = normalize(form, text), [normalize(form, word) for word in wanted]
    letters = sorted({*text, *normalize("NFC", text), *normalize("NFD", text)})
    pieces = (*SPECIAL, *letters, *(f"##{letter}" for letter in letters))
    tokenizer = SubwordTokenizer.from_wordpiece(write_vocab(tmp_path, pieces), lowercase=lowercase)
    assert words(tokenizer(text)) == wanted


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


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_white_space_are_no_words_to_name(tokenizers, kind):
    """RoBERTa's tokens have no span for it."""
    text = "a  mat!\u00a0\n\nc "
    encoding = tokenizers[kind](text)
    assert "".join(words(encoding)).split() == ["a", "mat!", "c"]
    assert set("".join(words(encoding))) <= set(text)
    assert str(missing_word("dog", encoding)).endswith("its words are a, mat, !, c")


@pytest.mark.parametrize("text", ["<x>\u0301a", "a<x>\u0301\u0302, b", "e\u0301<x> \u0301"])
def test_a_mark_after_an_added_token_is_in_one_word(tmp_path, text):
    """After it RoBERTa's class can put a space that the text does not have."""
    added = {"900": {"content": "<x>", "special": False}}
    tokenizer = read(tmp_path, tokenizer_class="RobertaTokenizer", add_prefix_space=True, added_tokens_decoder=added)
    encoding = tokenizer(text)
    assert "".join("".join(words(encoding)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\ufdfa", ["\ufdfa"]),
        ("a \ufdfa b", ["a", "\ufdfa", "b"]),
        ("\u00bd cup", ["\u00bd", "cup"]),
        ("\u2153\u2154 c", ["\u2153\u2154", "c"]),
        ("\u338f.\ufdfb!", ["\u338f", ".", "\ufdfb", "!"]),
        ("(a) 12", ["(", "a", ")", "12"]),
    ],
)
def test_a_character_that_becomes_several_words_is_one(tmp_path, text, wanted):
    """Compatibility forms spell a phrase as one character, and fractions."""
    backend = byte_level()
    backend.normalizer = normalizers.NFKC()
    backend.save(str(tmp_path / "tokenizer.json"))
    encoding = SubwordTokenizer.from_folder(tmp_path)(text)
    assert words(encoding) == wanted
    assert max(encoding.word_ids) == len(wanted) - 1
