"""One batch entry, one layer or head, and the layers of a step of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.head_names import parse_head
from regard.functional.arrays import Array
from regard.text.encoding import Encoding
from regard.trace import Trace


def batch_entry(values: Array, axes: str, batch: int) -> tuple[np.ndarray, int]:
    """Return the values of one text, without the axis ``B``, and the number of texts; an error if there is none."""
    array = np.asarray(values)
    if axes.startswith("B "):
        return array[resolve_index("batch entry", batch, range(len(array)))], len(array)
    if batch != 0:
        raise RegardError(f"values of shape {array.shape}, {axes}, have no batch axis: leave out batch")
    return array, 1


def layers_with(step: str, names: Iterable[str]) -> list[int]:
    """Return the sorted layers N for which ``blocks.N.`` `step` is one of `names`."""
    name = re.compile(rf"blocks\.(0|[1-9][0-9]*)\.{re.escape(step)}")
    return sorted(int(match[1]) for each in names if (match := name.fullmatch(each)))


def batch_encoding(trace: Trace, batch: int, entries: int) -> Encoding | None:
    """Return the encoding of one text; None if the trace has no texts."""
    if not trace.encodings:
        return None
    if len(trace.encodings) != entries:
        raise RegardError(f"the trace has {len(trace.encodings)} texts for values of a batch of {entries}")
    return trace.encodings[batch]


def resolve_index(kind: str, number: int, available: Sequence[int]) -> int:
    """Return `number` if it is available; a negative number counts from the last.

    An error if it is not; it lists what is.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise RegardError(f"a {kind} is a whole number, got {number!r}: choose from {format_range(available, ' to ')}")
    if number in available:
        return number
    if -len(available) <= number < 0:
        return available[number]
    raise RegardError(f"there is no {kind} {number}: choose from {format_range(available, ' to ')}")


def resolve_head(layer: int | None, head: int | str | None, layers: Sequence[int]) -> tuple[int | None, int | None]:
    """Return the arguments `layer`, one of `layers`, and `head` as numbers; the short name of a head has both.

    None where an argument is; an error if there is no such layer. Whether there is such a head is not validated.
    """
    named = None
    if isinstance(head, str):
        if (named := parse_head(head)) is None:
            raise RegardError(f"head must be a number or a name such as 'L3H7', got {head!r}")
        if not layers:
            raise RegardError(f"there are no layers, got head={head!r}: give the number of the head, {named[1]}")
    elif not layers and layer is not None:
        raise RegardError(f"there are no layers, got layer={layer}: leave it out")
    resolved = None if layer is None else resolve_index("layer", layer, layers)
    if named is None:
        return resolved, head  # type: ignore[return-value]  # not a str
    if resolved not in (None, named[0]):
        raise RegardError(f"head={head!r} is in layer {named[0]}, got layer={layer!r} too: leave one out")
    return resolve_index("layer", named[0], layers), named[1]


def format_range(numbers: Sequence[int], dash: str = "–") -> str:
    """Return ``0–5`` for consecutive numbers, else all of them."""
    first, last = numbers[0], numbers[-1]
    return f"{first}{dash}{last}" if last - first == len(numbers) - 1 > 0 else ", ".join(map(str, numbers))
