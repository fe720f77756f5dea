"""The progress of a command that runs many texts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a callback that draws a progress bar on standard error; None where that is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda done, _: bar.update(task, completed=done)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Draw on standard error that work continues, and for how long; nothing where that is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def corpus_progress() -> Iterator[Callable[[int, int, int, int], Callable[[int, int], None] | None]]:
    """Yield a function that begins a progress bar on standard error.

    It takes all texts and tokens and those that are done, and returns the callback for those done, None where standard
    error is not a terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.fields[texts]:,} of {task.fields[of]:,} texts · {task.fields[rate]}")
    bar = Progress(BarColumn(), shown, TimeRemainingColumn(), console=Console(stderr=True), transient=True)

    def begin(texts: int, tokens: int, texts_there: int, tokens_there: int) -> Callable[[int, int], None]:
        task = bar.add_task("", total=tokens, completed=tokens_there, texts=texts_there, of=texts, rate="")
        start = time.monotonic()

        def update(texts_done: int, tokens_done: int) -> None:
            seconds = max(time.monotonic() - start, 1e-9)
            rates = (texts_done - texts_there) / seconds, (tokens_done - tokens_there) / seconds
            rate = f"{rates[0]:,.0f} texts/s · {rates[1]:,.0f} tokens/s"
            bar.update(task, completed=tokens_done, texts=texts_done, rate=rate)

        return update

    with bar:
        yield begin
