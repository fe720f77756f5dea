"""What the files beside the vocabulary say of a tokenizer: its class, and the tokens that were added.

As transformers 5 reads them; `tokenizer_rules` has what a class makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.text.library import library
from regard.text.tokenizer_config import SPECIAL_NAMES, TokenizerFiles, token_content

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_FROM_JSON = "TokenizersBackend"  # of transformers: a tokenizer.json as it is
# By model type, as transformers has it.
_OF_MODEL_TYPE = {
    "albert": "AlbertTokenizer", "bart": "RobertaTokenizer", "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer", "clip": "CLIPTokenizer",
    "cohere": "CohereTokenizer", "cohere2": "CohereTokenizer",
    "deberta-v2": "DebertaV2Tokenizer", "distilbert": "BertTokenizer", "electra": "BertTokenizer",
    "gemma2": "GemmaTokenizer", "gemma3": "GemmaTokenizer", "gemma3_text": "GemmaTokenizer",
    "glm": _FROM_JSON, "glm4": _FROM_JSON, "gpt2": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer", "granite": _FROM_JSON, "mistral": _FROM_JSON,
    "mixtral": _FROM_JSON, "modernbert": _FROM_JSON, "mpnet": "MPNetTokenizer", "mt5": "T5Tokenizer",
    "nomic_bert": "BertTokenizer", "olmo2": _FROM_JSON, "opt": "GPT2Tokenizer",
    "phi3": _FROM_JSON, "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "qwen3_moe": "Qwen2Tokenizer",
    "qwen3_next": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer", "starcoder2": "GPT2Tokenizer", "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}  # fmt: skip
# Types that have none of their own.
_ANY_CLASS = ("deepseek_v3", "gemma4", "gemma4_text", "gpt_oss", "llama", "llama4", "llama4_text", "smollm3")
_WRONG_CLASSES = ("modernbert", "phi3", "qwen2")  # types whose published files name another class than they mean
_OTHER_RULES = frozenset((
    "Barthez", "Bartpho", "BertGeneration", "BertJapanese", "Bertweet", "BigBird", "BioGpt", "Blenderbot",
    "BlenderbotSmall", "ByT5", "CTRL", "Canine", "Clvp", "Cpm", "CpmAnt", "DPRContextEncoder", "DPRQuestionEncoder",
    "DPRReader", "Dia", "Esm", "Esmc", "FSMT", "FastSpeech2Conformer", "Flaubert", "GPTNeoXJapanese", "GPTSw3",
    "Lasr", "LayoutLMv2", "LayoutLMv3", "LayoutXLM", "Luke", "M2M100", "MBart", "MBart50", "MLuke", "Marian",
    "MarkupLM", "Mgpstr", "MyT5", "Nllb", "Nougat", "OpenAIGPT", "PLBart", "Pegasus", "Perceiver", "Phobert",
    "Pop2Piano", "ProphetNet", "Rag", "Reformer", "RemBert", "RoCBert", "RoFormer", "SeamlessM4T", "Siglip",
    "Siglip2", "Speech2Text", "SpeechT5", "Splinter", "Tapas", "Tipsv2", "Udop", "VideoPrism", "Vits",
    "Wav2Vec2CTC", "Wav2Vec2PhonemeCTC", "Whisper", "XGLM", "XLM", "XLNet",
))  # fmt: skip  # of transformers: they do not read a tokenizer.json as it is
_EXTRA = ("extra_special_tokens", "additional_special_tokens")  # of transformers 5, and its name before
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def tokenizer_class(files: TokenizerFiles, *, is_byte_level: bool = False) -> str | None:
    """Return the class of the tokenizer of a folder, without the ending Fast; None where no file says it.

    `is_byte_level`: whether its tokenizer.json maps bytes, which no tokenizer of Llama's class does, though files of
    Llama 3 and DeepSeek name it.
    """
    model_type = files.model.get("model_type")
    declared = files.settings.get("tokenizer_class") or files.model.get("tokenizer_class")
    of_type = _OF_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
    if of_type == _FROM_JSON or (of_type is not None and model_type in _WRONG_CLASSES):
        return of_type
    if isinstance(declared, str):
        kind = declared.removesuffix("Fast")
        return _FROM_JSON if kind == "LlamaTokenizer" and is_byte_level else kind
    return _FROM_JSON if model_type in _ANY_CLASS else of_type


def has_other_rules(kind: str) -> bool:
    """Return whether a class builds a tokenizer by a constructor that is not reproduced here."""
    return kind.removesuffix("Tokenizer") in _OTHER_RULES


class AddedTokens(NamedTuple):
    """The tokens that the files of a folder add to its vocabulary."""

    listed: list[AddedToken]  # with their ids
    named: Mapping[str, AddedToken]  # special tokens by name
    extra: list[AddedToken]  # special tokens without a name


NO_ADDED_TOKENS = AddedTokens([], {}, [])


def added_tokens(
    files: TokenizerFiles, stored: Mapping[int, AddedToken] | None = None, default_extra: Sequence[str] = ()
) -> AddedTokens:
    """Return the tokens that the files of a folder add to its vocabulary.

    ``tokenizer_config.json`` lists them as ``added_tokens_decoder``, with the flags that hold; else they are `stored`
    in ``tokenizer.json`` and in ``added_tokens.json``, and the special ones in ``special_tokens_map.json``. One that is
    named has its flags only where no file lists it. `default_extra` are special tokens of the class, where the files
    name none.
    """
    decoder, path = files.settings.get("added_tokens_decoder"), files.settings_path
    extra = _extra_tokens(files)
    config = {**files.settings, **files.special_tokens_map}
    others = [name for name in config if name.endswith("_token") and name not in SPECIAL_NAMES]
    others.sort(key=lambda name: isinstance(config[name], str))  # those with fields come first
    named = {name: config.get(name) for name in (*SPECIAL_NAMES, *others)}
    named = {name: token for name, token in named.items() if isinstance(token, str | dict)} | extra.named
    added: Mapping[str, Any] = {}
    if not files.has_added_tokens_decoder:
        path = files.folder / "added_tokens.json"
        added = read_json_object(path) or {}
    special = set(_contents([*map(config.get, SPECIAL_NAMES), *(extra.unnamed or ())]))
    try:
        flags = {token: {"normalized": token not in special, "special": token in special} for token in added}
        decoder = {i: {"content": token, **flags[token]} for token, i in added.items()} | dict(decoder or stored or {})
        listed = {token.content: token for i in sorted(decoder, key=int) for token in [_token(decoder[i], path)]}
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RegardError(f"{path} does not give the ids of its added tokens: {truncate(decoder)}") from error
    for content in _contents(named.values()):
        if content in listed:
            listed[content].special = True
    unnamed = extra.unnamed
    if unnamed is None:
        unnamed = extra.older if extra.older or extra.named else [*default_extra]

    def special_token(token: Any) -> AddedToken:
        return _token({**token, "special": True} if isinstance(token, dict) else token, path)

    return AddedTokens(
        [*listed.values()],
        {name: special_token(token) for name, token in named.items()},
        [special_token(token) for token in unnamed],
    )


def named_tokens(files: TokenizerFiles, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the special tokens of a folder by name, as its chat template sees them; `defaults` are of its class."""
    config = {**files.settings, **files.special_tokens_map}
    named = {name: value for name, value in config.items() if name.endswith("_token")} | _extra_tokens(files).named
    contents = {name: token_content(value) for name, value in {**defaults, **named}.items()}
    return {name: content for name, content in contents.items() if isinstance(content, str)}


def add_in_order(tokenizer: Tokenizer, added: AddedTokens, own: Mapping[str, AddedToken]) -> None:
    """Add the special tokens of a class (`own`, by name) and those of files, in the order in which new ones get ids.

    A name has the token of the files, if they have one. A token that is listed keeps its properties; where one text has
    several names, the last to bring other properties counts.
    """
    listed = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in added.listed:
        if token.content not in listed:
            listed.add(token.content)
            tokenizer.add_tokens([token])
    tokens = {repr(token): token for token in (*{**own, **added.named}.values(), *added.extra)}
    tokenizer.add_tokens([token for token in tokens.values() if token.content not in listed])


def _contents(tokens: Iterable[Any]) -> list[str]:
    return [content for content in map(token_content, tokens) if isinstance(content, str)]


class _ExtraTokens(NamedTuple):
    """Special tokens in addition to `SPECIAL_NAMES`."""

    unnamed: list[Any] | None  # None: no file sets them
    older: list[Any]  # unnamed ones under the name of transformers 4, which count where no others are set
    named: dict[str, Any]  # by names of the model's own


def _extra_tokens(files: TokenizerFiles) -> _ExtraTokens:
    new, old = _EXTRA
    more = files.special_tokens_map
    lists = {name: files.settings[name] for name in _EXTRA if name in files.settings}
    if old in lists and not lists.get(new):
        lists[new] = lists.pop(old)
    named = {**lists.pop(new)} if isinstance(lists.get(new), dict) else {}
    if isinstance(more.get(new), list):
        lists[new] = [*_listed(lists.get(new)), *more[new]]
    elif isinstance(more.get(new), dict):
        lists.pop(new, None)
        named |= more[new]
    elif new in more:
        lists[new] = more[new]
    older = _listed(more.get(old, lists.get(old)))
    return _ExtraTokens(_listed(lists[new]) if new in lists else None, older, named)


def _listed(tokens: Any) -> list[Any]:
    return tokens if isinstance(tokens, list) else []


def _token(token: Any, path: Path) -> AddedToken:
    """Return an added token from its text, which is special, or from its fields."""
    kind: type[AddedToken] = library().AddedToken
    if isinstance(token, kind):
        return token
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
