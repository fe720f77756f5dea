"""Whether the compiled kernel is here, and how to get at it."""

from __future__ import annotations

import functools
import sys
from typing import Any

from regard.kernels._threads import usual_number


@functools.cache
def native() -> Any:
    """Return the compiled module; None where there is none."""
    return _loaded()[0]


@functools.cache
def why_not() -> str | None:
    """Return why there is no compiled kernel; None where there is one."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[Any, str | None]:
    try:
        from regard.kernels import _native  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) or "cannot import name" in str(error)
        return None, (
            "this installation of regard was built without a C++ compiler and has no compiled kernel"
            if missing
            else f"the compiled kernel of regard cannot be loaded: {error}"
        )
    _native.set_num_threads(usual_number())
    if "threadpoolctl" in sys.modules:
        from regard.kernels._threadpoolctl import register

        register()
    return _native, None
