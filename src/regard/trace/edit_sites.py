"""Where an edit changes a run: steps, heads and positions, and the part of a value that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array, device, namespace
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.trace.mask_io import to_numpy
from regard.trace.step_names import canonical_name, did_you_mean, matches
from regard.trace.trace import Edit, Trace

Head: TypeAlias = "tuple[int | str, int]"
"""Layer and head, both from 0."""
Site: TypeAlias = "str | Head"
"""The name of a step, or a head: its context."""
Positions: TypeAlias = "int | Sequence[int] | np.ndarray | None"
"""Of tokens; None: all."""

_WITH_HEADS = ("q", "k", "v", "context", *QUADRATIC_STEPS)  # steps with an axis of heads, ... H T D


class Edits(dict[str, Edit]):
    """Functions of steps by name. ``one | other`` has both: of the same step, one after the other.

    Examples
    --------
    >>> from regard.trace.edits import add, scale
    >>> both = scale(2, "blocks.0.output") | add([1.0], "blocks.0.output")
    >>> both["blocks.0.output"](np.array([[3.0]]))
    array([[7.]])
    """

    def __or__(self, other: Mapping[str, Edit]) -> Edits:  # type: ignore[override]
        both = Edits(self)
        for name, function in other.items():
            both[name] = _in_turn(both[name], function) if name in both else function
        return both

    def __ror__(self, other: Mapping[str, Edit]) -> Edits:  # type: ignore[override]
        return Edits(other) | self

    __ior__ = __or__  # type: ignore[assignment]


def _in_turn(first: Edit, second: Edit) -> Edit:
    return lambda value: second(first(value))


def parts_of(sites: Sequence[Site], heads: Positions, trace: Trace | None = None) -> dict[str, list[int] | None]:
    """Return the steps of some sites with their heads, None for all; patterns are those of the steps of a trace."""
    if not sites:
        raise RegardError("no site given: name a step, 'blocks.3.output', or a head, (3, 7)")
    found: dict[str, list[int] | None] = {}
    for site in sites:
        if not isinstance(site, str):
            if heads is not None:
                raise RegardError(f"heads= is for names of steps, got the head {site!r} too")
            for name, numbers in steps_of_heads([site], "context").items():
                chosen = found.setdefault(name, [])
                if chosen is not None:
                    chosen.extend(numbers)
            continue
        for name in _step_names(site, trace):
            if heads is not None and name.rpartition(".")[2] not in _WITH_HEADS:
                raise RegardError(f"{name} has no axis of heads; those that have one are {', '.join(_WITH_HEADS)}")
            found[name] = None if heads is None else [whole_number("a head", h, 0) for h in _indices("heads", heads)]
    return found


def _step_names(site: str, trace: Trace | None) -> list[str]:
    """Return the names of steps that a name, or a pattern, stands for."""
    if not set(site) & set("*?["):
        return [canonical_name(site, () if trace is None else trace.names())]
    if trace is None:
        return [site]
    if names := [name for name in trace.names() if matches(name, site)]:
        return names
    raise RegardError(f"the trace has no {site!r}; {did_you_mean(site, trace.names())}")


def write_part(name: str, source: np.ndarray, heads: list[int] | None, positions: Positions, before: Array) -> Array:
    """Return a value with the part of `source` in place of its own; an error if they do not fit."""
    try:
        source = broadcast_like(source, before, before.shape)
    except ValueError:
        raise RegardError(
            f"the other run has {name} of shape {tuple(source.shape)} instead of {tuple(before.shape)}: texts of the "
            "same number of tokens are needed"
        ) from None
    at = index_of(name, heads, positions, before.shape)
    before[at] = source[at]
    return before


def index_of(name: str, heads: list[int] | None, positions: Positions, shape: Sequence[int]) -> Any:
    """Return the index of some heads and positions of a value, ``... T E`` or ``... H T D``."""
    index: list[Any] = [slice(None)] * len(shape)
    if positions is not None:
        index[-2] = checked_indices(f"position {{}} of {name}", _indices("positions", positions), shape[-2])
    if heads is not None:
        index[-3] = checked_indices(f"head {{}} of {name}", heads, shape[-3])
        if positions is not None:
            index[-3] = index[-3][:, None]  # every pair of the two
    return tuple(index)


def checked_indices(what: str, indices: Sequence[int], size: int) -> np.ndarray:
    """Return indices as an array; an error, `what` with the index in it, if one is out of range."""
    for i in indices:
        if not -size <= i < size:
            raise RegardError(f"{what.format(i)} is out of range: it has {size}")
    return np.array(indices, dtype=np.int64)


def _indices(argument: str, given: Any) -> list[int]:
    """Return the integers of an argument that is one or several."""
    indices = np.atleast_1d(np.asarray(given))
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise RegardError(f"{argument} is an integer or several, got {given!r}")
    return [int(i) for i in indices]


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


def steps_of_heads(heads: Sequence[Head], step: str) -> dict[str, list[int]]:
    """Return the names of a step of some heads, with the heads of each."""
    chosen: dict[str, list[int]] = {}
    for named in heads:
        try:
            layer, head = named
        except (TypeError, ValueError):
            raise RegardError(f"a head is given as (layer, head), got {named!r}") from None
        scope = layer if isinstance(layer, str) else f"blocks.{whole_number('a layer', layer, 0)}.attn"
        chosen.setdefault(f"{scope}.{step}", []).append(whole_number("a head", head, 0))
    return chosen
