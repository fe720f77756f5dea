import copy
import json
import os
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small_tokenizers import PIECES, byte_level, wordpiece_json, write_vocab
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from regard import RegardError
from regard._utils import files
from regard.text import Encoding, SubwordTokenizer

TEXT = "The cat, unbelievably é"


@pytest.fixture
def json_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(wordpiece_json()))
    return path


def write_files(folder, files):
    """Write files of bytes or of JSON by name, a pipe where the content is None; return the folder."""
    for name, content in files.items():
        if content is None:
            os.mkfifo(folder / name)
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


@pytest.fixture(scope="module")
def bytes_tokenizer():
    return SubwordTokenizer(byte_level())


def test_an_encoding_says_everything_about_its_tokens(json_file):
    assert SubwordTokenizer.from_file(json_file)(TEXT) == Encoding(
        text=TEXT,
        ids=(2, 5, 6, 12, 7, 8, 9, 11, 3),
        tokens=("[CLS]", "the", "cat", ",", "un", "##believ", "##ably", "e", "[SEP]"),
        special_tokens_mask=(True, *[False] * 7, True),
        word_ids=(None, 0, 1, 2, 3, 3, 3, 4, None),
        offsets=((0, 0), (0, 3), (4, 7), (7, 8), (9, 11), (11, 17), (17, 21), (22, 23), (0, 0)),
    )


def test_stored_truncation_and_padding_are_switched_off(json_file):
    # The file itself would cut every text at 3 tokens and pad it to 7.
    assert len(Tokenizer.from_file(str(json_file)).encode(TEXT).ids) == 7
    tokenizer = SubwordTokenizer.from_file(json_file)
    for each in (tokenizer, copy.deepcopy(tokenizer)):
        assert len(each(TEXT)) == 9
    assert tokenizer("").tokens == ("[CLS]", "[SEP]")


def test_vocab_txt_rebuilds_the_same_tokenizer(json_file, tmp_path):
    def rules(tokenizer):
        return json.loads(tokenizer.backend.to_str())

    from_pieces = SubwordTokenizer.from_wordpiece(write_vocab(tmp_path))
    assert rules(from_pieces) == rules(SubwordTokenizer.from_file(json_file))


def test_a_special_token_in_the_text_is_part_of_the_text(json_file):
    encoding = SubwordTokenizer.from_file(json_file)("cat [SEP]")
    assert encoding.ids == (2, 6, 3, 3)
    assert encoding.special_tokens_mask == (True, False, False, True)
    assert encoding.offsets == ((0, 0), (0, 3), (4, 9), (0, 0))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_level_spans_are_characters_and_rebuild_the_text(bytes_tokenizer, text):
    encoding = bytes_tokenizer(text)
    covered = {position for start, end in encoding.offsets for position in range(start, end)}
    assert covered == set(range(len(text)))
    assert bytes_tokenizer.decode(encoding.ids, skip_special_tokens=False) == text


@given(st.text(st.sampled_from("abc xé😀<")))
def test_characters_that_a_vocabulary_drops_are_uncovered_and_move_no_other(text):
    backend = Tokenizer(BPE({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, [("a", "b"), ("ab", "c")]))
    backend.add_special_tokens(["x<", "[CLS]"])
    backend.post_processor = TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 6)])
    tokenizer = SubwordTokenizer(backend)
    assert tokenizer.has_exact_offsets
    encoding = tokenizer(text)
    assert encoding.offsets[0] == (0, 0)
    encoding = encoding.select(range(1, len(encoding)))
    spans = [text[start:end] for start, end in encoding.offsets]
    known = [span if span == "x<" else "".join(filter("abc".count, span)) for span in spans]
    assert known == list(encoding.tokens)
    assert set(encoding.uncovered_text()) <= set(" xé😀<")


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
def test_offsets_after_a_dropped_character_are_not_trusted_where_tokens_are_not_as_written(part):
    backend = Tokenizer(BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    setattr(backend, part, {"normalizer": Lowercase(), "pre_tokenizer": Whitespace()}[part])
    assert not SubwordTokenizer(backend).has_exact_offsets
    backend.model = BPE({"a": 0, "b": 1, "ab": 2, "?": 3}, [("a", "b")], unk_token="?")
    assert SubwordTokenizer(backend).has_exact_offsets


def test_words_never_decrease(bytes_tokenizer):
    words = bytes_tokenizer("the cat sat on the other mat").word_ids
    assert words == tuple(sorted(words))
    assert set(words) == set(range(7))


def test_decode_leaves_special_tokens_out_unless_told_to_keep_them(json_file):
    tokenizer = SubwordTokenizer.from_file(json_file)
    ids = np.array(tokenizer("the unbelievably").ids)
    assert tokenizer.decode(ids) == "the unbelievably"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "[CLS] the unbelievably [SEP]"
    with pytest.raises(RegardError, match=r"not among the 14 ids of the vocabulary: 14, -1, 1099511627776$"):
        tokenizer.decode([5, 14, -1, 1 << 40, 14])
    for wrong in ([1.0], ["the"], [[5, 6]], 5):
        with pytest.raises(RegardError, match="flat sequence of integers"):
            tokenizer.decode(wrong)


def test_ids_alone_become_a_text_of_their_tokens(json_file):
    encoding = SubwordTokenizer.from_file(json_file).from_ids([2, 7, 8, 5, 3])
    assert encoding == Encoding(
        text="un ##believ the",
        ids=(2, 7, 8, 5, 3),
        tokens=("[CLS]", "un", "##believ", "the", "[SEP]"),
        special_tokens_mask=(True, False, False, False, True),
        word_ids=(None, 0, 1, 2, None),
        offsets=((0, 0), (0, 2), (3, 11), (12, 15), (0, 0)),
    )


def test_an_added_token_need_not_be_special(json_file):
    fields = wordpiece_json()
    fields["added_tokens"].append(fields["added_tokens"][0] | {"id": 14, "content": "newword", "special": False})
    json_file.write_text(json.dumps(fields))
    assert SubwordTokenizer.from_file(json_file).from_ids([2, 14]).special_tokens_mask == (True, False)


def test_the_vocabulary_can_be_asked(json_file):
    tokenizer = SubwordTokenizer.from_file(json_file)
    assert (tokenizer.vocab_size, repr(tokenizer)) == (len(PIECES), "SubwordTokenizer(pad_id=0)")
    assert (tokenizer.token_to_id("##ably"), tokenizer.token_to_id("dog")) == (9, None)


def test_pad_id_is_the_stored_one_or_has_its_usual_name_or_is_none(json_file):
    fields = wordpiece_json()
    for padding, pad_id in ((fields["padding"] | {"pad_id": 4, "pad_token": "[MASK]"}, 4), (None, 0)):
        json_file.write_text(json.dumps(fields | {"padding": padding}))
        assert SubwordTokenizer.from_file(json_file).pad_id == pad_id
    byte_level().save(str(json_file))
    assert SubwordTokenizer.from_file(json_file).pad_id is None
    for named in ("<|end|>", {"content": "<|end|>", "lstrip": False}):
        json_file.with_name("tokenizer_config.json").write_text(json.dumps({"pad_token": named}))
        tokenizer = SubwordTokenizer.from_folder(json_file.parent)
        assert tokenizer.pad_id == tokenizer.token_to_id("<|end|>") == 0


def test_a_folder_prefers_tokenizer_json(json_file, tmp_path):
    write_vocab(tmp_path, PIECES[::-1])
    assert SubwordTokenizer.from_folder(tmp_path)("the").ids == (2, 5, 3)


@pytest.mark.parametrize(
    ("config", "text", "tokens"),
    [
        (None, TEXT, ["the", "cat", ",", "un", "##believ", "##ably", "e"]),
        ({"do_lower_case": True}, "É", ["e"]),
        ({"do_lower_case": False}, "É", ["É"]),
        ({"do_lower_case": False, "strip_accents": True}, "É", ["[UNK]"]),
        ({"do_lower_case": True, "strip_accents": False}, "é", ["[UNK]"]),
        ({"do_lower_case": True, "strip_accents": None}, "é", ["e"]),
        ({"tokenize_chinese_chars": True}, "字字", ["字", "字"]),
        ({"tokenize_chinese_chars": False}, "字字", ["[UNK]"]),
    ],
)
def test_vocab_txt_follows_the_settings_beside_it(tmp_path, config, text, tokens):
    path = write_vocab(tmp_path, config=config)
    assert SubwordTokenizer.from_folder(tmp_path)(text).tokens == ("[CLS]", *tokens, "[SEP]")
    names = {"do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "split_chinese"}
    arguments = {names[key]: value for key, value in (config or {}).items()}
    assert SubwordTokenizer.from_wordpiece(path, **arguments)(text).tokens[1:-1] == tuple(tokens)


def test_each_settings_file_is_read_once(tmp_path, json_file, monkeypatch):
    names = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")
    for name in names:
        (tmp_path / name).write_text("{}")
    read, read_file = [], files.read_file

    def counted(path, *args, **kwargs):
        read.append(path.name)
        return read_file(path, *args, **kwargs)

    monkeypatch.setattr(files, "read_file", counted)
    SubwordTokenizer.from_folder(tmp_path)
    assert sorted(read) == sorted(names)


def test_special_tokens_may_have_other_names(tmp_path):
    config = {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "unk_token": "<u>", "pad_token": "<pad>"}
    write_vocab(tmp_path, ("the", "<s>", "</s>", "<u>", "<pad>"), config)
    tokenizer = SubwordTokenizer.from_folder(tmp_path)
    assert tokenizer("the dog").tokens == ("<s>", "the", "<u>", "</s>")
    assert tokenizer.pad_id == 4


def test_lines_of_a_vocab_txt_may_come_from_windows_and_only_a_line_break_ends_them(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{piece}\r\n" for piece in PIECES).encode())
    assert SubwordTokenizer.from_wordpiece(path)(TEXT).ids == (2, 5, 6, 12, 7, 8, 9, 11, 3)
    # U+2028 and U+0085 end a line for str.splitlines, but are pieces of real vocabularies.
    path = write_vocab(tmp_path, ("[UNK]", "\u2028", "\x85", "[CLS]", "[SEP]", "the"))
    assert SubwordTokenizer.from_wordpiece(path)("the").ids == (3, 5, 4)


def _message(function, *arguments):
    with pytest.raises(RegardError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("read", [SubwordTokenizer.from_file, SubwordTokenizer.from_wordpiece])
def test_a_file_that_cannot_be_read_is_named(tmp_path, read):
    assert _message(read, tmp_path / "gone") == f"cannot read {tmp_path / 'gone'}: No such file or directory"
    assert _message(read, tmp_path) == f"cannot read {tmp_path}: Is a directory"
    assert _message(read, "a\0b") == "cannot read a\0b: embedded null byte"


def test_a_lone_surrogate_is_refused_with_its_place(json_file):
    message = _message(SubwordTokenizer.from_file(json_file), "cat \udcff")
    assert "lone surrogate (U+DCFF) at character 4" in message


@pytest.mark.parametrize("text", [None, 3, b"cat", ["the", "cat"]])
def test_only_a_str_is_a_text(json_file, text):
    assert f"must be a str, got {type(text).__name__}" in _message(SubwordTokenizer.from_file(json_file), text)


def test_what_the_model_cannot_spell_is_an_error(json_file):
    fields = wordpiece_json()
    del fields["model"]["vocab"]["[UNK]"]
    json_file.write_text(json.dumps(fields | {"added_tokens": []}))
    message = _message(SubwordTokenizer.from_file(json_file), "dog")
    assert message.startswith("the tokenizer cannot encode the text: WordPiece error: Missing [UNK]")


def test_importing_regard_text_leaves_the_library_alone():
    check = "import sys, regard.text; sys.exit('tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def merges_files(special=("<s>", "<pad>", "</s>", "<unk>", "<mask>")):
    """Return a vocab.json and a merges.txt of a few words, as RoBERTa or as GPT-2 has them."""
    rules = json.loads(byte_level().to_str())["model"]
    vocabulary = {token: i for i, token in enumerate([*special, *rules["vocab"]])}
    merges = "\n".join(["#version: 0.2", *map(" ".join, rules["merges"]), ""])
    return {"vocab.json": json.dumps(vocabulary).encode(), "merges.txt": merges.encode()}


@pytest.fixture
def write_merges(tmp_path):
    """Return a function that writes these files, and returns their folder."""

    def write(config=None, **options):
        files = merges_files(**options) | ({} if config is None else {"tokenizer_config.json": config})
        return write_files(tmp_path, files)

    return write


def test_merges_as_roberta_has_them_stand_between_start_and_end(write_merges, bytes_tokenizer):
    tokenizer = SubwordTokenizer.from_folder(write_merges())
    encoding, plain = tokenizer("a cat<mask>"), bytes_tokenizer("a cat")
    assert encoding.ids == (0, *(i + 5 for i in plain.ids), 4, 2)
    assert encoding.special_tokens_mask == (True, *[False] * (len(plain) + 1), True)
    assert tokenizer.pad_id == 1
    assert tokenizer.decode(encoding.ids) == "a cat"


def test_merges_as_gpt2_has_them_put_nothing_around_a_text(write_merges, bytes_tokenizer):
    tokenizer = SubwordTokenizer.from_folder(write_merges(special=["<|endoftext|>"]))
    assert tokenizer("a cat").tokens == bytes_tokenizer("a cat").tokens
    assert tokenizer("<|endoftext|>").ids == (0,)
    assert tokenizer.pad_id is None


def test_merges_as_opt_has_them_put_its_end_before_a_text(write_merges, bytes_tokenizer):
    """GPT-2's class with the tokens of RoBERTa."""
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "pad_token": "<pad>"}
    settings |= {key: {"content": "</s>"} for key in ("bos_token", "eos_token", "unk_token")}
    tokenizer = SubwordTokenizer.from_folder(write_merges(config=settings))
    plain = bytes_tokenizer("a cat")
    encoding = tokenizer("a cat</s><pad>")
    assert encoding.ids == (2, *(i + 5 for i in plain.ids), 2, 1)
    assert len(tokenizer("<s>").ids) > 2  # no token of this kind
    assert tokenizer.pad_id == 1


def test_a_first_token_that_merges_lack_gets_a_new_id(write_merges):
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    tokenizer = SubwordTokenizer.from_folder(write_merges(config=settings))
    assert tokenizer("a").tokens == ("<|endoftext|>", "a")
    assert tokenizer("a").ids[0] == tokenizer.vocab_size - 1


def test_a_space_before_the_text_if_the_settings_ask_for_it(write_merges, bytes_tokenizer):
    with_space = SubwordTokenizer.from_folder(write_merges(config={"add_prefix_space": True}))
    assert with_space("a cat").tokens[1:-1] == bytes_tokenizer(" a cat").tokens


@pytest.mark.minilm
@pytest.mark.parametrize(
    "text",
    [
        "été déjà vu là",
        unicodedata.normalize("NFD", "été déjà vu là"),
        "मैं में हूँ",
        "ذهبَ الولدُ",
        unicodedata.normalize("NFD", "Việt Nam cà phê"),
        "שָׁלוֹם עוֹלָם",
        "cafe\u0301, the",
    ],
)
def test_words_are_those_that_were_typed(minilm, text):
    """Their last marks too, which an uncased BERT drops and which stand after the last letter of a token."""
    encoding = minilm.tokenizer(text)
    words = [word for word, at in encoding.word_groups() if not encoding.special_tokens_mask[at[0]]]
    assert "".join(words) == "".join(text.split())
    assert [word for word in words if word.isalpha() or len(word) > 1] == text.replace(",", " ").split()


@pytest.mark.parametrize("text", ["<x>BMS", "a BMS", "<x>BMS<x>a", "BMS"])
def test_words_after_a_space_that_the_text_does_not_have_are_whole(write_merges, text):
    """A tokenizer may put one before the text, and before what follows an added token."""
    config = {"add_prefix_space": True, "tokenizer_class": "RobertaTokenizer"}
    config["added_tokens_decoder"] = {"900": {"content": "<x>", "special": False}}
    encoding = SubwordTokenizer.from_folder(write_merges(config=config))(text)
    words = [word for word, at in encoding.word_groups() if not encoding.special_tokens_mask[at[0]]]
    assert words == text.replace("<x>", " <x> ").split()


VOCAB = {"vocab.txt": "\n".join(PIECES).encode()}
NO_JSON = "^HERE/tokenizer_config.json is not valid JSON"
# tokenizers checks the ids of the special tokens, but looks their entries up only when it encodes, and panics.
GONE, PAIR = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[GONE]", "[CLS]"))
POST_PROCESSOR = wordpiece_json()["post_processor"]
POST_PROCESSOR |= {"single": [GONE], "pair": [PAIR, *POST_PROCESSOR["pair"][1:]]}
SENTINELS = {"model": {"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]}}
WRONG_TYPES = {"do_lower_case": "no", "strip_accents": 1, "sep_token": ["[SEP]"]}
REFUSED = [  # files, and what is said of their folder
    ({}, "^no tokenizer in HERE: it has neither tokenizer.json nor vocab.txt nor vocab.json; "),
    ({"vocab.txt": b"the\n[CLS]\ncat\n"}, r"^HERE/vocab.txt is not a WordPiece vocabulary: its 3 lines lack \[UNK\], "),
    ({"vocab.txt": b"[UNK]\n\xff\n"}, "^HERE/vocab.txt is not a WordPiece vocabulary: 'utf-8'"),
    *(
        ({"tokenizer.json": content}, r"^HERE/tokenizer.json is not a tokenizer.json \(use from_wordpiece for a vocab")
        for content in (b"", b"{}", b"[]", b"{", b"\xff", b"[PAD]\n[UNK]\n", b"[" * 9973)
    ),
    ({"tokenizer.json": wordpiece_json() | {"post_processor": POST_PROCESSOR}}, "is not a tokenizer.json"),
    *(
        (VOCAB | {"added_tokens.json": {"<x>": number}}, "added_tokens.json does not give the ids of its added tokens")
        for number in (float("inf"), float("nan"), "four", None, [4])
    ),
    *((VOCAB | {"tokenizer_config.json": content}, NO_JSON) for content in (b"{", b"\xff", b"[" * 99991)),
    (VOCAB | {"tokenizer_config.json": []}, "must hold a JSON object, got list"),
    (
        VOCAB | {"tokenizer_config.json": WRONG_TYPES},
        "^in HERE/tokenizer_config.json do_lower_case must be a bool, got 'no'; strip_accents must be a bool, got 1; "
        r"sep_token must be a str, got \['\[SEP\]'\]$",
    ),
    ({"tokenizer.json": None}, "HERE/tokenizer.json: it is not a regular file"),
    ({"vocab.txt": None}, "HERE/vocab.txt: it is not a regular file"),
    (VOCAB | {"tokenizer_config.json": None}, "HERE/tokenizer_config.json: it is not a regular file"),
    (
        {"tokenizer.json": SENTINELS, "tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 10**12}},
        "extra_ids is 1,000,000,000,000; at most 10,000",
    ),
    *(
        (merges_files() | {name: content}, message)
        for name, content, message in [
            ("vocab.json", b"{", "vocab.json is not JSON"),
            ("vocab.json", b"[" * 100_000, "vocab.json is not JSON"),
            ("vocab.json", b"[]", "must map each token to its id"),
            ("vocab.json", b'{"<s>": 0, "</s>": true}', "must map each token to its id"),
            ("vocab.json", b'{"<s>": 0, "</s>": 4294967296}', "must map each token to its id"),
            ("vocab.json", b'{"a": 0}', r"neither <s> and </s>.*nor <\|endoftext\|>"),
            ("vocab.json", b'{"<s>": 0, "</s>": 1}', "is not a byte-level vocabulary"),
            ("vocab.json", b"\xff", "is not a byte-level vocabulary"),
            ("merges.txt", b"a b c", "line 1 of merges.txt is not two pieces: 'a b c'"),
            ("merges.txt", b"#version\nab", "line 2 of merges.txt"),
            ("merges.txt", b"\xff", "is not a byte-level vocabulary"),
            ("tokenizer_config.json", {"add_prefix_space": 1, "cls_token": 2}, "add_prefix_space must.*cls_token must"),
        ]
    ),
    ({"vocab.json": b'{"<s>": 0, "</s>": 1}'}, r"cannot read .*merges\.txt"),
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize(("files", "message"), REFUSED, ids=[f"{i}-{said!a}" for i, (_, said) in enumerate(REFUSED)])
def test_files_that_are_no_tokenizer_are_refused(tmp_path, files, message):
    said = _message(SubwordTokenizer.from_folder, write_files(tmp_path, files))
    assert re.search(message.replace("HERE", str(tmp_path)), said), said


def test_sentinels_are_added(tmp_path):
    write_files(tmp_path, {"tokenizer.json": SENTINELS})
    write_files(tmp_path, {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 2}})
    assert SubwordTokenizer.from_folder(tmp_path)("<extra_id_1>").ids == (4, 1)
