"""The part of the `tokenizers` library that regard reads most models with, in Python: for where it is not installed.

WordPiece as BERT has it, byte-level BPE as GPT-2, and vocabularies of characters and of words. Names are those of the
library. A component is a dictionary, as in ``tokenizer.json``, and what it does is a function of this module. Others
are errors that say what to install. It takes some 50 times as long as the library, and of characters that are newer
than the Unicode of either, or of the library's tables of punctuation, the two may think differently.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import groupby, pairwise
from types import SimpleNamespace
from typing import Any, TypeAlias

from regard._utils.errors import RegardError
from regard.text.lines import SPACES
from regard.text.token_bytes import LETTERS, token_bytes

_Piece: TypeAlias = tuple[str, Sequence[tuple[int, int]]]  # characters, and where in the text each comes from
_Token: TypeAlias = tuple[int, str, int, int]  # id, token, first and last character + 1

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_KNOWN = re.compile(r"\\p\{[LN]\}|\\[sSrn]|'(?:s|t|re|ve|m|ll|d)|\(\?i:|\{1,3\}|[ \[\]^()|?*+!]")
_CLEANED = {" .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't", " 'm": "'m", " do not": " don't"}
_CLEANED |= {f" '{each}": f"'{each}" for each in ("s", "ve", "re")}
_CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def needs_library(what: object) -> RegardError:
    """Return the error that something is not in this module."""
    return RegardError(f"{what} needs tokenizers: pip install tokenizers")


class Component(dict[str, Any]):
    """What ``tokenizer.json`` says of a part of a tokenizer; entries are attributes too."""

    def __missing__(self, key: object) -> Any:  # a number: of a sequence
        if isinstance(key, int):
            return next(value for value in self.values() if isinstance(value, list))[key]
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getstate__(self) -> bytes:
        return json.dumps(self, ensure_ascii=False).encode()

    def normalize_str(self, text: str) -> str:
        """Return a text as a normalizer makes it."""
        return _normalized(self, (text, [(0, 0)] * len(text)))[0]


class _Kinds(SimpleNamespace):
    """The classes of components of one role, by name."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else needs_library(name)


def _kind(name: str, *fields: str, **defaults: Any) -> type[Component]:
    """Return the class of a component, whose constructor takes its fields in order."""

    def start(self: Component, *values: Any, **options: Any) -> None:
        dict.__init__(self, type=name, **defaults)
        self.update(zip(fields, values, strict=False), **options)

    return type(name, (Component,), {"__init__": start})


def Regex(expression: str) -> dict[str, str]:
    """Return a regular expression as a pattern of ``tokenizer.json``."""
    return {"Regex": expression}


def _template(single: Sequence[str], pair: Sequence[str] = (), special_tokens: Sequence[Any] = ()) -> Component:
    def piece(text: str) -> dict[str, dict[str, Any]]:
        name, _, number = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", "0")
        is_text = name in ("$A", "$B")
        return {"Sequence" if is_text else "SpecialToken": {"id": name[is_text:], "type_id": int(number)}}

    tokens = [t if isinstance(t, dict) else {"id": t[0], "ids": [t[1]], "tokens": [t[0]]} for t in special_tokens]
    pieces = {"single": [*map(piece, single)], "pair": [*map(piece, pair)]}
    return _Template(**pieces, special_tokens={token["id"]: token for token in tokens})


def _split(pattern: Mapping[str, str], behavior: str) -> Component:
    return _Split(pattern=pattern, behavior=behavior.capitalize(), invert=False)


_Split, _Template = _kind("Split"), _kind("TemplateProcessing")
_ByteLevel = _kind("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)
models = _Kinds(
    BPE=_kind("BPE", "vocab", "merges", unk_token=None, vocab={}, merges=[]),
    WordPiece=_kind(
        "WordPiece", "vocab", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100
    ),
    WordLevel=_kind("WordLevel", "vocab", unk_token="<unk>"),
)
normalizers = _Kinds(
    BertNormalizer=_kind(
        "BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    )
)
pre_tokenizers = _Kinds(
    BertPreTokenizer=_kind("BertPreTokenizer"),
    ByteLevel=_ByteLevel,
    Digits=_kind("Digits", individual_digits=False),
    Sequence=_kind("Sequence", "pretokenizers"),
    Split=_split,
    WhitespaceSplit=_kind("WhitespaceSplit"),
)
decoders = _Kinds(
    ByteLevel=_ByteLevel, Fuse=_kind("Fuse"), WordPiece=_kind("WordPiece", "prefix", prefix="##", cleanup=True)
)
processors = _Kinds(
    BertProcessing=_kind("BertProcessing", "sep", "cls"),
    ByteLevel=_ByteLevel,
    RobertaProcessing=_kind("RobertaProcessing", "sep", "cls", trim_offsets=True, add_prefix_space=True),
    Sequence=_kind("Sequence", "processors"),
    TemplateProcessing=_template,
)


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


@dataclass
class Encoding:
    """The tokens of a text."""

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    word_ids: list[int | None] = field(default_factory=list)
    special_tokens_mask: list[int] = field(default_factory=list)

    def insert(
        self, at: int, token_id: int, token: str, offset: tuple[int, int] = (0, 0), word: int | None = None
    ) -> None:
        """Put a token of a word, or one of none, which is special, before others."""
        values = (token_id, token, offset, word, int(word is None))
        for each, value in zip(vars(self).values(), values, strict=True):
            each.insert(at, value)


class Tokenizer:
    """A model, what is done to a text before it and after it, and added tokens."""

    def __init__(self, model: Component) -> None:
        self.model = model
        self.normalizer: Component | None = None
        self.pre_tokenizer: Component | None = None
        self.post_processor: Component | None = None
        self.decoder: Component | None = None
        self.padding: dict[str, Any] | None = None
        self.encode_special_tokens = False
        self._added: dict[int, AddedToken] = {}
        self._ids_of_added: dict[str, int] = {}
        self._tokens = {i: token for token, i in model["vocab"].items()}
        self._words: dict[str, list[_Token]] = {}  # as the model splits them
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or ()]
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        if unknown := [pair for pair in self._ranks if "".join(pair) not in model["vocab"]]:
            raise RegardError(f"the vocabulary lacks what {' and '.join(unknown[0])} merge into")

    @classmethod
    def from_str(cls, content: str | bytes) -> Tokenizer:
        """Read the content of a ``tokenizer.json``."""
        document = json.loads(content)
        tokenizer = cls(_component(models, document["model"]))
        roles = (("normalizer", normalizers), ("pre_tokenizer", pre_tokenizers), ("decoder", decoders))
        for name, kinds in (*roles, ("post_processor", processors)):
            setattr(tokenizer, name, _component(kinds, document.get(name)))
        tokenizer.padding = document.get("padding")
        tokens = [{key: value for key, value in token.items() if key != "id"} for token in document["added_tokens"]]
        tokenizer.add_tokens([AddedToken(**token) for token in tokens])
        return tokenizer

    from_buffer = from_str

    def to_str(self, pretty: bool = False) -> str:
        """Return the content of a ``tokenizer.json``."""
        names = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
        added = [{"id": i, **asdict(self._added[i])} for i in sorted(self._added)]
        document = {"version": "1.0", "truncation": None, "padding": self.padding, "added_tokens": added}
        return json.dumps(
            document | {name: getattr(self, name) for name in names}, indent=2 if pretty else None, ensure_ascii=False
        )

    def no_truncation(self) -> None:
        """Do nothing: texts are not cut here."""

    def no_padding(self) -> None:
        """Forget the padding of the file."""
        self.padding = None

    def add_tokens(self, tokens: Iterable[AddedToken]) -> None:
        """Add tokens; one that the vocabulary has keeps its id."""
        for token in tokens:
            if not token.content:
                continue
            if token.single_word or (token.normalized and self.normalizer):
                raise needs_library(f"the added token {token.content!r}")
            new = max(len(self.model["vocab"]), max(self._added, default=-1) + 1)
            known = self.token_to_id(token.content)
            token_id = new if known is None else known
            self._added[token_id], self._ids_of_added[token.content] = token, token_id

    def add_special_tokens(self, tokens: Iterable[AddedToken]) -> None:
        """Add special tokens."""
        tokens = list(tokens)
        for token in tokens:
            token.special = True
        self.add_tokens(tokens)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Return the added tokens by id."""
        return dict(sorted(self._added.items()))

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, None if there is none."""
        known = self._ids_of_added.get(token)
        return self.model["vocab"].get(token) if known is None else known

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token of an id, None if there is none."""
        return self._added[token_id].content if token_id in self._added else self._tokens.get(token_id)

    def get_vocab(self) -> dict[str, int]:
        """Return the ids of all tokens."""
        return {**self.model["vocab"], **self._ids_of_added}

    def get_vocab_size(self) -> int:
        """Return the number of tokens."""
        return len(self.get_vocab())

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """Return the tokens of a text."""
        result, words = Encoding(), 0
        for part, added in self._at_added(text):
            if added is not None:
                result.insert(
                    len(result.ids), added, self._added[added].content, (part[1][0][0], part[1][-1][1]), words
                )
                words += 1
                continue
            for word, spans in _pre_tokenized(self.pre_tokenizer, _normalized(self.normalizer, part)):
                for token_id, token, start, end in self._split(word):
                    result.insert(len(result.ids), token_id, token, (spans[start][0], spans[end - 1][1]), words)
                words += 1
        self._process(self.post_processor, result, add_special_tokens)
        return result

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""
        kept = [i for i in ids if not (skip_special_tokens and i in self._added and self._added[i].special)]
        tokens = [token for token in map(self.id_to_token, kept) if token is not None]
        if self.decoder is None:
            return " ".join(tokens)
        if self.decoder["type"] == "ByteLevel":
            spelled = [token_bytes(token) for token in tokens]
            parts = [t.encode() if s is None else s for t, s in zip(tokens, spelled, strict=True)]
            return b"".join(parts).decode("utf-8", "replace")
        if self.decoder["type"] == "WordPiece":
            return "".join(self._joined(token, is_first=not n) for n, token in enumerate(tokens))
        return "".join(tokens)

    def _joined(self, token: str, *, is_first: bool) -> str:
        """Return a piece of WordPiece as it stands in a text."""
        decoder = self.decoder or {}
        if not is_first:
            token = token[len(decoder["prefix"]) :] if token.startswith(decoder["prefix"]) else f" {token}"
        for before, after in _CLEANED.items() if decoder["cleanup"] else ():
            token = token.replace(before, after)
        return token

    def _at_added(self, text: str) -> Iterator[tuple[_Piece, int | None]]:
        """Yield the parts of a text, those that are added tokens with their ids."""
        parts: list[tuple[_Piece, int | None]] = [((text, [(i, i + 1) for i in range(len(text))]), None)]
        for normalized in (False, True):
            tokens = [t for t in self._added.values() if t.normalized == normalized]
            tokens = [t for t in tokens if not (self.encode_special_tokens and t.special)]
            if not tokens:
                continue
            signs = f"[{SPACES}]*"
            each = [
                f"{signs * t.lstrip}({re.escape(t.content)}){signs * t.rstrip}"
                for t in sorted(tokens, key=lambda t: -len(t.content))
            ]
            pattern = re.compile("|".join(each))
            parts = [
                (piece, None if match is None else self._ids_of_added[match[match.lastindex or 0]])
                for part, added in parts
                for piece, match in (_cut(part, pattern, part[0]) if added is None else [(part, None)])
            ]
        yield from parts

    def _split(self, word: str) -> list[_Token]:
        """Return the tokens of a word."""
        if word not in self._words:
            if len(self._words) > 100_000:
                self._words.clear()
            kind = self.model["type"]
            split = self._bpe if kind == "BPE" else self._wordpiece if kind == "WordPiece" else self._word
            self._words[word] = list(split(word))
        return self._words[word]

    def _unknown(self, start: int, end: int) -> Iterator[_Token]:
        token = self.model.get("unk_token")
        if token is not None and (known := self.token_to_id(token)) is not None:
            yield known, token, start, end

    def _word(self, word: str) -> Iterator[_Token]:
        known = self.model["vocab"].get(word)
        if known is None:
            yield from self._unknown(0, len(word))
        else:
            yield known, word, 0, len(word)

    def _wordpiece(self, word: str) -> Iterator[_Token]:
        """Yield the longest piece that a word begins with, then that of the rest."""
        vocab, found, start = self.model["vocab"], [], 0
        while start < len(word) <= self.model["max_input_chars_per_word"]:
            prefix = self.model["continuing_subword_prefix"] if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in vocab), None)
            if end is None:
                break
            piece = prefix + word[start:end]
            found.append((vocab[piece], piece, start, end))
            start = end
        yield from found if start == len(word) else self._unknown(0, len(word))

    def _bpe(self, word: str) -> Iterator[_Token]:
        """Yield what is left when pairs have merged, the first one in the list of merges first, from left to right."""
        model, ranks = self.model, self._ranks
        if model.get("ignore_merges") and word in model["vocab"]:
            yield model["vocab"][word], word, 0, len(word)
            return
        parts, size = list(word), len(word)
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
        tokens = [(part, start, after[start]) for start, part in enumerate(parts) if part]
        for is_known, each in groupby(tokens, key=lambda token: token[0] in model["vocab"]):
            if is_known:
                yield from ((model["vocab"][part], part, start, end) for part, start, end in each)
            else:
                spans = [span for _, *span in each]
                spans = [[spans[0][0], spans[-1][1]]] if model.get("fuse_unk") else spans
                for start, end in spans:
                    yield from self._unknown(start, end)

    def _process(self, component: Component | None, result: Encoding, adds: bool) -> None:
        """Put tokens around those of a text, and leave white space out of their offsets, as a post-processor says."""
        if component is None:
            return
        kind = component["type"]
        for each in component.get("processors", ()):
            self._process(each, result, adds)
        if kind in ("ByteLevel", "RobertaProcessing") and component["trim_offsets"]:
            _trim(result, component["add_prefix_space"])
        if kind in ("BertProcessing", "RobertaProcessing") and adds:
            (end, end_id), (start, start_id) = component["sep"], component["cls"]
            result.insert(0, start_id, start)
            result.insert(len(result.ids), end_id, end)
        if kind == "TemplateProcessing" and adds:
            at = 0
            for piece in component["single"]:
                if "Sequence" in piece:
                    at = len(result.ids)
                    continue
                added = component["special_tokens"][piece["SpecialToken"]["id"]]
                for token_id, token in zip(added["ids"], added["tokens"], strict=True):
                    result.insert(at, token_id, token)
                    at += 1


def _component(kinds: _Kinds, value: Any) -> Component | None:
    """Return a component of a ``tokenizer.json``, checked."""
    if value is None:
        return None
    kind = getattr(kinds, value.get("type", "a component without a type"))
    component = kind() if isinstance(kind, type) else _kind(value["type"])()
    component.update(value)
    for name in ("pretokenizers", "processors"):
        if name in component:
            component[name] = [_component(kinds, each) for each in component[name]]
    return component


def _normalized(component: Component | None, piece: _Piece) -> _Piece:
    if component is None:
        return piece
    strips = component["lowercase"] if component["strip_accents"] is None else component["strip_accents"]
    flags = component["clean_text"], component["handle_chinese_chars"], strips, component["lowercase"]
    made = [(new, span) for sign, span in zip(*piece, strict=True) for new in _bert_normal(sign, *flags)]
    return "".join(sign for sign, _ in made), [span for _, span in made]


@lru_cache(maxsize=1 << 14)
def _bert_normal(sign: str, cleans: bool, spaces_chinese: bool, strips: bool, lowers: bool) -> str:
    """Return what BERT makes of a character."""
    if cleans and sign not in "\t\n\r" and (unicodedata.category(sign) in ("Cc", "Cf", "Co") or sign == "\ufffd"):
        return ""
    if cleans and sign in SPACES:
        return " "
    if strips:
        parts = unicodedata.normalize("NFD", sign)
        stripped = "".join(part for part in parts if unicodedata.category(part) != "Mn")
    else:
        stripped = sign
    made = "".join(part.lower() for part in stripped) if lowers else stripped
    is_chinese = spaces_chinese and any(first <= ord(sign) <= last for first, last in _CHINESE)
    return f" {made} " if is_chinese else made


def _pre_tokenized(component: Component | None, piece: _Piece) -> list[_Piece]:
    """Return the words of a text."""
    if not piece[0]:
        return []
    if component is None:
        return [piece]
    kind, text = component["type"], piece[0]
    if kind == "Sequence":
        pieces = [piece]
        for each in component["pretokenizers"]:
            pieces = [word for part in pieces for word in _pre_tokenized(each, part)]
        return pieces
    if kind in ("WhitespaceSplit", "BertPreTokenizer"):
        words = [word for word, _ in _cut(piece, _NO_SPACES, text) if word[0][0] not in SPACES]
        return (
            words
            if kind == "WhitespaceSplit"
            else [part for word in words for part, _ in _cut(word, _MARK, _marks(word[0]))]
        )
    if kind == "ByteLevel":
        if component["add_prefix_space"] and text[0] != " ":
            piece = " " + text, [piece[1][0], *piece[1]]
        pieces = [p for p, _ in _cut(piece, _pattern(_GPT2), _shadow(piece[0]))] if component["use_regex"] else [piece]
        return [_as_bytes(each) for each in pieces]
    if kind == "Digits":
        expression = r"\p{N}" if component["individual_digits"] else r"\p{N}+"
    else:
        expression = component["pattern"].get("Regex", "")
        if component["behavior"] != "Isolated" or component["invert"] or not expression:
            raise needs_library(f"a {kind} by {component['pattern']}")
    return [part for part, _ in _cut(piece, _pattern(expression), _shadow(text))]


_NO_SPACES = re.compile(f"[^{SPACES}]+")
_MARK = re.compile("\1")


def _cut(piece: _Piece, pattern: re.Pattern[str], searched: str) -> Iterator[tuple[_Piece, re.Match[str] | None]]:
    """Yield the parts of a piece that a pattern matches, in `searched`, and those between."""
    text, spans = piece
    end = 0
    for match in pattern.finditer(searched):
        start, stop = match.span()
        if start > end:
            yield (text[end:start], spans[end:start]), None
        if stop > start:
            yield (text[start:stop], spans[start:stop]), match
            end = stop
    if end < len(text):
        yield (text[end:], spans[end:]), None


class _Shadows(dict[int, str]):
    """A character of ASCII for each: as all of its class, which is all that expressions tell apart."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        kind = unicodedata.category(sign)[0]
        shadow = {"L": "x", "N": "0"}.get(kind, "\t" if sign in SPACES else "\1")
        self[code] = sign if code < 128 else shadow
        return self[code]


class _Marks(dict[int, str]):
    r"""``\1`` for each mark of punctuation, as BERT has it."""

    def __missing__(self, code: int) -> str:
        is_ascii_mark = code < 128 and not chr(code).isalnum() and chr(code).isprintable() and code != 32
        is_mark = is_ascii_mark or unicodedata.category(chr(code))[0] == "P"
        self[code] = "\1" if is_mark else "x"
        return self[code]


_SHADOWS, _MARKS = _Shadows(), _Marks()


def _shadow(text: str) -> str:
    return text.translate(_SHADOWS)


def _marks(text: str) -> str:
    return text.translate(_MARKS)


@lru_cache
def _pattern(expression: str) -> re.Pattern[str]:
    """Return an expression of the library for `_shadow` of a text."""
    if _KNOWN.sub("", expression):
        raise needs_library(f"a tokenizer that splits by {expression!r}")

    def in_ascii(text: str, form: str) -> str:
        for name, signs in (("L", "A-Za-z"), ("N", "0-9")):
            text = text.replace(rf"\p{{{name}}}", form % signs)
        return text

    return re.compile(
        in_ascii(re.sub(r"\[[^]]*\]", lambda each: in_ascii(each[0], "%s"), expression), "[%s]"), re.ASCII
    )


def _as_bytes(piece: _Piece) -> _Piece:
    """Return a text with the letters of its bytes, each with the place of its character."""
    spelled = [[LETTERS[byte] for byte in sign.encode()] for sign in piece[0]]
    spans = [span for letters, span in zip(spelled, piece[1], strict=True) for _ in letters]
    return "".join(letter for letters in spelled for letter in letters), spans


def _trim(result: Encoding, has_prefix: bool) -> None:
    """Leave white space at the ends of tokens out of their offsets."""
    signs = SPACES + LETTERS[32]
    for i, (token, (start, end)) in enumerate(zip(result.tokens, result.offsets, strict=True)):
        left, right = len(token) - len(token.lstrip(signs)), len(token) - len(token.rstrip(signs))
        if left and has_prefix and (i == 0 or start == 0):
            left -= 1
        start = min(start + left, end)
        result.offsets[i] = start, max(end - right, start) if right and end >= right else end
