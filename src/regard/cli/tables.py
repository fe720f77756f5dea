"""Tables of columns as files: Parquet and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write


def write_table(path: str, columns: Mapping[str, Any]) -> None:
    """Write columns of one length as Parquet table, or as CSV, by the suffix of `path`."""
    if is_parquet(path):
        write_parquet(path, load_pyarrow().table(dict(columns)))
        return
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_plain(column) for column in columns.values()), strict=True))
    with atomic_write(path) as file:
        file.write(table.getvalue().encode())


def write_parquet(path: str, table: Any) -> None:
    """Write a table of pyarrow."""
    from pyarrow import parquet

    with atomic_write(path) as stream:
        parquet.write_table(table, stream)


def is_parquet(path: str) -> bool:
    """Tell whether a file is to be a Parquet table, by its suffix."""
    return path.lower().endswith(".parquet")


def load_pyarrow(other: str = ".csv") -> Any:
    """Return pyarrow; an error that says how to install it, or by which suffix to do without."""
    try:
        import pyarrow
    except ImportError:
        raise RegardError(f"Parquet needs pyarrow: pip install 'regard[parquet]', or write a {other} file") from None
    return pyarrow


def _plain(column: Any) -> Any:
    return column.tolist() if hasattr(column, "tolist") else column
