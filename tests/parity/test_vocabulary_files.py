"""Vocabularies of a few tokens with unusual lines, settings and gaps: the ids of transformers' AutoTokenizer."""

import json
import random

import pytest

from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##ld", "@@ld", "[", "]", "mask", "pad"]
BERT_TEXT = "hello [MASK] [PAD] x [UNK] [CLS]a[SEP] worldld None"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
LETTERS = [*map(chr, range(33, 127)), "Ġ"]
MERGED = ["he", "ll", "hell"]
BYTES_TEXT = "hell<s> <mask>o<pad></s><unk><|endoftext|>|<|padding|>"
MODEL_TYPES = {"RobertaTokenizer": "roberta", "GPT2Tokenizer": "gpt2", "GPTNeoXTokenizer": "gpt_neox",
               "Qwen2Tokenizer": "qwen2", "CLIPTokenizer": "clip"}  # fmt: skip


def write(folder, kind, files):
    """Write files, dicts as JSON, beside the configuration of a class."""
    (folder / "config.json").write_text(json.dumps({"model_type": MODEL_TYPES.get(kind, "bert")}))
    files["tokenizer_config.json"] = {"tokenizer_class": kind, **files.get("tokenizer_config.json", {})}
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_bytes(text.encode())
    return folder


def word_pieces(shape, pieces=PIECES, **options):
    """Return the files of BERT's vocabulary; those of a tokenizer.json list no added tokens."""
    if shape == "vocabulary":
        return {"vocab.txt": "".join(f"{piece}\n" for piece in pieces)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    model |= {"max_input_chars_per_word": 100, "vocab": {piece: i for i, piece in enumerate(pieces)}, **options}
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"tokenizer.json": {"version": "1.0", **dict.fromkeys(parts), "added_tokens": [], "model": model}}


def byte_pieces(special=SPECIAL, merges="#version: 0.2\nh e\nl l\nhe ll\n"):
    """Return the files of a vocabulary of printable ASCII."""
    tokens = [*special, *LETTERS, *MERGED]
    return {"vocab.json": {token: i for i, token in enumerate(tokens)}, "merges.txt": merges}


def assert_same(transformers, folder, text):
    """Assert that a text has the ids of transformers, and that the special tokens are the same."""
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), SubwordTokenizer.from_folder(folder)
    assert list(ours(text).ids) == theirs(text)["input_ids"], ours(text).tokens
    assert len(theirs) == ours.vocab_size
    return theirs, ours


@pytest.mark.parametrize("option", [{"max_input_chars_per_word": 3}, {"continuing_subword_prefix": "@@"}])
def test_a_class_of_berts_kind_makes_its_model_anew(transformers, tmp_path, option):
    write(tmp_path, "BertTokenizer", word_pieces("json", **option))
    _, ours = assert_same(transformers, tmp_path, "hello worldld")
    assert ours("hello worldld").tokens == ("[CLS]", "hello", "world", "##ld", "[SEP]")


@pytest.mark.parametrize("shape", ["json", "vocabulary"])
@pytest.mark.parametrize("place", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("name", ["mask_token", "pad_token", "cls_token", "sep_token"])
def test_null_is_no_special_token(transformers, tmp_path, name, place, shape):
    write(tmp_path, "BertTokenizer", {**word_pieces(shape), place: {name: None}})
    theirs, ours = assert_same(transformers, tmp_path, BERT_TEXT)
    token = f"[{name.removesuffix('_token').upper()}]"
    ours_special = {i for i in ours.special_ids if i != ours.token_to_id(token)}
    assert ours_special == set(theirs.all_special_ids)


def test_without_a_token_for_unknown_words_one_is_an_error(tmp_path):
    """Of transformers too, unless the vocabulary has the word None."""
    ours = SubwordTokenizer.from_folder(
        write(tmp_path, "BertTokenizer", {**word_pieces("json"), "tokenizer_config.json": {"unk_token": None}})
    )
    assert ours("hello").tokens == ("[CLS]", "hello", "[SEP]")
    with pytest.raises(RegardError, match="Missing"):
        ours("x")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("RobertaTokenizer", {"cls_token": None}, "cls_token must not be null"),
        ("CLIPTokenizer", {"bos_token": None, "eos_token": None}, "bos_token and eos_token must not be null"),
    ],
)
def test_null_for_a_token_around_each_text(transformers, tmp_path, kind, settings, message):
    write(tmp_path, kind, {**byte_pieces(), "tokenizer_config.json": settings})
    with pytest.raises(TypeError):
        transformers.AutoTokenizer.from_pretrained(tmp_path)("a")
    with pytest.raises(RegardError, match=message):
        SubwordTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("missing", [["[PAD]"], ["[MASK]"], ["[PAD]", "[MASK]"], ["[CLS]"], ["[SEP]", "[PAD]"]])
@pytest.mark.parametrize("shape", ["json", "vocabulary"])
@pytest.mark.parametrize("settings", [{}, {"bos_token": "<b>", "extra_special_tokens": ["<e>"], "mask_token": "<m>"}])
def test_a_special_token_that_the_vocabulary_lacks_gets_a_new_id(transformers, tmp_path, missing, shape, settings):
    if shape == "vocabulary" and not {"[CLS]", "[SEP]"}.isdisjoint(missing):
        pytest.skip("an error")
    files = word_pieces(shape, [piece for piece in PIECES if piece not in missing])
    write(tmp_path, "BertTokenizer", {**files, "tokenizer_config.json": settings})
    theirs, ours = assert_same(transformers, tmp_path, f"{BERT_TEXT} <e><m><b>")
    assert ours.special_ids == set(theirs.all_special_ids)


WITHOUT_CLIP = [kind for kind in MODEL_TYPES if kind != "CLIPTokenizer"]
NAMES = ("mask_token", "unk_token", "pad_token", "bos_token", "eos_token")
ENDS = {"bos_token": None, "add_bos_token": True, "add_eos_token": True}
BYTES = [  # class, special tokens of the vocabulary, settings, a text
    *((kind, SPECIAL, {name: None}, BYTES_TEXT) for kind in WITHOUT_CLIP for name in NAMES),
    *((kind, SPECIAL, ENDS, "hello") for kind in WITHOUT_CLIP[1:]),
    *((kind, kept, settings, BYTES_TEXT) for kind in WITHOUT_CLIP
      for kept in ((), ("<s>", "</s>"), ("<|endoftext|>",)) for settings in ({}, {"pad_token": "<x>"})),
    ("CLIPTokenizer", SPECIAL, {}, "he<mask>"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "special", "settings", "text"), BYTES, ids=str)
def test_special_tokens_of_bytes(transformers, tmp_path, kind, special, settings, text):
    """Null is none, also around a text; one that the vocabulary lacks gets a new id."""
    write(tmp_path, kind, {**byte_pieces(special), "tokenizer_config.json": settings})
    theirs, ours = assert_same(transformers, tmp_path, text)
    assert ours.special_ids == set(theirs.all_special_ids)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "hello \n",
        lambda text: text + "hello\t\u00a0\u3000\u2028\x85\n",
        lambda text: text + "hello\x1c\n",
        lambda text: text + " hello\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("[MASK]", "\n\n[MASK] ") + "\n\n",
    ],
    ids=["space", "spaces", "separator", "space before", "carriage returns", "byte order mark", "empty"],
)
def test_lines_of_a_vocabulary(transformers, tmp_path, change):
    write(tmp_path, "BertTokenizer", {"vocab.txt": change(word_pieces("vocabulary")["vocab.txt"])})
    assert_same(transformers, tmp_path, BERT_TEXT)


@pytest.mark.parametrize(
    "merges", ["h e\n#version: 0.2\nl l\nhe ll\n", "#version\nh e\n#versions\nl l\n", "h e\r\nl l\r\nhe ll", "# v\n"]
)
def test_lines_of_merges(transformers, tmp_path, merges):
    files = byte_pieces(merges=merges)
    files["vocab.json"]["#v"] = len(files["vocab.json"])
    assert_same(transformers, write(tmp_path, "RobertaTokenizer", files), "hello #v")


def test_a_line_of_merges_ends_with_a_line_feed(transformers, tmp_path):
    write(tmp_path, "RobertaTokenizer", byte_pieces(merges="h e\x0cl l\n"))
    with pytest.raises(Exception, match="Merges text file invalid at line 1"):
        transformers.AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(RegardError, match=r"line 1 of merges\.txt is not two pieces"):
        SubwordTokenizer.from_folder(tmp_path)


NAMED = ("mask_token", "pad_token", "unk_token", "cls_token", "sep_token", "bos_token", "eos_token")


def with_flags(content, rng):
    """Return a token with some of its properties."""
    names = rng.sample(["lstrip", "rstrip", "normalized", "single_word"], rng.randint(0, 4))
    return {"content": content, **{name: rng.random() < 0.5 for name in names}}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["BertTokenizer", *MODEL_TYPES])
def test_properties_of_named_tokens(transformers, tmp_path, kind, seed):
    """Random ones, some texts under several names: which properties count, and which class forgets them."""
    rng = random.Random(f"{kind}{seed}")
    tokens = (
        ["[MASK]", "[PAD]", "[SEP]"]
        if kind == "BertTokenizer"
        else [*SPECIAL, *(["<new>"] * (kind != "CLIPTokenizer"))]
    )
    found = {}
    for name in rng.sample(NAMED[: 7 if kind != "BertTokenizer" else 2], rng.randint(1, 2)):
        found[name] = with_flags(rng.choice(tokens), rng) if rng.random() < 0.8 else rng.choice(tokens)
    if rng.random() < 0.5:
        found["additional_special_tokens"] = ["<x>"]
    files = word_pieces("vocabulary") if kind == "BertTokenizer" else byte_pieces()
    write(tmp_path, kind, {**files, "special_tokens_map.json": found})
    assert_same(transformers, tmp_path, " ".join(f"a {x} b{x}c  {x.upper()} {x}." for x in [*tokens, "<x>"]))
