"""What the tests of the kernel share. A run that says REGARD_PURE=1 is of the package without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard import kernels

# That there is no kernel where none should be, and one everywhere else, is what test_presence asks.
_HERE = Path(__file__).parent
collect_ignore = [
    path.name
    for path in _HERE.glob("test_*.py")
    if os.environ.get("REGARD_PURE") == "1" and path.stem != "test_presence"
]


@pytest.fixture(autouse=True)
def as_it_was():
    """Put back the instruction set and the number of threads."""
    native = kernels.native()
    if native is None:
        yield
        return
    before = native.instruction_set(), kernels.num_threads()
    yield
    native.use_instruction_set(before[0])
    kernels.set_num_threads(before[1])
