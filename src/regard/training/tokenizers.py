"""Tokenizers of new models: one token for each character, or byte pairs learned from a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.text import SubwordTokenizer
from regard.text.library import build, library

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNKNOWN, MASK = "<pad>", "<unknown>", "<mask>"
"""The names of the mask, in tokenizers of new and of loaded models."""


def character_tokenizer(characters: Iterable[str], special: Sequence[str] = (PAD,)) -> SubwordTokenizer:
    """Return a tokenizer whose tokens are characters, in this order, and then special tokens."""
    listed = list(characters)
    vocabulary = {sign: i for i, sign in enumerate([*listed, *special])}
    unknown = UNKNOWN if UNKNOWN in special else None
    model: dict[str, object] = {"type": "BPE", "unk_token": unknown, "vocab": vocabulary, "merges": []}
    return _finished(build(model, decoder={"type": "Fuse"}), special)


def word_tokenizer(words: Iterable[str], special: Sequence[str] = (PAD,)) -> SubwordTokenizer:
    """Return a tokenizer whose tokens are words, in this order, and then special tokens; texts have blanks between."""
    vocabulary = {word: i for i, word in enumerate([*words, *special])}
    model: dict[str, object] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": PAD}
    return _finished(build(model, pre_tokenizer={"type": "WhitespaceSplit"}), special)


@needed("learning byte pairs")
def byte_pair_tokenizer(text: str, size: int, special: Sequence[str] = (PAD,)) -> SubwordTokenizer:
    """Learn byte-level byte-pair encoding with `size` tokens in all from a text.

    References
    ----------
    Sennrich et al. (2016), https://arxiv.org/abs/1508.07909; Radford et al. (2019), for the bytes.
    """
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    least = 256 + len(special)
    if size < least:
        raise RegardError(f"byte pairs need a vocabulary of at least {least} tokens, got {size}")
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([text], trainer)
    return _finished(backend, special)


def _finished(backend: Tokenizer, special: Sequence[str]) -> SubwordTokenizer:
    backend.add_special_tokens([library().AddedToken(name, special=True, normalized=False) for name in special])
    return SubwordTokenizer(backend, pad_id=backend.token_to_id(PAD))
