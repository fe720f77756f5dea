"""Regular expressions of tokenizers: those that models use are admitted, those that take exponential time are not."""

import itertools
import re

import pytest

from regard import RegardError
from regard.text import gguf_pre_tokenizers
from regard.text.regex_check import min_width

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_LOWER, _UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
USED = {
    "GPT-2": (GPT2, 1),
    "Llama 3": (LLAMA3, 1),
    "Qwen 2": (LLAMA3.replace("{1,3}", ""), 1),
    "GPT-4o": (GPT4O, 1),
    "DeepSeek": (DEEPSEEK, 1),
    "DeepSeek, Chinese": ("[一-龥぀-ゟ゠-ヿ]+", 1),
    "CLIP": (r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", 1),
    "BLOOM": (r" ?[^(\s|[.,!?…。，、।۔،])]+", 1),
    "Falcon": ("[0-9][0-9][0-9]", 3),
    "T5": (" {2,}", 2),
    "spaces": (r"\s+", 1),
    "digits from the right": (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", 1),
    "thousands": (r"(?=(\d{3})+(?!\d))", 0),
    "Chinese without": (r"[\p{L}&&[^\p{Han}]]+|[\p{Han}]+", 1),
    "possessive": (r"[^\r\n\p{L}\p{N}]?+\p{L}++|\s++$|\s*[\r\n]", 1),
    "flags": (r"(?i)a(?<name>b)?(?>c)d{2}", 4),
    "GPT-2 merges": ("^ ?the$", 3),
    "between cases": ("(?<=[a-z])(?=[A-Z])", 0),
}


@pytest.mark.parametrize("name", USED)
def test_what_models_use_is_admitted(name):
    pattern, width = USED[name]
    assert min_width(pattern) == width


def test_what_our_own_tokenizers_use_is_admitted():
    for pre_tokenizer in gguf_pre_tokenizers.PRE_TOKENIZERS.values():
        assert {min_width(pattern) for pattern in (*pre_tokenizer.patterns, *pre_tokenizer.byte_patterns)} <= {1, 3}


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+b", "(a*)*", "(?:a|b)*c", "(aa?)*", "(?:a{1,50}){1,50}", "(?:(?:a+)b)+", "(a+){9}", "(?:a{1,3}){2,}"),
        *("a*a*a*b", "(a|b|ab)" * 8, "a?" * 30 + "a" * 30, "(?=a*)b*c*", "((a+)){2,}", "a{1,3}+b"),
        *(r"(a)\1", r"\k<a>", r"(?<a>b\g<a>)", "(?R)", "(?(1)a|b)", "(*FAIL)", "(?~a)", "(?x) a", "a(?i)b", "(?#a)"),
        *("(", "(a", ")", "a)", "[", "[a", "[]a]", "[^]", "*", "(+)", "\\", "a{1001}", "(a{1000}){1000}", "a" * 20_001),
        *("(?", "(?<", r"\X", r"\K", r"\p", r"\Q*", "(" * 20_000),
    ],
    ids=lambda pattern: ascii(pattern)[:30],
)  # fmt: skip
def test_what_may_take_exponential_time_is_refused(pattern):
    with pytest.raises(RegardError, match=r"\Athe regular expression .* is refused: ."):
        min_width(pattern)


@pytest.mark.parametrize(
    ("pattern", "width"),
    [
        *(("", 0), ("a*", 0), ("a|", 0), ("a?", 0), ("(?=a)", 0), ("(?<!a)", 0), ("^", 0), (r"\b", 0), ("a{0,4}", 0)),
        *(("a{}", 3), ("a{,2}", 0), ("a{", 2), ("ab|c", 1), ("(ab|cd)e", 3), ("[a]]", 2), (r"\p{L}\x{41}\u0041\n", 4)),
        *(("a+?", 1), ("a{3}?", 0), (".", 1), ("(?<ab>cd)", 2), ("(?i-m:ab)", 2), ("[[:alpha:]]b", 2)),
    ],
)
def test_the_fewest_characters_of_a_match(pattern, width):
    assert min_width(pattern) == width


def test_the_fewest_characters_are_those_that_python_finds():
    texts = ["".join(letters) for size in range(6) for letters in itertools.product("abcd", repeat=size)]
    for pattern in ("a{2,}b?", "(?:ab|c)d{3}", "[ab][^c]{2}", "(?:a|bc){2}", "a{2,3}(?=b)b"):
        assert min_width(pattern) == min(len(text) for text in texts if re.fullmatch(pattern, text))
