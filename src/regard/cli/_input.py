"""From arguments to a text and a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard._errors import RegardError
from regard.models import Model, load, toy

_TOY_OPTIONS = ("seed", "embed_dim", "num_heads", "positions", "embeddings")
_LARGEST_TEXT = 50_000_000


def read_text(arguments: argparse.Namespace) -> str:
    """Return the text that was typed, piped in (``-``) or named by ``--file``, without white space around it.

    Raises
    ------
    RegardError
        There is no text, or more than one source of it; the file cannot be read or is not UTF-8.
    """
    words, file = arguments.text, arguments.file
    if words and file:
        raise RegardError("give either a text or --file, not both")
    if file:
        text = _decoded(_read(Path(file)), file)
    elif words == ["-"]:
        text = _decoded(sys.stdin.buffer.read(_LARGEST_TEXT + 1), "standard input")
    else:
        text = " ".join(words)
    if not text.strip():
        raise RegardError('there is no text to look at: try regard "The cat sat on the mat", - or --file FILE')
    return text.strip()


def read_model(arguments: argparse.Namespace, texts: Sequence[str]) -> Model:
    """Return the model that the options ask for.

    Raises
    ------
    RegardError
        An option of the toy layer is given without ``--random``; or there is no such model.
    """
    given = {name: getattr(arguments, name) for name in _TOY_OPTIONS if getattr(arguments, name) is not None}
    if not arguments.random:
        if given:
            misplaced = ", ".join("--" + name.replace("_", "-") for name in given)
            raise RegardError(f"{misplaced} would shape the toy layer: give --random too, or leave it out")
        return load(arguments.model)
    file = given.pop("embeddings", None)
    return toy(texts, **given) if file is None else _toy_with_vectors(texts, file, given)


def warning(model: Model) -> str:
    """Return what must be said of a model's weights; "" where they were learned."""
    from regard.models import Toy

    return "Its weights are random: what looks at what means nothing." if isinstance(model, Toy) else ""


def _toy_with_vectors(texts: Sequence[str], file: str, options: dict[str, Any]) -> Model:
    from regard.text import Vocabulary, read_word_vectors

    vocabulary = Vocabulary.from_text(texts)
    vectors = read_word_vectors(file, vocabulary.words)
    return toy(texts, vocabulary=vocabulary, embeddings=vectors.vectors_for(vocabulary.words), **options)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TEXT + 1)
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error


def _decoded(content: bytes, source: str) -> str:
    if len(content) > _LARGEST_TEXT:
        raise RegardError(f"{source} is larger than {_LARGEST_TEXT // 1_000_000} MB: give it in parts")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RegardError(f"{source} is not UTF-8 text (byte {error.start}): convert it first") from error
