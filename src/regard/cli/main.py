"""Running a command: exit status, and errors of one line in place of tracebacks."""

from __future__ import annotations

import importlib
import io
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread

from regard._utils.errors import RegardError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_CLOSED_PIPE = 128 + 13  # SIGPIPE, a name that Windows lacks


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``regard`` with `argv` (``sys.argv[1:]`` by default) and return the exit status.

    0: success; 2: an error that the caller can fix (one line on standard error); 130: interrupted; 141: the reader of
    the output closed the pipe.
    """
    with _interrupts() as interrupts:
        return _run(argv, interrupts)


def _run(argv: Sequence[str] | None, interrupts: list[int]) -> int:
    try:
        if sys.stdout is None:
            raise RegardError("cannot write the output: standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
            sys.stdout.reconfigure(errors="replace")  # for an encoding that is not UTF-8
        from regard.cli.parser import parse  # here: an interrupt may come during the import

        arguments = parse(sys.argv[1:] if argv is None else argv)
        importlib.import_module(f"regard.cli.{arguments.command}").run(arguments)
    except RegardError as error:
        return _end(_one_line(str(error)), EXIT_USAGE)
    except BrokenPipeError:
        return EXIT_CLOSED_PIPE
    except MemoryError:
        return _end("out of memory: give a shorter text or fewer heads", EXIT_USAGE)
    except OSError as error:
        return _end(_one_line(f"system error: {error}"), EXIT_USAGE)
    except (KeyboardInterrupt, Exception) as error:
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        return _end("interrupted", EXIT_INTERRUPTED)
    return 0


def _end(message: str, status: int) -> int:
    if sys.stderr is not None:
        with suppress(OSError):  # standard error cannot be written
            print(f"regard: {message}", file=sys.stderr, flush=True)
    return status


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Yield a list that gets an entry on Ctrl-C: an import that it interrupts may raise another exception."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or current_thread() is not main_thread():
        yield noted  # the handler of an embedding program stays
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _one_line(message: str) -> str:
    """Return a message, which may quote hostile text, as one line without control characters."""
    from regard.views import escape

    return escape(" ".join(message.splitlines()))
