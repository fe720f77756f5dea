"""The runs of an exploration: those given, and those of ablations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from regard.explorer.ablation import ablate_heads
from regard.explorer.run import Run
from regard.explorer.validation import check_index

_MAX_ABLATIONS = 8


class RunStore:
    """Runs by number: the given ones first, then one for each ablation.

    The last 8 ablated runs stay in memory; an earlier one is run again when it is requested. Safe to use from several
    threads.
    """

    def __init__(self, given: Sequence[Run]) -> None:
        self.given = tuple(given)
        self._ablated: dict[int, Run] = {}  # by number, the oldest first
        self._requests: list[tuple[int, Any]] = []  # of each ablation: which given run, and which heads
        self._lock = threading.Lock()
        self._rerun_lock = threading.Lock()

    def __getitem__(self, number: int) -> Run:
        check_index("run", number, len(self.given) + len(self._requests))
        if number < len(self.given):
            return self.given[number]
        run = self._ablated.get(number)
        return self._run_again(number) if run is None else run

    def __iter__(self) -> Iterator[Run]:
        """Iterate over the runs that are in memory."""
        return iter([*self.given, *self._ablated.values()])

    def ablate(self, number: int, heads: Any) -> tuple[int, dict[str, Any]]:
        """Run a given run again without some heads; return the number of the new run, and what has changed."""
        check_index("run to ablate", number, len(self.given))
        run, changes = ablate_heads(self.given[number], heads)
        with self._lock:
            new = len(self.given) + len(self._requests)
            self._requests.append((number, heads))
            self._keep(new, run)
        return new, changes

    def _run_again(self, number: int) -> Run:
        with self._rerun_lock:  # concurrent requests run it once
            run = self._ablated.get(number)
            if run is None:
                base, heads = self._requests[number - len(self.given)]
                run, _ = ablate_heads(self.given[base], heads)
                with self._lock:
                    self._keep(number, run)
            return run

    def _keep(self, number: int, run: Run) -> None:
        self._ablated[number] = run
        for old in list(self._ablated)[:-_MAX_ABLATIONS]:
            del self._ablated[old]
