"""The byte-level BPE of RoBERTa, BART and GPT-2, built from ``vocab.json`` and ``merges.txt``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True)
class ByteLevelSettings:
    """The settings that the two files do not contain. The defaults are those of RoBERTa and BART.

    Parameters
    ----------
    add_prefix_space
        Whether a space is put before the text, so that its first word is tokenized like any other.
    cls_token, sep_token
        The tokens for the start and for the end.
    unk_token, pad_token, mask_token
        Tokens that are never split, if the vocabulary has them; `mask_token` includes the spaces before it.
    """

    add_prefix_space: bool = False
    cls_token: str = "<s>"
    sep_token: str = "</s>"
    unk_token: str = "<unk>"
    pad_token: str = "<pad>"
    mask_token: str = "<mask>"


def build_byte_level(vocabulary: str, merges: str, settings: ByteLevelSettings) -> Tokenizer:
    """Return the tokenizer of the contents of a ``vocab.json`` and a ``merges.txt``.

    A vocabulary with start and end tokens is RoBERTa's, which adds them to every text; one with ``<|endoftext|>`` is
    GPT-2's, which adds none.

    Raises
    ------
    RegardError
        A file is malformed, or the vocabulary is of neither kind: other models split text differently.

    Notes
    -----
    Sennrich, Haddow and Birch (2016), https://arxiv.org/abs/1508.07909; on bytes: Radford et al. (2019), "Language
    models are unsupervised multitask learners", section 2.2.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing

    ids = _vocabulary(vocabulary)
    cls, sep = settings.cls_token, settings.sep_token
    is_roberta = cls in ids and sep in ids
    if not is_roberta and _END_OF_TEXT not in ids:
        raise RegardError(
            f"its {len(ids)} tokens include neither {cls} and {sep} (RoBERTa, BART) nor {_END_OF_TEXT} (GPT-2); "
            f"for other models use tokenizer.json"
        )
    tokenizer = Tokenizer(BPE(ids, _merges(merges)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=settings.add_prefix_space)
    tokenizer.decoder = ByteLevelDecoder()
    if is_roberta:
        whole = [token for token in (cls, settings.pad_token, sep, settings.unk_token) if token in ids]
        mask = [AddedToken(settings.mask_token, lstrip=True)] if settings.mask_token in ids else []
        tokenizer.add_special_tokens([*whole, *mask])
        tokenizer.post_processor = RobertaProcessing(
            (sep, ids[sep]), (cls, ids[cls]), trim_offsets=True, add_prefix_space=settings.add_prefix_space
        )
    else:
        tokenizer.add_special_tokens([_END_OF_TEXT])
    return tokenizer


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
    for number, line in enumerate(text.splitlines(), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise RegardError(f"line {number} of merges.txt is not two pieces: {ascii(line)[:80]}")
        merges.append((left, right))
    return merges
