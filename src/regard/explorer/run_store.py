"""The runs of an exploration: those given, and those that are made when they are needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer.progress import Watch
from regard.explorer.queries.ablation import Changes, ablate_heads
from regard.explorer.run import Run
from regard.explorer.validation import check_index

MAX_KEPT = 8


class RunStore:
    """Runs by number: the given ones first, then one for each ablation and each checkpoint, in the order of requests.

    Of those that are made, the last stay in memory, 8 or as `keep` says; an earlier one is made again when it is
    requested. Safe to use from several threads.
    """

    def __init__(self, initial: Sequence[Run] = (), keep: int = MAX_KEPT) -> None:
        self.initial = tuple(initial)
        self._keep_at_most = keep
        self._bases = list(range(len(initial)))  # what can be ablated: no ablation
        self._kept: dict[int, Run] = {}  # by number, the oldest first
        self._makers: list[Callable[[], Run]] = []
        self._lock = threading.Lock()
        self._making_lock = threading.RLock()  # an ablation may need its checkpoint made

    def __getitem__(self, number: int) -> Run:
        check_index("run", number, len(self.initial) + len(self._makers))
        if number < len(self.initial):
            return self.initial[number]
        run = self._kept.get(number)
        return self._make_again(number) if run is None else run

    def __iter__(self) -> Iterator[Run]:
        """Iterate over the runs that are in memory."""
        return iter([*self.initial, *self._kept.values()])

    def holds(self, number: int) -> bool:
        """Tell whether a run is in memory."""
        return 0 <= number < len(self.initial) or number in self._kept

    def add(self, run: Run, make: Callable[[], Run]) -> int:
        """Add a run that `make` makes again; return its number."""
        with self._lock:
            number = self._append(run, make)
            self._bases.append(number)
        return number

    def ablate(self, number: int, heads: Any, watch: Watch = lambda _: None) -> tuple[int, Changes]:
        """Repeat a run without some heads; return the number of the new run, and what has changed."""
        check_index("run to ablate", number, max(self._bases) + 1)
        if number not in self._bases:
            raise RegardError(f"there is no run to ablate {number}: it is an ablation itself")
        run, changes = ablate_heads(self[number], heads, watch)
        with self._lock:
            new = self._append(run, lambda: ablate_heads(self[number], heads)[0])
        return new, changes

    def _append(self, run: Run, make: Callable[[], Run]) -> int:
        number = len(self.initial) + len(self._makers)
        self._makers.append(make)
        self._keep(number, run)
        return number

    def _make_again(self, number: int) -> Run:
        with self._making_lock:  # concurrent requests make it once
            run = self._kept.get(number)
            if run is None:
                run = self._makers[number - len(self.initial)]()
                with self._lock:
                    self._keep(number, run)
            return run

    def _keep(self, number: int, run: Run) -> None:
        self._kept[number] = run
        for old in list(self._kept)[: -self._keep_at_most]:
            del self._kept[old]
