"""What each class of tokenizers does to a text: the components that transformers 5 makes for it, by its settings.

Each function sets the components of a tokenizer; what it returns sets the tokens around a text, once all tokens are
there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from regard._utils.errors import RegardError
from regard.text.tokenizer_config import ClassSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_3_5_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


@dataclass(frozen=True)
class Parts:
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


Rule: TypeAlias = Callable[[Parts], Callable[[], None]]
"""Sets the components of a tokenizer; what it returns sets the tokens around a text, once it has all tokens."""


def bert(parts: Parts) -> Callable[[], None]:
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


def gpt2(parts: Parts) -> Callable[[], None]:
    """GPT-2's, by byte-level BPE."""
    from tokenizers.decoders import ByteLevel

    parts.set_options()
    parts.tokenizer.pre_tokenizer = _byte_level(parts)
    parts.tokenizer.decoder = ByteLevel()
    return lambda: _set_bos_eos(parts)


def roberta(parts: Parts) -> Callable[[], None]:
    """RoBERTa's: GPT-2's, with tokens around a text."""
    from tokenizers.processors import RobertaProcessing

    gpt2(parts)

    def set_ends() -> None:
        cls, sep = parts.ends("cls_token", "sep_token")
        parts.tokenizer.post_processor = RobertaProcessing(
            sep,
            cls,
            trim_offsets=parts.settings.trim_offsets,
            add_prefix_space=bool(parts.settings.add_prefix_space),
        )

    return set_ends


def clip(parts: Parts) -> Callable[[], None]:
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
    # Strip(" ", 0, 1) would fail where there is no text.
    spaces = decoders.Replace("</w>", " "), decoders.Replace(Regex(r" \z"), "")
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), *spaces])

    def set_ends() -> None:
        begin, end = parts.ends("bos_token", "eos_token")
        tokenizer.post_processor = RobertaProcessing(end, begin, trim_offsets=False, add_prefix_space=False)

    return set_ends


def gpt_neox(parts: Parts) -> Callable[[], None]:
    """GPT-NeoX's: GPT-2's of composed characters."""
    from tokenizers.normalizers import NFC

    gpt2(parts)
    parts.tokenizer.normalizer = NFC()

    def set_ends() -> None:
        parts.tokenizer.post_processor = None
        _set_bos_eos(parts)

    return set_ends


def codegen(parts: Parts) -> Callable[[], None]:
    """GPT-2's; of a vocabulary alone the spans of tokens keep the space before a word."""
    from tokenizers.processors import ByteLevel

    set_ends = gpt2(parts)
    parts.tokenizer.post_processor = ByteLevel(add_prefix_space=True, use_regex=True, trim_offsets=False)
    return set_ends


def cohere(parts: Parts) -> Callable[[], None]:
    """GPT-2's, in which each digit is a word."""
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    set_ends = gpt2(parts)
    parts.tokenizer.normalizer = NFC()
    bytes_of_words = ByteLevel(add_prefix_space=bool(parts.settings.add_prefix_space))
    parts.tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), bytes_of_words])
    return set_ends


def deberta(parts: Parts) -> Callable[[], None]:
    """GPT-2's, of the first DeBERTa, with tokens around a text."""
    gpt2(parts)

    def set_ends() -> None:
        parts.ends("cls_token", "sep_token")
        _set_ends(parts.tokenizer, parts.tokens["cls_token"], parts.tokens["sep_token"])

    return set_ends


def herbert(parts: Parts) -> Callable[[], None]:
    """HerBERT's, of BERT's words, in which the last piece of a word is marked."""
    from tokenizers.decoders import BPEDecoder
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    tokenizer, tokens = parts.tokenizer, parts.tokens
    parts.set_options(end_of_word_suffix="</w>", unk_token=tokens["unk_token"])
    tokenizer.normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = BertPreTokenizer(), BPEDecoder(suffix="</w>")

    def set_ends() -> None:
        parts.ends("cls_token", "sep_token")
        tokenizer.post_processor = BertProcessing((tokens["sep_token"], 2), (tokens["cls_token"], 0))  # whatever theirs

    return set_ends


def qwen2(parts: Parts, words: str = QWEN_WORDS) -> Callable[[], None]:
    """Qwen2's, in which each digit is a word."""
    from tokenizers import Regex
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    set_ends = gpt2(parts)
    parts.tokenizer.normalizer = NFC()
    bytes_of_words = ByteLevel(add_prefix_space=bool(parts.settings.add_prefix_space), use_regex=False)
    parts.tokenizer.pre_tokenizer = Sequence([Split(Regex(words), behavior="isolated"), bytes_of_words])
    return set_ends


def qwen3_5(parts: Parts) -> Callable[[], None]:
    """Qwen2's, in which a combining mark does not end a word."""
    return qwen2(parts, QWEN_3_5_WORDS)


def llama(parts: Parts) -> Callable[[], None]:
    """Llama's, by the BPE of SentencePiece; an unknown character is its bytes."""
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


def code_llama(parts: Parts) -> Callable[[], None]:
    """Code Llama's, which starts each text with a token."""
    from tokenizers import decoders

    llama(replace(parts, settings=replace(parts.settings, legacy=False)))
    parts.set_options(fuse_unk=True, byte_fallback=True, unk_token=parts.tokens["unk_token"])
    parts.tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return lambda: _set_ends(parts.tokenizer, parts.tokens["bos_token"], None)


def gemma(parts: Parts) -> Callable[[], None]:
    """Gemma's, in which spaces are characters of words."""
    from tokenizers import decoders
    from tokenizers.normalizers import Replace
    from tokenizers.pre_tokenizers import Split

    parts.set_options(fuse_unk=True, byte_fallback=True, unk_token=parts.tokens["unk_token"])
    parts.tokenizer.normalizer = Replace(" ", "▁")
    parts.tokenizer.pre_tokenizer = Split(" ", behavior="merged_with_previous")
    parts.tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return lambda: None


def albert(parts: Parts) -> Callable[[], None]:
    """ALBERT's, by the unigram model of SentencePiece."""
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


def deberta_v2(parts: Parts) -> Callable[[], None]:
    """DeBERTa-v2's, by the unigram model."""
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


def xlm_roberta(parts: Parts) -> Callable[[], None]:
    """XLM-RoBERTa's, by the unigram model."""
    _set_table(parts)
    _set_metaspace(parts)
    return lambda: _set_ends(parts.tokenizer, parts.tokens["bos_token"], parts.tokens["eos_token"])


def t5(parts: Parts) -> Callable[[], None]:
    """T5's, by the unigram model."""
    _set_table(parts)
    _set_metaspace(parts, "always")
    return lambda: _set_ends(parts.tokenizer, None, parts.tokens["eos_token"])


def _byte_level(parts: Parts) -> Any:
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


def _set_table(parts: Parts) -> None:
    if parts.table:
        parts.tokenizer.normalizer = parts.table[0]


def _set_metaspace(parts: Parts, scheme: str | None = None) -> None:
    from tokenizers import decoders
    from tokenizers.pre_tokenizers import Metaspace, Sequence, WhitespaceSplit

    if scheme is None:
        scheme = "never" if parts.settings.add_prefix_space is False else "always"
    parts.tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace(prepend_scheme=scheme)])
    parts.tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)


def _set_bos_eos(parts: Parts) -> None:
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


def _state(component: Any) -> Any:
    """Return what a file says of a component."""
    return json.loads(component.__getstate__())
