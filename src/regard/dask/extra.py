"""Importing modules of this package, which need what ``pip install regard[dask]`` installs."""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType

from regard._utils.packages import needed

installed = partial(needed, "regard.dask", "'regard[dask]'")
"""Turns the error that a package is missing into one that says how to install it."""


@installed()
def load_module(name: str) -> ModuleType:
    """Return a module of this package; an error that says how to install what it needs."""
    return importlib.import_module(f"regard.dask.{name}")
