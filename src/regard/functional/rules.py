"""Rules: masks and biases that declare their fields.

From the declaration follow a rule in another library, its part at some heads or at a block of the scores, and its forms
for files (`trace.mask_io`), the operator of PyTorch and functions of JAX. None of these knows a single rule.
"""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, dataclass_transform

import numpy as np

from regard.functional.scores.layout import ScoreLayout
from regard.functional.scores.part import ScorePart

_AXES_OF_SCORES = 3  # H T S, after those of the batch
_SHORTEST_NAME = 2  # shorter words mean something else to PyTorch's operator
_R = TypeVar("_R", bound="Rule")


@dataclass(frozen=True)
class Axes:
    """What the axes of an array are, in the annotation of a field: ``Annotated[Array, Axes("... T")]``.

    Parameters
    ----------
    names : str
        Of the axes: ``...`` those of the batch, ``H T S``; other letters are axes of the rule's own. An axis of length
        1 broadcasts; leading ones may be missing. Where it is ``...`` alone the value may be an integer.
    positions : {"keys", "offset"}, optional
        The numbers are positions of keys, from 0 to S; or what is added to the index of a query to get its position.
    """

    names: str
    positions: Literal["keys", "offset"] | None = None

    @property
    def lacking(self) -> int | None:
        """How many of the axes ``... H T S`` are lacking at the end; None if there are none of a batch."""
        batch, *others = self.names.split()
        return _AXES_OF_SCORES - len(others) if batch == "..." else None


class RuleField(NamedTuple):
    """A field of a rule, as its annotation says it."""

    name: str
    axes: Axes | None  # of an array
    lacking: int | None  # of the axes
    types: tuple[type, ...]  # that a value in NumPy may have


class Rule:
    """Base class of masks and biases."""

    uses_positions = False
    rule_fields: ClassVar[tuple[RuleField, ...]] = ()
    shift_invariant = False
    """Whether it depends on positions, batch entries and heads by its fields and `ScoreLayout.resolve_offset` only."""
    head_invariant = False
    """Whether it depends on batch entries and heads only by arrays over all axes ``... H T S`` and by other rules."""

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the rule does not fit the layout."""

    def to_namespace(self, layout: ScoreLayout) -> Self:
        """Return the rule with its arrays, if any, in the library of the layout."""
        changed: dict[str, Any] = {}
        for field in self.rule_fields:
            value = getattr(self, field.name)
            if isinstance(value, Rule):
                changed[field.name] = value.to_namespace(layout)
            elif value is not None and field.lacking != _AXES_OF_SCORES and field.axes is not None:
                changed[field.name] = layout.to_namespace(value)  # else `per_sequence` does it, checking the range
        return self if all(getattr(self, name) is x for name, x in changed.items()) else replaced(self, changed)

    def taken(self, part: ScorePart) -> Self | None:
        """Return the rule of a part of the scores by that of its fields; None where these do not say it."""
        if not is_declared(self) or not (self.shift_invariant if part.is_block else self.head_invariant):
            return None
        values = {field.name: _taken(getattr(self, field.name), field.axes, part) for field in self.rule_fields}
        rule: Self = replaced(self, values)
        return rule

    def take(self, part: ScorePart) -> Rule:
        """Return the rule of a part of the scores."""
        raise NotImplementedError


RULES: dict[type[Rule], tuple[RuleField, ...]] = {}
"""The rules that declare their fields; each has another name."""
RULE_NAMES: dict[str, type[Rule]] = {}


@dataclass_transform(frozen_default=True, eq_default=False)
def rule(kind: type[_R]) -> type[_R]:
    """Make a class a frozen dataclass whose fields are declared: numbers, other rules, and arrays with `Axes`."""
    if len(kind.__name__) < _SHORTEST_NAME or not kind.__name__[0].isupper():
        raise TypeError(f"the name of a rule begins with a capital and has two letters or more, not {kind.__name__}")
    made = dataclass(frozen=True, eq=False)(kind)
    other = RULE_NAMES.get(kind.__name__, kind)
    if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):  # else it is defined again
        raise TypeError(f"there is a rule {kind.__name__} already, by which name files and programs know it")
    hints = typing.get_type_hints(made, include_extras=True)
    made.rule_fields = tuple(_field(field.name, hints[field.name]) for field in dataclasses.fields(made))  # type: ignore[arg-type]
    RULES[made], RULE_NAMES[made.__name__] = made.rule_fields, made
    return made


def is_declared(value: Any) -> bool:
    """Tell whether a value is a rule whose class has declared its fields itself."""
    return type(value) in RULES


def replaced(rule: Any, changed: Mapping[str, Any]) -> Any:
    """Return a copy of a rule with other values of some fields, unchecked."""
    other = copy.copy(rule)
    for name, value in changed.items():
        object.__setattr__(other, name, value)
    return other


def _field(name: str, hint: Any) -> RuleField:
    axes: Axes | None = None
    types: list[type] = []
    waiting = [hint]
    while waiting:
        hint = waiting.pop()
        if typing.get_origin(hint) is typing.Annotated:
            hint, axes = typing.get_args(hint)
            waiting.append(hint)
        elif typing.get_origin(hint) in (typing.Union, UnionType):
            waiting += typing.get_args(hint)
        elif hint is Any or hint in (np.ndarray, bool, int, float, NoneType) or _is_rule(hint):
            types.append(np.ndarray if hint is Any else hint)
        else:
            raise TypeError(f"the field {name} is a number, None, another rule, or an array with Axes, not {hint}")
    return RuleField(name, axes, None if axes is None else axes.lacking, tuple(types))


def _is_rule(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Rule)


def _taken(value: Any, axes: Axes | None, part: ScorePart) -> Any:
    """Return the value of a field at a part of the scores."""
    if isinstance(value, Rule):
        return value.take(part)
    if value is None or axes is None:
        return value
    is_number = axes.names == "..." and not np.ndim(value)
    x = value if is_number else part.take(np.asarray(value) if part.is_block else value, axes.names)
    if part.is_block and axes.positions == "offset":
        x = np.asarray(x, np.int64) + part.shift
    elif part.is_block and axes.positions == "keys":
        x = np.clip(np.asarray(x, np.int64) - part.cols.start, 0, part.cols.stop - part.cols.start)
    return int(x) if is_number else x
