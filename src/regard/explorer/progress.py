"""How far the long computations for the page are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from regard.explorer import answers

Share: TypeAlias = Callable[[], float]
"""How much of a computation is done, from 0 to 1."""

Watch: TypeAlias = Callable[[Share], None]
"""What a computation tells how its share is measured from now on."""

_LEAST_SHARE = 0.02  # from which the time that is left can be estimated


class Progress:
    """The computations that run, by method; safe to use from several threads."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[float, list[Share]]] = {}  # when each began, and how it is measured

    @contextmanager
    def watch(self, method: str) -> Iterator[Watch]:
        """Watch a computation while the block runs."""
        shares: list[Share] = [lambda: 0.0]
        self._running[method] = time.monotonic(), shares
        try:
            yield shares.append
        finally:
            self._running.pop(method, None)

    def describe(self) -> dict[str, answers.Share]:
        """Return the share of each computation that runs, and the seconds that are left, None if that is not known."""
        now = time.monotonic()
        running: dict[str, answers.Share] = {}
        for method, (begin, shares) in list(self._running.items()):
            share = min(1.0, max(0.0, shares[-1]()))
            left = (now - begin) * (1 - share) / share if share >= _LEAST_SHARE else None
            running[method] = {"share": share, "seconds_left": left}
        return running
