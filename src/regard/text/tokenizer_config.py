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
        elif name.endswith("_class"):
            kind = str
        if isinstance(value, kind) and not (isinstance(value, str) and _SURROGATE.search(value)):
            settings[name] = value
        elif value is not None:
            problems.append(f"{key} must be a {kind.__name__}, got {value!r}")
    if problems:
        raise RegardError(f"in {path} {'; '.join(problems)}")
    return settings


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template of ``chat_template.jinja`` or ``tokenizer_config.json``, None if there is none.

    An error if a file cannot be read, or if the template is not a str.
    """
    path = folder / "tokenizer_config.json"
    config = read_json_object(path) or {}
    template = config.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[0].get("template") if named else None
    if (content := read_file(folder / "chat_template.jinja")) is not None:
        try:
            template = content.decode()
        except UnicodeDecodeError as error:
            raise RegardError(f"{folder / 'chat_template.jinja'} is not UTF-8: {error}") from error
    if template is None:
        return None
    if not isinstance(template, str):
        raise RegardError(f"in {path} chat_template must be a str, got {ascii(template)[:80]}")
    tokens = {name: token_content(value) for name, value in config.items() if name.endswith("_token")}
    return ChatTemplate(template, {name: token for name, token in tokens.items() if isinstance(token, str)})


def token_content(token: Any) -> Any:
    """Return a token that is given as a string or as an object with properties."""
    return token.get("content") if isinstance(token, dict) else token
