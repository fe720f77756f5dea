"""Settings and chat template in ``tokenizer_config.json``."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard.text.chat import ChatTemplate
from regard.text.wordpiece import WordPieceSettings

CHAT_TEMPLATES = "additional_chat_templates"  # a folder
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can escape one, UTF-8 cannot encode it


def read_settings(folder: Path, of: type = WordPieceSettings) -> dict[str, Any]:
    """Return the fields of the dataclass `of` that the file sets.

    An error if the file cannot be read, is not a JSON object, or has values of a wrong type (all are named).
    """
    path = folder / "tokenizer_config.json"
    config = read_json_object(path) or {}
    if config.get("added_tokens_decoder") is None:  # older files have the special tokens beside it
        config |= read_json_object(folder / "special_tokens_map.json") or {}
    keys = {"lowercase": "do_lower_case", "split_chinese": "tokenize_chinese_chars"}  # other names are equal
    settings: dict[str, Any] = {}
    problems = []
    for name in (field.name for field in fields(of)):
        key = keys.get(name, name)
        value = config.get(key)
        kind: type = bool
        if name.endswith("_token") and not name.startswith("add_"):
            kind = str
            value = token_content(value)
        elif name.endswith("_ids"):
            kind = int
        if isinstance(value, kind) and not (isinstance(value, str) and _SURROGATE.search(value)):
            settings[name] = value
        elif value is not None:
            problems.append(f"{key} must be a {kind.__name__}, got {value!r}")
    if problems:
        raise RegardError(f"in {path} {'; '.join(problems)}")
    return settings


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
