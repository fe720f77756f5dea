"""Validation of common arguments: whole numbers, dtypes, generators; and names and values in messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np

from regard._utils.errors import RegardError


def whole_number(name: str, value: object, least: int) -> int:
    """Return `value` as an int; an error unless it is a whole number of at least `least` that 63 bits hold."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise RegardError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if number >= 1 << 63:
        raise RegardError(f"{name} must be less than 2 to the power of 63")
    return number


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype; an error unless it is floating (bfloat16 of ml_dtypes is)."""
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise RegardError(f"dtype must be a floating type such as numpy.float32, got {dtype!r}") from error
    if resolved.kind != "f" and resolved.name != "bfloat16":
        raise RegardError(f"dtype must be a floating type such as numpy.float32, got {resolved}")
    return resolved


def generator(rng: object) -> np.random.Generator:
    """Return `rng`; an error unless it is a generator."""
    if not isinstance(rng, np.random.Generator):
        raise RegardError(f"rng, the first argument, must be a generator, numpy.random.default_rng(seed), got {rng!r}")
    return rng


def one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise `RegardError` unless `value` is one of some texts."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise RegardError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def boolean(name: str, value: object) -> bool:
    """Return `value` as a bool; an error unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise RegardError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def function(name: str, value: object) -> None:
    """Raise `RegardError` unless `value` is a function or None."""
    if value is not None and not callable(value):
        raise RegardError(f"{name} must be a function, got {value!r}")


def truncate(value: object) -> str:
    """Return an untrusted value as ASCII of at most 80 characters."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def short_name(name: str) -> str:
    """Return an untrusted name as `escape` does, of at most 80 characters."""
    text = escape(name)
    return text if len(text) <= 80 else text[:77] + "..."


def escape(name: str) -> str:
    """Return an untrusted name, its characters escaped if any is not printable."""
    return name if name.isprintable() else ascii(name)[1:-1]


def finite_number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return `value` as a float; an error unless it is a finite number."""
    if getattr(value, "requires_grad", False):
        raise RegardError(f"{name} is a plain number without a gradient; to learn it, multiply q by it")
    try:
        number = math.nan if isinstance(value, str | bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (positive and number <= 0):
        raise RegardError(f"{name} must be a finite{' positive' if positive else ''} number, got {value!r}")
    return number
