"""Importing modules of this package, which need what ``pip install regard[dask]`` installs."""

from __future__ import annotations

import importlib
from types import ModuleType

from regard._utils.errors import RegardError


def load_module(name: str) -> ModuleType:
    """Return a module of this package; an error that says how to install what it needs."""
    try:
        return importlib.import_module(f"regard.dask.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        raise RegardError(f"regard.dask needs {error.name}: pip install 'regard[dask]'") from error
