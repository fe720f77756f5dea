"""Only the array API standard is required of an array library, on any device."""

import array_api_strict as xp
import numpy as np
import pytest

from attention_cases import cut_into_blocks
from library_calls import CALLS, in_precision


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 4)  # of 5 queries by 7 keys


@pytest.mark.parametrize("device", ["device1", pytest.param("CPU_DEVICE", marks=pytest.mark.sweep)])
@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"),
    [(np.float64, 1e-12, 1e-13), pytest.param(np.float32, 1e-5, 1e-6, marks=pytest.mark.sweep)],
)
@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_of_numpy_in_arrays_of_its_own(name, dtype, rtol, atol, device):
    device = xp.Device(device)
    ours = CALLS[name](in_precision(dtype, lambda array: xp.asarray(array, device=device)))
    theirs = CALLS[name](in_precision(dtype, np.asarray))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(xp.empty(0))
        assert one.device == device
        assert str(one.dtype).rpartition(".")[2] == str(other.dtype)
        assert one.shape == other.shape
        there = np.asarray(xp.asarray(one, device=xp.Device("CPU_DEVICE"), copy=True))
        np.testing.assert_allclose(there, other, rtol=rtol, atol=atol)
