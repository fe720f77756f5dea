"""regard on Dask: corpora in partitions, and one text on many workers.

It is installed by ``pip install regard[dask]``, and imports without Dask, whose functions then say that it is missing.
Names are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from regard.dask.attention import attention
    from regard.dask.attention import attention
    from regard.dask.attention_map import AttentionMap
    from regard.dask.frames import embed, head_metrics, map_texts

__all__ = ["embed", "head_metrics", "map_texts", "attention", "AttentionMap"]

_MODULE_OF = {
    "embed": "frames",
    "head_metrics": "frames",
    "map_texts": "frames",
    "attention": "attention",
    "AttentionMap": "attention_map",
}


class _Package(ModuleType):
    """Keeps a submodule from hiding the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def load_module(name: str) -> ModuleType:
    """Return a module of this package; an error that says how to install what it needs."""
    try:
        return importlib.import_module(f"regard.dask.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        raise RegardError(f"regard.dask needs {error.name}: pip install 'regard[dask]'") from error


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(load_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
