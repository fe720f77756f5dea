"""regard: self-attention you can see through.

>>> import regard
>>> regard.softmax([0.0, 0.0])
array([0.5, 0.5])

Names are imported when they are first used, so that ``import regard`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard._errors import RegardError
from regard._version import __version__

if TYPE_CHECKING:
    from regard import edits, functional, measures, models, nn, text, views, web
    from regard._capture import capture
    from regard.attention_map import AttentionMap
    from regard.functional import (
        Gradients,
        Partial,
        attention,
        attention_partial,
        attention_vjp,
        attention_weights,
        explain_plan,
        merge,
        softmax,
    )
    from regard.kernels import num_threads, set_num_threads
    from regard.kv_cache import KVCache
    from regard.models import Model, load
    from regard.text import Encoding
    from regard.trace import Trace
    from regard.web import explore

__all__ = [
    "attention",
    "attention_weights",
    "attention_partial",
    "merge",
    "Partial",
    "attention_vjp",
    "Gradients",
    "explain_plan",
    "AttentionMap",
    "KVCache",
    "softmax",
    "set_num_threads",
    "num_threads",
    "load",
    "Model",
    "Trace",
    "capture",
    "Encoding",
    "explore",
    "RegardError",
    "functional",
    "nn",
    "text",
    "models",
    "measures",
    "edits",
    "views",
    "web",
    "__version__",
]

_HOMES = {
    "attention": "functional",
    "attention_weights": "functional",
    "attention_partial": "functional",
    "merge": "functional",
    "Partial": "functional",
    "attention_vjp": "functional",
    "Gradients": "functional",
    "explain_plan": "functional",
    "AttentionMap": "attention_map",
    "KVCache": "kv_cache",
    "softmax": "functional",
    "set_num_threads": "kernels",
    "num_threads": "kernels",
    "load": "models",
    "Model": "models",
    "Trace": "trace",
    "capture": "_capture",
    "Encoding": "text",
    "explore": "web",
}
_PACKAGES = ("functional", "nn", "text", "models", "measures", "edits", "views", "web")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(importlib.import_module(f"regard.{_HOMES[name]}"), name)
        globals()[name] = found  # the next time it is an attribute like any other
        return found
    if name in _PACKAGES:
        return importlib.import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
