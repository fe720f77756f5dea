"""The tokenizer that the metadata of a GGUF file describe, built with the `tokenizers` library. Knows no files.

A file names one of two kinds: ``gpt2``, byte-level BPE with its merges, where a second name says how the text is cut
before; and ``llama``, the BPE of SentencePiece, whose merges follow from the scores of its pieces. What the names stand
for is said in llama.cpp's `llama-vocab.cpp`, and in the `tokenizer.json` of the models that they are called after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # types of tokens
_LONGEST_PIECE = 128  # characters; SentencePiece makes none above 16 unless told to, and no model goes far beyond
_SPACE = "▁"

_LETTERS_IN_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN2 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_GPT4O = _LETTERS_IN_CASE % ((_ENDINGS + "?",) * 2) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_TEKKEN = _LETTERS_IN_CASE % ("", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

# By the names that files give: the expressions that a text is cut with, one after the other.
_CUTS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "gpt-4o": (_GPT4O,),
    "tekken": (_TEKKEN,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})  # a word that is a token is not cut
_BEGINS = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})  # with a token, unless the file says otherwise
_COMPOSED = frozenset({"qwen2"})  # to Unicode's form C


def build_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of the ``tokenizer.ggml.*`` in `metadata`.

    Raises
    ------
    RegardError
        Its kind or the way it cuts texts is not known here, or its vocabulary is not sound.
    """
    given = _Given(metadata)
    kind = given.value("model", str)
    if kind == "gpt2":
        tokenizer, begins = _byte_level(given)
    elif kind == "llama":
        tokenizer, begins = _sentencepiece(given)
    else:
        raise RegardError(f"its tokenizer is of kind {kind!r}; regard builds from GGUF: 'gpt2', 'llama'")
    _add_whole_tokens(tokenizer, given)
    _add_ends(tokenizer, given, begins)
    return tokenizer


def special_token(metadata: Mapping[str, Any], name: str) -> tuple[int, str] | None:
    """Return the id and the token that the file names as ``bos``, ``eos``, ``unknown`` or ``padding``."""
    return _Given(metadata).special(name)


class _Given:
    """The metadata of a tokenizer, checked as they are taken."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens: list[str] = self.texts("tokens")

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """Return one value, `default` where there is none."""
        value = self._metadata.get(f"tokenizer.ggml.{key}", default)
        if value is not None and type(value) is not kind:
            raise RegardError(f"tokenizer.ggml.{key} must be a {kind.__name__}, not {ascii(value)[:80]}")
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list):
            raise RegardError(f"tokenizer.ggml.{key} must be a list of texts" + (", but is missing" * (value is None)))
        return value

    def numbers(self, key: str) -> np.ndarray:
        """Return an array with one finite number for each token."""
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, np.ndarray) or len(value) != len(self.tokens) or not np.isfinite(value).all():
            raise RegardError(f"tokenizer.ggml.{key} must have a number for each of the {len(self.tokens)} tokens")
        return value

    def types(self) -> list[int]:
        """Return the type of each token; all are normal where the file does not say."""
        if "tokenizer.ggml.token_type" not in self._metadata:
            return [_NORMAL] * len(self.tokens)
        types: list[int] = self.numbers("token_type").tolist()
        return types

    def special(self, name: str) -> tuple[int, str] | None:
        """Return a special token, None where the file names none."""
        index = self.value(f"{name}_token_id", int)
        if index is None:
            return None
        if not 0 <= index < len(self.tokens):
            raise RegardError(f"tokenizer.ggml.{name}_token_id is {index}, but there are {len(self.tokens)} tokens")
        return index, self.tokens[index]


def _byte_level(given: _Given) -> tuple[Tokenizer, bool]:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    cut = given.value("pre", str, "default")
    if cut not in _CUTS:
        known = ", ".join(map(repr, _CUTS))
        raise RegardError(f"its pre-tokenizer (tokenizer.ggml.pre) is {cut!r}; regard knows: {known}")
    merges = []
    for merge in given.texts("merges"):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise RegardError(f"{ascii(merge)[:80]} of its merges is not two pieces")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(given.tokens)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=cut in _WHOLE_WORDS_FIRST))
    if cut in _COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Split(Regex(expression), behavior="isolated") for expression in _CUTS[cut]]
    space = given.value("add_space_prefix", bool, False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, cut in _BEGINS


def _sentencepiece(given: _Given) -> tuple[Tokenizer, bool]:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    vocabulary = {token: index for index, token in enumerate(given.tokens)}
    normal = [token for token, kind in zip(given.tokens, given.types(), strict=True) if kind == _NORMAL]
    unknown = given.special("unknown")
    tokenizer = Tokenizer(
        BPE(
            vocabulary,
            _merges(normal, dict(zip(given.tokens, given.numbers("scores").tolist(), strict=True)), vocabulary),
            unk_token=unknown[1] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [normalizers.Replace(" ", _SPACE)]
    spelling: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if given.value("add_space_prefix", bool, True):
        steps.insert(0, normalizers.Prepend(_SPACE))
        spelling.append(decoders.Strip(" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(spelling)
    if not any(re.search(f"[^{_SPACE}]{_SPACE}", piece) for piece in normal):
        # No piece goes on behind a word: cutting there changes no token and tells where words are.
        cut = Regex(f"{_SPACE}+[^{_SPACE}]*|[^{_SPACE}]+")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(cut, behavior="isolated")
    return tokenizer, True


def _merges(pieces: Sequence[str], scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs that make a piece, those of the highest score first; of equal scores the first piece."""
    if (longest := max(map(len, pieces), default=0)) > _LONGEST_PIECE:
        raise RegardError(f"it has a piece of {longest} characters; the longest that are read have {_LONGEST_PIECE}")
    merges = []
    for piece in sorted(dict.fromkeys(pieces), key=lambda piece: (-scores[piece], vocabulary[piece])):
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return merges


def _add_whole_tokens(tokenizer: Tokenizer, given: _Given) -> None:
    """Let tokens that are found whole in a text be so: special ones, and those that a person has defined."""
    from tokenizers import AddedToken

    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        chosen = [token for token, its in zip(given.tokens, given.types(), strict=True) if its == kind and token]
        added = [AddedToken(token, normalized=False, special=special) for token in chosen]
        if special:
            tokenizer.add_special_tokens(added)
        else:
            tokenizer.add_tokens(added)


def _add_ends(tokenizer: Tokenizer, given: _Given, begins: bool) -> None:
    """Put the tokens around a text that the file asks for."""
    from tokenizers.processors import TemplateProcessing

    template, tokens = ["$A"], []
    for name, wanted in (("bos", begins), ("eos", False)):
        if not given.value(f"add_{name}_token", bool, wanted):
            continue
        found = given.special(name)
        if found is None:
            raise RegardError(f"it is to add the {name} token (tokenizer.ggml.add_{name}_token), but names none")
        template.insert(0 if name == "bos" else len(template), name)
        tokens.append({"id": name, "ids": [found[0]], "tokens": [found[1]]})
    if tokens:
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=tokens)
