"""The part of a value that an edit changes: some heads and positions of each text of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, device, namespace
from regard.functional.scores.stages import QUADRATIC_STEPS
from regard.trace.mask_io import to_numpy
from regard.trace.text_layout import Place, TextLayout


@dataclass(frozen=True, eq=False)
class Source:
    """The values of a step in another run, ``B … T …`` or of one text for all; `layout` as `Trace.layout` has it."""

    values: Array
    layout: TextLayout | None = None


def change_part(
    name: str,
    value: Array,
    heads: list[int] | None,
    positions: list[int] | None,
    place: Place,
    change: Callable[[Array], Array],
) -> Array:
    """Return a value with a function of some heads and positions of each text, ``… P E``, in their place."""
    if positions is None:
        at = _index(name, heads, None, value.shape)
        value[at] = change(value[at])
        return value
    if _is_of_positions(place):
        return change_part(name, value[..., None], heads, positions, _with_features(place), change)[..., 0]
    whole, layout = _with_batch(value, place, heads)
    columns = _numbers(name, positions, layout, place.axes) + layout.starts[:, None]
    _write(name, whole, heads, columns, change)
    return value


def write_part(
    name: str, value: Array, heads: list[int] | None, positions: list[int] | None, place: Place, source: Source
) -> Array:
    """Return a value with some heads and positions of each text as they are in another run.

    By default all positions; while a text is generated, those that the other run has.
    """
    if _is_of_positions(place):
        wide = Source(source.values[..., None], source.layout)
        return write_part(name, value[..., None], heads, positions, _with_features(place), wide)[..., 0]
    if positions is None and _stand_alike(place.layout, source.layout):
        at = _index(name, heads, None, value.shape)
        _check_shapes(name, source.values, value, len(value), by_position=False)
        value[at] = broadcast_like(source.values, value, value.shape)[at]
        return value
    whole, layout = _with_batch(value, place, heads)
    values, other = _with_batch(source.values, Place(source.layout, place.axes), heads)
    _check_shapes(name, values, whole, int(layout.rows.max()) + 1, by_position=layout.grows)
    _check_map(name, whole, layout, other)
    rows = layout.rows % len(values)
    lengths = other.lengths[rows]
    if not layout.grows and (wrong := np.flatnonzero(lengths != layout.lengths)).size:
        at = wrong[0]
        raise RegardError(
            f"the other run has {lengths[at]} tokens of text {layout.rows[at]} and this one {layout.lengths[at]}: "
            "texts of the same number of tokens are needed"
        )
    if positions is None:
        numbers = np.broadcast_to(np.arange(lengths.max()), (len(rows), lengths.max()))
    else:
        numbers = _numbers(name, positions, layout, place.axes)
        if (missing := numbers[numbers >= lengths[:, None]]).size:
            raise RegardError(f"the other run has no position {missing[0]} of {name}: it has {lengths.min()}")
    columns = np.where(numbers < lengths[:, None], numbers + layout.starts[:, None], -1)
    their_columns = (numbers + other.starts[rows, None]).clip(0, values.shape[-2] - 1)
    source_values = values[_index(name, heads, their_columns, values.shape, rows)]

    def replaced(part: Array) -> Array:
        width = min(source_values.shape[-1], part.shape[-1])  # of a map, the keys of both
        part[..., :width] = broadcast_like(source_values[..., :width], part, part[..., :width].shape)
        return part

    _write(name, whole, heads, columns, replaced)
    return value


def _is_of_positions(place: Place) -> bool:
    """Tell whether a value has one number for each position, ``B T``, as the scale of a norm."""
    return place.axes.split()[-1:] == ["T"]


def _with_features(place: Place) -> Place:
    """Return the place of a value with one more axis, ``B T E``."""
    return Place(place.layout, f"{place.axes} E")


def _write(
    name: str, value: Array, heads: list[int] | None, columns: np.ndarray, change: Callable[[Array], Array]
) -> None:
    """Write a function of some heads and columns, ``B P``, of a value into it, but for columns that it has not."""
    is_inside = (columns >= 0) & (columns < value.shape[-2])
    if not is_inside.any():
        return
    at = _index(name, heads, columns.clip(0, value.shape[-2] - 1), value.shape)
    part = change(value[at])
    if is_inside.all():
        value[at] = part
        return
    lead = np.broadcast_shapes(*(each.shape for each in at))
    is_written = np.broadcast_to(is_inside if len(lead) == 2 else is_inside[:, None], lead)
    value[tuple(np.broadcast_to(each, lead)[is_written] for each in at)] = part[is_written]


def _index(
    name: str,
    heads: list[int] | None,
    columns: np.ndarray | None,
    shape: Sequence[int],
    rows: np.ndarray | None = None,
) -> Any:
    """Return the index of some heads of a value, ``... H T D``, or of heads and columns, ``B P``, of each row."""
    if columns is None:
        if heads is None:
            return ...
        return (..., checked_indices(f"head {{}} of {name}", heads, shape[-3]), slice(None), slice(None))
    rows = np.arange(len(columns)) if rows is None else rows
    if len(shape) == 3:
        return rows[:, None], columns
    indices = np.arange(shape[1]) if heads is None else checked_indices(f"head {{}} of {name}", heads, shape[1])
    return rows[:, None, None], indices[:, None], columns[:, None]


def _with_batch(value: Array, place: Place, heads: list[int] | None) -> tuple[Array, TextLayout]:
    """Return a value as ``B … T …``, a view, and where its texts stand."""
    has_heads = bool({"H", "G"} & set(place.axes.split())) if place.axes else heads is not None or value.ndim > 3
    tail = 3 if has_heads else 2
    whole = value if value.ndim == tail + 1 else value.reshape(-1, *value.shape[-tail:])
    if place.layout is None:
        return whole, TextLayout.from_shape((len(whole), value.shape[-2]))
    return whole, place.layout if len(place.layout.rows) == len(whole) else place.layout.select([0])


def _numbers(name: str, positions: list[int], layout: TextLayout, axes: str) -> np.ndarray:
    """Return the positions of each text, ``B P``, from its first token."""
    if axes and axes.split()[-2:-1] not in (["T"], ["S"]):
        raise RegardError(f"{name} has no axis of positions: its axes are {axes}; leave positions= out")
    numbers, lengths = np.array(positions), layout.lengths[:, None]
    is_wrong = (numbers < -lengths) | ((numbers >= lengths) & (not layout.grows))
    if is_wrong.any():
        text, at = np.argwhere(is_wrong)[0]
        of = f" in text {layout.rows[text]}" if len(lengths) > 1 else ""
        raise RegardError(f"position {positions[at]} of {name} is out of range: it has {lengths[text, 0]}{of}")
    return np.where(numbers < 0, numbers + lengths, numbers)


def _stand_alike(layout: TextLayout | None, other: TextLayout | None) -> bool:
    """Tell whether texts have the same columns in two runs, as far as is known."""
    if layout is None or other is None:
        return layout is None or not layout.grows
    pairs = ((layout.starts, other.starts), (layout.lengths, other.lengths))
    return not layout.grows and all(len(b) in (1, len(a)) and bool(np.all(a == b)) for a, b in pairs)


def _check_shapes(name: str, source: Array, value: Array, count: int, *, by_position: bool) -> None:
    """Raise `RegardError` if values do not fit into a run of `count` texts, `by_position` of any length."""
    is_map = name.rpartition(".")[2] in QUADRATIC_STEPS
    free = {value.ndim - 2, value.ndim - 1} if is_map else {value.ndim - 2}
    has_batch = value.ndim > 2
    pairs = list(zip(source.shape, value.shape, strict=False))
    differing = {i for i, (a, b) in enumerate(pairs) if i >= has_batch and a != b}
    if source.ndim != value.ndim or differing - free:
        remedy = "it is of another model"
    elif differing and not by_position:
        remedy = "texts of the same number of tokens are needed"
    elif 1 < len(source) < count or (len(source) > 1 and not by_position and len(source) != count):
        remedy = "one text is needed, or as many as in this run"
    else:
        return
    raise RegardError(
        f"the other run has {name} of shape {tuple(source.shape)} instead of {tuple(value.shape)}: {remedy}"
    )


def _check_map(name: str, value: Array, layout: TextLayout, other: TextLayout) -> None:
    """Raise `RegardError` for a map whose keys have other columns than their positions."""
    if name.rpartition(".")[2] not in QUADRATIC_STEPS or "cross_attn" in name:
        return
    ends = value.shape[-2] - layout.starts
    if other.starts.any() or (ends != value.shape[-1]).any():
        raise RegardError(f"{name} is a map of padded texts, or of a window: run one text, unpadded, to replace it")


def checked_indices(what: str, indices: Sequence[int], size: int) -> np.ndarray:
    """Return indices as an array; an error, `what` with the index in it, if one is out of range."""
    for i in indices:
        if not -size <= i < size:
            raise RegardError(f"{what.format(i)} is out of range: it has {size}")
    return np.array(indices, dtype=np.int64)


def broadcast_like(source: Array, before: Array, shape: Sequence[int]) -> Array:
    """Return an array of some shape in the library, on the device and in the dtype of another.

    A tensor keeps its gradient where both are tensors. ValueError if it does not broadcast to the shape.
    """
    if hasattr(source, "requires_grad") and hasattr(before, "requires_grad"):
        try:
            return source.to(before).broadcast_to(tuple(shape))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    source = np.broadcast_to(to_numpy(source) if hasattr(source, "requires_grad") else source, tuple(shape))
    if isinstance(before, np.ndarray):
        return source.astype(before.dtype, copy=False)
    xp = namespace(before)
    return xp.astype(xp.asarray(np.array(source), device=device(before)), before.dtype, copy=False)
