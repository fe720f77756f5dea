"""The tokenizer that the metadata of a GGUF file describes, built with the `tokenizers` library.

There are two kinds: ``gpt2``, byte-level BPE with its merges and a named pre-tokenizer; and ``llama``, the BPE of
SentencePiece, whose merges follow from the scores of its pieces. The names are defined by llama.cpp's `llama-vocab.cpp`
and by the `tokenizer.json` of the models that they are named after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard.text.token_bytes import SPACE
from regard.text.tokenizer_components import QWEN_WORDS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # types of tokens
_MAX_PIECE = 128  # characters; the default of SentencePiece is 16

_LETTERS_IN_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_GPT4O = _LETTERS_IN_CASE % ((_ENDINGS + "?",) * 2) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_TEKKEN = _LETTERS_IN_CASE % ("", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

# By name: the regular expressions that split a text, in order.
_PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "qwen2": (QWEN_WORDS,),
    "deepseek-r1-qwen": (QWEN_WORDS,),
    "gpt-4o": (_GPT4O,),
    "tekken": (_TEKKEN,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
_IGNORE_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})  # a word that is a token is not split
_ADD_BOS = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})  # by default
_NFC = frozenset({"qwen2", "deepseek-r1-qwen"})  # normalise to Unicode NFC


def build_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of the ``tokenizer.ggml.*`` in `metadata`.

    An error if its kind or its pre-tokenizer is not supported, or if its vocabulary is malformed.
    """
    fields = _Metadata(metadata)
    kind = fields.value("model", str)
    if kind == "gpt2":
        tokenizer, add_bos = _byte_level(fields)
    elif kind == "llama":
        tokenizer, add_bos = _sentencepiece(fields)
    else:
        raise RegardError(f"its tokenizer has kind {kind!r}; supported: 'gpt2', 'llama'")
    _add_unsplit_tokens(tokenizer, fields)
    _add_template(tokenizer, fields, add_bos)
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


def _byte_level(fields: _Metadata) -> tuple[Tokenizer, bool]:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    name = fields.value("pre", str, "default")
    if name not in _PRE_TOKENIZERS:
        supported = ", ".join(map(repr, _PRE_TOKENIZERS))
        raise RegardError(f"its pre-tokenizer (tokenizer.ggml.pre) is {name!r}; supported: {supported}")
    merges = []
    for merge in fields.strings("merges"):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise RegardError(f"{ascii(merge)[:80]} of its merges is not a pair of pieces")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(fields.tokens)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=name in _IGNORE_MERGES))
    if name in _NFC:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [
        pre_tokenizers.Split(Regex(expression), behavior="isolated") for expression in _PRE_TOKENIZERS[name]
    ]
    # llama.cpp puts a space before a text of SentencePiece alone: add_space_prefix has no effect here.
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, name in _ADD_BOS


def _sentencepiece(fields: _Metadata) -> tuple[Tokenizer, bool]:
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
    return tokenizer, True


def _merges(pieces: Sequence[str], scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs that merge into a piece, by descending score, then by index."""
    if (longest := max(map(len, pieces), default=0)) > _MAX_PIECE:
        raise RegardError(f"it has a piece of {longest} characters; the limit is {_MAX_PIECE}")
    merges = []
    for piece in sorted(dict.fromkeys(pieces), key=lambda piece: (-scores[piece], vocabulary[piece])):
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        in_vocabulary = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += sorted(in_vocabulary, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return merges


def _add_unsplit_tokens(tokenizer: Tokenizer, fields: _Metadata) -> None:
    """Add the tokens that are never split: special and user-defined ones."""
    from tokenizers import AddedToken

    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        tokens = [
            token
            for token, token_kind in zip(fields.tokens, fields.types(), strict=True)
            if token_kind == kind and token
        ]
        added = [AddedToken(token, normalized=False, special=special) for token in tokens]
        if special:
            tokenizer.add_special_tokens(added)
        else:
            tokenizer.add_tokens(added)


def _add_template(tokenizer: Tokenizer, fields: _Metadata, add_bos: bool) -> None:
    """Add the start and end tokens that the file requires around a text."""
    from tokenizers.processors import TemplateProcessing

    template, tokens = ["$A"], []
    for name, default in (("bos", add_bos), ("eos", False)):
        if not fields.value(f"add_{name}_token", bool, default):
            continue
        special = fields.special(name)
        if special is None:
            raise RegardError(f"tokenizer.ggml.add_{name}_token is true, but there is no {name} token")
        template.insert(0 if name == "bos" else len(template), name)
        tokens.append({"id": name, "ids": [special[0]], "tokens": [special[1]]})
    if tokens:
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=tokens)
