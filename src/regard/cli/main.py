"""Running a command: its exit status, and one line in place of a traceback for a user's mistake."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread

from regard._utils.errors import RegardError

MISTAKE = 2
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + 13  # SIGPIPE, which Windows has no name for


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``regard`` with `argv` (``sys.argv[1:]`` by default) and return the exit status.

    0 when it went well, 2 for a mistake of the caller (told in one line on standard error), 130 when it was
    interrupted, 141 when the reader of the output went away.
    """
    with _interrupts() as interrupts:
        return _run(argv, interrupts)


def _run(argv: Sequence[str] | None, interrupts: list[int]) -> int:
    try:
        if sys.stdout is None:
            raise RegardError("cannot write the output: standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
            sys.stdout.reconfigure(errors="replace")  # where it is not UTF-8, a question mark is better than nothing
        from regard.cli.parser import parse  # here, for an interrupt may come that early

        arguments = parse(sys.argv[1:] if argv is None else argv)
        arguments.run(arguments)
    except RegardError as error:
        return _end(_one_line(str(error)), MISTAKE)
    except BrokenPipeError:
        return CLOSED_PIPE
    except MemoryError:
        return _end("not enough memory for that: give a shorter text or fewer heads", MISTAKE)
    except OSError as error:
        return _end(_one_line(f"the system refuses: {error}"), MISTAKE)
    except (KeyboardInterrupt, Exception) as error:
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        return _end("interrupted", INTERRUPTED)
    return 0


def _end(message: str, status: int) -> int:
    if sys.stderr is not None:
        with suppress(OSError):  # nobody can be told
            print(f"regard: {message}", file=sys.stderr, flush=True)
    return status


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Yield what gets an entry with Ctrl-C: a module that it stops while it is imported raises another exception."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or current_thread() is not main_thread():
        yield noted  # others have their reasons
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _one_line(message: str) -> str:
    """Return a message, which may quote a hostile text, as one line that does nothing to the terminal."""
    from regard.views import readable

    return readable(" ".join(message.splitlines()))
