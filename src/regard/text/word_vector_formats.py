"""Iterate over the rows of a file of word vectors, in any of its formats."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from regard._utils.errors import RegardError

# Limits on a header, a line and a word, so that no file exhausts memory.
MAX_EMBED_DIM = 1 << 16
MAX_LINE_BYTES = 1 << 22
MAX_WORD_BYTES = 1 << 16

Row = tuple[bytes, NDArray[np.float32]]
Words = frozenset[bytes] | None


def read_rows(stream: io.BufferedReader, words: Words) -> tuple[int, Iterator[Row]]:
    """Detect the format; return the dimension and the rows of `words` (None: of all words).

    An error, here or when a row is read, if the file is malformed.
    """
    if stream.read(3) != codecs.BOM_UTF8:
        stream.seek(0)
    start = stream.tell()
    first = _read_line(stream, 1)
    if not first:
        raise RegardError("it is empty")
    if first.startswith(b"PK\x03\x04"):
        raise RegardError("it is a zip archive; unpack it and give the file inside")
    header = re.fullmatch(rb"(\d{1,18})[ \t]+(\d{1,18})\s*", first)
    if not header:
        stream.seek(start)
        embed_dim = _count_numbers(first)
        return embed_dim, _text_rows(stream, embed_dim, None, words)
    count, embed_dim = int(header[1]), int(header[2])
    if count < 1 or not 1 <= embed_dim <= MAX_EMBED_DIM:
        raise RegardError(
            f"its header announces {count} words of {embed_dim} numbers; "
            f"at least 1 word and 1 to {MAX_EMBED_DIM} numbers can be read"
        )
    rows = _text_rows if _is_text(stream, embed_dim) else _binary_rows
    return embed_dim, rows(stream, embed_dim, count, words)


def _is_text(stream: io.BufferedReader, embed_dim: int) -> bool:
    """Tell word2vec text from binary: after the header follows a row of text, or at least printable text."""
    start = stream.tell()
    line = stream.readline(MAX_LINE_BYTES)
    sample = line + stream.read(MAX_WORD_BYTES)
    stream.seek(start)
    try:
        _parse(*_split_row(line, embed_dim, ""), "")
    except RegardError:
        return _is_characters(sample)
    return True


def _is_characters(sample: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # the last character may be incomplete
    except UnicodeDecodeError:
        return False
    return not re.search(rb"[\x00-\x08\x0e-\x1f]", sample)


def _text_rows(stream: io.BufferedReader, embed_dim: int, count: int | None, words: Words) -> Iterator[Row]:
    """Read a word and its numbers from each line that is not blank; `count` is that of the header."""
    # Most lines are not wanted, and comparing the start of a word is much faster than splitting the line.
    starts = None if words is None else {start for word in words for start in word.split(maxsplit=1)[:1]}
    line_number = 1 if count is None else 2
    num_rows = 0
    while line := _read_line(stream, line_number):
        if not line.isspace():
            num_rows += 1
            if starts is None or line.split(maxsplit=1)[0] in starts:
                word, fields = _split_row(line, embed_dim, f"line {line_number}")
                if words is None or word in words:
                    yield word, _parse(word, fields, f"line {line_number}")
            elif line.strip().count(b" ") != embed_dim:
                _split_row(line, embed_dim, f"line {line_number}")  # raises if it has too few or too many numbers
        line_number += 1
    if count not in (None, num_rows):
        raise RegardError(f"its header announces {count} words, but it has {num_rows}")


def _binary_rows(stream: io.BufferedReader, embed_dim: int, count: int, words: Words) -> Iterator[Row]:
    """Read `count` times a word, a space and little-endian float32 numbers; a line break may follow each."""
    size = 4 * embed_dim
    for number in range(1, count + 1):
        where = f"word {number} of {count}"
        word = _read_word(stream, where)
        packed = stream.read(size)
        if len(packed) < size:
            raise RegardError(f"{where} ({_shown(word)}) is truncated: {len(packed)} of {size} bytes")
        if words is None or word in words:
            vector = np.frombuffer(packed, dtype="<f4").astype(np.float32)
            if not np.isfinite(vector).all():
                raise RegardError(f"{where} ({_shown(word)}) has a number that is not finite")
            yield word, vector
    if rest := stream.read(MAX_WORD_BYTES).strip():
        raise RegardError(f"its header announces {count} words, but has more: {_shown(rest)}")


def _read_line(stream: io.BufferedReader, line_number: int) -> bytes:
    line = stream.readline(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise RegardError(f"line {line_number} is longer than {MAX_LINE_BYTES} bytes: not a file of word vectors")
    return line


def _read_word(stream: io.BufferedReader, where: str) -> bytes:
    """Read up to the next space; the line break of the previous row is not a part of the word."""
    word = b""
    while not word.endswith(b" "):
        ahead = stream.peek(1)
        if not ahead:
            raise RegardError(f"it ends before {where} is complete")
        if len(word) > MAX_WORD_BYTES:
            raise RegardError(f"{where} is longer than {MAX_WORD_BYTES} bytes ({_shown(word)})")
        word += stream.read(ahead.find(b" ") + 1 or len(ahead))
    return word[:-1].lstrip(b"\r\n")


def _count_numbers(line: bytes) -> int:
    """Return how many numbers end the first line, whose first field is a word even if it looks like a number."""
    count = 0
    for field in reversed(line.split()[1:]):
        if not _is_number(field):
            break
        count += 1
    if not 1 <= count <= MAX_EMBED_DIM:
        raise RegardError(
            f"line 1 ({_shown(line)}) has {count} numbers after its word; 1 to {MAX_EMBED_DIM} can be read"
        )
    return count


def _split_row(line: bytes, embed_dim: int, where: str) -> tuple[bytes, list[bytes]]:
    """Split a line from the right, because the word may contain spaces."""
    word, *fields = line.rsplit(maxsplit=embed_dim) or [b""]
    spare = [piece for piece in word.split()[1:] if _is_number(piece)]
    if spare or len(fields) < embed_dim:
        raise RegardError(f"{where} ({_shown(word)}) has {len(fields) + len(spare)} numbers, the rows have {embed_dim}")
    return word, fields


def _parse(word: bytes, fields: list[bytes], where: str) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array(fields, dtype=np.float32)
    except ValueError:
        invalid = next(field for field in fields if not _is_number(field))
        raise RegardError(f"{where} ({_shown(word)}) has {_shown(invalid)}, which is not a number") from None
    if not np.isfinite(vector).all():
        invalid = fields[int(np.argmin(np.isfinite(vector)))]
        raise RegardError(f"{where} ({_shown(word)}) has {_shown(invalid)}, which is not a finite float32")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(content: bytes) -> str:
    return repr(content[:40].decode("utf-8", "replace"))
