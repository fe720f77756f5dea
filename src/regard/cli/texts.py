"""Texts of the command line: an argument, a file, or standard input."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path, PurePath

from regard._utils.errors import RegardError
from regard.cli.shared_options import TextSource
from regard.text.lines import decode_text, split_lines
from regard.text.tables import TABLE_FORMATS
from regard.views import escape

_MAX_TEXT_BYTES = 50_000_000
_RUNS = (".safetensors",)
_TEXT_FILES = (".txt", ".text", ".md", ".rst", ".json", ".html", ".pdf", ".docx", *TABLE_FORMATS)
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm")


def read_text(source: TextSource) -> str:
    """Return the text of TEXT, of standard input (``-``) or of ``--file``, without surrounding whitespace.

    An error if there is none, or more than one, or if the file cannot be read or is not UTF-8.
    """
    words, file = source.text, source.file
    if words and file is not None:
        raise RegardError("give either a text or --file, not both")
    if file is not None:
        text = _read(Path(file))
    elif list(words) == ["-"]:
        if sys.stdin is None:
            raise RegardError("cannot read standard input: it is closed; give a text or --file FILE")
        text = _read(None)
    elif len(words) > 1:
        command, joined = source.command, shlex.quote(escape(" ".join(words), 60))
        two = "; regard compare TEXT TEXT --word WORD takes two" if len(words) == 2 else ""
        raise RegardError(f"{command} takes one text, got {len(words)}: quote it, regard {command} {joined}{two}")
    else:
        text = "".join(words)
        if not source.literal:
            check_no_file(text, "--file")
    if not text.strip():
        command = "" if source.command == "show" else f" {source.command}"
        raise RegardError(f'no text: try regard{command} "The cat sat on the mat", - or --file FILE')
    return text.strip()


def check_no_file(text: str, option: str | None) -> None:
    """Raise `RegardError` for a text that is the name of a file of text, or an address; `option` reads such a file.

    The name of a picture may be meant: `load_model` says whether the model looks at one.
    """
    is_word, suffix = text.split() == [text], PurePath(text).suffix.lower()
    if is_word and re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        raise RegardError(f"{escape(text, 60)} is an address, and nothing is fetched: give the text, or a file of it")
    is_there = os.path.exists(text)  # noqa: PTH110 (Path.exists raises for an invalid path)
    is_name = is_file(text) or (is_word and (is_there or text.endswith("/") or suffix in (*_TEXT_FILES, *_RUNS)))
    if os.path.isfile(os.path.join(text, "config.json")):  # noqa: PTH113, PTH118 (as above)
        how = f"regard TEXT --model {shlex.quote(text)}"
        raise RegardError(f"{escape(text, 60)} is the folder of a model: give a text too, {how}")
    if is_word and os.path.isdir(text):  # noqa: PTH112 (as above)
        raise RegardError(f"{escape(text, 60)} is a folder here: to use it as a text, put it after --: regard -- TEXT")
    if is_name and suffix not in _PICTURES:
        how = f"{option} {shlex.quote(text)} reads it" if option else "give the text itself"
        if suffix in _RUNS:
            how = f"a saved run is shown by regard explore --trace {shlex.quote(text)}"
        elif is_word and not suffix:
            how += ", and as a text it comes after --"
        raise RegardError(f"{escape(text, 60)} is the name of a file, not a text: {how}; - reads standard input")


def read_file_or_input(name: str, hint: str = "") -> str:
    """Return the text of the file `name`, or of standard input where that is ``-``; `hint` ends the error."""
    if name == "-" and sys.stdin is None:
        raise RegardError("cannot read standard input: it is closed; give a file")
    return _read(None if name == "-" else Path(name), hint)


def read_lines(name: str, hint: str = "") -> list[str]:
    """Return the lines of the file `name`, or of standard input, as `read_file_or_input` reads them."""
    return split_lines(read_file_or_input(name, hint))


def is_file(text: str) -> bool:
    """Tell whether a text is the name of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for one, or with a zero byte
        return False


def _read(path: Path | None, hint: str = "") -> str:
    """Return the text of a file, or of standard input."""
    source = "standard input" if path is None else path
    try:
        with nullcontext(sys.stdin.buffer) if path is None else path.open("rb") as file:
            content = file.read(_MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise RegardError(f"cannot read {source}: {error.strerror or error}{hint}") from error
    if len(content) > _MAX_TEXT_BYTES:
        raise RegardError(f"{source} is larger than {_MAX_TEXT_BYTES // 1_000_000} MB: split it")
    return decode_text(content, source)
