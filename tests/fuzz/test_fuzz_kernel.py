"""Some hundred random calls; more: ``python tests/fuzz/fuzz_kernel.py --cases 100000``."""

from __future__ import annotations

import fuzz_kernel
import pytest

from regard.functional import native
from sweeps import sweep_after

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="there is no compiled kernel")


@pytest.mark.parametrize("first", sweep_after(2, range(0, 600, 50)))
def test_random_calls_are_within_rounding_error(first):
    assert fuzz_kernel.run(50, seed=20170612, first=first) == []


@pytest.mark.parametrize("first", sweep_after(1, range(0, 600, 50)))
def test_random_calls_of_extreme_numbers_are_finite_and_within_rounding_error(first):
    assert fuzz_kernel.run(50, seed=20170613, first=first, extreme=True) == []


@pytest.mark.parametrize("first", sweep_after(1, range(0, 600, 50)))
def test_random_batches_of_sequences_are_within_rounding_error(first):
    assert fuzz_kernel.run_varlen(50, seed=20170614, first=first) == []


def test_a_difference_just_beyond_the_bound_is_found(monkeypatch):
    """The oracle can fail: it detects a result moved by twice the width of its bound."""
    honest = fuzz_kernel.attention

    def moved(*arrays, **options):
        output = honest(*arrays, **options)
        return output + output.dtype.type(0.01)

    monkeypatch.setattr(fuzz_kernel, "attention", moved)
    assert len(fuzz_kernel.run(20, seed=1)) > 10


def test_a_batch_of_sequences_with_one_wrong_row_is_found(monkeypatch):
    honest = fuzz_kernel.attention_varlen

    def moved(*arrays, **options):
        output = honest(*arrays, **options).copy()
        output[-1:] += output.dtype.type(0.05)
        return output

    monkeypatch.setattr(fuzz_kernel, "attention_varlen", moved)
    assert len(fuzz_kernel.run_varlen(20, seed=1)) > 10
