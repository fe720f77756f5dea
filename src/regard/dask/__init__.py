"""regard on Dask: corpora in partitions, and one text on many workers.

It is installed by ``pip install regard[dask]``, and imports without Dask, whose functions then say that it is missing.
Names are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.dask.attention import attention
    from regard.dask.attention_map import AttentionMap
    from regard.dask.frames import attribute, embed, head_metrics, map_texts

__all__ = ["embed", "head_metrics", "attribute", "map_texts", "attention", "AttentionMap"]

_MODULE_OF = {
    "embed": "frames",
    "head_metrics": "frames",
    "attribute": "frames",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("regard.dask.extra").load_module(_MODULE_OF[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
