"""Byte-level BPE from ``vocab.json`` and ``merges.txt``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard.text.lines import split_vocabulary
from regard.text.tokenizer_class import NO_ADDED_TOKENS, AddedTokens
from regard.text.tokenizer_config import ClassSettings
from regard.text.tokenizer_rules import by_rule

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_END_OF_TEXT = "<|endoftext|>"


def build_byte_level(
    vocabulary: str,
    merges: str,
    kind: str | None,
    settings: ClassSettings,
    added: AddedTokens = NO_ADDED_TOKENS,
) -> Tokenizer:
    """Return the tokenizer of the contents of a ``vocab.json`` and a ``merges.txt``, with more tokens.

    Where no class is known, a vocabulary with start and end tokens is RoBERTa's, which adds them to every text; one
    with ``<|endoftext|>`` is GPT-2's, which adds none by default.

    Raises
    ------
    RegardError
        A file is malformed, or the vocabulary is of neither kind: other models split text differently.

    Notes
    -----
    Sennrich, Haddow and Birch (2016), https://arxiv.org/abs/1508.07909; on bytes: Radford et al. (2019), "Language
    models are unsupervised multitask learners", section 2.2.
    """
    from tokenizers.models import BPE

    ids = _vocabulary(vocabulary)
    if kind is None:
        cls, sep = settings.tokens.get("cls_token") or "<s>", settings.tokens.get("sep_token") or "</s>"
        kind = "RobertaTokenizer" if cls in ids and sep in ids else "GPT2Tokenizer" if _END_OF_TEXT in ids else None
        if kind is None:
            raise RegardError(
                f"its {len(ids)} tokens include neither {cls} and {sep} (RoBERTa, BART) nor {_END_OF_TEXT} (GPT-2); "
                f"for other models use tokenizer.json"
            )
    return by_rule(kind, settings, added, model=BPE(ids, _merges(merges)))


def _vocabulary(text: str) -> dict[str, int]:
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"vocab.json is not JSON: {error}") from error
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < 1 << 32 for i in ids.values()):
        raise RegardError("vocab.json must map each token to its id")
    return ids


def _merges(text: str) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(split_vocabulary(text), 1):
        if not line or line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise RegardError(f"line {number} of merges.txt is not two pieces: {ascii(line)[:80]}")
        merges.append((left, right))
    return merges
