"""What a question may ask for."""

from __future__ import annotations

from regard._utils.errors import RegardError

LARGEST_ANSWER = 2048
"""Cells along a side of a tile."""


def check_sides(sides: int, models: int) -> None:
    """Raise `RegardError` unless there are one or two runs, or texts for them, and as many models."""
    if sides not in (1, 2):
        raise RegardError(f"one text or trace is explored, or two side by side; got {sides}")
    if models != sides:
        raise RegardError(f"{models} models do not fit {sides} texts and traces: give one, or one for each")


def check_number(kind: str, number: object, count: int) -> None:
    """Raise `RegardError` unless `number` is one of those from 0 to `count` − 1."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
        raise RegardError(f"there is no {kind} {number!r}: choose from 0 to {count - 1}")


def check_span(what: str, start: int, stop: int, by: int, length: int) -> None:
    """Raise `RegardError` unless a part of `length` tokens can be shown in cells of so many."""
    if not 0 <= start < stop <= length:
        raise RegardError(f"{what} {start} to {stop} are no part of the {length} that there are")
    least = -(-(stop - start) // LARGEST_ANSWER)
    if by < least:
        tokens = "1 token" if least == 1 else f"{least} tokens"
        raise RegardError(f"{what} {start} to {stop} are shown in cells of {tokens} or more, not of {by}")
