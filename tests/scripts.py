"""Files outside the package: Python files as modules, and what sessions fetch."""

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def script(path):
    """Return a file outside the package, given relative to the repository, as a module."""
    spec = importlib.util.spec_from_file_location(f"checked_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fetched(session, pattern):
    """Return the one file of a pattern that a session of nox has fetched into the folder that it names."""
    variable = f"REGARD_{session.upper()}"
    folder = os.environ.get(variable)
    paths = [] if folder is None else list(Path(folder).glob(pattern))
    if len(paths) != 1:
        there = f"{len(paths)} of {pattern} in {folder}" if folder else "the variable is not set"
        pytest.fail(f"${variable} is the folder of what is fetched ({there}): run `nox -s {session}`", pytrace=False)
    return paths[0]
