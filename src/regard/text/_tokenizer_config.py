"""The ``tokenizer_config.json`` that may lie beside a tokenizer's own file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard._errors import RegardError
from regard.text._reading import read_file
from regard.text._wordpiece import WordPieceSettings


def read_settings(folder: Path, of: type = WordPieceSettings) -> dict[str, Any]:
    """Return what the file sets of the dataclass `of`, under our names; nothing if there is no file.

    Raises
    ------
    RegardError
        The file cannot be read, is no JSON object, or sets something to a wrong type (all such are named).
    """
    path = folder / "tokenizer_config.json"
    config = _read_object(path)
    keys = {"lowercase": "do_lower_case", "split_chinese": "tokenize_chinese_chars"}  # the others are alike
    settings: dict[str, Any] = {}
    problems = []
    for name in (field.name for field in fields(of)):
        key = keys.get(name, name)
        value = config.get(key)
        kind: type = bool
        if name.endswith("_token"):
            kind = str
            value = value.get("content") if isinstance(value, dict) else value  # bare, or with its properties
        if isinstance(value, kind):
            settings[name] = value
        elif value is not None:
            problems.append(f"{key} must be a {kind.__name__}, got {value!r}")
    if problems:
        raise RegardError(f"in {path} {'; '.join(problems)}")
    return settings


def _read_object(path: Path) -> dict[str, Any]:
    found = read_file(path)
    try:
        content = {} if found is None else json.loads(found.decode())
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise RegardError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content
