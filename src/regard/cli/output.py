"""Writing to standard output, which may be closed, full or without a reader, and to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard._utils.errors import RegardError


@contextmanager
def writing() -> Iterator[None]:
    """Flush what is written inside.

    Raises
    ------
    RegardError
        The output cannot be written: the disk is full.
    BrokenPipeError
        The reader closed the pipe.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Python would fail to flush the rest of the buffer at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise RegardError(f"cannot write the output: {error.strerror or error}") from error


def tell(text: str) -> None:
    """Write a line to standard error, if there is one."""
    if sys.stderr is not None:
        print(f"regard: {text}", file=sys.stderr, flush=True)


def write(text: str) -> None:
    """Write a line, or lines."""
    with writing():
        print(text)


def write_json(value: Any) -> None:
    """Write what ``--json`` prints; NaN and infinities, which JSON lacks, are errors."""
    import json

    write(json.dumps(value, allow_nan=False))
