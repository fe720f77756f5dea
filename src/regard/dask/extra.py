"""Importing modules of this package, which need what ``pip install regard[dask]`` installs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from regard._utils.errors import RegardError


@contextmanager
def installed() -> Iterator[None]:
    """Turn the error that a package is missing into one that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "regard":
            raise
        raise RegardError(f"regard.dask needs {name or error}: pip install 'regard[dask]'") from error


@installed()
def load_module(name: str) -> ModuleType:
    """Return a module of this package; an error that says how to install what it needs."""
    return importlib.import_module(f"regard.dask.{name}")
