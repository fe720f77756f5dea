"""What the files beside the vocabulary change of a tokenizer: its class, its settings and the tokens that were added.

As transformers 5 reads them: a tokenizer of BERT's or RoBERTa's kind is made anew from its vocabulary and the settings
in ``tokenizer_config.json``, whatever ``tokenizer.json`` says of letter case or of a space before the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.text.byte_level import ByteLevelSettings, add_roberta_ends
from regard.text.tokenizer_config import token_content
from regard.text.wordpiece import WordPieceSettings, add_bert_ends, bert_normalizer

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
_FROM_JSON = "TokenizersBackend"  # of transformers: a tokenizer.json as it is
# By model type, as transformers has it.
_OF_MODEL_TYPE = {
    "albert": "AlbertTokenizer", "bart": "RobertaTokenizer", "bert": "BertTokenizer", "clip": "CLIPTokenizer",
    "deberta-v2": "DebertaV2Tokenizer", "distilbert": "BertTokenizer", "electra": "BertTokenizer",
    "gemma2": "GemmaTokenizer", "gemma3_text": "GemmaTokenizer", "gpt2": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer", "mistral": _FROM_JSON, "mixtral": _FROM_JSON, "modernbert": _FROM_JSON,
    "mpnet": "MPNetTokenizer", "nomic_bert": "BertTokenizer", "olmo2": _FROM_JSON, "opt": "GPT2Tokenizer",
    "phi3": _FROM_JSON, "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "qwen3_moe": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer", "t5": "T5Tokenizer", "xlm-roberta": "XLMRobertaTokenizer",
}  # fmt: skip
_ANY_CLASS = ("deepseek_v3", "gpt_oss", "llama", "smollm3")  # types that have none of their own
_WRONG_CLASSES = ("modernbert", "phi3", "qwen2")  # types whose published files name another class than they mean
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def tokenizer_class(folder: Path) -> str | None:
    """Return the class of the tokenizer in `folder`, without the ending Fast; None where no file says it."""
    settings, config = (read_json_object(folder / name) or {} for name in ("tokenizer_config.json", "config.json"))
    model_type, declared = config.get("model_type"), settings.get("tokenizer_class", config.get("tokenizer_class"))
    of_type = _OF_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
    if of_type == _FROM_JSON or (of_type is not None and model_type in _WRONG_CLASSES):
        return of_type
    if isinstance(declared, str):
        return declared.removesuffix("Fast")
    return _FROM_JSON if model_type in _ANY_CLASS else of_type


def apply_class(
    backend: Tokenizer, kind: str | None, word_pieces: WordPieceSettings, byte_level: ByteLevelSettings
) -> None:
    """Change what the class of a tokenizer makes anew of a tokenizer.json, by its settings."""
    from tokenizers import models, pre_tokenizers

    if kind in WORD_PIECES and isinstance(backend.model, models.WordPiece):
        backend.model.unk_token = word_pieces.unk_token
        backend.normalizer = bert_normalizer(word_pieces)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        add_bert_ends(backend, word_pieces)
    elif kind in BYTE_LEVEL and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        space = byte_level.add_prefix_space
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
        if kind != "GPT2Tokenizer":
            add_roberta_ends(backend, byte_level.cls_token, byte_level.sep_token, add_prefix_space=space)


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
    special = {token_content(token) for token in named}
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
        raise RegardError(f"{path} does not give the ids of its added tokens: {truncate(decoder)}") from error
    yield from tokens
    for token in named:
        yield _token(AddedToken, {**token, "special": True} if isinstance(token, dict) else token, path)


def _token(kind: Any, token: Any, path: Path) -> Any:
    """Return an added token from its text, which is special, or from its fields."""
    content = token_content(token)
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
        raise RegardError(f"{path} has an added token that is not text: {truncate(token)}") from error
