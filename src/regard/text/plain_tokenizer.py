"""Tokenizers in Python, where the `tokenizers` library is not installed: WordPiece, byte-level BPE, characters, words.

They are read from a ``tokenizer.json`` of BERT's kind or of GPT-2's; of another it says what to install. Names are the
library's, a component is what the file says of it, and a text takes some five times as long. Of characters that came to
Unicode after its version 8 the library has older tables, and after a byte that a vocabulary lacks other offsets.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

from regard._utils.errors import RegardError
from regard.text.lines import SPACES
from regard.text.token_bytes import LETTERS, token_bytes

_Piece: TypeAlias = tuple[str, Sequence[tuple[int, int]]]  # characters, and where in the text each is from
_Part: TypeAlias = tuple[int, str, int, int]  # id, token, and where in its word it begins and ends

_KINDS = {
    "normalizer": ("BertNormalizer",),
    "pre_tokenizer": ("BertPreTokenizer", "ByteLevel", "Digits", "Sequence", "WhitespaceSplit"),
    "post_processor": ("ByteLevel", "TemplateProcessing"),
    "decoder": ("ByteLevel", "Fuse", "WordPiece"),
    "model": ("BPE", "WordLevel", "WordPiece"),
}
_UNKNOWN_OPTIONS = ("dropout", "byte_fallback", "end_of_word_suffix")
_MARKS = r"!-/:-@\[-`{-~"
_WORDS = {  # in the shadow of a text; what is between them is left out
    "BertPreTokenizer": rf"[{_MARKS}]|[^\s{_MARKS}]+",
    "ByteLevel": r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",  # GPT-2's
    "Digits": "[0-9]|[^0-9]+",
    "WhitespaceSplit": r"\S+",
}
_CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
_CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " do not", " 's", " 've", " 're")


def _needs_library(what: object) -> RegardError:
    return RegardError(f"{what} needs tokenizers: pip install tokenizers")


class Component(dict[str, Any]):
    """What ``tokenizer.json`` says of a part of a tokenizer; its class has the name of its type."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __getstate__(self) -> bytes:
        return json.dumps(self, ensure_ascii=False).encode()

    def normalize_str(self, text: str) -> str:
        """Return a text as a normalizer makes it."""
        return _normalized(self, (text, [(0, 0)] * len(text)))[0]


@dataclass
class AddedToken:
    """A token that is found in a text before anything else is done to it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None
    special: bool = False

    def __post_init__(self) -> None:
        self.normalized = not self.special if self.normalized is None else self.normalized


class Encoding(NamedTuple):
    """The tokens of a text."""

    ids: Sequence[int] = ()
    tokens: Sequence[str] = ()
    offsets: Sequence[tuple[int, int]] = ()
    word_ids: Sequence[int | None] = ()
    special_tokens_mask: Sequence[int] = ()


class Tokenizer:
    """A model, what is done to a text before it and after it, and added tokens."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        parts = {role: _component(role, document.get(role)) for role in _KINDS}
        self.normalizer, self.pre_tokenizer, self.post_processor, self.decoder, self.model = parts.values()
        self.padding, self.encode_special_tokens = document.get("padding"), False
        self.vocabulary: dict[str, int] = self.model["vocab"]
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in self.model.get("merges") or ()]
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        if lacking := next((pair for pair in self._ranks if "".join(pair) not in self.vocabulary), None):
            raise RegardError(f"the vocabulary lacks what {lacking[0]!r} and {lacking[1]!r} merge into")
        if option := next((name for name in _UNKNOWN_OPTIONS if self.model.get(name)), None):
            raise _needs_library(f"a tokenizer with {option}")
        self._tokens = {i: token for token, i in self.vocabulary.items()}
        self._added: dict[str, tuple[int, AddedToken]] = {}
        self._parts = lru_cache(1 << 16)(lambda word: [*self._split(word)])
        for token in document.get("added_tokens") or ():
            self.add_tokens([AddedToken(**{name: value for name, value in token.items() if name != "id"})])

    @classmethod
    def from_str(cls, content: str | bytes) -> Tokenizer:
        """Read the content of a ``tokenizer.json``."""
        return cls(json.loads(content))

    from_buffer = from_str

    def to_str(self, pretty: bool = False) -> str:
        """Return the content of a ``tokenizer.json``."""
        parts = {role: getattr(self, role) for role in _KINDS}
        added = [{"id": i, **asdict(token)} for i, token in sorted(self._added.values(), key=lambda each: each[0])]
        document = {"version": "1.0", "truncation": None, "padding": self.padding, "added_tokens": added, **parts}
        return json.dumps(document, indent=2 if pretty else None, ensure_ascii=False)

    def check_class(self, kind: str, settings: Any, own: Iterable[str]) -> None:
        """Check that the file is as the class of a model makes it anew; `own` are the special tokens of the class."""
        steps, own = self.pre_tokenizer or {}, [token for token in own if token]
        is_bert = self.normalizer == {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.tokenize_chinese_chars,
            "strip_accents": settings.strip_accents,
            "lowercase": settings.do_lower_case is not False,
        }
        is_bert &= steps == {"type": "BertPreTokenizer"} and self.post_processor is not None
        is_bert &= self.model.get("unk_token") in own and self.model.get("max_input_chars_per_word", 100) == 100
        has_space = [step["add_prefix_space"] for step in steps.get("pretokenizers", [steps]) if len(step) > 2]
        is_gpt2 = kind == "GPT2Tokenizer" and has_space == [bool(settings.add_prefix_space)]
        is_gpt2 &= all(step.get("use_regex", True) for step in steps.get("pretokenizers", [steps]))
        if not (is_bert or is_gpt2) or not all(token in self._added and self._added[token][1].special for token in own):
            raise _needs_library(f"a {kind} with these settings")

    def no_truncation(self) -> None:
        """Do nothing: texts are not cut here."""

    def no_padding(self) -> None:
        """Forget the padding of the file."""
        self.padding = None

    def add_tokens(self, tokens: Iterable[AddedToken]) -> None:
        """Add tokens; one that the vocabulary has keeps its id."""
        for token in tokens:
            if token.single_word or token.lstrip or token.rstrip or (token.normalized and self.normalizer):
                raise _needs_library(f"the added token {token.content!r}")
            before = self.token_to_id(token.content)
            i = len(self._tokens) if before is None else before
            self._added[token.content], self._tokens[i] = (i, token), token.content

    add_special_tokens = add_tokens

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Return the added tokens by id."""
        return dict(sorted(self._added.values(), key=lambda each: each[0]))

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, None if there is none."""
        return self._added[token][0] if token in self._added else self.vocabulary.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token of an id, None if there is none."""
        return self._tokens.get(token_id)

    def get_vocab(self) -> dict[str, int]:
        """Return the ids of all tokens."""
        return {**self.vocabulary, **{token: i for token, (i, _) in self._added.items()}}

    def get_vocab_size(self) -> int:
        """Return the number of tokens."""
        return len(self.get_vocab())

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """Return the tokens of a text."""
        parts: list[tuple[_Piece, bool]] = [((text, [(i, i + 1) for i in range(len(text))]), False)]
        for normalized in (False, True):
            own = [t for _, t in self._added.values() if t.normalized == normalized]
            contents = [t.content for t in own if not (self.encode_special_tokens and t.special)]
            pattern = "|".join(map(re.escape, sorted(contents, key=len, reverse=True)))
            cut = [_cut(part, pattern, part[0]) if contents and not added else [(part, added)] for part, added in parts]
            parts = [each for pieces in cut for each in pieces]
        words: list[tuple[Sequence[_Part], _Piece]] = []
        for part, added in parts:
            if added:
                words.append(([(self._added[part[0]][0], part[0], 0, len(part[0]))], part))
            elif part[0]:
                split = _words(self.pre_tokenizer, _normalized(self.normalizer, part))
                words += [(self._parts(word[0]), word) for word in split if word[0]]
        rows: list[tuple[Any, ...]] = [
            (i, token, (spans[start][0], spans[end - 1][1]), number, 0)
            for number, (split, (_, spans)) in enumerate(words)
            for i, token, start, end in split
        ]
        after = self.post_processor or {}
        if after.get("trim_offsets"):
            rows = [_trimmed(row, is_first=not n, component=after) for n, row in enumerate(rows)]
        if add_special_tokens and "single" in after:
            rows = [row for piece in after["single"] for row in ([*_special(after, piece)] or rows)]
        return Encoding(*map(list, zip(*rows, strict=True)))

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""
        special = {i for i, token in self._added.values() if token.special and skip_special_tokens}
        tokens = [self._tokens[i] for i in ids if i in self._tokens and i not in special]
        decoder = self.decoder or {"type": None}
        if decoder["type"] == "ByteLevel":
            spelled = [token.encode() if (letters := token_bytes(token)) is None else letters for token in tokens]
            return b"".join(spelled).decode("utf-8", "replace")
        if decoder["type"] == "WordPiece":
            prefix = decoder["prefix"]
            tokens[1:] = [t.removeprefix(prefix) if t.startswith(prefix) else f" {t}" for t in tokens[1:]]
            for each in _CLEANED if decoder["cleanup"] else ():
                to = " don't" if each == " do not" else each.strip()
                tokens = [token.replace(each, to) for token in tokens]
        return (" " if decoder["type"] is None else "").join(tokens)

    def _split(self, word: str) -> Iterator[_Part]:
        """Yield the tokens of a word."""
        vocabulary, model, kind = self.vocabulary, self.model, self.model["type"]
        if kind == "WordPiece":
            parts = self._wordpiece(word) if len(word) <= model["max_input_chars_per_word"] else []
        elif kind == "WordLevel" or (model.get("ignore_merges") and word in vocabulary):
            parts = [(word, 0, len(word))]
        else:
            parts = self._merged(word)
        if kind == "WordPiece" and (not parts or parts[-1][0] not in vocabulary):
            parts = [("", 0, len(word))]
        unknown = model.get("unk_token")
        for is_known, each in groupby(parts, key=lambda part: part[0] in vocabulary):
            run = [*each]
            if not is_known and model.get("fuse_unk"):
                run = [("", run[0][1], run[-1][2])]
            for part, start, end in run:
                if is_known or self.token_to_id(unknown) is not None:
                    token = part if is_known else unknown
                    yield self.token_to_id(token) or 0, token, start, end

    def _wordpiece(self, word: str) -> list[tuple[str, int, int]]:
        """Return the longest piece that a word begins with, then that of the rest; of none the last is empty."""
        pieces, start = [], 0
        while start < len(word):
            prefix = self.model["continuing_subword_prefix"] if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocabulary), 0)
            pieces.append((prefix + word[start:end] if end else "", start, end))
            start = end or len(word)
        return pieces

    def _merged(self, word: str) -> list[tuple[str, int, int]]:
        """Return what is left when pairs have merged, the first one in the list of merges first, from left to right."""
        parts, size, ranks = list(word), len(word), self._ranks
        after, before = list(range(1, size + 1)), list(range(-1, size - 1))
        queue = [(ranks[pair], i, pair) for i, pair in enumerate(pairwise(word)) if pair in ranks]
        heapify(queue)
        while queue:
            _, left, pair = heappop(queue)
            right = after[left]
            if right == size or (parts[left], parts[right]) != pair:
                continue  # one of them has merged
            parts[left], parts[right], after[left] = pair[0] + pair[1], "", after[right]
            if after[left] < size:
                before[after[left]] = left
            for at in (before[left], left):
                if at >= 0 and after[at] < size and (new := (parts[at], parts[after[at]])) in ranks:
                    heappush(queue, (ranks[new], at, new))
        return [(part, start, after[start]) for start, part in enumerate(parts) if part]


def _component(role: str, value: Any) -> Any:
    """Return a component of a ``tokenizer.json``, checked."""
    if value is None:
        return None
    kind = value.get("type")
    is_wordpiece = kind == "WordPiece"
    if kind not in _KINDS[role] or (value.get("continuing_subword_prefix") and not is_wordpiece):
        raise _needs_library(f"a tokenizer with the {role} {kind}")
    steps = [_component(role, each) for each in value.get("pretokenizers", ())]
    return type(kind, (Component,), {})(value, **({"pretokenizers": steps} if steps else {}))


def _normalized(component: Component | None, piece: _Piece) -> _Piece:
    if component is None:
        return piece
    strips = component["lowercase"] if component["strip_accents"] is None else component["strip_accents"]
    flags = component["clean_text"], component["handle_chinese_chars"], strips, component["lowercase"]
    made = [(new, span) for sign, span in zip(*piece, strict=True) for new in _bert_normal(sign, *flags)]
    return "".join(sign for sign, _ in made), [span for _, span in made]


@lru_cache(1 << 14)
def _bert_normal(sign: str, cleans: bool, spaces_chinese: bool, strips: bool, lowers: bool) -> str:
    """Return what BERT makes of a character."""
    if cleans and sign not in "\t\n\r" and (unicodedata.category(sign) in ("Cc", "Cf", "Co") or sign == "\ufffd"):
        return ""
    made = " " if cleans and sign in SPACES else unicodedata.normalize("NFD", sign) if strips else sign
    made = "".join(part for part in made if not strips or unicodedata.category(part) != "Mn")
    made = "".join(part.lower() for part in made) if lowers else made
    is_chinese = spaces_chinese and any(first <= ord(sign) <= last for first, last in _CHINESE)
    return f" {made} " if is_chinese else made


def _words(component: Component | None, piece: _Piece) -> list[_Piece]:
    """Return the words of a text."""
    if component is None or not piece[0]:
        return [piece]
    kind, pieces = component["type"], [piece]
    for step in component.get("pretokenizers", ()):
        pieces = [word for part in pieces for word in _words(step, part)]
    if kind == "Sequence":
        return pieces
    if kind == "ByteLevel" and component["add_prefix_space"] and piece[0][0] != " ":
        piece = " " + piece[0], [piece[1][0], *piece[1]]
    if kind == "Digits" and not component["individual_digits"]:
        pattern = "[0-9]+|[^0-9]+"
    else:
        pattern = _WORDS[kind] if component.get("use_regex", True) else "(?s:.+)"
    words = [word for word, is_match in _cut(piece, pattern, piece[0].translate(_SHADOWS)) if is_match]
    return [_as_bytes(word) for word in words] if kind == "ByteLevel" else words


def _cut(piece: _Piece, pattern: str, searched: str) -> Iterator[tuple[_Piece, bool]]:
    """Yield the parts of a piece that match a pattern, in `searched`, and those between."""
    (text, spans), end = piece, 0
    for match in re.finditer(pattern, searched, re.ASCII):
        start, stop = match.span()
        if start > end:
            yield (text[end:start], spans[end:start]), False
        yield (text[start:stop], spans[start:stop]), True
        end = stop
    if end < len(text):
        yield (text[end:], spans[end:]), False


class _Shadows(dict[int, str]):
    """A character of ASCII for each: one of its class, which is all that expressions tell apart."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        classes = {"L": "x", "N": "0", "P": "!"}
        shadow = "\t" if sign in SPACES else classes.get(unicodedata.category(sign)[0], "\2")
        self[code] = sign if code < 128 and (sign.isprintable() or sign in SPACES) else shadow
        return self[code]


_SHADOWS = _Shadows()


def _as_bytes(piece: _Piece) -> _Piece:
    """Return a text with the letters of its bytes, each with the place of its character."""
    spelled = [(LETTERS[byte], span) for sign, span in zip(*piece, strict=True) for byte in sign.encode()]
    return "".join(letter for letter, _ in spelled), [span for _, span in spelled]


def _special(component: Mapping[str, Any], piece: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the tokens of a piece of a template; none for the text."""
    if "SpecialToken" in piece:
        added = component["special_tokens"][piece["SpecialToken"]["id"]]
        yield from ((i, token, (0, 0), None, 1) for i, token in zip(added["ids"], added["tokens"], strict=True))


def _trimmed(row: tuple[Any, ...], *, is_first: bool, component: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a token without white space in its offsets."""
    token_id, token, (start, end), *rest = row
    left, right = (len(token) - len(strip(SPACES + LETTERS[32])) for strip in (token.lstrip, token.rstrip))
    if left == 1 and component["add_prefix_space"] and (is_first or start == 0):
        left = 0  # the space that was put there
    start = min(start + left, end)
    return (token_id, token, (start, max(end - right, start) if right and end >= right else end), *rest)
