"""BERT's WordPiece tokenizer, built from the pieces of a ``vocab.txt``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer


@dataclass(frozen=True)
class WordPieceSettings:
    """The settings that a ``vocab.txt`` does not contain. The defaults are those of BERT."""

    lowercase: bool = True  # whether the text is lower-cased
    strip_accents: bool | None = None  # whether accents are removed; None: as `lowercase`
    split_chinese: bool = True  # whether every Chinese character is a word of its own
    unk_token: str = "[UNK]"  # for an unknown word
    cls_token: str = "[CLS]"  # for the start
    sep_token: str = "[SEP]"  # for the end
    pad_token: str = "[PAD]"  # never split, if the vocabulary has it
    mask_token: str = "[MASK]"  # never split, if the vocabulary has it


MPNET_TOKENS = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
"""Of the tokenizer of MPNet, where it names no others."""


def add_missing(tokenizer: Tokenizer, tokens: Iterable[AddedToken | str]) -> None:
    """Add tokens in order, strings as special ones; one that was added before keeps its properties."""
    from tokenizers import AddedToken

    there = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in tokens:
        each = AddedToken(token, special=True, normalized=False) if isinstance(token, str) else token
        if each.content not in there:
            there.add(each.content)
            tokenizer.add_tokens([each])


def bert_normalizer(settings: WordPieceSettings) -> Any:
    """Return what BERT does to a text before it is split."""
    from tokenizers.normalizers import BertNormalizer

    return BertNormalizer(
        lowercase=settings.lowercase,
        strip_accents=settings.strip_accents,
        handle_chinese_chars=settings.split_chinese,
    )


def add_bert_ends(tokenizer: Tokenizer, settings: WordPieceSettings) -> None:
    """Put the tokens for the start and the end around each text, if the vocabulary has them."""
    from tokenizers.processors import TemplateProcessing

    cls, sep = settings.cls_token, settings.sep_token
    start, end = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    if start is not None and end is not None:
        tokenizer.post_processor = TemplateProcessing(
            single=[cls, "$A", sep],
            pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
            special_tokens=[(cls, start), (sep, end)],
        )


def build_wordpiece(pieces: Sequence[str], settings: WordPieceSettings, added: Iterable[AddedToken] = ()) -> Tokenizer:
    """Return a tokenizer in which the id of a piece is its index in `pieces`; of equal pieces the last counts.

    `added` are further tokens, which are never split.

    Raises
    ------
    RegardError
        `pieces` lacks the token for unknown words, start or end; all missing ones are named.

    Notes
    -----
    Devlin et al., 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
    """
    from tokenizers import Tokenizer
    from tokenizers.decoders import WordPiece as WordPieceDecoder
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer

    ids = {piece: index for index, piece in enumerate(pieces)}
    cls, sep, unk = settings.cls_token, settings.sep_token, settings.unk_token
    if missing := [token for token in (unk, cls, sep) if token not in ids]:
        raise RegardError(f"its {len(pieces)} lines lack {', '.join(missing)}, which a WordPiece vocabulary must have")
    tokenizer = Tokenizer(WordPiece(ids, unk_token=unk))
    add_missing(tokenizer, added)
    special = [settings.pad_token, unk, cls, sep, settings.mask_token]
    add_missing(tokenizer, (token for token in special if token in ids))
    tokenizer.normalizer = bert_normalizer(settings)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    add_bert_ends(tokenizer, settings)
    tokenizer.decoder = WordPieceDecoder()
    return tokenizer
