"""The tokenizer that the metadata of a GGUF file describes, built with the `tokenizers` library.

There are five kinds: ``gpt2``, byte-level BPE with its merges and a named pre-tokenizer; ``llama``, the BPE of
SentencePiece, whose merges follow from the scores of its pieces; ``gemma4``, the same with merges of its own; ``t5``,
its unigram model; and ``bert``, WordPiece, in which the first piece of a word is marked rather than the others. The
kinds are defined by llama.cpp's `llama-vocab.cpp`, and what they do by the `tokenizer.json` of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.text import gguf_pre_tokenizers
from regard.text.token_bytes import SPACE
from regard.text.tokenizer_config import ClassSettings
from regard.text.tokenizer_json import check_character_map
from regard.text.tokenizer_rules import by_rule, special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of tokens
_MAX_PIECE = 128  # characters; the default of SentencePiece is 16
# Special tokens that a file does not name, by its kind, as llama.cpp has them. Those of BERT are known by their names.
_DEFAULT_IDS = {"llama": {"bos": 1, "eos": 2, "unknown": 0}, "t5": {"eos": 1, "unknown": 2, "padding": 0}}


def build_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of the ``tokenizer.ggml.*`` in `metadata`.

    An error if its kind or its pre-tokenizer is not supported, or if its vocabulary is malformed.
    """
    fields = _Metadata(metadata)
    kind = fields.value("model", str)
    if kind == "bert":
        return _wordpiece(fields)
    if kind not in _KINDS:
        raise RegardError(f"its tokenizer has kind {kind!r}; supported: {', '.join(map(repr, (*_KINDS, 'bert')))}")
    tokenizer, ends = _KINDS[kind](fields)
    _add_unsplit_tokens(tokenizer, fields)
    around = [fields.added(name, default) for name, default in zip(("bos", "eos"), ends, strict=True)]
    if any(around):
        _put_around(tokenizer, *around)
    return tokenizer


def special_id(metadata: Mapping[str, Any], name: str) -> Any:
    """Return the id of ``bos``, ``eos`` and so on, not validated; None if there is none."""
    kind = metadata.get("tokenizer.ggml.model")
    default = _DEFAULT_IDS.get(kind, {}).get(name) if isinstance(kind, str) else None
    return metadata.get(f"tokenizer.ggml.{name}_token_id", default)


def special_token(metadata: Mapping[str, Any], name: str) -> tuple[int, str] | None:
    """Return the id and the token of ``bos``, ``eos``, ``unknown`` or ``padding``, None if the file names none."""
    return _Metadata(metadata).special(name)


class _Metadata:
    """The metadata of a tokenizer, validated on access."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens: list[str] = self.strings("tokens")

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """Return a value, or `default`."""
        value = self._metadata.get(f"tokenizer.ggml.{key}", default)
        if value is not None and type(value) is not kind:
            raise RegardError(f"tokenizer.ggml.{key} must be a {kind.__name__}, got {ascii(value)[:80]}")
        return value

    def strings(self, key: str) -> list[str]:
        """Return a list of strings."""
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list):
            raise RegardError(
                f"tokenizer.ggml.{key} must be a list of strings" + (", but is missing" * (value is None))
            )
        return value

    def numbers(self, key: str) -> np.ndarray:
        """Return an array with a finite number for each token."""
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, np.ndarray) or len(value) != len(self.tokens) or not np.isfinite(value).all():
            raise RegardError(f"tokenizer.ggml.{key} must have a number for each of the {len(self.tokens)} tokens")
        return value

    def blob(self, key: str) -> bytes:
        """Return an array of bytes, by default none."""
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if value is not None and (not isinstance(value, np.ndarray) or value.dtype.itemsize != 1):
            raise RegardError(f"tokenizer.ggml.{key} must be bytes, got {ascii(value)[:80]}")
        return b"" if value is None else value.tobytes()

    def merges(self) -> list[tuple[str, str]]:
        """Return the pairs that merge, in this order."""
        merges = []
        for merge in self.strings("merges"):
            left, _, right = merge.partition(" ")
            if not left or not right:
                raise RegardError(f"{ascii(merge)[:80]} of its merges is not a pair of pieces")
            merges.append((left, right))
        return merges

    def types(self) -> list[int]:
        """Return the type of each token, by default normal."""
        if "tokenizer.ggml.token_type" not in self._metadata:
            return [_NORMAL] * len(self.tokens)
        types: list[int] = self.numbers("token_type").tolist()
        return types

    def special(self, name: str) -> tuple[int, str] | None:
        """Return a special token, None if the file names none and its kind has no default."""
        index = self.value(f"{name}_token_id", int)
        if index is None:
            index = special_id(self._metadata, name)
            return None if index is None or index >= len(self.tokens) else (index, self.tokens[index])
        if not 0 <= index < len(self.tokens):
            raise RegardError(f"tokenizer.ggml.{name}_token_id is {index}, but there are {len(self.tokens)} tokens")
        return index, self.tokens[index]

    def added(self, name: str, default: bool) -> tuple[int, str] | None:
        """Return a special token that is put at an end of each text, None if none is."""
        if not self.value(f"add_{name}_token", bool, default):
            return None
        special = self.special(name)
        if special is None:
            raise RegardError(f"tokenizer.ggml.add_{name}_token is true, but there is no {name} token")
        return special


def _byte_level(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    pre_tokenizer = gguf_pre_tokenizers.find(fields.value("pre", str, ""))
    merges = fields.merges()
    vocabulary = {token: index for index, token in enumerate(fields.tokens)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=pre_tokenizer.ignore_merges))
    if pre_tokenizer.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = gguf_pre_tokenizers.component(pre_tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, (pre_tokenizer.begins, pre_tokenizer.ends)


def _sentencepiece(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    vocabulary = {token: index for index, token in enumerate(fields.tokens)}
    normal = [token for token, kind in zip(fields.tokens, fields.types(), strict=True) if kind == _NORMAL]
    scores = dict(zip(fields.tokens, fields.numbers("scores").tolist(), strict=True))
    return _of_characters(fields, _merges(normal, scores, vocabulary), has_prefix=True), (True, False)


def _gemma4(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    """Return the BPE of Gemma 4: that of SentencePiece, with its merges; lines are apart from the breaks between."""
    from tokenizers import Regex, pre_tokenizers

    tokenizer = _of_characters(fields, fields.merges(), has_prefix=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
    return tokenizer, (True, False)


def _of_characters(fields: _Metadata, merges: list[tuple[str, str]], *, has_prefix: bool) -> Tokenizer:
    """Return a BPE of characters, and of bytes for those that it does not have, with a mark for each space.

    `has_prefix` is whether a text begins with one where the file does not say.
    """
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    unknown = fields.special("unknown")
    tokenizer = Tokenizer(
        BPE(
            {token: index for index, token in enumerate(fields.tokens)},
            merges,
            unk_token=unknown[1] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [normalizers.Replace(" ", SPACE)]
    decoding: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if fields.value("add_space_prefix", bool, has_prefix):
        steps.insert(0, normalizers.Prepend(SPACE))
        decoding.append(decoders.Strip(" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(decoding)
    return tokenizer


def _unigram(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    """Return the unigram model of SentencePiece, with its table of characters, as transformers runs T5's."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import Unigram

    types, unknown = fields.types(), fields.special("unknown")
    if _UNKNOWN in types and fields.value("unknown_token_id", int) is None:
        unknown = types.index(_UNKNOWN), fields.tokens[types.index(_UNKNOWN)]
    _check_lengths(fields.tokens)
    pieces = list(zip(fields.tokens, fields.numbers("scores").tolist(), strict=True))
    tokenizer = Tokenizer(Unigram(pieces, None if unknown is None else unknown[0], byte_fallback=_BYTE in types))
    table = fields.blob("precompiled_charsmap")
    if table:
        check_character_map(table)
        tokenizer.normalizer = normalizers.Precompiled(table)
    scheme: Any = "always" if fields.value("add_space_prefix", bool, False) else "never"
    # transformers drops further spaces whatever the file says: remove_extra_whitespaces has no effect here.
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer, (False, True)


def _wordpiece(fields: _Metadata) -> Tokenizer:
    """Return BERT's tokenizer, of pieces that begin a word, ``▁word``, and others, ``ing``, which it calls ``##ing``.

    Where the file does not say, letters are lower-cased unless a piece of a word has a capital. The token at the end is
    the end of a text and a separator: it is left out if the file says that neither is added, of which the converter
    says that no other separator is.
    """
    from tokenizers.models import WordPiece

    types = fields.types()

    def piece(token: str, kind: int) -> str:
        if token.startswith(SPACE):
            return token[1:]
        return token if kind == _CONTROL or (token[:1] == "[" and token[-1:] == "]") else f"##{token}"

    pieces = [piece(token, kind) for token, kind in zip(fields.tokens, types, strict=True)]
    _check_lengths(pieces)
    names = {"unknown": "unk", "seperator": "sep", "padding": "pad", "cls": "cls", "bos": "cls", "mask": "mask"}
    special = {short: token[1] for name, short in reversed(names.items()) if (token := fields.special(name))}
    tokens = {f"{short}_token": token for short, token in special.items()}
    of_words = (each for each, kind in zip(pieces, types, strict=True) if kind == _NORMAL and each[:1] != "[")
    is_cased = any(each != each.lower() for each in of_words if each not in special.values())
    settings = ClassSettings(
        do_lower_case=fields.value("normalizer.lowercase", bool, not is_cased),
        strip_accents=fields.value("normalizer.strip_accents", bool),
        tokens=tokens,
    )
    ids = {each: i for i, each in enumerate(pieces)}
    tokenizer = by_rule("BertTokenizer", settings, model=WordPiece(ids, unk_token=tokens.get("unk_token", "[UNK]")))
    ends = [each for name in ("eos", "sep") if (each := fields.value(f"add_{name}_token", bool)) is not None]
    has_ends = fields.value("add_bos_token", bool, True), any(ends) or not ends
    if not all(has_ends):
        own, vocabulary = special_tokens("BertTokenizer", settings), tokenizer.get_vocab()
        around = [(vocabulary[own[name]], own[name]) for name in ("cls_token", "sep_token")]
        _put_around(tokenizer, *(each if has else None for each, has in zip(around, has_ends, strict=True)))
    return tokenizer


_Ends: TypeAlias = tuple[bool, bool]  # whether a text begins and ends with a token where the file does not say
_KINDS: dict[str, Callable[[_Metadata], tuple[Tokenizer, _Ends]]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
    "gemma4": _gemma4,
    "t5": _unigram,
}


def _check_lengths(pieces: Sequence[str]) -> None:
    if (longest := max(map(len, pieces), default=0)) > _MAX_PIECE:
        raise RegardError(f"it has a piece of {longest} characters; the limit is {_MAX_PIECE}")


def _merges(pieces: Sequence[str], scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs that merge into a piece, by descending score, then by index."""
    _check_lengths(pieces)
    merges = []
    for piece in sorted(dict.fromkeys(pieces), key=lambda piece: (-scores[piece], vocabulary[piece])):
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        in_vocabulary = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += sorted(in_vocabulary, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return merges


def _add_unsplit_tokens(tokenizer: Tokenizer, fields: _Metadata) -> None:
    """Add the tokens that are never split: special and user-defined ones."""
    from tokenizers import AddedToken

    mask = fields.special("mask")
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        tokens = [
            token
            for token, token_kind in zip(fields.tokens, fields.types(), strict=True)
            if token_kind == kind and token
        ]
        masks = [] if mask is None else [mask[1]]  # which take the space before them
        added = [AddedToken(x, normalized=False, special=special, lstrip=x in masks) for x in tokens]
        if special:
            tokenizer.add_special_tokens(added)
        else:
            tokenizer.add_tokens(added)


def _put_around(tokenizer: Tokenizer, start: tuple[int, str] | None, end: tuple[int, str] | None) -> None:
    """Put tokens at the ends of each text, in place of those that are put there."""
    from tokenizers.processors import TemplateProcessing

    tokens = {name: token for name, token in (("start", start), ("end", end)) if token is not None}
    tokenizer.post_processor = TemplateProcessing(
        single=[*(["start"] if start else []), "$A", *(["end"] if end else [])],
        special_tokens=[{"id": name, "ids": [index], "tokens": [token]} for name, (index, token) in tokens.items()],
    )
