"""BERT's WordPiece tokenizer, built from the pieces of a ``vocab.txt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.text.lines import SPACES, split_vocabulary
from regard.text.tokenizer_class import NO_ADDED_TOKENS, AddedTokens
from regard.text.tokenizer_config import ClassSettings
from regard.text.tokenizer_rules import by_rule, special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@needed("a vocab.txt")
def build_wordpiece(
    vocabulary: str,
    kind: str,
    settings: ClassSettings,
    added: AddedTokens = NO_ADDED_TOKENS,
) -> Tokenizer:
    """Return the tokenizer of a class of BERT's kind from the content of a ``vocab.txt``, with more tokens.

    The id of a piece is the number of its line, from 0; of equal pieces the last counts.

    Raises
    ------
    RegardError
        It lacks the token for unknown words, start or end; all missing ones are named.
    """
    from tokenizers.models import WordPiece

    pieces = [line.rstrip(SPACES) for line in split_vocabulary(vocabulary)]
    ids = {piece: index for index, piece in enumerate(pieces)}
    special = special_tokens(kind, settings)
    required = (special[name] for name in ("unk_token", "cls_token", "sep_token"))
    if missing := [token for token in required if token and token not in ids]:
        raise RegardError(f"its {len(pieces)} lines lack {', '.join(missing)}, which a WordPiece vocabulary must have")
    return by_rule(kind, settings, added, model=WordPiece(ids, unk_token=special["unk_token"]))
