"""Where an edit changes a run: the steps, heads and positions that its arguments name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.head_names import parse_head
from regard._utils.validation import truncate, whole_number
from regard.functional.scores.stages import QUADRATIC_STEPS
from regard.trace.step_names import canonical_name, canonical_names, did_you_mean
from regard.trace.text_layout import LocatedEdit, located
from regard.trace.trace import Edit, Trace

Head: TypeAlias = "tuple[int | str, int] | str"
"""Layer and head, both from 0, or its short name, ``"L3H7"``."""
Site: TypeAlias = "str | Head"
"""The name of a step, or a head: its context; of another run, what it adds, with its output gate if it has one."""
Positions: TypeAlias = "int | Sequence[int] | np.ndarray | None"
"""Of tokens, from the first of each text, or from its end if negative; None: all."""

# Steps with an axis of heads, ... H T D.
_WITH_HEADS = (
    *("projected_q", "projected_k", "q", "k", "v", "output_gate"),
    *(*QUADRATIC_STEPS, "context", "gated_context", "head_outputs"),
)


class Edits(dict[str, Edit]):
    """Functions of steps by name. ``one | other`` has both: of the same step, one after the other.

    Examples
    --------
    >>> from regard.trace.edits import add, scale
    >>> both = scale(2, "blocks.0.output") | add([1.0], "blocks.0.output")
    >>> both["blocks.0.output"](np.array([[3.0]]))
    array([[7.]])
    """

    def __repr__(self) -> str:
        names = list(self)
        return f"<Edits of {', '.join(names[:3])}{f' and {len(names) - 3} more steps' if len(names) > 3 else ''}>"

    def __or__(self, other: Mapping[str, Edit]) -> Edits:  # type: ignore[override]
        if not isinstance(other, Mapping):
            raise RegardError(f"edits are joined with edits, or a mapping of names to functions, got {truncate(other)}")
        both = Edits(self)
        for name, function in other.items():
            both[name] = _in_turn(both[name], function) if name in both else function
        return both

    def __ror__(self, other: Mapping[str, Edit]) -> Edits:  # type: ignore[override]
        return Edits(other) | self if isinstance(other, Mapping) else NotImplemented

    __ior__ = __or__  # type: ignore[assignment]


def _in_turn(first: Edit, second: Edit) -> Edit:
    return LocatedEdit(lambda value, place: located(second, place)(located(first, place)(value)))


def parts_of(sites: Sequence[Site], heads: Positions, trace: Trace | None = None) -> dict[str, list[int] | None]:
    """Return the steps of some sites with their heads, None for all; patterns are those of the steps of a trace."""
    if not sites:
        raise RegardError("no site given: name a step, 'blocks.3.output', or a head, (3, 7) or 'L3H7'")
    parts: dict[str, list[int] | None] = {}
    for site in sites:
        if not isinstance(site, str) or parse_head(site) is not None:
            if heads is not None:
                raise RegardError(f"heads= is for names of steps, got the head {site!r} too")
            for context, numbers in steps_of_heads([site], "context").items():
                gated = f"{context.removesuffix('context')}gated_context"
                name = gated if trace is not None and gated in trace.tapped() else context
                others = parts.setdefault(name, [])
                if others is not None:
                    others.extend(numbers)
            continue
        for name in _step_names(site, trace):
            if heads is not None and canonical_names(name)[-1].rpartition(".")[2] not in _WITH_HEADS:
                raise RegardError(f"{name} has no axis of heads; those that have one are {', '.join(_WITH_HEADS)}")
            head_numbers = indices_of("heads", heads)
            parts[name] = head_numbers and [whole_number("a head", head, 0) for head in head_numbers]
    return parts


def _step_names(site: str, trace: Trace | None) -> list[str]:
    """Return the names of steps that a name, or a pattern, stands for."""
    is_pattern = set(site) & set("*?[")
    if trace is None:
        return [site if is_pattern or len(canonical_names(site)) > 1 else canonical_name(site)]
    if not is_pattern:
        return [trace.resolved(site)]
    if names := trace.matching(site):
        return list(names)
    raise RegardError(f"the trace has no {site!r}; {did_you_mean(site, trace.names())}")


def indices_of(argument: str, numbers: Any) -> list[int] | None:
    """Return the integers of an argument that is one or several, each once; None: all."""
    if numbers is None:
        return None
    try:
        indices = np.atleast_1d(np.asarray(numbers))
    except (TypeError, ValueError):  # rows of several lengths
        indices = np.empty(0)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not indices.size:
        raise RegardError(f"{argument} is an integer or several, got {numbers!r}")
    return list(dict.fromkeys(int(i) for i in indices))


def steps_of_heads(heads: Sequence[Head], step: str) -> dict[str, list[int]]:
    """Return the names of a step of some heads, with the heads of each."""
    numbers: dict[str, list[int]] = {}
    for named in heads:
        layer, head = pair_of(named)
        scope = layer if isinstance(layer, str) else f"blocks.{whole_number('a layer', layer, 0)}.attn"
        numbers.setdefault(f"{scope}.{step}", []).append(whole_number("a head", head, 0))
    return numbers


def pair_of(head: Any) -> tuple[Any, Any]:
    """Return the layer and the number of a head from either notation."""
    try:
        layer, number = parse_head(head) if isinstance(head, str) else head  # type: ignore[misc]  # None is a TypeError
    except (TypeError, ValueError):
        raise RegardError(f"a head is given as (layer, head) or 'L3H7', got {head!r}") from None
    return layer, number
