"""How byte-level tokenizers in GGUF files split a text before their merges, by the name in ``tokenizer.ggml.pre``.

The names are those of llama.cpp (`src/llama-vocab.cpp`); the expressions, and Unicode NFC, which llama.cpp leaves out,
are those of the models' own ``tokenizer.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.text.tokenizer_components import QWEN_3_5_WORDS, QWEN_WORDS
from regard.text.words import join_names

DEFAULT = "default"
_NEAREST = 3

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS_IN_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_MARKS_AND_SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _MARKS_AND_SPACES
_GPT4O = _LETTERS_IN_CASE % ((_ENDINGS + "?",) * 2) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_TEKKEN = _LETTERS_IN_CASE % ("", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _SPACES
)
_SEED_CODER = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES
_TURKISH = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _MARKS_AND_SPACES  # whose suffixes after an apostrophe stay
_MINICPM5 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|" + _MARKS_AND_SPACES
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DIGIT, _THREE_DIGITS = r"\p{N}", r"[0-9][0-9][0-9]"
_HAN, _KANA, _TO_HAN, _HANGUL = "\u4e00-\u9fa5", "\u3040-\u30ff", "\u0800-\u4e00", "\uac00-\ud7ff"


@dataclass(frozen=True)
class PreTokenizer:
    """How a text is split before merges, and what else its name says.

    Parameters
    ----------
    patterns : tuple of str
        The regular expressions that split a text, in order.
    byte_patterns : tuple of str
        Those that split it once more when its bytes are spelt as letters, some of which are numbers: ``¾``.
    ignore_merges : bool
        Whether a word that is a token is not split, whatever the merges are.
    begins, ends : bool
        Whether the tokens that begin and end a text are put around it where the file does not say.
    composed : bool
        Whether the text is normalised to Unicode NFC.
    """

    patterns: tuple[str, ...]
    byte_patterns: tuple[str, ...] = ()
    ignore_merges: bool = False
    begins: bool = False
    ends: bool = False
    composed: bool = False


_ALIASES: dict[str, PreTokenizer] = {
    DEFAULT: PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", _THREE_DIGITS)),
    "gpt-2 phi-2 exaone4 a.x-4.0 gigachat granite-docling jais jina-de jina-es jina-v2-de jina-v2-es mellum trillion": (
        PreTokenizer((_GPT2,))
    ),
    "olmo modern-bert mpt": PreTokenizer((_GPT2,), composed=True),  # GPT-NeoX's
    "roberta-bpe jina-v1-en jina-v2-code": PreTokenizer((_GPT2,), begins=True, ends=True),
    "smollm starcoder codeshell exaone mellum2 minerva-7b refact": PreTokenizer((_DIGIT, _GPT2)),
    "command-r": PreTokenizer((_DIGIT, _GPT2), composed=True),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 jina-v5-nano lfm2 midm-2.0 pixtral": (
        PreTokenizer((_LLAMA3,), ignore_merges=True, begins=True)
    ),
    "chatglm-bpe dbrx smaug-bpe": PreTokenizer((_LLAMA3,)),
    "glm4 glm5": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "qwen2 deepseek-r1-qwen f2llmv2 kormo megrez": PreTokenizer((QWEN_WORDS,), composed=True),
    "stablelm2 grok-2 hunyuan solar-open": PreTokenizer((QWEN_WORDS,)),
    "qwen35": PreTokenizer((QWEN_3_5_WORDS,), composed=True),
    "gpt-4o kanana2 llama4 minimax-m2 talkie": PreTokenizer((_GPT4O,)),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, begins=True),
    "deepseek-v3 hunyuan-dense hy_v4 joyai-llm": PreTokenizer((r"\p{N}{1,3}", f"[{_HAN}{_KANA}]+", _DEEPSEEK3)),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", f"[{_HAN}{_TO_HAN}{_HANGUL}]+", _DIGIT)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2), (r"\p{N}+", _THREE_DIGITS)),
    "bloom gpt3-finnish poro-chat": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, _DIGIT)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _MINICPM5), ignore_merges=True),
    "seed-coder": PreTokenizer((_SEED_CODER,)),
    "ufakzeka": PreTokenizer((_TURKISH,)),
}


def _by_name() -> Iterator[tuple[str, PreTokenizer]]:
    for names, entry in _ALIASES.items():
        yield from ((name, entry) for name in names.split())


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(dict(_by_name()))
"""The pre-tokenizer of each name."""


def find(name: str) -> PreTokenizer:
    """Return the pre-tokenizer of a name; an error, with the names that are nearest, if there is none."""
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    near = get_close_matches(name[:80], PRE_TOKENIZERS, n=_NEAREST, cutoff=0.5)
    others = [names.split()[0] for names in _ALIASES]
    hint = f"the nearest known are {join_names(map(repr, near))}" if near else f"known are {join_names(others, 100)}"
    raise RegardError(
        f"its pre-tokenizer (tokenizer.ggml.pre) is {truncate(name)}, which regard does not know; {hint}; if one "
        "splits texts in the same way, write its name into a copy of the file with "
        "`gguf-new-metadata --pre-tokenizer NAME FILE COPY`, which gguf installs"
    )


def component(pre_tokenizer: PreTokenizer) -> Any:
    """Return the component of the library that splits a text so, and spells its bytes as letters."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    def splits(patterns: tuple[str, ...]) -> list[Any]:
        return [Split(Regex(each), behavior="isolated") for each in patterns]

    # llama.cpp puts a space before a text of SentencePiece alone: add_space_prefix has no effect here.
    as_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
    return Sequence([*splits(pre_tokenizer.patterns), as_bytes, *splits(pre_tokenizer.byte_patterns)])
