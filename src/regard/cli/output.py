"""Standard output, which may be closed, full or read by nobody: all that a command prints goes through here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from regard._utils.errors import RegardError


@contextmanager
def writing() -> Iterator[None]:
    """Make sure that what is written inside has arrived.

    Raises
    ------
    RegardError
        It cannot be written: the disk is full.
    BrokenPipeError
        Its reader went away.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered can reach nobody, and Python would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise RegardError(f"cannot write the output: {error.strerror or error}") from error


def write(text: str) -> None:
    """Write a line, or lines."""
    with writing():
        print(text)
