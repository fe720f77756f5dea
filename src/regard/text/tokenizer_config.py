"""Settings and chat template in ``tokenizer_config.json``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard.text.chat import ChatTemplate

CHAT_TEMPLATES = "additional_chat_templates"  # a folder
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can escape one, UTF-8 cannot encode it


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
    bos_token: str | None = None  # None: as the class has it, here and below; empty: no such token
    eos_token: str | None = None
    unk_token: str | None = None
    sep_token: str | None = None
    pad_token: str | None = None
    cls_token: str | None = None
    mask_token: str | None = None


def read_settings(folder: Path) -> ClassSettings:
    """Return the settings in the file.

    An error if the file cannot be read, is not a JSON object, or has values of a wrong type (all are named).
    """
    path = folder / "tokenizer_config.json"
    config = read_json_object(path) or {}
    if config.get("added_tokens_decoder") is None:  # older files have the special tokens beside it
        config |= read_json_object(folder / "special_tokens_map.json") or {}
    settings: dict[str, Any] = {}
    problems = []
    for name in (field.name for field in fields(ClassSettings)):
        value = config.get(name)
        kind: type = bool
        if name.endswith("_token") and not name.startswith("add_"):
            kind = str
            value = "" if name in config and value is None else token_content(value)
        elif name.endswith("_ids"):
            kind = int
        if isinstance(value, kind) and not (isinstance(value, str) and _SURROGATE.search(value)):
            settings[name] = value
        elif value is not None:
            problems.append(f"{name} must be a {kind.__name__}, got {value!r}")
    if problems:
        raise RegardError(f"in {path} {'; '.join(problems)}")
    return ClassSettings(**settings)


def splits_special_tokens(folder: Path) -> bool:
    """Return whether a special token in a text is text like any other."""
    return (read_json_object(folder / "tokenizer_config.json") or {}).get("split_special_tokens") is True


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template of `folder`, None if there is none.

    It is in ``chat_template.jinja``, and others by their names in ``additional_chat_templates``; without these files
    in ``tokenizer_config.json``, alone or as several with names.

    An error if a file cannot be read, or if a template is not a str.
    """
    path = folder / "tokenizer_config.json"
    config = read_json_object(path) or {}
    given: Any = config.get("chat_template")
    if isinstance(given, list):
        given = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
    named = given if isinstance(given, dict) else {} if given is None else {"default": given}
    files = {"default": folder / "chat_template.jinja"}
    files |= {each.stem: each for each in sorted((folder / CHAT_TEMPLATES).glob("*.jinja"))}
    if found := {name: content for name, each in files.items() if (content := read_file(each)) is not None}:
        named = {}
        for name, content in found.items():
            try:
                named[name] = content.decode()
            except UnicodeDecodeError as error:
                raise RegardError(f"{files[name]} is not UTF-8: {error}") from error
    if not named:
        return None
    if wrong := [each for pair in named.items() for each in pair if not isinstance(each, str)]:
        raise RegardError(f"in {path} chat_template must be a str, got {ascii(wrong[0])[:80]}")
    tokens = {name: token_content(value) for name, value in config.items() if name.endswith("_token")}
    tokens = {name: token for name, token in tokens.items() if isinstance(token, str)}
    return ChatTemplate(named.pop("default", None), tokens, named)


def token_content(token: Any) -> Any:
    """Return a token that is given as a string or as an object with properties."""
    return token.get("content") if isinstance(token, dict) else token
