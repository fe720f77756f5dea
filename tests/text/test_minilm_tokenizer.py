"""The real files of MiniLM: what a ``vocab.txt`` rebuilds is what its ``tokenizer.json`` says."""

import json
import random
import shutil

import pytest
from tokenizers import Tokenizer

from regard.text import SubwordTokenizer

pytestmark = pytest.mark.minilm

SAMPLES = (
    "The cat sat on the mat.", "İstanbul'da naïve Café ÉCOLE Straße", "汉字和かな混じり文 한국어", "😀👩‍👩‍👧 🇩🇪",
    "don't stop-me_now 3.14e-10 $5 50%", "[CLS] [SEP] [MASK] [PAD] [UNK] [sep]", "a\u0301 e\u0308 ﬁ ﷺ",
    "\x00\x1f\ufffd", "tab\tnew\nline\r\n\u2028\xa0\u3000", "x" * 101, "x" * 100, "##ing ## # unbelievably",
    "ΑΣ σς ẞ", "\u200b\u200f\ufeff",
)  # fmt: skip
ALPHABET = "".join(dict.fromkeys("".join(SAMPLES))) + "abcdefghijklmnopqrstuvwxyz    "


def varied_texts() -> list[str]:
    draw = random.Random(20170612)
    return [*SAMPLES, *("".join(draw.choices(ALPHABET, k=draw.randrange(89))) for _ in range(499))]


@pytest.fixture(scope="module")
def from_json(minilm_dir):
    return SubwordTokenizer.from_file(minilm_dir / "tokenizer.json")


@pytest.fixture(scope="module")
def from_vocab(minilm_dir, tmp_path_factory):
    """Return what a folder with no ``tokenizer.json`` gives; its ``vocab.txt`` has a line for each id, as published."""
    folder = tmp_path_factory.mktemp("vocab_only")
    shutil.copy(minilm_dir / "tokenizer_config.json", folder)
    ids = json.loads((minilm_dir / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    lines = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
    (folder / "vocab.txt").write_text(lines, encoding="utf-8", newline="\n")
    return SubwordTokenizer.from_folder(folder)


def test_both_files_encode_every_text_alike(from_json, from_vocab):
    assert [from_vocab(text) for text in varied_texts()] == [from_json(text) for text in varied_texts()]


def test_both_files_decode_alike(from_json, from_vocab):
    encodings = [from_json(text) for text in varied_texts()]
    assert [from_vocab.decode(e.ids) for e in encodings] == [from_json.decode(e.ids) for e in encodings]


def test_both_files_say_the_same_rules(from_json, from_vocab):
    assert json.loads(from_vocab.backend.to_str()) == json.loads(from_json.backend.to_str())


def test_texts_longer_than_the_stored_128_tokens_are_whole(minilm_dir, from_json):
    assert len(Tokenizer.from_file(str(minilm_dir / "tokenizer.json")).encode("the " * 499).ids) == 128
    assert from_json("the " * 499).ids == (101, *[1996] * 499, 102)


def test_a_known_sentence(from_json):
    encoding = from_json("Attention is unbelievably useful!")
    assert encoding.tokens == (
        "[CLS]",
        "attention",
        "is",
        "un",
        "##bel",
        "##ie",
        "##va",
        "##bly",
        "useful",
        "!",
        "[SEP]",
    )
    assert encoding.ids == (101, 3086, 2003, 4895, 8671, 2666, 3567, 6321, 6179, 999, 102)
    assert [word for word, _ in encoding.word_groups()] == [
        *("[CLS]", "Attention", "is", "unbelievably", "useful", "!", "[SEP]")
    ]


def test_pad_id_and_size(from_json, from_vocab):
    assert (from_json.pad_id, from_json.vocab_size) == (from_vocab.pad_id, from_vocab.vocab_size) == (0, 30522)
