"""Fixtures of the kernel's tests. REGARD_PURE=1 marks a run of the package without the kernel."""

import os
from pathlib import Path

import pytest

from regard.functional import native

# test_kernel_loading checks that the kernel is present or absent as it should be.
_HERE = Path(__file__).parent
collect_ignore = [
    path.name
    for path in _HERE.glob("test_*.py")
    if os.environ.get("REGARD_PURE") == "1" and path.stem != "test_kernel_loading"
]


@pytest.fixture(autouse=True)
def _as_it_was(as_it_was):
    """Restore what a test of the kernel sets."""


@pytest.fixture(params=native.kernel().instruction_sets() if native.kernel() else [])
def instruction_set(request):
    """Run the test on each instruction set."""
    assert native.kernel().use_instruction_set(request.param)
    return request.param


@pytest.fixture(params=native.kernel().tile_implementations()[:-1] if native.kernel() else [])
def tiles(request):
    """Run the test on each implementation of products of bfloat16."""
    assert native.kernel().use_tiles(request.param)
    return request.param
