"""The lines of a file of texts, one text per line, as every command reads them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, AnyStr, BinaryIO

from regard._utils.errors import RegardError

LONGEST_LINE = 50_000_000  # characters
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""White space of Unicode, as the `tokenizers` library has it; `str.isspace` counts more (U+001C)."""
_HOW = ": convert it first, as iconv -f latin1 -t utf-8 does"
_ENDS: dict[type, re.Pattern[Any]] = {str: re.compile("\r\n|\r|\n"), bytes: re.compile(b"\r\n|\r|\n")}


def split_lines(content: AnyStr) -> list[AnyStr]:
    """Return the lines of a file, which end with a line feed, a carriage return or both.

    Other signs that Unicode has for the end of a line (U+2028, U+0085, a form feed) are part of a text.
    """
    lines: list[AnyStr] = _ENDS[type(content)].split(content)
    return lines if lines[-1] else lines[:-1]


def split_vocabulary(content: str) -> list[str]:
    """Return the lines of a vocabulary or of its merges, which end with a line feed, alone or after a carriage return.

    Other signs that end a line, a carriage return alone too, are part of a piece.
    """
    return [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")]


def decode_text(content: bytes, source: object) -> str:
    """Return the content of a file in UTF-8, without a byte order mark; `source` names it.

    Raises
    ------
    RegardError
        It is in another encoding, or has a zero byte, as text in UTF-16 has.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RegardError(f"{source} is not UTF-8 text (byte {error.start}){_HOW}") from error
    _check_zero(text, source)
    return text


def text_lines(stream: BinaryIO, source: object) -> Iterator[str]:
    """Yield the lines of an open file with their ends, as `decode_text` reads it, one at a time; the end closes it.

    Raises
    ------
    RegardError
        As by `decode_text`; or a line is longer than `LONGEST_LINE`.
    """
    lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        while line := lines.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise RegardError(f"{source} has a line of more than {LONGEST_LINE:,} characters: split it")
            _check_zero(line, source)
            yield line
    except UnicodeDecodeError as error:
        raise RegardError(f"{source} is not UTF-8 text{_HOW}") from error


def _check_zero(text: str, source: object) -> None:
    if "\0" in text:
        raise RegardError(f"{source} is not UTF-8 text: it has a zero byte, as UTF-16 has{_HOW}")
