"""The `tokenizers` library, or what stands in for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def library() -> Any:
    """Return the module `tokenizers`; where it is not installed, the part of it that is written in Python."""
    try:
        import tokenizers
    except ModuleNotFoundError:
        from regard.text import plain_tokenizer

        return plain_tokenizer
    return tokenizers


def is_plain(backend: Any) -> bool:
    """Tell whether a tokenizer is written in Python."""
    return type(backend).__module__ == "regard.text.plain_tokenizer"


def check_class(backend: Any, kind: str, settings: Any, own: Iterable[str]) -> None:
    """Check that a tokenizer in Python is as the class of a model makes it anew, with its `own` special tokens."""
    backend.check_class(kind, settings, own)


def build(model: Mapping[str, Any], **components: Mapping[str, str]) -> Any:
    """Return the tokenizer of a model and of components, as ``tokenizer.json`` has them."""
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        **dict.fromkeys(names),
        **components,
        "model": model,
    }
    return library().Tokenizer.from_str(json.dumps(document))
