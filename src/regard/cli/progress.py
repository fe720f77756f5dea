"""The progress of a command that takes long, on standard error where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(columns: Callable[[Any], Sequence[Any]]) -> Iterator[Any]:
    """Yield a progress bar with the columns that a function takes from ``rich.progress``; None without a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(*columns(progress), console=Console(stderr=True), transient=True) as shown:
        yield shown


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield the callback of a progress bar; None without a terminal."""
    with bar(lambda rich: (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())) as shown:
        task = shown and shown.add_task("", total=total)
        yield shown and (lambda done, _: shown.update(task, completed=done))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Draw that work continues, and for how long."""
    with bar(lambda rich: (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeElapsedColumn())) as shown:
        if shown is not None:
            shown.add_task(what, total=None)
        yield


@contextmanager
def corpus_progress() -> Iterator[Callable[[int, int, int, int], Callable[[int, int], None] | None]]:
    """Yield a function that begins a progress bar.

    It takes all texts and tokens and those that are done, and returns the callback for those done, None without a
    terminal.
    """
    fields = "{task.fields[texts]:,} of {task.fields[of]:,} texts · {task.fields[rate]}"
    with bar(lambda rich: (rich.BarColumn(), rich.TextColumn(fields), rich.TimeRemainingColumn())) as shown:

        def begin(texts: int, tokens: int, texts_there: int, tokens_there: int) -> Callable[[int, int], None] | None:
            if shown is None:
                return None
            task = shown.add_task("", total=tokens, completed=tokens_there, texts=texts_there, of=texts, rate="")
            start = time.monotonic()

            def update(texts_done: int, tokens_done: int) -> None:
                seconds = max(time.monotonic() - start, 1e-9)
                rates = (texts_done - texts_there) / seconds, (tokens_done - tokens_there) / seconds
                rate = f"{rates[0]:,.0f} texts/s · {rates[1]:,.0f} tokens/s"
                shown.update(task, completed=tokens_done, texts=texts_done, rate=rate)

            return update

        yield begin
