"""Some thousands of damaged files; ``python tests/models/fuzz_formats.py --cases 200000`` asks for more."""

from __future__ import annotations

import fuzz_formats
import pytest

import regard


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_damaged_files_are_refused_or_read(first):
    assert fuzz_formats.run(500, seed=20170613, first=first) == []


def test_what_is_no_error_of_ours_is_found(monkeypatch):
    """The mutator can fail: a check that is taken away shows."""

    def careless(*_):
        raise IndexError("taken at its word")

    monkeypatch.setattr(regard._gguf._Header, "expect", careless)
    monkeypatch.setattr(fuzz_formats, "seeds", lambda folder, honest=fuzz_formats.seeds: honest(folder))
    failures = []
    with pytest.raises(IndexError):
        failures = fuzz_formats.run(20, seed=1)
    assert failures == []
