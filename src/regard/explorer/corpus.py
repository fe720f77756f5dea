"""A file of sentences, one per line, in which the page finds those where a head attends most strongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard.explorer import answers
from regard.explorer.progress import Watch
from regard.explorer.run import Run
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.strongest_rows import PAIR_KINDS, StrongRow, strongest_rows

MAX_ROWS = 100
_Word: TypeAlias = Literal["query", "key"]
_CONTEXT = 48  # characters on each side of the two words

PAIRS: tuple[answers.Pair, ...] = tuple({"key": name, "title": kind.title} for name, kind in PAIR_KINDS.items())
"""The kinds of pairs that the page offers."""


class Corpus:
    """The lines of a file that hold text, which is read anew for each search, a window of it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = sum(1 for _ in self._lines())
        if not self._count:
            raise RegardError(f"no text in {path}: every line is empty")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return self._lines()

    def first(self) -> str:
        """Return the first text."""
        return next(self._lines())

    def strongest_rows(
        self, run: Run, layer: int, head: Any, pair: str, count: int, check: CancelCheck, watch: Watch
    ) -> answers.StrongRows:
        """Return the strongest rows of a head as plain data; see `Exploration.strongest_rows`."""
        if run.ablated:
            raise RegardError("sentences are run by the whole model: choose A")
        if head == "mean":
            raise RegardError("the mean of heads has no rows of its own: choose one head")
        if not 1 <= count <= MAX_ROWS:
            raise RegardError(f"count is a number from 1 to {MAX_ROWS}, not {count}")
        done = 0
        watch(lambda: done / len(self))

        def progress(texts: int, _: int | None) -> None:
            nonlocal done
            done = texts
            check()

        layer = run.number(layer)
        strongest = strongest_rows(run.model, self, layer, head, count, pair=pair, truncate=True, progress=progress)
        return {"texts": len(self), "rows": [describe_row(row) for row in strongest]}

    def _lines(self) -> Iterator[str]:
        try:
            with open_regular(self.path, "utf-8-sig") as file:
                for line in file:
                    if "\0" in line:
                        raise RegardError(f"{self.path} is not UTF-8 text: it has a zero byte, as UTF-16 has")
                    if text := line.strip():
                        yield text
        except (OSError, UnicodeDecodeError) as error:
            raise RegardError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from error


def describe_row(row: StrongRow) -> answers.StrongRow:
    """Return a row as plain data; ``parts`` are the text around the two words, with which of them each part is."""
    spans: list[tuple[int, int, _Word]] = [(*row.query_span, "query"), (*row.key_span, "key")]
    (start, stop, kind), (other_start, other_stop, other) = sorted(spans)
    before, between, after = row.text[:start], row.text[stop:other_start], row.text[max(stop, other_stop) :]
    middle = between if len(between) <= 2 * _CONTEXT else f"{_beginning(between)}…{_ending(between)}"
    parts: list[tuple[str, _Word | Literal[""]]] = [
        (("…" if len(before) > _CONTEXT else "") + _ending(before), ""),
        (row.text[start:stop], kind),
        (middle, ""),
        (row.text[max(stop, other_start) : other_stop], other),
        (_beginning(after) + ("…" if len(after) > _CONTEXT else ""), ""),
    ]
    return {
        "text": row.text,
        "row": row.row,
        "col": row.col,
        "query": row.query,
        "key": row.key,
        "weight": float(f"{row.weight:.6g}"),
        "parts": [part for part in parts if part[0]],
    }


def _beginning(text: str) -> str:
    """Return the beginning of a text, as far as whole words go."""
    short = text[:_CONTEXT]
    return short if len(text) <= _CONTEXT or " " not in short.strip() else short[: short.rindex(" ")]


def _ending(text: str) -> str:
    """Return the end of a text, as far as whole words go."""
    short = text[-_CONTEXT:]
    return short if len(text) <= _CONTEXT or " " not in short.strip() else short[short.index(" ") + 1 :]
