"""Check a ``tokenizer.json`` before the ``tokenizers`` library reads it.

The library trusts the file: it pads to any length, applies normalizers that double the text any number of times, and an
allocation that fails ends the process. Here each component is known, and so is how much longer it can make a text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.text.regex_check import min_width

_MAX_GROWTH = 4096  # of normalizers and pre-tokenizers together; ALBERT's reach 3630 in the worst case
_MAX_DECODER_GROWTH = 64
_MAX_BYTES, _MAX_FACTOR = 1 << 22, 16  # of a text that became longer: so many, or so many times its own
_PART = 256  # characters, which at most become _MAX_BYTES
_MAX_COMPONENTS = 100
_MAX_TEMPLATE_TOKENS = 1000
_MAX_ADDED_TOKEN = 1000  # characters; the library's search takes seconds for longer ones
_MAX_ADDED = 1 << 26  # characters of all added tokens, which the library normalizes at once
_MAX_WORD = 1000  # characters of a word of WordPiece, whose time grows with the cube
_MAX_AFFIX = 100  # characters that WordPiece and BPE put around parts of a word, each time anew
_MAX_PIECE = 256  # characters of a piece of Unigram, which looks for the longest at each character
_MAX_MEASURED = 16  # bytes of a pattern whose matches are counted in parts of a text

_LOOKS_AROUND = re.compile(r"\(\?[=!<]|(?<!\[)\^|\$|\\[AbBGzZ]")

# The components by type, and the largest factor by which each makes a text longer, in bytes of UTF-8. A function
# computes it. NFKD makes 33 bytes of the 3 bytes of U+FDFA; a byte becomes a character of 2; a prefix is added to a
# piece of 1 byte.
_Growth = Mapping[str, int | Callable[[Mapping[str, Any]], int]]


@dataclass(frozen=True)
class Growth:
    """The largest factors by which normalizers and pre-tokenizers make a text longer, in bytes."""

    normalizer: int = 1
    pre_tokenizer: int = 1
    prefix: int = 0  # bytes that normalizers add to each part between added tokens
    can_measure: bool = True  # whether a text in parts becomes about as long as the whole

    def check(self, text: str, normalizer: Any) -> None:
        """Raise RegardError if `text` becomes too long; if it might, it is normalised in parts to see."""
        size = len(text.encode())
        limit = max(_MAX_BYTES, _MAX_FACTOR * size)
        if size * self.normalizer * self.pre_tokenizer <= limit:
            return
        longer = size * self.normalizer
        if normalizer and self.can_measure:
            parts = (text[start : start + _PART] for start in range(0, len(text), _PART))
            measured = sum(len(normalizer.normalize_str(part).encode()) for part in parts)
            longer = max(size, measured) + size * self.prefix
        if longer * self.pre_tokenizer > limit:
            raise RegardError(
                f"its normalizers and pre-tokenizers make {longer * self.pre_tokenizer:,} bytes of {size:,}"
            )


def check_document(content: bytes) -> Growth:
    """Check the content of a ``tokenizer.json``; return how much longer it may make a text.

    For a key that is there twice the last value counts, here as in the library. Padding and truncation are not checked:
    they take no memory until a text is encoded, and are switched off before.

    Raises
    ------
    RegardError, ValueError, RecursionError
        It is not JSON, or has a component that is unknown or may take unbounded time or memory.
    """
    document = json.loads(content)
    if not isinstance(document, dict):
        raise RegardError(f"it must hold a JSON object, got {type(document).__name__}")
    growth = _growth(document, "normalizer", "normalizers", _NORMALIZERS)
    pre_growth = _growth(document, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS)
    if growth * pre_growth > _MAX_GROWTH:
        raise RegardError(
            f"its normalizers and pre-tokenizers may make a text {growth * pre_growth:,} times as long; "
            f"at most {_MAX_GROWTH:,} times"
        )
    if (decoder_growth := _growth(document, "decoder", "decoders", _DECODERS)) > _MAX_DECODER_GROWTH:
        raise RegardError(
            f"its decoders may make a text {decoder_growth:,} times as long; at most {_MAX_DECODER_GROWTH} times"
        )
    added = sum(_growth_of(each, _POST_PROCESSORS) for each in _components(document, "post_processor", "processors"))
    if added > _MAX_TEMPLATE_TOKENS:
        raise RegardError(f"its post-processor adds {added:,} tokens to a text; at most {_MAX_TEMPLATE_TOKENS:,}")
    _check_added_tokens(document.get("added_tokens"), growth)
    _check_model(document.get("model"))
    return _growth_in(document)


def growth_of(tokenizer: Any) -> Growth:
    """Return how much longer a tokenizer of the library may make a text."""
    named = {name: getattr(tokenizer, name) for name in ("normalizer", "pre_tokenizer")}
    return _growth_in({name: json.loads(each.__getstate__()) for name, each in named.items() if each is not None})


def _growth_in(document: Mapping[str, Any]) -> Growth:
    growth = _growth(document, "normalizer", "normalizers", _NORMALIZERS)
    pre_growth = _growth(document, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS)
    normalizers = _components(document, "normalizer", "normalizers")
    return Growth(growth, pre_growth, _prefix(normalizers), all(map(_can_measure, normalizers)))


def _growth(document: Mapping[str, Any], name: str, members: str, growths: _Growth) -> int:
    return prod(_growth_of(component, growths) for component in _components(document, name, members))


def _components(document: Mapping[str, Any], name: str, members: str) -> list[Mapping[str, Any]]:
    """Return the components of ``document[name]`` in their order, those inside sequences too."""

    def walk(component: Any) -> Iterator[Mapping[str, Any]]:
        if not isinstance(component, dict) or not isinstance(component.get("type"), str):
            raise RegardError(f"its {name} has {truncate(component)}, which has no type")
        inner = component.get(members)
        if component["type"] != "Sequence":
            yield component
        elif not isinstance(inner, list):
            raise RegardError(f"its {name} has a sequence without {members}")
        else:
            for each in inner:
                yield from walk(each)

    components = [] if document.get(name) is None else list(walk(document[name]))
    if len(components) > _MAX_COMPONENTS:
        raise RegardError(f"its {name} has {len(components):,} components; at most {_MAX_COMPONENTS}")
    return components


def _growth_of(component: Mapping[str, Any], growths: _Growth) -> int:
    kind = component["type"]
    if kind not in growths:
        raise RegardError(f"{truncate(kind)} is not a component that regard runs here (known: {', '.join(growths)})")
    growth = growths[kind]
    return growth(component) if callable(growth) else growth


def _text(component: Mapping[str, Any], name: str) -> str:
    value = component.get(name)
    if not isinstance(value, str):
        raise RegardError(f"{name} of {component.get('type', 'a token')} must be a string, got {truncate(value)}")
    return value


def _pattern_width(component: Mapping[str, Any]) -> int:
    """Return the fewest bytes that the pattern of a component matches."""
    pattern = component.get("pattern")
    kind, value = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else (None, None)
    if kind not in ("String", "Regex") or not isinstance(value, str):
        raise RegardError(f"the pattern of {component['type']} must be a String or a Regex, got {truncate(pattern)}")
    return min_width(value) if kind == "Regex" else len(value.encode("utf-8", "surrogatepass"))


def _replacement(component: Mapping[str, Any]) -> int:
    width = _pattern_width(component)
    if width == 0:
        raise RegardError(f"Replace with the pattern {truncate(component['pattern'])} replaces empty matches")
    return max(1, ceil(len(_text(component, "content").encode("utf-8", "surrogatepass")) / width))


def _prefix(normalizers: Iterable[Mapping[str, Any]]) -> int:
    """Return the most bytes that normalizers make of the prefixes that they add to a text."""
    size = 0
    for component in normalizers:
        growth = _growth_of(component, _NORMALIZERS)
        size = size + growth - 1 if component["type"] == "Prepend" else size * growth
    return size


def _can_measure(component: Mapping[str, Any]) -> bool:
    """Tell whether normalizing a text in parts gives about what normalizing the whole does."""
    if component["type"] != "Replace":
        return True
    pattern = component["pattern"].get("Regex", "")
    return _pattern_width(component) <= _MAX_MEASURED and not _LOOKS_AROUND.search(pattern)


def _split(component: Mapping[str, Any]) -> int:
    _pattern_width(component)
    return 1


def _fixed_length(component: Mapping[str, Any]) -> int:
    length = component.get("length")
    if type(length) is not int or length < 1:
        raise RegardError(f"length of FixedLength must be at least 1, got {truncate(length)}")
    return 1


def _character_map(component: Mapping[str, Any]) -> int:
    try:
        table = base64.b64decode(_text(component, "precompiled_charsmap"), validate=True)
    except ValueError as error:
        raise RegardError(f"precompiled_charsmap is not base64: {error}") from error
    return check_character_map(table)


def check_character_map(table: bytes) -> int:
    """Return the length of the longest replacement: the size of a trie, the trie, and strings that end in 0.

    An error if it is malformed.
    """
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 4 or size > len(table) - 4:
        raise RegardError(f"precompiled_charsmap has {len(table)} bytes, but announces a trie of {size}")
    return max(1, *map(len, table[4 + size :].split(b"\0")))


def _template(component: Mapping[str, Any]) -> int:
    """Return the number of tokens that a template adds; the text is in it once."""
    special = component.get("special_tokens")
    added = 0
    for name, texts in (("single", "A"), ("pair", "AB")):
        pieces = component.get(name)
        if not isinstance(pieces, list) or not all(isinstance(piece, dict) and len(piece) == 1 for piece in pieces):
            raise RegardError(f"{name} of TemplateProcessing must be a list of pieces, got {truncate(pieces)}")
        named = [
            (kind, field.get("id")) for piece in pieces for kind, field in piece.items() if isinstance(field, dict)
        ]
        sequences = sorted(str(field_id) for kind, field_id in named if kind == "Sequence")
        if sequences != list(texts):
            raise RegardError(f"{name} of TemplateProcessing must have each text once, got {truncate(sequences)}")
        tokens = [
            special.get(str(field_id)) if isinstance(special, dict) else None
            for kind, field_id in named
            if kind != "Sequence"
        ]
        if not all(isinstance(token, dict) and isinstance(token.get("ids"), list) for token in tokens):
            raise RegardError(f"{name} of TemplateProcessing has a token that special_tokens lacks")
        added = max(added, sum(len(token["ids"]) for token in tokens if token))
    return added


def _check_added_tokens(tokens: Any, growth: int) -> None:
    sizes = [len(_text(token, "content")) for token in tokens or () if isinstance(token, dict)]
    if max(sizes, default=0) > _MAX_ADDED_TOKEN:
        raise RegardError(f"an added token has {max(sizes):,} characters; at most {_MAX_ADDED_TOKEN:,}")
    if sum(sizes) * growth > _MAX_ADDED:
        raise RegardError(f"its added tokens have {sum(sizes):,} characters, and may become {growth:,} times as long")


def _check_model(model: Any) -> None:
    """Check the numbers and texts of a model on which its time depends."""
    if not isinstance(model, dict):
        return
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > _MAX_WORD:
        raise RegardError(f"max_input_chars_per_word is {longest}; at most {_MAX_WORD}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(model.get(name) or "") > _MAX_AFFIX:
            raise RegardError(f"{name} has {len(model[name]):,} characters; at most {_MAX_AFFIX}")
    vocab = model.get("vocab")
    pieces = vocab if isinstance(vocab, list) else []
    longest = max((len(piece[0]) for piece in pieces if isinstance(piece, list) and piece), default=0)
    if longest > _MAX_PIECE:
        raise RegardError(f"a piece of its vocabulary has {longest:,} characters; at most {_MAX_PIECE}")


_NORMALIZERS: _Growth = {
    "BertNormalizer": 8,
    "ByteLevel": 2,
    "Lowercase": 2,
    "NFC": 3,
    "NFD": 3,
    "NFKC": 11,
    "NFKD": 11,
    "Nmt": 1,
    "Precompiled": _character_map,
    "Prepend": lambda component: 1 + len(_text(component, "prepend").encode("utf-8", "surrogatepass")),
    "Replace": _replacement,
    "Strip": 1,
    "StripAccents": 1,
}
_PRE_TOKENIZERS: _Growth = {
    "BertPreTokenizer": 1,
    "ByteLevel": 4,
    "CharDelimiterSplit": 1,
    "Digits": 1,
    "FixedLength": _fixed_length,
    "Metaspace": 5,
    "Punctuation": 1,
    "Split": _split,
    "UnicodeScripts": 1,
    "Whitespace": 1,
    "WhitespaceSplit": 1,
}
_DECODERS: _Growth = {
    "BPEDecoder": 3,
    "ByteFallback": 1,
    "ByteLevel": 2,
    "CTC": 3,
    "Fuse": 1,
    "Metaspace": 1,
    "Replace": _replacement,
    "Strip": 1,
    "WordPiece": 3,
}
_POST_PROCESSORS: _Growth = {  # tokens that each adds
    "BertProcessing": 3,
    "ByteLevel": 0,
    "RobertaProcessing": 4,
    "TemplateProcessing": _template,
}
