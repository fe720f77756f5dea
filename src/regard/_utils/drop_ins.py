"""Functions that stand in for those of a framework raise errors that are the framework's own too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from regard._utils.errors import RegardError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def raises(kind: type[RegardError]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator: each RegardError of the function becomes a `kind`, with its traceback, cause and notes."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def decorated(*args: _P.args, **options: _P.kwargs) -> _R:
            try:
                return function(*args, **options)
            except RegardError as error:
                error.__class__ = kind
                raise

        return decorated

    return decorate
