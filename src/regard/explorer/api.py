"""Requests of the page by method and parameters, over HTTP or a notebook's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.exploration import Exploration
from regard.metrics.layer_maps import CancelCheck

Response: TypeAlias = "dict[str, Any] | bytes"


def dispatch(
    exploration: Exploration, method: str, params: Mapping[str, Any], check: CancelCheck = lambda: None
) -> Response:
    """Return the response to one request: plain data, or bytes (little-endian float32; thumbnails as uint8).

    An error if there is no such method, or if its parameters are invalid.
    """
    if method not in _METHODS:
        raise RegardError(f"there is no method {method!r}: choose from {', '.join(_METHODS)}")
    called = _METHODS[method]
    allowed = (*called.required, *called.optional)
    if unknown := sorted(set(params) - set(allowed)):
        raise RegardError(f"{method} takes {', '.join(allowed) or 'no parameters'}; not {', '.join(unknown)}")
    if missing := [name for name in called.required if name not in params]:
        raise RegardError(f"{method} needs {', '.join(missing)}")
    response = called.call(exploration, {name: _parse(name, value) for name, value in params.items()}, check)
    return response.astype("<f4", copy=False).tobytes() if isinstance(response, np.ndarray) else response


def internal_error(error: Exception) -> str:
    """Return the message to the page about an exception that is a bug of regard."""
    return f"internal error of regard: {type(error).__name__}: {error}"


class _Method(NamedTuple):
    call: Callable[[Exploration, dict[str, Any], CancelCheck], Any]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_HEAD = ("run", "layer", "head")
_METHODS = {
    "manifest": _Method(lambda x, _, __: x.manifest()),
    "progress": _Method(lambda x, _, __: x.progress()),
    "memory": _Method(lambda x, _, __: x.memory()),
    "heads": _Method(lambda x, params, check: x.heads(**params, check=check), ("run",)),
    "thumbnails": _Method(lambda x, params, check: x.thumbnails(**params, check=check)[1], ("run",)),
    "differences": _Method(lambda x, params, check: x.differences(**params, check=check), ("runs",)),
    "tile": _Method(
        lambda x, params, check: x.tile(**params, check=check),
        (*_HEAD, "row0", "row1", "col0", "col1", "bin_size"),
        ("mode", "pool"),
    ),
    "row": _Method(lambda x, params, check: x.row(**params, check=check), (*_HEAD, "i"), ("mode",)),
    "column": _Method(lambda x, params, check: x.column(**params, check=check), (*_HEAD, "j"), ("mode",)),
    "cell": _Method(lambda x, params, _: x.cell(**params), (*_HEAD, "i", "j"), ("mode",)),
    "movement": _Method(lambda x, params, _: x.movement(**params), ("runs",)),
    "attribution": _Method(
        lambda x, params, check: x.attribution(**params, check=check), ("run",), ("method", "to", "token", "position")
    ),
    "training": _Method(lambda x, params, _: x.training(**params), (), ("known",)),
    "ablate": _Method(lambda x, params, _: x.ablate(**params), ("heads",), ("run",)),
    "run_text": _Method(lambda x, params, _: x.run_text(**params), ("text",), ("model",)),
    "next_tokens": _Method(lambda x, params, _: x.next_tokens(**params), ("run",), ("position", "temperature", "seed")),
    "lens": _Method(lambda x, params, _: x.lens(**params), ("run",), ("position", "token")),
    "residual_stream": _Method(lambda x, params, _: x.residual_stream(**params), ("run",), ("position", "token")),
    "sweep": _Method(lambda x, params, check: x.sweep(**params, check=check), ("run", "layer"), ("position", "token")),
    "find_heads": _Method(lambda x, params, check: x.find_heads(**params, check=check), ("run", "cells")),
    "strongest_rows": _Method(
        lambda x, params, check: x.strongest_rows(**params, check=check), _HEAD, ("pair", "count")
    ),
    "figure": _Method(
        lambda x, params, _: x.figure(**params),
        ("sides",),
        ("format", "mode", "special", "words", "first", "end", "width", "caption"),
    ),
}


def _parse(name: str, value: Any) -> Any:
    """Return a parameter in its own type; in a URL it is a string."""
    if name == "heads":
        return value
    if name in ("mode", "pool", "method", "to", "text", "model", "format", "width", "pair"):
        if not isinstance(value, str):
            raise RegardError(f"{name} is a text, not {str(value)[:40]}")
        return value
    if name == "temperature":
        return _number(name, value)
    if name in ("special", "words", "caption"):
        return _flag(name, value)
    if name == "sides":
        return [_side(part) for part in str(value).split("_")]
    if name == "cells":
        return [_cell(part) for part in str(value).split("_")]
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


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RegardError(f"{name} is a number, not {str(value)[:40]!r}") from None
    if not np.isfinite(number):
        raise RegardError(f"{name} is a finite number, not {number}")
    return number


def _flag(name: str, value: Any) -> bool:
    if str(value) not in ("true", "false", "True", "False"):
        raise RegardError(f"{name} is true or false, not {str(value)[:40]!r}")
    return str(value).lower() == "true"


def _side(text: str) -> tuple[int, int, Any]:
    """Return run, layer and head of ``0.2.3``, ``0.2.mean`` or ``0.0.all``."""
    run, _, rest = text.partition(".")
    layer, _, head = rest.partition(".")
    which = head if head in ("mean", "all") else _whole_number("the head of a side", head)
    return _whole_number("the run of a side", run), _whole_number("the layer of a side", layer), which


def _cell(text: str) -> tuple[int, int]:
    """Return a query and a key of ``3.0``."""
    row, _, col = text.partition(".")
    return _whole_number("the row of a cell", row), _whole_number("the column of a cell", col)
