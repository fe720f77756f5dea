"""The classes of tokenizers that transformers 5 makes anew: the model, the components and the special tokens of each.

Such a class takes the vocabulary, the tokens that were added, the table of SentencePiece and, mostly, the tokens around
a text from ``tokenizer.json``; all else follows from ``tokenizer_config.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard.text import tokenizer_components as components
from regard.text.tokenizer_class import NO_ADDED_TOKENS, AddedTokens, add_in_order
from regard.text.tokenizer_config import SPECIAL_NAMES, ClassSettings

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_END_OF_TEXT = "<|endoftext|>"
_MAX_EXTRA_IDS = 10_000


def _named(*tokens: str) -> dict[str, str]:
    """Return special tokens by name, in the order of `SPECIAL_NAMES`; some are empty."""
    return {name: token for name, token in zip(SPECIAL_NAMES, tokens, strict=True) if token}


_S, _E = "<s>", "</s>"
_OF_BERT = _named("", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
_OF_ROBERTA = _named(_S, _E, "<unk>", _E, "<pad>", _S, "<mask>")
_OF_GPT2 = _named(_END_OF_TEXT, _END_OF_TEXT, _END_OF_TEXT, "", "", "", "")
_RULES: dict[str, tuple[str, components.Rule, dict[str, str]]] = {  # the model, the rule, the special tokens
    **{
        f"{name}Tokenizer": ("WordPiece", components.bert, _OF_BERT)
        for name in (
            "Bert",
            "ConvBert",
            "DistilBert",
            "Electra",
            "LayoutLM",
            "Lxmert",
            "MobileBert",
            "SqueezeBert",
        )
    },
    "MPNetTokenizer": ("WordPiece", components.bert, _named(_S, _E, "[UNK]", _E, "<pad>", _S, "<mask>")),
    "FunnelTokenizer": ("WordPiece", components.bert, _named(_S, _E, "<unk>", "<sep>", "<pad>", "<cls>", "<mask>")),
    **{
        f"{name}Tokenizer": ("BPE", components.roberta, _OF_ROBERTA)
        for name in ("Bart", "LED", "Longformer", "Mvp", "Roberta")
    },
    "GPT2Tokenizer": ("BPE", components.gpt2, _OF_GPT2),
    "CodeGenTokenizer": ("BPE", components.codegen, _OF_GPT2),
    "CohereTokenizer": (
        "BPE",
        components.cohere,
        _named("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"),
    ),
    "DebertaTokenizer": (
        "BPE",
        components.deberta,
        _named("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"),
    ),
    "HerbertTokenizer": ("BPE", components.herbert, _named("", "", "<unk>", _E, "<pad>", _S, "<mask>")),
    "GPTNeoXTokenizer": ("BPE", components.gpt_neox, {**_OF_GPT2, "pad_token": "<|padding|>"}),
    **{
        f"{name}Tokenizer": ("BPE", rule, _named("", _END_OF_TEXT, _END_OF_TEXT, "", _END_OF_TEXT, "", ""))
        for name, rule in (("Qwen2", components.qwen2), ("Qwen3_5", components.qwen3_5))
    },
    "CLIPTokenizer": (
        "BPE",
        components.clip,
        _named("<|startoftext|>", _END_OF_TEXT, _END_OF_TEXT, "", _END_OF_TEXT, "", ""),
    ),
    "LlamaTokenizer": ("BPE", components.llama, _named(_S, _E, "<unk>", "", "", "", "")),
    "CodeLlamaTokenizer": (
        "BPE",
        components.code_llama,
        {
            **_named(_S, _E, "<unk>", "", "", "", ""),
            **{f"{name}_token": f"▁<{name[:3].upper()}>" for name in ("prefix", "middle", "suffix")},
            **{"eot_token": "▁<EOT>", "fill_token": "<FILL_ME>"},
        },
    ),
    "GemmaTokenizer": ("BPE", components.gemma, _named("<bos>", "<eos>", "<unk>", "", "<pad>", "", "<mask>")),
    "AlbertTokenizer": (
        "Unigram",
        components.albert,
        _named("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"),
    ),
    "DebertaV2Tokenizer": (
        "Unigram",
        components.deberta_v2,
        _named("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"),
    ),
    "XLMRobertaTokenizer": ("Unigram", components.xlm_roberta, _OF_ROBERTA),
    "CamembertTokenizer": ("Unigram", components.xlm_roberta, _OF_ROBERTA),
    "T5Tokenizer": ("Unigram", components.t5, _named("", _E, "<unk>", "", "<pad>", "", "")),
}
_UNKNOWN_IDS = {"AlbertTokenizer": 1, "T5Tokenizer": 2, "XLMRobertaTokenizer": 3}

FROM_VOCAB_TXT = tuple(kind for kind, (model, *_) in _RULES.items() if model == "WordPiece")
_FROM_MERGES = "Bart CLIP CodeGen Cohere Deberta GPT2 GPTNeoX Herbert LED Longformer Mvp Qwen2 Roberta"
FROM_MERGES = tuple(f"{name}Tokenizer" for name in _FROM_MERGES.split())


def has_rule(kind: str | None, tokenizer: Tokenizer) -> bool:
    """Return whether a class makes anew a tokenizer of a file, whose model must be of its kind."""
    return kind in _RULES and kind != "ConvBertTokenizer" and type(tokenizer.model).__name__ == _RULES[kind][0]


def default_tokens(kind: str) -> Mapping[str, str]:
    """Return the special tokens of a class by name where no file sets them."""
    return _RULES[kind][2]


def special_tokens(kind: str, settings: ClassSettings) -> dict[str, str]:
    """Return the special tokens of a class by name; an empty one is none."""
    return {**default_tokens(kind), **settings.tokens}


def by_rule(
    kind: str,
    settings: ClassSettings,
    added: AddedTokens = NO_ADDED_TOKENS,
    *,
    model: Any = None,
    file: Tokenizer | None = None,
    content: bytes = b"",
) -> Tokenizer:
    """Return the tokenizer that a class makes of its settings, of the tokens added, and of a model or a file.

    Parameters
    ----------
    kind
        The class; `has_rule` is true of it and the file.
    settings
    added
        As `added_tokens` returns them. A special token that the vocabulary lacks gets a new id.
    model
        The vocabulary, where there is no file.
    file, content
        A ``tokenizer.json`` as it was read, and the bytes of it.
    """
    from tokenizers import AddedToken, Tokenizer

    name, rule, _ = _RULES[kind]
    tokens = special_tokens(kind, settings)
    if file is not None:
        model = file.model if name != "Unigram" else _unigram(kind, tokens["unk_token"], json.loads(content)["model"])
    tokenizer = Tokenizer(model)
    set_ends = rule(components.Parts(tokenizer, settings, tokens, file))
    for each in added.listed:
        each.special |= each.content in tokens.values()
    own = {key: tokens.get(key) for key in (*SPECIAL_NAMES, *tokens)}
    strips = "mask_token" if kind == "CamembertTokenizer" else None
    special = {key: AddedToken(x, lstrip=key == strips, special=True, normalized=False) for key, x in own.items() if x}
    add_in_order(tokenizer, added, special)
    tokenizer.add_tokens(_added_again(kind, added, special))
    if file is not None and file.post_processor is not None:
        tokenizer.post_processor = file.post_processor
    set_ends()
    return tokenizer


def _added_again(kind: str, added: AddedTokens, own: Mapping[str, AddedToken]) -> list[AddedToken]:
    """Return special tokens whose properties a class sets last, over those that files list; `own` are by name."""
    from tokenizers import AddedToken

    named = {**own, **added.named}
    if kind == "CohereTokenizer":  # as each is named; a listed one has its properties under the names of every class
        listed = {token.content: token for token in added.listed}
        common = {name: added.named[name] for name in SPECIAL_NAMES if name in added.named}
        named |= {name: listed.get(token.content, token) for name, token in common.items()}
        return [*named.values(), *added.extra]
    if kind == "Qwen2Tokenizer":  # without properties, whatever files say
        contents = dict.fromkeys(token.content for token in (*named.values(), *added.extra))
        return [AddedToken(content, special=True) for content in contents]
    return []


def default_extra(kind: str, settings: ClassSettings) -> list[str]:
    """Return special tokens that a class has in addition to those with a name."""
    if kind == "T5Tokenizer":
        if settings.extra_ids > _MAX_EXTRA_IDS:
            raise RegardError(f"extra_ids is {settings.extra_ids:,}; at most {_MAX_EXTRA_IDS:,}")
        return [f"<extra_id_{i}>" for i in range(settings.extra_ids)]
    return ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"] if kind == "CamembertTokenizer" else []


def _unigram(kind: str, unknown: str, model: Mapping[str, Any]) -> Any:
    """Return a model of SentencePiece with the unknown token that its class has."""
    from tokenizers.models import Unigram

    pieces = [(piece, score) for piece, score in model["vocab"]]
    if kind == "CamembertTokenizer":
        unk_id = next((i for i, (piece, _) in enumerate(pieces) if piece == unknown), 0)
    elif kind == "DebertaV2Tokenizer":
        unk_id = pieces.index((unknown, 0.0)) if (unknown, 0.0) in pieces else 1
    else:
        unk_id = _UNKNOWN_IDS[kind]
    return Unigram(pieces, unk_id, byte_fallback=False)
