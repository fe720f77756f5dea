"""Running a command: its exit status, and one line in place of a traceback for a user's mistake."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from regard._errors import RegardError
from regard.cli._parser import parse

MISTAKE = 2
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + 13  # SIGPIPE, which Windows has no name for


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``regard`` with `argv` (``sys.argv[1:]`` by default) and return the exit status.

    0 when it went well, 2 for a mistake of the caller (told in one line on standard error), 130 when it was
    interrupted, 141 when the reader of the output went away.
    """
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        arguments.run(arguments)
        sys.stdout.flush()
    except RegardError as error:
        print(f"regard: {_one_line(str(error))}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return CLOSED_PIPE
    except MemoryError:
        print("regard: not enough memory for that: give a shorter text", file=sys.stderr)
        return MISTAKE
    except OSError as error:
        print(f"regard: cannot write the output: {error.strerror or error}", file=sys.stderr)
        _drop_output()
        return MISTAKE
    return 0


def _drop_output() -> None:
    """Point standard output at nothing: what is still buffered can reach nobody, and would be complained of."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(message: str) -> str:
    """Return a message, which may quote a hostile text, as one line that does nothing to the terminal."""
    from regard.views import readable

    return readable(" ".join(message.splitlines()))
