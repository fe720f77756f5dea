"""regard: self-attention you can see through.

>>> import regard
>>> regard.softmax([0.0, 0.0])
array([0.5, 0.5])

Names are imported when they are first used, so that ``import regard`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard._utils import hooks
from regard._utils.errors import RegardError
from regard._version import __version__

if TYPE_CHECKING:
    from regard import explorer, functional, metrics, models, nn, plot, terminal, text, views
    from regard._capture import capture
    from regard.explorer import explore
    from regard.functional import (
        Gradients,
        Partial,
        attention,
        attention_partial,
        attention_vjp,
        attention_weights,
        explain_plan,
        merge_partials,
        softmax,
    )
    from regard.functional.native import num_threads, set_num_threads
    from regard.models import Model, load
    from regard.nn.kv_cache import KVCache
    from regard.text import Encoding
    from regard.trace import AttentionMap, Trace, edits

__all__ = [
    "attention",
    "attention_weights",
    "attention_partial",
    "merge_partials",
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
    "metrics",
    "edits",
    "views",
    "plot",
    "terminal",
    "explorer",
    "__version__",
]

_HOMES = {
    "attention": "functional",
    "attention_weights": "functional",
    "attention_partial": "functional",
    "merge_partials": "functional",
    "Partial": "functional",
    "attention_vjp": "functional",
    "Gradients": "functional",
    "explain_plan": "functional",
    "AttentionMap": "trace",
    "KVCache": "nn.kv_cache",
    "softmax": "functional",
    "set_num_threads": "functional.native",
    "num_threads": "functional.native",
    "load": "models",
    "Model": "models",
    "Trace": "trace",
    "capture": "_capture",
    "Encoding": "text",
    "explore": "explorer",
}
_PACKAGES = ("functional", "nn", "text", "models", "metrics", "views", "plot", "terminal", "explorer")


hooks.explorer_widget = lambda *traces, **options: importlib.import_module("regard.explorer").widget(*traces, **options)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(importlib.import_module(f"regard.{_HOMES[name]}"), name)
        globals()[name] = found  # the next time it is an attribute like any other
        return found
    if name == "edits":
        return importlib.import_module("regard.trace.edits")
    if name in _PACKAGES:
        return importlib.import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
