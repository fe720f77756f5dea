"""Fixtures of the kernel's tests. REGARD_PURE=1 marks a run of the package without the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
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
def as_it_was():
    """Restore the instruction set, the instructions of bfloat16 and the number of threads."""
    kernel = native.kernel()
    if kernel is None:
        yield
        return
    before = kernel.instruction_set(), native.num_threads()
    yield
    kernel.use_instruction_set(before[0])
    kernel.use_tiles("auto")
    native.set_num_threads(before[1])


@pytest.fixture(params=native.kernel().instruction_sets() if native.kernel() else [])
def instruction_set(request):
    """Run the test on each instruction set; `as_it_was` restores the default."""
    assert native.kernel().use_instruction_set(request.param)
    return request.param


@pytest.fixture(params=native.kernel().tile_implementations()[:-1] if native.kernel() else [])
def tiles(request):
    """Run the test on each implementation of products of bfloat16; `as_it_was` restores the default."""
    assert native.kernel().use_tiles(request.param)
    return request.param


@pytest.fixture
def same_bits():
    """Return a function that asserts that a call returns the same bits on any number of threads, and returns them."""

    def check(call, counts=(1, 2, 3)):
        found = []
        for count in counts:
            native.set_num_threads(count)
            result = call()
            found.append([np.asarray(x) for x in (result if isinstance(result, list | tuple) else [result])])
        for other in found[1:]:
            assert [x.tobytes() for x in other] == [x.tobytes() for x in found[0]]
        return found[0]

    return check


@pytest.fixture
def threads():
    """Return a function that sets the number of threads; `as_it_was` restores it."""
    return native.set_num_threads
