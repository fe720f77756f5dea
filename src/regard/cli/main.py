"""Running a command: exit status, and errors of one line in place of tracebacks.

Ctrl-C prints a traceback until `main` has set its handler, so nothing is imported before that takes any time. An
interrupt during the start of Python itself is Python's to report.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C module: `signal` imports enum
import sys
from _thread import interrupt_main as _interrupt_main, start_new_thread as _start_thread
from time import sleep as _sleep

from regard._utils.errors import RegardError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + _signal.SIGINT
EXIT_CLOSED_PIPE = 128 + 13  # SIGPIPE, a name that Windows lacks


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``regard`` with `argv` (``sys.argv[1:]`` by default) and return the exit status.

    0: success; 2: an error that the caller can fix (one line on standard error); 130: interrupted; 141: the reader of
    the output closed the pipe.
    """
    interrupts: list[int] = []  # an import that Ctrl-C interrupts may raise another exception

    def note(number: int, _: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    before, is_running = sys.unraisablehook, True

    def again() -> None:
        _sleep(0.01)
        if is_running:
            _interrupt_main()

    def report(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            before(unraisable)
        else:  # in a callback, such as of an import, where nobody can catch it: once more, outside
            _start_thread(again, ())

    handles = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # else an embedding program's stays
    try:
        if handles:
            try:
                _signal.signal(_signal.SIGINT, note)
                sys.unraisablehook = report
            except ValueError:  # not the main thread
                handles = False
        return _run(argv, interrupts)
    except KeyboardInterrupt:
        return _end("interrupted", EXIT_INTERRUPTED)
    finally:
        is_running = False
        if handles:
            sys.unraisablehook = before
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _run(argv: Sequence[str] | None, interrupts: list[int]) -> int:
    verbose = False
    try:
        import io

        if sys.stdout is None:
            raise RegardError("cannot write the output: standard output is closed")
        from regard.cli import signs

        signs.register()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors in (
                "strict",
                "surrogateescape",
                "backslashreplace",
            ):
                stream.reconfigure(errors=signs.ERRORS)  # for an encoding that is not UTF-8
        from regard.cli.deferred import bind_imports
        from regard.cli.parser import parse

        call = parse(sys.argv[1:] if argv is None else argv)
        verbose = call.verbose
        bind_imports(call.module)
        call.module.run(call.options)
    except RegardError as error:
        notes: list[str] = getattr(error, "__notes__", [])
        more = notes if verbose else ["--verbose says more"] * bool(notes)
        return _end(("\n" if verbose else "; ").join(map(_one_line, [str(error), *more])), EXIT_USAGE)
    except ModuleNotFoundError as error:
        from regard._utils.packages import missing

        if (message := missing(error, "this command")) is None or interrupts:
            raise
        return _end(message, EXIT_USAGE)
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
        from contextlib import suppress

        with suppress(OSError):  # standard error cannot be written
            print(f"regard: {message}", file=sys.stderr, flush=True)
    return status


def _one_line(message: str) -> str:
    """Return a message, which may quote hostile text, as one line without control characters."""
    from regard.views import escape

    return escape(" ".join(message.splitlines()))
