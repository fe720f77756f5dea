"""The byte-level BPE of RoBERTa, BART, GPT-2 and OPT, built from ``vocab.json`` and ``merges.txt``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard.text.wordpiece import add_missing

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_END_OF_TEXT = "<|endoftext|>"
_GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")


@dataclass(frozen=True)
class ByteLevelSettings:
    """The settings that the two files do not contain. The defaults are those of RoBERTa and BART, and of GPT-2.

    Parameters
    ----------
    add_prefix_space
        Whether a space is put before the text, so that its first word is tokenized like any other.
    tokenizer_class
        ``GPT2Tokenizer`` for a tokenizer of GPT-2's kind, whatever its tokens are, ``CLIPTokenizer`` for CLIP's; None
        to tell by them.
    add_bos_token
        Whether one of GPT-2's kind puts `bos_token` before each text, as OPT's does.
    bos_token, eos_token
        By default ``<|endoftext|>`` of GPT-2's kind, ``<s>`` and ``</s>`` of RoBERTa's, ``<|startoftext|>`` and
        ``<|endoftext|>`` of CLIP's.
    cls_token, sep_token
        Of RoBERTa's kind: the tokens for the start and for the end.
    unk_token, pad_token, mask_token
        Tokens that are never split, if the vocabulary has them. By default ``<unk>``, ``<pad>`` and ``<mask>`` of
        RoBERTa's kind, none of GPT-2's.
    """

    add_prefix_space: bool = False
    tokenizer_class: str | None = None
    add_bos_token: bool = False
    bos_token: str | None = None
    eos_token: str | None = None
    cls_token: str = "<s>"
    sep_token: str = "</s>"
    unk_token: str | None = None
    pad_token: str | None = None
    mask_token: str = "<mask>"


def build_byte_level(
    vocabulary: str, merges: str, settings: ByteLevelSettings, added: Iterable[AddedToken] = ()
) -> Tokenizer:
    """Return the tokenizer of the contents of a ``vocab.json`` and a ``merges.txt``, with more tokens.

    A vocabulary with start and end tokens is RoBERTa's, which adds them to every text, unless the settings name GPT-2's
    class; one with ``<|endoftext|>`` is GPT-2's, which adds none by default.

    Raises
    ------
    RegardError
        A file is malformed, or the vocabulary is of neither kind: other models split text differently.

    Notes
    -----
    Sennrich, Haddow and Birch (2016), https://arxiv.org/abs/1508.07909; on bytes: Radford et al. (2019), "Language
    models are unsupervised multitask learners", section 2.2.
    """
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    ids = _vocabulary(vocabulary)
    if settings.tokenizer_class == "CLIPTokenizer":
        return _build_clip(ids, merges, settings, added)
    cls, sep = settings.cls_token, settings.sep_token
    is_gpt2 = settings.tokenizer_class in _GPT2_CLASSES
    is_roberta = not is_gpt2 and cls in ids and sep in ids
    if not (is_roberta or is_gpt2 or _END_OF_TEXT in ids):
        raise RegardError(
            f"its {len(ids)} tokens include neither {cls} and {sep} (RoBERTa, BART) nor {_END_OF_TEXT} (GPT-2); "
            f"for other models use tokenizer.json"
        )
    tokenizer = Tokenizer(BPE(ids, _merges(merges)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=settings.add_prefix_space)
    tokenizer.decoder = ByteLevelDecoder()
    add_missing(tokenizer, added)
    (_add_roberta_tokens if is_roberta else _add_gpt2_tokens)(tokenizer, ids, settings)
    return tokenizer


def _build_clip(
    ids: dict[str, int], merges: str, settings: ByteLevelSettings, added: Iterable[AddedToken]
) -> Tokenizer:
    """Return CLIP's tokenizer, in which the last piece of a word is marked; spaces and letter case do not count.

    Radford et al. (2021), "Learning transferable visual models from natural language supervision", section 2.4.
    """
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.processors import RobertaProcessing

    begin, end = settings.bos_token or "<|startoftext|>", settings.eos_token or _END_OF_TEXT
    if missing := [token for token in (begin, end) if token not in ids]:
        raise RegardError(f"its {len(ids)} tokens lack {', '.join(missing)}, which CLIP puts around a text")
    model = BPE(
        ids, _merges(merges), continuing_subword_prefix="", end_of_word_suffix="</w>", fuse_unk=False, unk_token=end
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    split = pre_tokenizers.Split(Regex(words), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    spaces = decoders.Replace("</w>", " "), decoders.Strip(" ", 0, 1)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), *spaces])
    add_missing(tokenizer, added)
    add_missing(tokenizer, (begin, end))
    tokenizer.post_processor = RobertaProcessing(
        (end, ids[end]), (begin, ids[begin]), trim_offsets=False, add_prefix_space=False
    )
    return tokenizer


def _add_roberta_tokens(tokenizer: Tokenizer, ids: dict[str, int], settings: ByteLevelSettings) -> None:
    cls, sep = settings.cls_token, settings.sep_token
    ends = [settings.bos_token or "<s>", settings.eos_token or "</s>"]
    whole = [cls, settings.pad_token or "<pad>", sep, settings.unk_token or "<unk>", settings.mask_token, *ends]
    add_missing(tokenizer, (token for token in whole if token in ids))
    add_roberta_ends(tokenizer, cls, sep, add_prefix_space=settings.add_prefix_space)


def add_roberta_ends(tokenizer: Tokenizer, cls: str = "<s>", sep: str = "</s>", *, add_prefix_space: bool) -> None:
    """Put the tokens for the start and the end around each text, if the vocabulary has them."""
    from tokenizers.processors import RobertaProcessing

    start, end = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    if start is not None and end is not None:
        tokenizer.post_processor = RobertaProcessing(
            (sep, end), (cls, start), trim_offsets=True, add_prefix_space=add_prefix_space
        )


def _add_gpt2_tokens(tokenizer: Tokenizer, ids: dict[str, int], settings: ByteLevelSettings) -> None:
    from tokenizers.processors import TemplateProcessing

    bos = settings.bos_token or _END_OF_TEXT
    whole = [bos, settings.eos_token or _END_OF_TEXT, settings.unk_token or _END_OF_TEXT, settings.pad_token]
    add_missing(tokenizer, (token for token in whole if token in ids))
    if settings.add_bos_token:
        if bos not in ids:
            raise RegardError(f"its {len(ids)} tokens lack {bos}, which add_bos_token puts before each text")
        tokenizer.post_processor = TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", f"{bos}:1", "$B:1"], special_tokens=[(bos, ids[bos])]
        )


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
