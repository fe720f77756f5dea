"""The tokenizer in Python gives what the `tokenizers` library gives."""

import json
import random
import sys
import unicodedata

import pytest
from small_tokenizers import wordpiece_json

from regard import RegardError
from regard.formats.gguf import GgufFile
from regard.models.checkpoint.save import write_beside_weights
from regard.text import SubwordTokenizer
from regard.text.id_tokenizer import IdTokenizer
from regard.text.library import is_plain
from regard.text.token_bytes import LETTERS
from regard.training import alice
from regard.training.tokenizers import byte_pair_tokenizer, character_tokenizer, word_tokenizer
from sweeps import sweep_after

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
KEEPS_SPACES = {**BYTES, "add_prefix_space": True, "trim_offsets": False}
DIGITS = {"type": "Digits", "individual_digits": True}
# Of the characters of the oldest Unicode that Python has: the library's tables are of different versions.
OLD = [c for c in map(chr, range(sys.maxunicode)) if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs")]
CHANGED = "\u166d\u1734\u1885\u1886"  # since then, from letters to marks and the like
BITS = (
    " ", "  ", "\n", "\t", "\r\n", "'s", "'T", "'ll", "\xa0", "\u3000", "\x1c", "\x85", "\0", "\ufffd", "\ufeff",
    "…", "—", "123", "3.14", "½", "²", "Ⅷ", "字", "漢字", "é", "e\u0301", "İ", "ß", "ﬁ", "Σ", "Ǆ", "ﷺ",
    "👍🏽", "👨‍👩‍👧", "नमस्ते", "สวัสดี", "한국어", "עברית", "العربية", "##ing", "Ġ", "▁", "_", "don't", "[CLS]", "[MASK]",
    "<|endoftext|>", "<pad>",
)  # fmt: skip


def varied_texts(seed, count, characters=OLD):
    """Return texts of English, of pieces that tokenizers treat in their own way, and of characters of all scripts."""
    draw = random.Random(seed)
    words, known = alice().split(), set(characters)
    kinds = [
        lambda: draw.choice(words) + " " * draw.randrange(2),
        lambda: draw.choice(BITS),
        lambda: "".join(draw.choices(characters, k=3)),
        lambda: "".join(chr(draw.randrange(32, 127)) for _ in range(6)),
        lambda: "".join(chr(draw.randrange(128, 592)) for _ in range(4)),
    ]
    texts = (
        "".join(draw.choices(kinds, (5, 4, 1, 2, 1))[0]() for _ in range(draw.randrange(10))) for _ in range(count)
    )
    return ["".join(sign for sign in text if sign in known and sign not in CHANGED) for text in texts]


@pytest.fixture
def both(monkeypatch):
    """Return a function that makes a tokenizer by the library and in Python."""

    def make(function):
        ours = function()
        with monkeypatch.context() as context:
            context.setitem(sys.modules, "tokenizers", None)
            plain = function()
        assert (is_plain(ours.backend), is_plain(plain.backend)) == (False, True)
        return ours, plain

    return make


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a tokenizer, and returns its folder."""

    def write(document, settings=None):
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        if settings is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return tmp_path

    return write


@pytest.fixture(scope="module")
def pieces():
    """Return the ``tokenizer.json`` of byte pairs of a book."""
    return json.loads(byte_pair_tokenizer(alice()[:20_000], 600).backend.to_str())


def check_equal(tokenizers, texts):
    """Compare everything that two tokenizers say of texts, and of themselves."""
    one, other = tokenizers
    for name in ("pad_id", "mask_id", "unk_id", "vocab_size", "special_ids", "cleans_up", "has_exact_offsets"):
        assert getattr(one, name) == getattr(other, name)
    for text in texts:
        encoding = one(text)
        assert other(text) == encoding
        assert other.from_ids(encoding.ids) == one.from_ids(encoding.ids)
        for skips in (True, False):
            expected = one.decode(encoding.ids, skip_special_tokens=skips)
            assert other.decode(encoding.ids, skip_special_tokens=skips) == expected


@pytest.mark.minilm
@pytest.mark.parametrize("seed", sweep_after(1, range(20)))
def test_minilms_pieces_are_the_librarys(seed, both, minilm_dir):
    check_equal(both(lambda: SubwordTokenizer.from_folder(minilm_dir)), varied_texts(seed, 100))


@pytest.mark.smollm2
@pytest.mark.parametrize("seed", sweep_after(1, range(20)))
@pytest.mark.parametrize("kind", sweep_after(1, ["smollm2", "gpt2"]))
def test_byte_pairs_are_the_librarys(seed, kind, both, folder, smollm2_file):
    """Of the vocabulary of SmolLM2, which lacks bytes, with the splitting of either model."""
    document = json.loads(SubwordTokenizer.from_gguf(GgufFile(smollm2_file).metadata).backend.to_str())
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [DIGITS, BYTES]} if kind == "smollm2" else BYTES
    document["post_processor"] = KEEPS_SPACES
    lacking = {chr(byte) for byte in range(32) if LETTERS[byte] not in document["model"]["vocab"]}
    texts = varied_texts(seed, 100, [c for c in OLD if c not in lacking and ord(c) < 0x40000])
    check_equal(
        both(lambda: SubwordTokenizer.from_folder(folder(document, {"tokenizer_class": "GPT2Tokenizer"}))), texts
    )


@pytest.mark.parametrize("parts", [
    {"pre_tokenizer": BYTES, "post_processor": BYTES},
    {"pre_tokenizer": {**BYTES, "add_prefix_space": True}, "post_processor": {**BYTES, "add_prefix_space": True}},
    {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{**DIGITS, "individual_digits": False}, BYTES]}},
    {"pre_tokenizer": {**BYTES, "use_regex": False}},
])  # fmt: skip
def test_each_way_to_split_is_the_librarys(parts, both, folder, pieces):
    check_equal(both(lambda: SubwordTokenizer.from_folder(folder({**pieces, **parts}))), varied_texts(1, 40))


@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("chinese", [True, False])
@pytest.mark.pairwise
def test_each_normalizer_of_bert_is_the_librarys(strip_accents, lowercase, chinese, both, folder):
    document = wordpiece_json()
    document["normalizer"] |= {"strip_accents": strip_accents, "lowercase": lowercase, "handle_chinese_chars": chinese}
    check_equal(both(lambda: SubwordTokenizer.from_folder(folder(document))), varied_texts(2, 40))


@pytest.mark.parametrize("make", [
    lambda: character_tokenizer("abcde é.,", ["<pad>"]),
    lambda: character_tokenizer("abcde é.,", ["<pad>", "<unknown>"]),
    lambda: word_tokenizer("the cat sat on a".split()),
])  # fmt: skip
def test_characters_and_words_are_the_librarys(make, both):
    check_equal(both(make), [*varied_texts(3, 20), "the cat sat on the mat", "bad é ace"])


def test_a_model_without_a_tokenizer_has_ids(both):
    one, other = both(lambda: IdTokenizer.of_size(12, "it has none"))
    assert one.from_ids([3, 11]) == other.from_ids([3, 11])
    assert one("") == other("")


def test_special_tokens_in_a_text_may_be_split(both, folder, pieces):
    document = {**pieces, "pre_tokenizer": BYTES}
    settings = {"split_special_tokens": True}
    check_equal(both(lambda: SubwordTokenizer.from_folder(folder(document, settings))), ["a <pad> b<pad>"])


def test_what_it_writes_the_library_reads(both, folder, pieces, tmp_path):
    one, other = both(lambda: SubwordTokenizer.from_folder(folder({**pieces, "pre_tokenizer": BYTES})))
    write_beside_weights(tmp_path, other, {}, None)
    texts = varied_texts(4, 20)
    assert [*map(SubwordTokenizer.from_folder(tmp_path), texts)] == [*map(one, texts)]


@pytest.mark.parametrize(("document", "settings", "what"), [
    ({"normalizer": {"type": "NFC"}}, None, "with the normalizer NFC"),
    ({"model": {"type": "Unigram", "vocab": []}}, None, "with the model Unigram"),
    ({"model": {"type": "BPE", "vocab": {}, "merges": [], "byte_fallback": True}}, None, "byte_fallback"),
    ({"added_tokens": [{"id": 5, "content": "<m>", "lstrip": True}]}, None, "the added token '<m>'"),
    ({}, {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, "a BertTokenizer with these settings"),
    ({}, {"tokenizer_class": "BertTokenizer", "mask_token": "the"}, "a BertTokenizer with these settings"),
    ({"post_processor": None}, {"tokenizer_class": "BertTokenizer"}, "a BertTokenizer with these settings"),
    ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, {"tokenizer_class": "BertTokenizer"},
     "a BertTokenizer with these settings"),
    ({}, {"tokenizer_class": "BertTokenizer"}, None),
])  # fmt: skip
def test_of_others_it_says_what_to_install(document, settings, what, folder, monkeypatch):
    path = folder({**wordpiece_json(), **document}, settings)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    if what is None:
        assert SubwordTokenizer.from_folder(path)("the cat").tokens == ("[CLS]", "the", "cat", "[SEP]")
    else:
        with pytest.raises(RegardError, match=f"{what} needs tokenizers: pip install tokenizers"):
            SubwordTokenizer.from_folder(path)


def test_a_vocabulary_of_its_own_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(RegardError, match=r"a vocab\.txt needs tokenizers: pip install tokenizers"):
        SubwordTokenizer.from_folder(tmp_path)
