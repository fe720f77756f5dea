"""What is printed to a terminal whose encoding lacks the signs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from regard.cli import signs


def shown(encoding, *argv):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "60", "REGARD_OFFLINE": "1"}
    command = [sys.executable, "-m", "regard", *argv]
    return subprocess.run(command, capture_output=True, check=False, env=environment)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
def test_columns_and_shades_stay(encoding):
    outputs = (shown(each, "The cat sat on the mat", "--toy").stdout.decode(each) for each in ("utf-8", encoding))
    # After the first lines, which say how long it took.
    wanted, found = (output.partition("meaningless")[2].splitlines() for output in outputs)
    assert [len(line) for line in found] == [len(line) for line in wanted]
    assert "?" not in "".join(found)
    like = {ord(sign): letter for sign, letter in signs._SIGNS.items()}
    for line, original in zip(found, wanted, strict=True):
        for sign, letter in zip(line, original, strict=True):
            assert sign in (letter, letter.translate(like))


def test_letters_that_there_are_not_are_question_marks():
    found = shown("ascii", "le café −", "--toy").stdout.decode("ascii")
    assert "caf?" in found


def test_an_error_is_told_in_any_encoding():
    found = shown("ascii", "a", "--model", "./café…")
    assert found.returncode == 2
    assert "there is no folder" in found.stderr.decode("ascii")
