"""Reading one entry out of a trace: one text of its batch, one number of a range, the layers of a step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.text.encoding import Encoding
from regard.trace import Trace


def entry_of(values: Array, axes: str, batch: int) -> tuple[np.ndarray, int]:
    """Return the values of one text, without the axis ``B`` where `axes` has it, and how many texts there are.

    Raises
    ------
    RegardError
        There is no such batch entry.
    """
    array = np.asarray(values)
    if axes.startswith("B "):
        return array[number_of("batch entry", batch, range(len(array)))], len(array)
    if batch != 0:
        raise RegardError(f"values of shape {array.shape}, {axes}, are no batch: leave out batch")
    return array, 1


def layers_with(step: str, names: Iterable[str]) -> list[int]:
    """Return the layers, in order, whose ``blocks.N.`` `step` is among the names of a trace."""
    name = re.compile(rf"blocks\.(0|[1-9][0-9]*)\.{re.escape(step)}")
    return sorted(int(found[1]) for each in names if (found := name.fullmatch(each)))


def encoding_of(trace: Trace, batch: int, entries: int) -> Encoding | None:
    """Return the tokens of one text; None where the trace has no texts."""
    if not trace.encodings:
        return None
    if len(trace.encodings) != entries:
        raise RegardError(f"the trace has {len(trace.encodings)} texts for values of a batch of {entries}")
    return trace.encodings[batch]


def number_of(kind: str, wanted: int, available: Sequence[int]) -> int:
    """Return the number that is wanted, a negative one counted from the last that is available.

    Raises
    ------
    RegardError
        It is not there; the message says what is.
    """
    if wanted in available:
        return wanted
    if -len(available) <= wanted < 0:
        return available[wanted]
    raise RegardError(f"there is no {kind} {wanted}: choose from {span(available)}")


def span(numbers: Sequence[int]) -> str:
    """Return ``0–5`` for numbers that follow each other, else all of them."""
    first, last = numbers[0], numbers[-1]
    return f"{first}–{last}" if last - first == len(numbers) - 1 > 0 else ", ".join(map(str, numbers))
