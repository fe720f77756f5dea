"""Checks of requests to an exploration."""

from __future__ import annotations

from regard._utils.errors import RegardError

MAX_TILE_SIDE = 2048
"""Cells along a side of a tile."""


def check_num_runs(num_runs: int, num_models: int) -> None:
    """Raise `RegardError` unless there are one or two runs or texts, and as many models."""
    if num_runs not in (1, 2):
        raise RegardError(f"give one text or trace, or two to compare; got {num_runs}")
    if num_models != num_runs:
        raise RegardError(f"got {num_models} models for {num_runs} texts or traces: give one, or one for each")


def check_index(name: str, index: object, count: int) -> None:
    """Raise `RegardError` unless `index` is a whole number from 0 to `count` − 1."""
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        raise RegardError(f"there is no {name} {index!r}: choose from 0 to {count - 1}")


def check_range(name: str, start: int, stop: int, bin_size: int, length: int) -> None:
    """Raise `RegardError` unless a tile can show `start` to `stop` of `length` tokens in bins of this size."""
    if not 0 <= start < stop <= length:
        raise RegardError(f"{name} {start}–{stop} out of range ({length} tokens)")
    min_bin_size = -(-(stop - start) // MAX_TILE_SIDE)
    if bin_size < min_bin_size:
        raise RegardError(f"{name} {start}–{stop} need bin_size {min_bin_size} or more, got {bin_size}")
