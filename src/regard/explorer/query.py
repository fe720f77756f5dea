"""The queries of the page: functions of an exploration, each with the parameters that its annotations describe.

A query is a function that `query` decorates, in a module of `regard.explorer.queries`, or a method of `Exploration`.
Its signature says how a request is checked, over HTTP or as a message of a notebook, and the types that the page has
of it (`frontend/queries.d.ts`).
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.run import Run
from regard.metrics.layer_maps import CancelCheck

if TYPE_CHECKING:
    from regard.explorer.exploration import Exploration as Exploration
else:
    Exploration = Any  # it imports the queries
Answer: TypeAlias = "Any"  # plain data for JSON, bytes, or an array of float32

_MAX_SHOWN = 40  # characters of a wrong value
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Query:
    """A function that the page can call.

    Parameters
    ----------
    function : function
        Its first parameter is the exploration, or ``run: Run``, which a request gives by its number.
    slow : bool
        Whether it may take seconds, so that others do not wait for it.
    """

    function: Callable[..., Any]
    slow: bool

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function)

    @cached_property
    def types(self) -> dict[str, Any]:
        """The type of each parameter, and that of the answer as ``return``."""
        hints = self._hints
        return {name: int if hints[name] is Run else hints[name] for name in (*self.parameters, "return")}

    @cached_property
    def parameters(self) -> dict[str, bool]:
        """Whether each parameter must be given."""
        signature = inspect.signature(self.function).parameters
        return {
            name: each.default is inspect.Parameter.empty
            for name, each in signature.items()
            if name not in ("self", "exploration", "check")
        }

    @cached_property
    def takes_check(self) -> bool:
        """Whether it can be cancelled."""
        return "check" in inspect.signature(self.function).parameters

    def bind(self, exploration: Exploration) -> Callable[..., Any]:
        """Return it as a method of an exploration."""
        if self._hints.get("run") is not Run:
            return partial(self.function, exploration)
        return lambda run, *args, **params: self.function(exploration.run(run), *args, **params)

    def check(self, params: Mapping[str, Any]) -> None:
        """Raise `RegardError` if a parameter of a request is missing, unknown or of another type."""
        name = self.function.__name__
        if unknown := sorted(set(params) - set(self.parameters)):
            raise RegardError(f"{name} takes {', '.join(self.parameters) or 'no parameters'}; not {', '.join(unknown)}")
        if missing := [each for each, is_required in self.parameters.items() if is_required and each not in params]:
            raise RegardError(f"{name} needs {', '.join(missing)}")
        for each, value in params.items():
            if not _fits(self.types[each], value):
                raise RegardError(f"{each} is {_in_words(self.types[each])}, not {repr(value)[:_MAX_SHOWN]}")


QUERIES: dict[str, Query] = {}
"""The queries by name."""


def query(*, slow: bool = False) -> Callable[[_Function], _Function]:
    """Declare a function as a query of the page; see `Query`."""

    def declare(function: _Function) -> _Function:
        QUERIES[function.__name__] = Query(function, slow)
        return function

    return declare


def dispatch(
    exploration: Exploration, name: str, params: Mapping[str, Any], check: CancelCheck = lambda: None
) -> Answer:
    """Return the answer to a request: plain data, bytes, or an array in little-endian float32.

    An error if there is no such query, or if its parameters are invalid.
    """
    if name not in QUERIES:
        raise RegardError(f"there is no method {name!r}: choose from {', '.join(QUERIES)}")
    declared = QUERIES[name]
    cancel = {"check": check} if declared.takes_check else {}
    declared.check(params)
    arguments = {each: _as_declared(declared.types[each], value) for each, value in params.items()}
    answer = getattr(exploration, name)(**arguments, **cancel)
    return answer.astype("<f4", copy=False) if isinstance(answer, np.ndarray) else answer


def internal_error(error: Exception) -> str:
    """Return the message to the page about an exception that is a bug of regard."""
    return f"internal error of regard: {type(error).__name__}: {error}"


def _fits(annotation: Any, value: Any) -> bool:
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType):
        return any(_fits(part, value) for part in parts)
    if kind is Literal:
        return isinstance(value, str) and value in parts
    if kind is tuple:
        return isinstance(value, list) and len(value) == len(parts) and all(map(_fits, parts, value))
    if kind is Sequence:
        return isinstance(value, list) and all(_fits(parts[0], each) for each in value)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53
    return isinstance(value, annotation)


def _as_declared(annotation: Any, value: Any) -> Any:
    """Return a value that fits, its lists as tuples where they are declared so: JSON has no tuples."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType):
        return _as_declared(next(part for part in parts if _fits(part, value)), value)
    if kind is tuple:
        return tuple(map(_as_declared, parts, value))
    return [_as_declared(parts[0], each) for each in value] if kind is Sequence else value


def _in_words(annotation: Any) -> str:
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType):
        return " or ".join(_in_words(part) for part in parts if part is not types.NoneType)
    if kind is Literal:
        return " or ".join(f'"{part}"' for part in parts)
    if kind is tuple:
        return f"[{', '.join(map(_in_words, parts))}]"
    if kind is Sequence:
        return f"a list of {_in_words(parts[0])}"
    return {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}[annotation]
