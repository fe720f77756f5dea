"""Tables of columns as files: Parquet, CSV and, to read, JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write, open_regular
from regard._utils.validation import truncate
from regard.cli.texts import read_file_or_input, read_lines
from regard.text.tables import DELIMITERS, RepeatedKey, column_index, csv_column, json_row, parquet_column, table_format
from regard.views import AttentionView


def write_table(path: str, columns: Mapping[str, Any]) -> None:
    """Write columns of one length as Parquet table, or as CSV, by the suffix of `path`."""
    if is_parquet(path):
        write_parquet(path, load_pyarrow().table(dict(columns)))
        return
    _write_csv(path, columns, zip(*(_plain(column) for column in columns.values()), strict=True))


def write_map(path: str, view: AttentionView) -> None:
    """Write a map as CSV, as the explorer does: a row for each query and a column for each key, with their names."""
    rows = ((query, *weights) for query, weights in zip(view.queries, view.weights.tolist(), strict=True))
    _write_csv(path, ("weight", *view.keys), rows)


def write_vectors(path: str, lines: Sequence[int], texts: Sequence[str], vectors: np.ndarray) -> None:
    """Write vectors, ``N E``, as NumPy file, or with the columns ``line``, ``text`` and ``vector`` as Parquet table."""
    if not is_parquet(path):
        with atomic_write(path) as stream:
            np.save(stream, vectors, allow_pickle=False)
        return
    pyarrow = load_pyarrow()
    flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
    table = pyarrow.table(
        {
            "line": pyarrow.array(lines, pyarrow.int64()),
            "text": pyarrow.array(texts, pyarrow.string()),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    write_parquet(path, table)


def write_parquet(path: str, table: Any) -> None:
    """Write a table of pyarrow."""
    from pyarrow import parquet

    with atomic_write(path) as stream:
        parquet.write_table(table, stream)


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_NO_TEXTS = (".json", ".gz", ".bz2", ".xz", ".zst", ".zip", ".pdf", ".docx", ".xlsx")
_MAX_PARQUET = 1 << 30  # bytes
_MAX_CHARACTERS = 1 << 28  # of the texts in it


def read_texts(path: str, column: str | None = None, hint: str = "") -> list[str]:
    """Return the lines of a file, or the column of a table, by its suffix; `hint` ends an error of reading.

    Raises
    ------
    RegardError
        The file is a table without `column`, another file with it, or one whose lines are not texts.
    """
    if is_table(path):
        return read_column(path, column)
    if column is not None:
        raise RegardError("--column names a column of a table: give a file of CSV, JSON lines or Parquet")
    suffix = PurePath(path).suffix.lower()
    if suffix in _NO_TEXTS:
        raise RegardError(
            f"{path} does not hold one text per line ({suffix}): unpack it, or convert it to text, CSV or JSON lines"
        )
    return read_lines(path, hint)


def is_table(path: str) -> bool:
    """Tell whether a file holds a table that `read_column` reads, by its suffix."""
    return table_format(path) is not None


def read_column(path: str, column: str | None) -> list[str]:
    """Return the texts in a column of a table, "" where a row has none.

    Raises
    ------
    RegardError
        No column is named, there is none of this name, the file cannot be read, or a cell is not a text.
    """
    format = table_format(path)
    if format in DELIMITERS:
        lines = io.StringIO(read_file_or_input(path), newline="")
        cells: list[Any] = [*csv_column(lines, path, DELIMITERS[format], column)]
    else:
        cells = (_parquet_cells if format == "parquet" else _json_cells)(path, column)
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, str | None):
            raise RegardError(f"row {number} of {path} has no text in its column {column!r}, but {truncate(cell)}")
    return [cell or "" for cell in cells]


def _json_cells(path: str, column: str | None) -> list[Any]:
    names: dict[str, None] = {}
    cells: list[Any] = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = json_row(line)
        except RepeatedKey as error:
            raise RegardError(f"line {number} of {path} {error}: {truncate(line)}") from error
        except ValueError as error:
            raise RegardError(f"line {number} of {path} is not a JSON object: {truncate(line)}") from error
        names |= dict.fromkeys(row)
        cells.append(None if column is None else row.get(column))
    column_index(path, [*names], column)
    return cells


def _parquet_cells(path: str, column: str | None) -> list[Any]:
    pyarrow = load_pyarrow(".csv")
    from pyarrow import parquet

    try:
        with open_regular(path) as stream, parquet.ParquetFile(stream) as file:
            column_index(path, file.schema_arrow.names, column)
            if Path(path).stat().st_size > _MAX_PARQUET:
                raise RegardError(f"{path} is larger than {_MAX_PARQUET // 10**9} GB: regard embed {path} --out FOLDER")
            return parquet_column(file, path, str(column), _MAX_CHARACTERS)
    except (OSError, pyarrow.ArrowException) as error:
        raise RegardError(f"cannot read {path}: {error}") from error


def is_parquet(path: str) -> bool:
    """Tell whether a file is, or is to be, a Parquet table, by its suffix."""
    return table_format(path) == "parquet"


def load_pyarrow(other: str = ".csv") -> Any:
    """Return pyarrow; an error that says how to install it, or by which suffix to do without."""
    try:
        import pyarrow
    except ImportError:
        raise RegardError(f"Parquet needs pyarrow: pip install 'regard[parquet]', or write a {other} file") from None
    return pyarrow


def _write_csv(path: str, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows(map(_cell, row) for row in (header, *rows))
    with atomic_write(path) as file:
        file.write(table.getvalue().encode())


def _cell(value: Any) -> Any:
    """Return a cell of CSV: a text that a spreadsheet would run as a formula gets an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _plain(column: Any) -> Any:
    return column.tolist() if hasattr(column, "tolist") else column
