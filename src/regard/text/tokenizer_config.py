"""The JSON files beside a vocabulary, and the settings and the chat template in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard.text.chat import ChatTemplate

CHAT_TEMPLATES = "additional_chat_templates"  # a folder
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can escape one, UTF-8 cannot encode it


@dataclass(frozen=True)
class TokenizerFiles:
    """The JSON files beside the vocabulary of a folder, each of which is read at most once; {} for one that is missing.

    An error, on access, if the file cannot be read or is not a JSON object.
    """

    folder: Path

    @property
    def settings_path(self) -> Path:
        """Where the settings are."""
        return self.folder / "tokenizer_config.json"

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """``tokenizer_config.json``."""
        return read_json_object(self.settings_path) or {}

    @cached_property
    def special_tokens_map(self) -> Mapping[str, Any]:
        """``special_tokens_map.json`` of older files; not read where the settings list all added tokens."""
        if self.has_added_tokens_decoder:
            return {}
        return read_json_object(self.folder / "special_tokens_map.json") or {}

    @cached_property
    def model(self) -> Mapping[str, Any]:
        """``config.json``."""
        return read_json_object(self.folder / "config.json") or {}

    @property
    def has_added_tokens_decoder(self) -> bool:
        """Whether the settings list all added tokens."""
        return self.settings.get("added_tokens_decoder") is not None

    @property
    def splits_special_tokens(self) -> bool:
        """Whether a special token in a text is text like any other."""
        return self.settings.get("split_special_tokens") is True

    def cleans_up_spaces(self, *, is_bpe: bool) -> bool:
        """Whether spaces before punctuation are removed from decoded texts; those of BPE are part of the text."""
        is_forced = self.settings.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")
        return bool(self.settings.get("clean_up_tokenization_spaces")) and (not is_bpe or bool(is_forced))


@dataclass(frozen=True)
class ClassSettings:
    """What ``tokenizer_config.json`` sets of a tokenizer; each class has some of them."""

    do_lower_case: bool | None = None  # None: as the class has it
    strip_accents: bool | None = None  # None: as `do_lower_case`
    tokenize_chinese_chars: bool = True  # whether every Chinese character is a word of its own
    keep_accents: bool = False
    split_by_punct: bool = False  # whether every punctuation mark is a word of its own
    add_prefix_space: bool | None = None  # whether a space is put before a text; None: as the class has it
    legacy: bool = False  # whether it is put after each added token too
    trim_offsets: bool = True  # whether the span of a token leaves out the space before it
    add_bos_token: bool = False  # whether `bos_token` comes before a text that no tokenizer.json puts tokens around
    add_eos_token: bool = False
    extra_ids: int = 100  # sentinels of T5
    tokens: Mapping[str, str] = field(default_factory=dict)  # of `SPECIAL_NAMES`, those that are set; empty: no token


def read_settings(files: TokenizerFiles) -> ClassSettings:
    """Return the settings of a class; an error if values have a wrong type (all are named)."""
    config = {**files.settings, **files.special_tokens_map}
    options: dict[str, Any] = {}
    tokens: dict[str, str] = {}
    problems = []
    for name in [*(each.name for each in fields(ClassSettings) if each.name != "tokens"), *SPECIAL_NAMES]:
        value = config.get(name)
        kind: type = int if name.endswith("_ids") else bool
        if is_token := name in SPECIAL_NAMES:
            kind = str
            value = "" if name in config and value is None else token_content(value)
        if isinstance(value, kind) and not (isinstance(value, str) and _SURROGATE.search(value)):
            target: dict[str, Any] = tokens if is_token else options
            target[name] = value
        elif value is not None:
            problems.append(f"{name} must be a {kind.__name__}, got {value!r}")
    if problems:
        raise RegardError(f"in {files.settings_path} {'; '.join(problems)}")
    return ClassSettings(**options, tokens=tokens)


def read_chat_template(files: TokenizerFiles, tokens: Mapping[str, str]) -> ChatTemplate | None:
    """Return the chat template of a folder, which sees `tokens` by name; None if there is none.

    It is in ``chat_template.jinja``, and others by their names in ``additional_chat_templates``; without these files
    in ``tokenizer_config.json``, alone or as several with names.

    An error if a file cannot be read, or if a template is not a str.
    """
    inside: Any = files.settings.get("chat_template")
    if isinstance(inside, list):
        inside = {each.get("name"): each.get("template") for each in inside if isinstance(each, dict)}
    named = inside if isinstance(inside, dict) else {} if inside is None else {"default": inside}
    paths = {"default": files.folder / "chat_template.jinja"}
    paths |= {each.stem: each for each in sorted((files.folder / CHAT_TEMPLATES).glob("*.jinja"))}
    if contents := {name: content for name, path in paths.items() if (content := read_file(path)) is not None}:
        named = {}
        for name, content in contents.items():
            try:
                named[name] = content.decode()
            except UnicodeDecodeError as error:
                raise RegardError(f"{paths[name]} is not UTF-8: {error}") from error
    if not named:
        return None
    if wrong := [each for pair in named.items() for each in pair if not isinstance(each, str)]:
        raise RegardError(f"in {files.settings_path} chat_template must be a str, got {ascii(wrong[0])[:80]}")
    return ChatTemplate(named.pop("default", None), tokens, named)


def token_content(token: Any) -> Any:
    """Return a token that is given as a string or as an object with properties."""
    return token.get("content") if isinstance(token, dict) else token
