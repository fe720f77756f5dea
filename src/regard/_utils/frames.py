"""Columns as a table of pandas or polars."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError

FrameLibrary: TypeAlias = Literal["pandas", "polars"]
_LIBRARIES = ("pandas", "polars")


def make_frame(columns: Mapping[str, Any], library: FrameLibrary | None = None) -> Any:
    """Return a ``DataFrame`` of a library, by default of the first of pandas and polars that is installed.

    Raises
    ------
    RegardError
        It is not installed.
    """
    if library not in (None, *_LIBRARIES):
        raise RegardError(f"a table is of pandas or polars, got {library!r}")
    for name in _LIBRARIES if library is None else (library,):
        if importlib.util.find_spec(name) is None:
            continue
        if name == "pandas":
            import pandas

            return pandas.DataFrame(dict(columns))
        import polars

        return polars.DataFrame(dict(columns))
    needed = " or ".join(_LIBRARIES if library is None else (library,))
    raise RegardError(f"a table needs {needed}: pip install {library or 'pandas'}; to_columns() gives plain arrays")
