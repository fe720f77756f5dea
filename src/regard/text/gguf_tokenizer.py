"""The tokenizer that the metadata of a GGUF file describes, built with the `tokenizers` library.

There are four kinds: ``gpt2``, byte-level BPE with its merges and a named pre-tokenizer; ``llama``, the BPE of
SentencePiece, whose merges follow from the scores of its pieces; ``t5``, its unigram model; and ``bert``, WordPiece, in
which the first piece of a word is marked rather than the others. The kinds are defined by llama.cpp's
`llama-vocab.cpp`, and what they do by the `tokenizer.json` of the models.
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
from regard.text.tokenizer_rules import by_rule

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of tokens
_MAX_PIECE = 128  # characters; the default of SentencePiece is 16


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
    _add_template(tokenizer, fields, ends)
    return tokenizer


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

    def types(self) -> list[int]:
        """Return the type of each token, by default normal."""
        if "tokenizer.ggml.token_type" not in self._metadata:
            return [_NORMAL] * len(self.tokens)
        types: list[int] = self.numbers("token_type").tolist()
        return types

    def special(self, name: str) -> tuple[int, str] | None:
        """Return a special token, None if the file names none."""
        index = self.value(f"{name}_token_id", int)
        if index is None:
            return None
        if not 0 <= index < len(self.tokens):
            raise RegardError(f"tokenizer.ggml.{name}_token_id is {index}, but there are {len(self.tokens)} tokens")
        return index, self.tokens[index]


def _byte_level(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    pre_tokenizer = gguf_pre_tokenizers.find(fields.value("pre", str, gguf_pre_tokenizers.DEFAULT))
    merges = []
    for merge in fields.strings("merges"):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise RegardError(f"{ascii(merge)[:80]} of its merges is not a pair of pieces")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(fields.tokens)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=pre_tokenizer.ignore_merges))
    if pre_tokenizer.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = gguf_pre_tokenizers.component(pre_tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, (pre_tokenizer.begins, pre_tokenizer.ends)


def _sentencepiece(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    vocabulary = {token: index for index, token in enumerate(fields.tokens)}
    normal = [token for token, kind in zip(fields.tokens, fields.types(), strict=True) if kind == _NORMAL]
    unknown = fields.special("unknown")
    tokenizer = Tokenizer(
        BPE(
            vocabulary,
            _merges(normal, dict(zip(fields.tokens, fields.numbers("scores").tolist(), strict=True)), vocabulary),
            unk_token=unknown[1] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [normalizers.Replace(" ", SPACE)]
    decoding: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if fields.value("add_space_prefix", bool, True):
        steps.insert(0, normalizers.Prepend(SPACE))
        decoding.append(decoders.Strip(" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(decoding)
    return tokenizer, (True, False)


def _unigram(fields: _Metadata) -> tuple[Tokenizer, _Ends]:
    """Return the unigram model of SentencePiece, with its table of characters, as transformers runs T5's."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import Unigram

    types, unknown = fields.types(), fields.special("unknown")
    if unknown is None and _UNKNOWN in types:
        unknown = types.index(_UNKNOWN), fields.tokens[types.index(_UNKNOWN)]
    _check_lengths(fields.tokens)
    pieces = list(zip(fields.tokens, fields.numbers("scores").tolist(), strict=True))
    tokenizer = Tokenizer(Unigram(pieces, None if unknown is None else unknown[0], byte_fallback=_BYTE in types))
    table = fields.blob("precompiled_charsmap")
    if table:
        check_character_map(table)
        tokenizer.normalizer = normalizers.Precompiled(table)
    scheme: Any = "always" if fields.value("add_space_prefix", bool, True) else "never"
    # transformers drops further spaces whatever the file says: remove_extra_whitespaces has no effect here.
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer, (False, True)


def _wordpiece(fields: _Metadata) -> Tokenizer:
    """Return BERT's tokenizer, of pieces that begin a word, ``▁word``, and others, ``ing``, which it calls ``##ing``.

    Where the file does not say, letters are lower-cased unless a piece has a capital.
    """
    from tokenizers.models import WordPiece

    def piece(token: str, kind: int) -> str:
        if token.startswith(SPACE):
            return token[1:]
        return token if kind == _CONTROL or (token[:1] == "[" and token[-1:] == "]") else f"##{token}"

    pieces = [piece(token, kind) for token, kind in zip(fields.tokens, fields.types(), strict=True)]
    _check_lengths(pieces)
    names = {"unknown": "unk", "seperator": "sep", "padding": "pad", "cls": "cls", "bos": "cls", "mask": "mask"}
    special = {short: token[1] for name, short in reversed(names.items()) if (token := fields.special(name))}
    tokens = {f"{short}_token": token for short, token in special.items()}
    is_cased = any(each != each.lower() for each in pieces if each[:1] != "[" and each not in special.values())
    settings = ClassSettings(
        do_lower_case=fields.value("normalizer.lowercase", bool, not is_cased),
        strip_accents=fields.value("normalizer.strip_accents", bool),
        tokens=tokens,
    )
    ids = {each: i for i, each in enumerate(pieces)}
    return by_rule("BertTokenizer", settings, model=WordPiece(ids, unk_token=tokens.get("unk_token", "[UNK]")))


_Ends: TypeAlias = tuple[bool, bool]  # whether a text begins and ends with a token where the file does not say
_KINDS: dict[str, Callable[[_Metadata], tuple[Tokenizer, _Ends]]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
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


def _add_template(tokenizer: Tokenizer, fields: _Metadata, ends: _Ends) -> None:
    """Add the start and end tokens that the file requires around a text."""
    from tokenizers.processors import TemplateProcessing

    template, tokens = ["$A"], []
    for name, default in zip(("bos", "eos"), ends, strict=True):
        if not fields.value(f"add_{name}_token", bool, default):
            continue
        special = fields.special(name)
        if special is None:
            raise RegardError(f"tokenizer.ggml.add_{name}_token is true, but there is no {name} token")
        template.insert(0 if name == "bos" else len(template), name)
        tokens.append({"id": name, "ids": [special[0]], "tokens": [special[1]]})
    if tokens:
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=tokens)
