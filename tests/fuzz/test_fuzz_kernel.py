"""Some hundred random calls; more: ``python tests/fuzz/fuzz_kernel.py --cases 100000``."""

import itertools

import fuzz_kernel
import pytest

from regard.functional import native
from sweeps import sweep_except

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="there is no compiled kernel")


SEEDS = {"plain": 20170612, "extreme": 20170613, "varlen": 20170614}
KEPT = [("plain", 0), ("plain", 50), ("extreme", 0), ("varlen", 0)]


@pytest.mark.parametrize("case", sweep_except(KEPT, itertools.product(SEEDS, range(0, 600, 50))), ids=str)
def test_random_calls_are_within_rounding_error(case):
    kind, first = case
    assert fuzz_kernel.run(50, SEEDS[kind], first, kind=kind) == []


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
    assert len(fuzz_kernel.run(20, seed=1, kind="varlen")) > 10
