"""Loading of the compiled kernel."""

from __future__ import annotations

import functools
import sys
from typing import Any

from regard.functional.native.threads import default_num_threads


@functools.cache
def kernel() -> Any:
    """Return the compiled module, or None if there is none."""
    return _loaded()[0]


@functools.cache
def unavailable_reason() -> str | None:
    """Return why there is no compiled kernel, or None if there is one."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[Any, str | None]:
    try:
        from regard.functional.native import _kernel  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) or "cannot import name" in str(error)
        return None, (
            "this installation of regard was built without a C++ compiler and has no compiled kernel"
            if missing
            else f"the compiled kernel of regard cannot be loaded: {error}"
        )
    _kernel.set_num_threads(default_num_threads())
    if "threadpoolctl" in sys.modules:
        from regard.functional.native.threadpoolctl import register

        register()
    return _kernel, None
