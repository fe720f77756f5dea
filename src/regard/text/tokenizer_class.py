"""What the files beside the vocabulary change of a tokenizer: its class, its settings and the tokens that were added.

As transformers 5 reads them: a tokenizer of BERT's or RoBERTa's kind is made anew from its vocabulary and the settings
in ``tokenizer_config.json``, whatever ``tokenizer.json`` says of letter case or of a space before the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.text.byte_level import add_roberta_ends
from regard.text.wordpiece import WordPieceSettings, bert_normalizer

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

WORD_PIECES = (
    "BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "LayoutLMTokenizer",
    "LxmertTokenizer", "MobileBertTokenizer", "MPNetTokenizer", "SqueezeBertTokenizer",
)  # fmt: skip
BYTE_LEVEL = (
    "BartTokenizer",
    "GPT2Tokenizer",
    "LEDTokenizer",
    "LongformerTokenizer",
    "MvpTokenizer",
    "RobertaTokenizer",
)
# Of models whose files name no class.
_OF_MODEL_TYPE = {
    "bart": "RobertaTokenizer", "bert": "BertTokenizer", "clip": "CLIPTokenizer", "distilbert": "BertTokenizer",
    "electra": "BertTokenizer", "gpt2": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer", "mpnet": "MPNetTokenizer",
    "nomic_bert": "BertTokenizer", "opt": "GPT2Tokenizer", "roberta": "RobertaTokenizer",
}  # fmt: skip
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def tokenizer_class(folder: Path) -> str | None:
    """Return the class of the tokenizer in `folder`, without the ending Fast; None where no file says it."""
    config: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "config.json"):
        config = read_json_object(folder / name) or {}
        if isinstance(found := config.get("tokenizer_class"), str):
            return found.removesuffix("Fast")
    return _OF_MODEL_TYPE.get(str(config.get("model_type")))


def apply_class(backend: Tokenizer, kind: str | None, settings: WordPieceSettings, *, add_prefix_space: bool) -> None:
    """Change what the class of a tokenizer makes anew of a tokenizer.json, by its settings."""
    from tokenizers import models, pre_tokenizers

    if kind in WORD_PIECES and isinstance(backend.model, models.WordPiece):
        backend.normalizer = bert_normalizer(settings)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    elif kind in BYTE_LEVEL and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        if kind != "GPT2Tokenizer":
            add_roberta_ends(backend, add_prefix_space=add_prefix_space)


def added_tokens(folder: Path) -> Iterator[AddedToken]:
    """Yield the tokens that the files of `folder` have beside the vocabulary, and the special ones.

    ``tokenizer_config.json`` has them as ``added_tokens_decoder``; else they are in ``added_tokens.json``, and the
    special ones in ``special_tokens_map.json``. A tokenizer to which one is added twice keeps the first.
    """
    from tokenizers import AddedToken

    config = read_json_object(folder / "tokenizer_config.json") or {}
    decoder = config.get("added_tokens_decoder")
    path = folder / "tokenizer_config.json"
    if decoder is None:
        config |= read_json_object(folder / "special_tokens_map.json") or {}
    named = [config[name] for name in _NAMED if config.get(name) is not None]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(name) or []
        named += list(more.values()) if isinstance(more, dict) else more if isinstance(more, list) else []
    special = {_content(token) for token in named}
    if decoder is None:
        path = folder / "added_tokens.json"
        added = read_json_object(path) or {}
        decoder = {
            i: {"content": token, "normalized": token not in special, "special": token in special}
            for token, i in added.items()
        }
    try:
        tokens = [_token(AddedToken, decoder[i], path) for i in sorted(decoder, key=int)]
    except (TypeError, ValueError, AttributeError) as error:
        raise RegardError(f"{path} gives its added tokens by no ids: {truncate(decoder)}") from error
    yield from tokens
    for token in named:
        yield _token(AddedToken, {**token, "special": True} if isinstance(token, dict) else token, path)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, Mapping) else token


def _token(kind: Any, token: Any, path: Path) -> Any:
    """Return an added token from its text, which is special, or from its fields."""
    content = _content(token)
    try:
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate
        if not isinstance(content, str) or not content:
            raise TypeError
        flags = (
            {name: bool(token[name]) for name in _FLAGS if name in token}
            if isinstance(token, dict)
            else {"special": True}
        )
        return kind(content, **flags)
    except (TypeError, ValueError) as error:
        raise RegardError(f"{path} has an added token that is no text: {truncate(token)}") from error
