"""A corpus cut by tokens: what each piece holds, and the partitions that are computed and written whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.dask.jobs import Job
from regard.dask.model_spec import ModelSpec, load_model
from regard.dask.rows import encode_rows
from regard.dask.source import Piece

SHOWN_ERRORS = 5


@dataclass(frozen=True, eq=False)
class Scan:
    """What a piece holds: tokens of each row (0: it cannot be run), how many rows cannot and why, and a digest."""

    lengths: np.ndarray
    errors: tuple[tuple[int, str], ...]  # the first of them: row of the piece, from 0, and the reason
    num_errors: int
    sha256: str

    @property
    def counted(self) -> Counted:
        """The digest, and the number of rows."""
        return Counted(self.sha256, len(self.lengths))


@dataclass(frozen=True)
class Counted:
    """The rows of a piece: their digest, and how many there are."""

    sha256: str
    rows: int

    def check(self, piece: Piece) -> list[Any]:
        """Return the value of each row of the piece; an error if they are not those that were counted."""
        values = piece.read()
        if len(values) != self.rows or digest(values) != self.sha256:
            raise RegardError(f"{piece.address} has changed since the run began: give a new folder")
        return values


@dataclass(frozen=True)
class Segment:
    """Rows of a piece, from `start` to before `stop`; `first_row` is the place of row 0 in its file, from 1."""

    piece: Piece
    start: int
    stop: int
    first_row: int
    counted: Counted  # the whole piece, as it was cut

    def read(self) -> list[Any]:
        """Return the value of each row; an error if the piece is no longer what was cut."""
        return self.counted.check(self.piece)[self.start : self.stop]


@dataclass(frozen=True)
class Partition:
    """Rows that are computed by one task and written as one file."""

    number: int
    segments: tuple[Segment, ...]
    tokens: int

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(segment.stop - segment.start for segment in self.segments)

    def __str__(self) -> str:
        first, last = self.segments[0], self.segments[-1]
        end = f"row {last.first_row + last.stop - 1}"
        if last.piece.address != first.piece.address:
            end += f" of {last.piece.address}"
        return f"partition {self.number} ({first.piece.address} row {first.first_row + first.start} to {end})"


def scan(piece: Piece, spec: ModelSpec, job: Job) -> Scan:
    """Return what a piece holds."""
    values = piece.read()
    encodings, errors = encode_rows(job.reader(load_model(spec)), values, truncate=job.truncate)
    row_errors = [(i, error) for i, error in enumerate(errors) if error is not None]
    lengths = np.array([len(encodings[i]) if i in encodings else 0 for i in range(len(values))], np.int64)
    return Scan(lengths, tuple(row_errors[:SHOWN_ERRORS]), len(row_errors), digest(values))


def digest(values: Sequence[Any]) -> str:
    """Return the digest of rows."""
    return hashlib.sha256("".join(f"{value!r}\n" for value in values).encode("utf-8", "surrogatepass")).hexdigest()


def first_rows(pieces: Sequence[Piece], counted: Sequence[Counted]) -> list[int]:
    """Return the place of the first row of each piece in its file, from 1."""
    places = []
    for _, same in groupby(zip(pieces, counted, strict=True), key=lambda item: item[0].address):
        place = 1
        for _, count in same:
            places.append(place)
            place += count.rows
    return places


def cut(pieces: Sequence[Piece], scans: Sequence[Scan], partition_tokens: int) -> list[Partition]:
    """Return partitions of at most `partition_tokens`, or one row, in the order of the corpus.

    A row counts a token at least, so that rows without a text fill partitions too.
    """
    sizes: list[tuple[int, int]] = []
    rows = filled = 0

    def close() -> None:
        nonlocal rows, filled
        if rows:
            sizes.append((rows, filled))
        rows = filled = 0

    for scanned in scans:
        ends = np.cumsum(np.maximum(scanned.lengths, 1))
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + partition_tokens - filled, side="right"))
            if stop <= start:  # the next row does not fit
                if rows:
                    close()
                    continue
                stop = start + 1
            rows += stop - start
            filled += int(ends[stop - 1]) - before
            start = stop
    close()
    return spread(pieces, [scanned.counted for scanned in scans], sizes)


def spread(pieces: Sequence[Piece], counted: Sequence[Counted], sizes: Iterable[tuple[int, int]]) -> list[Partition]:
    """Return partitions of so many rows and tokens, in the order of the corpus.

    Raises
    ------
    ValueError
        The pieces are not those that were counted, or the partitions do not hold each row once.
    """
    partitions: list[Partition] = []
    places = zip(pieces, counted, first_rows(pieces, counted), strict=True)
    piece, count, first_row, start = Piece("", "", ""), Counted("", 0), 1, 0
    for rows, tokens in sizes:
        segments: list[Segment] = []
        left = rows
        while left:
            while start == count.rows:
                if (place := next(places, None)) is None:
                    raise ValueError("there are fewer rows than those of the partitions")
                (piece, count, first_row), start = place, 0
            stop = min(start + left, count.rows)
            segments.append(Segment(piece, start, stop, first_row, count))
            left -= stop - start
            start = stop
        partitions.append(Partition(len(partitions), tuple(segments), tokens))
    if start != count.rows or any(rest.rows for _, rest, _ in places):
        raise ValueError("there are more rows than those of the partitions")
    return partitions


def fingerprint(counted: Iterable[Counted]) -> str:
    """Return the digest of a corpus."""
    return hashlib.sha256("".join(count.sha256 for count in counted).encode()).hexdigest()
