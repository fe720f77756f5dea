"""A ``tokenizer.json`` is checked before the library reads it: what models use is admitted, what may explode is not."""

import base64
import copy
import json

import pytest
from small_tokenizers import wordpiece_json

from regard import RegardError
from regard.text import SubwordTokenizer

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
A, CLS = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def normalizers(*each):
    return {"normalizer": {"type": "Sequence", "normalizers": list(each)}}


def pre_tokenizers(*each):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(each)}}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def decoders(*each):
    return {"decoder": {"type": "Sequence", "decoders": list(each)}}


def precompiled(*replacements, size=1024):
    """Return a map of no character, with a trie of 256 empty nodes."""
    table = size.to_bytes(4, "little") + bytes(1024) + b"".join(text.encode() + b"\0" for text in replacements)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def template(single, **special):
    pair = [A, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {name: {"id": name, "ids": ids, "tokens": ["[CLS]"] * len(ids)} for name, ids in special.items()}
    cls = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}
    return {
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": cls | tokens}
    }


def added(*contents):
    first = wordpiece_json()["added_tokens"][0]
    tokens = [first | {"id": 14 + i, "content": text, "normalized": True} for i, text in enumerate(contents)]
    return {"added_tokens": wordpiece_json()["added_tokens"] + tokens}


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a tokenizer with some fields changed."""

    def reader(fields):
        path = tmp_path / "tokenizer.json"
        path.write_text(fields if isinstance(fields, str) else json.dumps(copy.deepcopy(wordpiece_json()) | fields))
        return SubwordTokenizer.from_file(path)

    return reader


BPE = {"type": "BPE", "unk_token": "a", "vocab": {"a": 0}, "merges": []}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a" * 257, -1.0]]}
LONG = "#" * 20_000
PADDING = wordpiece_json()["padding"]
MANY = [f"{i:0999}" for i in range(20)]
TOO_MUCH = {
    "doubled 26 times": (normalizers(*[replace("a", "aa")] * 26), "67,108,864 times as long; at most 4,096"),
    "doubled by expressions": (normalizers(*[replace("[a-z]", "aa", "Regex")] * 26), "at most 4,096 times"),
    "one long replacement": ({"normalizer": replace("a", "a" * 5000)}, "5,000 times as long"),
    "one long beginning": ({"normalizer": {"type": "Prepend", "prepend": "a" * 5000}}, "5,001 times as long"),
    "sequences in sequences": (
        normalizers(*[normalizers(*[replace("a", "aa")] * 4)["normalizer"]] * 4),
        "65,536 times as long",
    ),
    "long characters": ({"normalizer": precompiled("a" * 5000)}, "5,000 times as long"),
    "compositions": (normalizers(*[replace("a", "\ufdfa"), {"type": "NFKC"}] * 3), "times as long"),
    "bytes of bytes": (pre_tokenizers(*[BYTES] * 20), "times as long"),
    "prefixes of prefixes": (pre_tokenizers(*[METASPACE] * 20), "times as long"),
    "decoders": (decoders(*[replace("a", "aa")] * 7), "decoders may make a text 128 times as long; at most 64"),
    "many components": (normalizers(*[{"type": "Lowercase"}] * 101), "101 components; at most 100"),
    "a template of many tokens": (template([CLS] * 1001 + [A]), "adds 1,001 tokens to a text; at most 1,000"),
    "a token of many tokens": (template([A, {"SpecialToken": {"id": "x", "type_id": 0}}], x=[0] * 2000), "adds 2,000"),
    "the text many times": (template([A] * 1000), "must have each text once"),
    "a long added token": (added("ab" * 501), "an added token has 1,002 characters; at most 1,000"),
    "many long added tokens": (added(*MANY) | {"normalizer": replace("0", "a" * 4000)}, "become 4,000 times as long"),
    "long words": ({"model": wordpiece_json()["model"] | {"max_input_chars_per_word": 10**6}}, "is 1000000; at most"),
    "long beginnings of pieces": (
        {"model": wordpiece_json()["model"] | {"continuing_subword_prefix": LONG}}, "20,000 characters; at most 100"
    ),
    "long beginnings of merges": ({"model": BPE | {"continuing_subword_prefix": LONG}}, "subword_prefix has 20,000"),
    "long ends of merges": ({"model": BPE | {"end_of_word_suffix": LONG}}, "end_of_word_suffix has 20,000"),
    "long pieces": ({"model": UNIGRAM}, "a piece of its vocabulary has 257 characters; at most 256"),
}  # fmt: skip
MALFORMED = {
    "an empty pattern": ({"normalizer": replace("", "x")}, "replaces empty matches"),
    "an empty expression": ({"normalizer": replace("", "x", "Regex")}, "replaces empty matches"),
    "an expression that matches nothing": ({"normalizer": replace("b*", "x", "Regex")}, "replaces empty matches"),
    "an empty pattern of a decoder": ({"decoder": replace("", "x")}, "replaces empty matches"),
    "exponential time": ({"pre_tokenizer": split("(a+)+b")}, "it repeats a repetition"),
    "exponential time of a normalizer": ({"normalizer": replace("(a|aa)*b", "", "Regex")}, "it repeats a repetition"),
    "a trie that is not there": ({"normalizer": precompiled(size=0x7FFFFFFC)}, "announces a trie of 2147483644"),
    "no base64": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "is not base64"),
    "no map": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": None}}, "must be a string, got None"),
    "no length": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "length of FixedLength must be at least 1"),
    "no type": ({"normalizer": {"pattern": {"String": "a"}, "content": "aa"}}, "which has no type"),
    "an unknown type": ({"normalizer": {"type": "Double"}}, "'Double' is not a component that regard runs here"),
    "no pattern": ({"normalizer": replace("a", "a") | {"pattern": "a"}}, "must be a String or a Regex, got 'a'"),
    "no content": ({"normalizer": replace("a", 5)}, "content of Replace must be a string, got 5"),
    "no members": ({"normalizer": {"type": "Sequence"}}, "a sequence without normalizers"),
    "no pieces": (template("$A"), "single of TemplateProcessing must be a list of pieces"),
    "a token that is not there": (template([A, {"SpecialToken": {"id": "y", "type_id": 0}}]), "special_tokens lacks"),
    "no id of padding": ({"padding": PADDING | {"pad_id": -1}}, "invalid value: integer `-1`"),
    "a list": ("[]", "must hold a JSON object, got list"),
    "depth": ("[" * 100_000, "recursion"),
    "no JSON": ("{", "Expecting"),
}  # fmt: skip


@pytest.mark.parametrize("case", [*TOO_MUCH, *MALFORMED])
def test_what_could_take_unbounded_time_or_memory_is_refused(read, case):
    fields, message = (TOO_MUCH | MALFORMED)[case]
    with pytest.raises(RegardError, match=r"is not a tokenizer\.json .*: ") as error:
        read(fields)("a")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("component", "text"),
    [
        ('null, "normalizer": {"type": "Prepend", "prepend": "x"}', "xe"),
        ('{"type": "Lowercase", "type": "Prepend", "prepend": "x"}', "xe"),
        ('{"type": "Prepend", "prepend": "x", "prepend": "y"}', "ye"),
        ('{"type": "Replace", "pattern": {"String": "e"}, "pattern": {"String": "x"}, "content": "y"}', "e"),
        ('{"type": "Replace", "pattern": {"String": "e", "String": "x"}, "content": "y"}', "e"),
        ('{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x"}], "normalizers": []}', "e"),
    ],
)
def test_of_a_key_that_is_there_twice_the_last_counts_in_the_library_too(read, component, text):
    """Else what is checked would not be what is run."""
    document = json.dumps(wordpiece_json())[:-1] + f', "normalizer": {component}}}'
    assert read(document).backend.normalizer.normalize_str("e") == text


@pytest.mark.parametrize("count", [10**7, 2 * 10**9, 2**63])
def test_padding_of_any_length_is_left_out(read, count):
    tokenizer = read({"padding": PADDING | {"strategy": {"Fixed": count}, "pad_id": 4}})
    assert tokenizer("the").tokens == ("[CLS]", "the", "[SEP]")
    assert tokenizer.pad_id == 4


def test_truncation_of_any_kind_is_left_out(read):
    tokenizer = read({"truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Left"}})
    assert tokenizer("the").tokens == ("[CLS]", "the", "[SEP]")


def test_growth_that_is_admitted_has_an_end_for_long_texts(read):
    """Within the factor, a text is refused that would in fact become too long, and only then."""
    tokenizer = read(normalizers(*[replace("a", "aa")] * 12))
    assert tokenizer("a" * 10).tokens == ("[CLS]", "[UNK]", "[SEP]")
    assert len(tokenizer("the " * 2000)) == 2002  # 33 MB if every letter became 4096
    with pytest.raises(RegardError, match=r"make 4,198,400 bytes of 1,025$"):  # more than 4 MiB
        tokenizer("a" * 1025)


HIDDEN = {
    "what comes after": replace(r"e(?=[\s\S]{256})", "b" * 4000, "Regex"),
    "a pattern longer than a part": replace("e" * 300, "b" * 300 * 4000),
    "special tokens": {"type": "Prepend", "prepend": "b" * 4000},
    "special tokens and a replacement": normalizers({"type": "Prepend", "prepend": "b"}, replace("b", "b" * 2000))[
        "normalizer"
    ],
}


@pytest.mark.parametrize("normalizer", HIDDEN.values(), ids=HIDDEN)
def test_growth_that_shows_in_the_whole_text_alone_is_refused(read, normalizer):
    """A text is normalised in parts to see how long it becomes."""
    tokenizer = read({"normalizer": normalizer})
    assert tokenizer.growth.normalizer * 40_000 < 200_000_000  # what a failure of this test may take
    with pytest.raises(RegardError, match=r"normalizers and pre-tokenizers make [\d,]+ bytes of 40,000$"):
        tokenizer("e" * 20_000 + "[SEP]e  " * 2500)


NFC, LOWER, UNICODE = {"type": "NFC"}, {"type": "Lowercase"}, {"type": "NFKD"}
MAP, SPACES = precompiled("a" * 33), replace(" {2,}", " ", "Regex")
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
TRIM = {"type": "Strip", "strip_left": False, "strip_right": True}
AROUND = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
DIGITS = {"type": "Digits", "individual_digits": False}
LETTERS = {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False}
CTC = {"type": "CTC", "pad_token": "[PAD]", "word_delimiter_token": "|", "cleanup": True}
QUOTES = (replace("``", '"'), replace("''", '"'))
STEPS = {
    "BERT": {},
    "GPT-2": {"pre_tokenizer": BYTES, "decoder": BYTES, "post_processor": BYTES},
    "Llama 2": normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    | decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP),
    "Llama 3": pre_tokenizers(split(r"\p{L}+|\s+(?!\S)|\s+"), BYTES | {"use_regex": False})
    | {"post_processor": {"type": "Sequence", "processors": [BYTES, template([CLS, A])["post_processor"]]}},
    "Gemma": {"normalizer": replace(" ", "▁"), "pre_tokenizer": LETTERS | {"pattern": {"String": " "}}},
    "Qwen 2": {"normalizer": NFC} | pre_tokenizers(split(r"\p{N}"), BYTES),
    "T5": normalizers(MAP, TRIM, SPACES) | {"pre_tokenizer": METASPACE, "decoder": METASPACE},
    "ALBERT": normalizers(*QUOTES, UNICODE, {"type": "StripAccents"}, LOWER, MAP, SPACES)
    | {"pre_tokenizer": METASPACE},
    "XLM-R": {"normalizer": MAP} | pre_tokenizers({"type": "WhitespaceSplit"}, METASPACE),
    "CLIP": normalizers(NFC, replace(r"\s+", " ", "Regex"), LOWER)
    | pre_tokenizers(split(r"'s|[\p{L}]+"), BYTES)
    | {"post_processor": AROUND | {"type": "RobertaProcessing", "trim_offsets": False, "add_prefix_space": False}},
    "Falcon": pre_tokenizers(PUNCTUATION, BYTES, DIGITS, split("[0-9][0-9][0-9]")),
    "old BERT": {"post_processor": AROUND | {"type": "BertProcessing"}},
    "Wav2Vec 2": {"pre_tokenizer": LETTERS, "decoder": CTC},
}


@pytest.mark.parametrize("family", STEPS)
def test_what_the_families_use_is_admitted(read, family):
    tokenizer = read(STEPS[family])
    encoding = tokenizer("the cat")
    assert len(encoding) >= 1
    tokenizer.decode(encoding.ids)
