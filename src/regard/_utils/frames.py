"""Results as tables of pandas or polars, and as labelled arrays of xarray."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard._utils.packages import needed

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


class Tabular:
    """A result with a row for each of its parts."""

    def to_columns(self) -> dict[str, Any]:
        """Return an array for each column of `to_frame`, by name."""
        raise NotImplementedError

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return `to_columns` as a ``DataFrame`` of pandas or polars, by default of the first that is installed."""
        return make_frame(self.to_columns(), library)


def make_dataset(variables: Mapping[str, tuple[str, Any]], coordinates: Mapping[str, tuple[str, Any]]) -> Any:
    """Return an ``xarray.Dataset`` of arrays with the letters of their axes, ``"L B H T"``.

    Raises
    ------
    RegardError
        xarray is not installed.
    """
    each = [
        {name: (axes.split(), values) for name, (axes, values) in some.items()} for some in (variables, coordinates)
    ]
    return load_xarray().Dataset(*each)


def load_xarray() -> Any:
    """Return the module xarray; an error if it is not installed."""
    with needed("a DataArray or a Dataset"):
        import xarray
    return xarray
