"""regard on Dask: corpora in partitions, and one text on many workers.

It is installed by ``pip install regard[dask]``, and imports without Dask, whose functions then say that it is missing.
Names are imported on first use.
"""

from __future__ import annotations

from typing import Any

from regard._utils.lazy import attach

_get, __dir__ = attach(__name__)


def __getattr__(name: str) -> Any:
    from regard.dask.extra import installed

    with installed():
        return _get(name)
