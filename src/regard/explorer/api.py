"""The questions of a page as names with parameters, whichever way they come: by HTTP or by a notebook's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.exploration import Exploration
from regard.metrics.layer_maps import CancelCheck

Answer: TypeAlias = "dict[str, Any] | bytes"


_WORDS = ("way", "pool")


def answer(
    exploration: Exploration, method: str, given: Mapping[str, Any], check: CancelCheck = lambda: None
) -> Answer:
    """Return the answer to one question: plain data, or bytes (little-endian float32; of thumbnails, bytes).

    Raises
    ------
    RegardError
        There is no such question, or its parameters are none that it takes.
    """
    if method not in _QUESTIONS:
        raise RegardError(f"there is no question {method!r}; there are {', '.join(_QUESTIONS)}")
    ask, names = _QUESTIONS[method]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise RegardError(f"{method} takes {', '.join(names) or 'nothing'}; not {', '.join(unknown)}")
    found = ask(exploration, {name: _value(name, value) for name, value in given.items()}, check)
    return found.astype("<f4", copy=False).tobytes() if isinstance(found, np.ndarray) else found


def fault(error: Exception) -> str:
    """Return what the page is told of a question that was answered with an error which nobody foresaw."""
    return f"regard failed to answer, which is a fault of its own: {type(error).__name__}: {error}"


def _value(name: str, value: Any) -> Any:
    """Return a parameter as what it is, also where it came as text in an address."""
    if name == "ablate":
        return value
    if name in _WORDS:
        return str(value)
    if name == "runs":
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        return [_whole_number(name, part) for part in parts]
    return "mean" if name == "head" and value == "mean" else _whole_number(name, value)


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise RegardError(f"{name} is a whole number, not {str(value)[:40]!r}")


def _thumbnails(exploration: Exploration, given: dict[str, Any], check: CancelCheck) -> bytes:
    return exploration.thumbnails(**_of(given, "run"), check=check)[1]


def _of(given: dict[str, Any], *needed: str) -> dict[str, Any]:
    if missing := [name for name in needed if name not in given]:
        raise RegardError(f"{', '.join(missing)} is missing")
    return given


_MAP = ("run", "layer", "head")
_PART = ("row0", "row1", "col0", "col1", "by")
_QUESTIONS: dict[str, tuple[Callable[[Exploration, dict[str, Any], CancelCheck], Any], tuple[str, ...]]] = {
    "manifest": (lambda x, _, __: x.manifest(), ()),
    "memory": (lambda x, _, __: x.memory(), ()),
    "heads": (lambda x, given, check: x.heads(**_of(given, "run"), check=check), ("run",)),
    "thumbnails": (_thumbnails, ("run",)),
    "tile": (
        lambda x, given, check: x.tile(**_of(given, *_MAP, *_PART), check=check),
        (*_MAP, *_PART, "way", "pool"),
    ),
    "row": (lambda x, given, check: x.row(**_of(given, *_MAP, "i"), check=check), (*_MAP, "i", "way")),
    "column": (lambda x, given, check: x.column(**_of(given, *_MAP, "j"), check=check), (*_MAP, "j", "way")),
    "cell": (lambda x, given, _: x.cell(**_of(given, *_MAP, "i", "j")), (*_MAP, "i", "j")),
    "movement": (lambda x, given, _: x.movement(**_of(given, "runs")), ("runs",)),
    "edit": (lambda x, given, _: x.edit(**_of(given, "ablate")), ("ablate", "run")),
}
