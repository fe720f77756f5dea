"""A file of sentences, one per line, in which the page finds those where a head attends most strongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from regard import metrics
from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard.explorer import answers
from regard.explorer.codec import short
from regard.explorer.query import Exploration, query
from regard.explorer.run import Head
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.strongest_rows import PAIR_KINDS

MAX_ROWS = 100
_Word: TypeAlias = Literal["query", "key"]
_CONTEXT = 48  # characters on each side of the two words

PAIRS: tuple[answers.Pair, ...] = tuple({"key": name, "title": kind.title} for name, kind in PAIR_KINDS.items())
"""The kinds of pairs that the page offers."""


class StrongRow(TypedDict):
    """A row in which a head attends strongly; ``parts`` are the query, the key and the text around them."""

    text: str
    row: int
    col: int
    query: str
    key: str
    weight: float
    parts: list[tuple[str, Literal["", "query", "key"]]]


class StrongRows(TypedDict):
    """The rows in which a head attends most strongly."""

    texts: int
    rows: list[StrongRow]


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


@query(slow=True)
def strongest_rows(
    exploration: Exploration,
    run: int,
    layer: int,
    head: Head,
    *,
    pair: str = "any",
    count: int = 20,
    check: CancelCheck = lambda: None,
) -> StrongRows:
    """Return the rows of the corpus in which a head attends most strongly, the strongest first, and the ``texts``.

    See `regard.metrics.strongest_rows`; ``parts`` are the words of a row with the text around them.

    An error if there is no corpus; or the run has no model of texts, or is an ablation; or there is no such layer,
    head or kind of pairs.
    """
    corpus = exploration.corpus
    if corpus is None:
        raise RegardError("there is no corpus to search: regard explore --corpus FILE")
    recorded = exploration.run(run)
    recorded.layer_map(layer, head)
    if recorded.ablated:
        raise RegardError("sentences are run by the whole model: choose A")
    if head == "mean":
        raise RegardError("the mean of heads has no rows of its own: choose one head")
    if not 1 <= count <= MAX_ROWS:
        raise RegardError(f"count is a number from 1 to {MAX_ROWS}, not {count}")
    done = 0

    def progress(texts: int, _: int | None) -> None:
        nonlocal done
        done = texts
        check()

    with exploration.watch("strongest_rows") as watch:
        watch(lambda: done / len(corpus))
        strongest = metrics.strongest_rows(
            recorded.model, corpus, recorded.number(layer), head, count, pair=pair, truncate=True, progress=progress
        )
    return {"texts": len(corpus), "rows": [describe_row(row) for row in strongest]}


def describe_row(row: metrics.StrongRow) -> StrongRow:
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
        "weight": short(row.weight),
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
