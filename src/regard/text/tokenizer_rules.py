"""How each class of tokenizers splits a text: the components that transformers 5 makes for it, by its settings.

Such a class takes the vocabulary, the tokens that were added, the table of SentencePiece and, mostly, the tokens around
a text from ``tokenizer.json``; all else follows from ``tokenizer_config.json``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from regard._utils.errors import RegardError
from regard.text.tokenizer_class import add_in_order
from regard.text.tokenizer_config import SPECIAL_NAMES, ClassSettings

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_END_OF_TEXT = "<|endoftext|>"
_MAX_EXTRA_IDS = 10_000
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


@dataclass(frozen=True)
class _Parts:
    """A tokenizer that is made: its model, what a class makes it from, and the file that may have been read."""

    tokenizer: Tokenizer
    settings: ClassSettings
    tokens: Mapping[str, str]  # special tokens by name
    file: Tokenizer | None  # as tokenizer.json has it; None: made of a vocabulary alone

    @property
    def table(self) -> list[Any]:
        """The normalizer of SentencePiece in the file, in a list; an empty one without it."""
        from tokenizers.normalizers import Precompiled

        state = None if self.file is None or self.file.normalizer is None else _state(self.file.normalizer)
        for each in [] if state is None else state.get("normalizers", [state]):
            if each["type"] == "Precompiled":
                return [Precompiled(base64.b64decode(each["precompiled_charsmap"]))]
        return []

    def ends(self, *names: str) -> list[Any]:
        """Return the named tokens around a text with their ids, once the tokenizer has all tokens."""
        if missing := [name for name in names if not self.tokens[name]]:
            raise RegardError(f"{' and '.join(missing)} must not be null, because it is put around each text")
        return [(self.tokens[name], self.tokenizer.token_to_id(self.tokens[name])) for name in names]

    def set_options(self, **options: Any) -> None:
        """Set what BPE does in addition to its merges."""
        plain = {"continuing_subword_prefix": None, "dropout": None, "end_of_word_suffix": None, "unk_token": None}
        flags = dict.fromkeys(("byte_fallback", "fuse_unk", "ignore_merges"), False)
        for name, value in {**plain, **flags, **options}.items():
            setattr(self.tokenizer.model, name, value)


_Rule: TypeAlias = Callable[[_Parts], Callable[[], None]]
"""Sets the components of a tokenizer; what it returns sets the tokens around a text, once it has all tokens."""


def _bert(parts: _Parts) -> Callable[[], None]:
    """BERT's, by WordPiece.

    Devlin et al. (2019), "BERT: Pre-training of deep bidirectional transformers for language understanding".
    """
    from tokenizers.decoders import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    settings, tokenizer = parts.settings, parts.tokenizer
    plain = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    unknown = parts.tokens["unk_token"] or "None"  # as transformers has it
    for name, value in {**plain, "unk_token": unknown}.items():
        setattr(tokenizer.model, name, value)
    tokenizer.normalizer = BertNormalizer(
        lowercase=settings.do_lower_case is not False,
        strip_accents=settings.strip_accents,
        handle_chinese_chars=settings.tokenize_chinese_chars,
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = BertPreTokenizer(), WordPiece()

    def set_ends() -> None:
        without_name = {"cls_token": 2, "sep_token": 3}  # as transformers has it where the name is null
        names = {name: parts.tokens[name] or tokenizer.id_to_token(i) for name, i in without_name.items()}
        _set_ends(tokenizer, *names.values())

    return set_ends


def _gpt2(parts: _Parts) -> Callable[[], None]:
    from tokenizers.decoders import ByteLevel

    parts.set_options()
    parts.tokenizer.pre_tokenizer = _byte_level(parts)
    parts.tokenizer.decoder = ByteLevel()
    return lambda: _set_bos_eos(parts)


def _roberta(parts: _Parts) -> Callable[[], None]:
    from tokenizers.processors import RobertaProcessing

    _gpt2(parts)

    def set_ends() -> None:
        cls, sep = parts.ends("cls_token", "sep_token")
        parts.tokenizer.post_processor = RobertaProcessing(
            sep,
            cls,
            trim_offsets=parts.settings.trim_offsets,
            add_prefix_space=bool(parts.settings.add_prefix_space),
        )

    return set_ends


def _clip(parts: _Parts) -> Callable[[], None]:
    """CLIP's, in which the last piece of a word is marked; spaces and letter case do not count.

    Radford et al. (2021), "Learning transferable visual models from natural language supervision", section 2.4.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers
    from tokenizers.processors import RobertaProcessing

    tokenizer = parts.tokenizer
    parts.set_options(continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token=parts.tokens["unk_token"])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    split = pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    spaces = decoders.Replace("</w>", " "), decoders.Strip(" ", 0, 1)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), *spaces])

    def set_ends() -> None:
        begin, end = parts.ends("bos_token", "eos_token")
        tokenizer.post_processor = RobertaProcessing(end, begin, trim_offsets=False, add_prefix_space=False)

    return set_ends


def _gpt_neox(parts: _Parts) -> Callable[[], None]:
    from tokenizers.normalizers import NFC

    _gpt2(parts)
    parts.tokenizer.normalizer = NFC()

    def set_ends() -> None:
        parts.tokenizer.post_processor = None
        _set_bos_eos(parts)

    return set_ends


def _qwen2(parts: _Parts) -> Callable[[], None]:
    from tokenizers import Regex
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    set_ends = _gpt2(parts)
    parts.tokenizer.normalizer = NFC()
    bytes_of_words = ByteLevel(add_prefix_space=bool(parts.settings.add_prefix_space), use_regex=False)
    parts.tokenizer.pre_tokenizer = Sequence([Split(Regex(QWEN_WORDS), behavior="isolated"), bytes_of_words])
    return set_ends


def _llama(parts: _Parts) -> Callable[[], None]:
    from tokenizers import decoders
    from tokenizers.pre_tokenizers import Metaspace

    space = parts.settings.add_prefix_space is not False
    parts.set_options(fuse_unk=True, byte_fallback=True)
    scheme = ("always" if parts.settings.legacy else "first") if space else "never"
    parts.tokenizer.pre_tokenizer = Metaspace(prepend_scheme=scheme, split=False)
    strip = [decoders.Strip(" ", 1, 0)] if space else []
    parts.tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return lambda: None


def _code_llama(parts: _Parts) -> Callable[[], None]:
    from tokenizers import decoders

    _llama(replace(parts, settings=replace(parts.settings, legacy=False)))
    parts.set_options(fuse_unk=True, byte_fallback=True, unk_token=parts.tokens["unk_token"])
    parts.tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return lambda: _set_ends(parts.tokenizer, parts.tokens["bos_token"], None)


def _gemma(parts: _Parts) -> Callable[[], None]:
    from tokenizers import decoders
    from tokenizers.normalizers import Replace
    from tokenizers.pre_tokenizers import Split

    parts.set_options(fuse_unk=True, byte_fallback=True, unk_token=parts.tokens["unk_token"])
    parts.tokenizer.normalizer = Replace(" ", "▁")
    parts.tokenizer.pre_tokenizer = Split(" ", behavior="merged_with_previous")
    parts.tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return lambda: None


def _albert(parts: _Parts) -> Callable[[], None]:
    from tokenizers.normalizers import NFKD, Lowercase, Replace, Sequence, StripAccents

    steps: list[Any] = [Replace("``", '"'), Replace("''", '"')]
    steps += [] if parts.settings.keep_accents else [NFKD(), StripAccents()]
    steps += [] if parts.settings.do_lower_case is False else [Lowercase()]
    parts.tokenizer.normalizer = Sequence([*steps, *parts.table])
    _set_metaspace(parts)

    def set_ends() -> None:
        if parts.tokenizer.post_processor is None:
            _set_ends(parts.tokenizer, parts.tokens["cls_token"], parts.tokens["sep_token"])

    return set_ends


def _deberta_v2(parts: _Parts) -> Callable[[], None]:
    from tokenizers import Regex, decoders
    from tokenizers.normalizers import NFC, Lowercase, Replace, Sequence, Strip
    from tokenizers.pre_tokenizers import Metaspace, Punctuation, Sequence as InTurn

    lower = [Lowercase()] if parts.settings.do_lower_case else []
    spaces = Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    parts.tokenizer.normalizer = Sequence([*lower, spaces, NFC(), Strip(left=False, right=True)])
    scheme = "first" if parts.settings.add_prefix_space is False else "always"
    marks = [Punctuation(behavior="isolated")] if parts.settings.split_by_punct else []
    parts.tokenizer.pre_tokenizer = InTurn([*marks, Metaspace(prepend_scheme=scheme)])
    parts.tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return lambda: _set_ends(parts.tokenizer, parts.tokens["cls_token"], parts.tokens["sep_token"])


def _xlm_roberta(parts: _Parts) -> Callable[[], None]:
    _set_table(parts)
    _set_metaspace(parts)
    return lambda: _set_ends(parts.tokenizer, parts.tokens["bos_token"], parts.tokens["eos_token"])


def _t5(parts: _Parts) -> Callable[[], None]:
    _set_table(parts)
    _set_metaspace(parts, "always")
    return lambda: _set_ends(parts.tokenizer, None, parts.tokens["eos_token"])


def _byte_level(parts: _Parts) -> Any:
    """Return the pre-tokenizer of GPT-2; or a sequence in the file, of which one step is that.

    transformers leaves out its other steps, with which the vocabulary was made.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Sequence

    space, stored = bool(parts.settings.add_prefix_space), None if parts.file is None else parts.file.pre_tokenizer
    if isinstance(stored, Sequence):
        kinds = [each["type"] for each in _state(stored)["pretokenizers"]]
        for at in (i for i, kind in enumerate(kinds) if kind == "ByteLevel"):
            stored[at].add_prefix_space = space
        if "ByteLevel" in kinds:
            return stored
    return ByteLevel(add_prefix_space=space)


def _set_table(parts: _Parts) -> None:
    if parts.table:
        parts.tokenizer.normalizer = parts.table[0]


def _set_metaspace(parts: _Parts, scheme: str | None = None) -> None:
    from tokenizers import decoders
    from tokenizers.pre_tokenizers import Metaspace, Sequence, WhitespaceSplit

    if scheme is None:
        scheme = "never" if parts.settings.add_prefix_space is False else "always"
    parts.tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace(prepend_scheme=scheme)])
    parts.tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)


def _set_bos_eos(parts: _Parts) -> None:
    """Put the tokens that the settings ask for around a text; those of a file stay, whatever they say."""
    if parts.file is not None:
        return
    flags = {"bos_token": parts.settings.add_bos_token, "eos_token": parts.settings.add_eos_token}
    _set_ends(parts.tokenizer, *(parts.tokens.get(name) or None if flag else None for name, flag in flags.items()))


def _set_ends(tokenizer: Tokenizer, first: str | None, last: str | None) -> None:
    """Put a token before each text and one after it, if the vocabulary has them."""
    from tokenizers.processors import TemplateProcessing

    ids = {token: tokenizer.token_to_id(token) for token in (first, last) if token is not None}
    if ids and None not in ids.values():
        before, after = [] if first is None else [first], [] if last is None else [last]
        second = [*(f"{token}:1" for token in before if not after), "$B:1", *(f"{token}:1" for token in after)]
        single = [*before, "$A", *after]
        tokenizer.post_processor = TemplateProcessing(
            single=single, pair=[*single, *second], special_tokens=list(ids.items())
        )


def _named(*tokens: str) -> dict[str, str]:
    """Return special tokens by name, in the order of `SPECIAL_NAMES`; some are empty."""
    return {name: token for name, token in zip(SPECIAL_NAMES, tokens, strict=True) if token}


_S, _E = "<s>", "</s>"
_OF_BERT = _named("", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
_OF_ROBERTA = _named(_S, _E, "<unk>", _E, "<pad>", _S, "<mask>")
_OF_GPT2 = _named(_END_OF_TEXT, _END_OF_TEXT, _END_OF_TEXT, "", "", "", "")
_RULES: dict[str, tuple[str, _Rule, dict[str, str]]] = {  # the model, the rule, the special tokens
    **{
        f"{name}Tokenizer": ("WordPiece", _bert, _OF_BERT)
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
    "MPNetTokenizer": ("WordPiece", _bert, _named(_S, _E, "[UNK]", _E, "<pad>", _S, "<mask>")),
    **{f"{name}Tokenizer": ("BPE", _roberta, _OF_ROBERTA) for name in ("Bart", "LED", "Longformer", "Mvp", "Roberta")},
    "GPT2Tokenizer": ("BPE", _gpt2, _OF_GPT2),
    "GPTNeoXTokenizer": ("BPE", _gpt_neox, {**_OF_GPT2, "pad_token": "<|padding|>"}),
    "Qwen2Tokenizer": ("BPE", _qwen2, _named("", _END_OF_TEXT, _END_OF_TEXT, "", _END_OF_TEXT, "", "")),
    "CLIPTokenizer": ("BPE", _clip, _named("<|startoftext|>", _END_OF_TEXT, _END_OF_TEXT, "", _END_OF_TEXT, "", "")),
    "LlamaTokenizer": ("BPE", _llama, _named(_S, _E, "<unk>", "", "", "", "")),
    "CodeLlamaTokenizer": (
        "BPE",
        _code_llama,
        {
            **_named(_S, _E, "<unk>", "", "", "", ""),
            **{f"{name}_token": f"▁<{name[:3].upper()}>" for name in ("prefix", "middle", "suffix")},
            **{"eot_token": "▁<EOT>", "fill_token": "<FILL_ME>"},
        },
    ),
    "GemmaTokenizer": ("BPE", _gemma, _named("<bos>", "<eos>", "<unk>", "", "<pad>", "", "<mask>")),
    "AlbertTokenizer": ("Unigram", _albert, _named("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]")),
    "DebertaV2Tokenizer": (
        "Unigram",
        _deberta_v2,
        _named("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"),
    ),
    "XLMRobertaTokenizer": ("Unigram", _xlm_roberta, _OF_ROBERTA),
    "CamembertTokenizer": ("Unigram", _xlm_roberta, _OF_ROBERTA),
    "T5Tokenizer": ("Unigram", _t5, _named("", _E, "<unk>", "", "<pad>", "", "")),
}
_UNKNOWN_IDS = {"AlbertTokenizer": 1, "T5Tokenizer": 2, "XLMRobertaTokenizer": 3}

FROM_VOCAB_TXT = tuple(kind for kind, (model, *_) in _RULES.items() if model == "WordPiece")
FROM_MERGES = tuple(
    f"{name}Tokenizer" for name in ("Bart", "CLIP", "GPT2", "GPTNeoX", "LED", "Longformer", "Mvp", "Qwen2", "Roberta")
)


def has_rule(kind: str | None, tokenizer: Tokenizer) -> bool:
    """Return whether a class makes anew a tokenizer of a file, whose model must be of its kind."""
    return kind in _RULES and type(tokenizer.model).__name__ == _RULES[kind][0]


def special_tokens(kind: str, settings: ClassSettings) -> dict[str, str]:
    """Return the special tokens of a class by name; an empty one is none."""
    defaults = _RULES[kind][2]
    return {name: settings.tokens.get(name, token) for name, token in defaults.items()}


def by_rule(
    kind: str,
    settings: ClassSettings,
    listed: Iterable[AddedToken] = (),
    named: Iterable[AddedToken] = (),
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
    listed, named
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
    set_ends = rule(_Parts(tokenizer, settings, tokens, file))
    for each in (listed := [*listed]):
        each.special |= each.content in tokens.values()
    own = {key: tokens.get(key, settings.tokens.get(key)) for key in (*SPECIAL_NAMES, *tokens)}
    strips = "mask_token" if kind == "CamembertTokenizer" else None
    special = [AddedToken(x, lstrip=key == strips, special=True, normalized=False) for key, x in own.items() if x]
    add_in_order(tokenizer, listed, special, named)
    if file is not None and file.post_processor is not None:
        tokenizer.post_processor = file.post_processor
    set_ends()
    return tokenizer


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


def _state(component: Any) -> Any:
    """Return what a file says of a component."""
    return json.loads(component.__getstate__())
