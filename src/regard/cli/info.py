"""``regard info``: versions, threads and available models."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from rich.table import Table

from regard._version import __version__
from regard.cli.console import has_color, make_console
from regard.functional import native
from regard.functional.native.loader import num_processors
from regard.models import FAMILIES
from regard.models.hub import resolve
from regard.models.hub.paths import models_folder
from regard.views import escape

_PACKAGES = ("numpy", "array-api-compat", "tokenizers", "rich", "matplotlib", "huggingface_hub")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def run(arguments: argparse.Namespace) -> None:
    """Print what a bug report should contain."""
    console = make_console(arguments)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts():
        table.add_row(name, escape(value))
    table.add_row("colour", "yes" if has_color(console) else "no")
    console.print(table)


def _facts() -> Iterator[tuple[str, str]]:
    yield "regard", __version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", f"{platform.system()} {platform.machine()}"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "attention", _attention()
    yield "BLAS", _blas()
    yield "processors", str(num_processors())
    limits = ", ".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ)
    yield "threads", limits or "one per processor; OMP_NUM_THREADS sets a limit"
    yield "families", ", ".join(sorted(FAMILIES))
    yield "models", ", ".join(f"{e.name}: {folder or 'not downloaded'}" for e, folder in resolve.installed())
    yield "model folder", str(models_folder())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _attention() -> str:
    kernel = native.kernel()
    if kernel is None:
        return f"NumPy: {native.unavailable_reason()}"
    threads = native.num_threads()
    return f"compiled kernel, {kernel.instruction_set()}, {threads} thread{'s' * (threads != 1)}"


def _blas() -> str:
    found = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()
