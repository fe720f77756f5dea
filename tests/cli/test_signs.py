"""What is printed to a terminal whose encoding lacks the signs."""

import io
import sys

import pytest

from regard.cli import main, signs


@pytest.fixture
def shown(monkeypatch):
    """Return a function that runs a command whose streams have an encoding: its status, output and errors."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("REGARD_OFFLINE", "1")

    def shown(encoding, *argv):
        streams = {"stdout": "strict", "stderr": "backslashreplace"}  # as Python opens them
        for name, errors in streams.items():
            monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding, errors))
        status = main(list(argv))
        for name in streams:
            getattr(sys, name).flush()
        return status, *(getattr(sys, name).buffer.getvalue().decode(encoding) for name in streams)

    return shown


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
def test_columns_and_shades_stay(shown, encoding):
    outputs = (shown(each, "The cat sat on the mat", "--toy")[1] for each in ("utf-8", encoding))
    # After the first lines, which say how long it took.
    wanted, found = (output.partition("meaningless")[2].splitlines() for output in outputs)
    assert [len(line) for line in found] == [len(line) for line in wanted]
    assert "?" not in "".join(found)
    like = {ord(sign): letter for sign, letter in signs._SIGNS.items()}
    for line, original in zip(found, wanted, strict=True):
        for sign, letter in zip(line, original, strict=True):
            assert sign in (letter, letter.translate(like))


def test_an_error_is_told_in_any_encoding(shown):
    status, _, error = shown("ascii", "a", "--model", "./café…")
    assert status == 2
    assert "there is no folder" in error
