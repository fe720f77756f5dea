"""The texts in a column of a table, CSV, TSV or JSON lines, as every command reads them.

Where other programs guess, it is an error: an unmatched double quote, a row with more cells than the header, a name or
a key that stands twice.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from regard._utils.errors import RegardError
from regard.text.lines import LONGEST_LINE
from regard.text.words import join_names

TABLE_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The format of a table by the suffix of its file."""
DELIMITERS = {"csv": ",", "tsv": "\t"}
"""What separates the cells of a row, by format."""
_SEPARATED = {",": "commas", "\t": "tabs"}
_PARQUET_ROWS = 256  # that are read at a time


def table_format(path: str) -> str | None:
    """Return the format of the table in a file, by its suffix; None if it is not the suffix of a table."""
    return TABLE_FORMATS.get(PurePath(path).suffix.lower())


def column_index(source: str, names: Sequence[str], column: str | None) -> int:
    """Return the place of a column; `source` names the table.

    Raises
    ------
    RegardError
        There is no column of this name, or more than one, or `column` is None.
    """
    listed = join_names(names) or "none"
    if column is None:
        raise RegardError(f"{source} is a table: name the column of its texts, --column, one of {listed}")
    if column not in names:
        raise RegardError(f"{source} has no column {column!r}: give --column, one of {listed}")
    if (count := list(names).count(column)) > 1:
        raise RegardError(f"{source} has {count} columns {column!r}: rename all but one")
    return names.index(column)


def csv_names(lines: Iterable[str], source: str, delimiter: str) -> list[str]:
    """Return the names in the header, the first line that is not blank; none of an empty file."""
    return next((row for _, row in _rows(lines, source, delimiter)), [])


def csv_column(lines: Iterable[str], source: str, delimiter: str, column: str | None) -> Iterator[str | None]:
    """Yield the text of each row, None where its cell is empty or missing; a blank line is a row.

    Parameters
    ----------
    lines
        Those of a file that is open with ``newline=""``. One row is held at a time.
    source
        The file, for messages.

    Raises
    ------
    RegardError
        A row is malformed, or has more cells than the header; or the column is not one, see `column_index`.
    """
    rows = _rows(lines, source, delimiter)
    names = next((row for _, row in rows), [])
    at = column_index(source, names, column)
    for place, row in rows:
        if len(row) > len(names):
            raise RegardError(
                f"{place} has {len(row)} cells and the header {len(names)}: "
                f"put a text that has {_SEPARATED[delimiter]} in double quotes"
            )
        yield (row[at] or None) if at < len(row) else None


class RepeatedKey(ValueError):
    """An object in a line of JSON has a key twice."""


def json_row(line: str) -> dict[str, Any]:
    """Return the object in a line of JSON lines; an empty one for a blank line.

    Raises
    ------
    RepeatedKey
    ValueError
        The line is not a JSON object.
    """
    if not line.strip():
        return {}
    try:
        row = json.loads(line, object_pairs_hook=_without_repetition)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    return row


def parquet_column(
    file: Any, source: str, column: str, limit: int, row_groups: Sequence[int] | None = None
) -> list[Any]:
    """Return the values in a column of a ``pyarrow.parquet.ParquetFile``, or of some of its row groups; bytes as text.

    Raises
    ------
    RegardError
        They have more characters than `limit`: a small file may hold very many.
    """
    values: list[Any] = []
    size = 0
    for batch in file.iter_batches(_PARQUET_ROWS, row_groups, columns=[column]):
        rows = [decoded(value) if isinstance(value, bytes) else value for value in batch.column(0).to_pylist()]
        size += sum(len(value) for value in rows if isinstance(value, str | bytes))
        if size > limit:
            raise RegardError(f"the texts of {source} have more than {limit:,} characters: split the file")
        values += rows
    return values


def decoded(value: bytes) -> str | bytes:
    """Return bytes as text; as they are if they are not UTF-8, or have zeros, as UTF-16 has."""
    try:
        return value if b"\0" in value else value.decode()
    except UnicodeDecodeError:
        return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKey(f"has the key {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return members


def _rows(lines: Iterable[str], source: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows from the header on, each with its name for messages."""
    limit = max(LONGEST_LINE, csv.field_size_limit())
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 0  # of the row, 0 of the header
    while True:
        first_line = reader.line_num + 1
        place = f"row {number} of {source} (line {first_line})" if number else f"the header of {source}"
        others = csv.field_size_limit(limit)  # of the process
        try:
            row = next(reader, None)
        except csv.Error as error:
            if "field limit" in str(error):
                raise RegardError(f"{place} has a text of more than {limit:,} characters: split it") from error
            raise RegardError(
                f'{place} has an unmatched double quote: write a text that has some as "She said ""Hello"""'
            ) from error
        finally:
            csv.field_size_limit(others)
        if row is None:
            return
        if row or number:
            yield place, row
            number += 1
