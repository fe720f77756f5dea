"""Loading of the compiled kernel, and its number of threads."""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number


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
    if not _in_main_interpreter():
        return None, "the compiled kernel of regard runs in the main interpreter of a process, not in a subinterpreter"
    try:
        _kernel = importlib.import_module("regard.functional.native._kernel")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
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


def _in_main_interpreter() -> bool:
    """Tell whether this is the main interpreter; loading the kernel in another one would hang both."""
    import ctypes  # which NumPy has imported

    try:
        current, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    except AttributeError:  # not CPython
        return True
    current.restype = main.restype = ctypes.c_void_p
    return bool(current() == main())


def set_num_threads(count: int) -> None:
    """Set the number of threads of the compiled kernel; results do not depend on it.

    The default is OMP_NUM_THREADS, or else the number of processors that this process may use. If threadpoolctl was
    imported before the kernel was first used, its ``threadpool_limits`` apply to the kernel too.

    Raises
    ------
    RegardError
        `count` is not a whole number of at least 1.
    """
    count = whole_number("the number of threads", count, 1)
    if (native := kernel()) is not None:
        native.set_num_threads(min(count, 1024))


def num_threads() -> int:
    """Return the number of threads of the compiled kernel; 1 if there is none."""
    native = kernel()
    return 1 if native is None else int(native.num_threads())


def default_num_threads() -> int:
    """Return OMP_NUM_THREADS, or else the number of processors that this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "").strip()
    if setting:
        first = re.match(r"\d+", setting)  # OpenMP allows a list, one number for each nesting level
        if not first or not int(first[0]):
            raise RegardError(f"OMP_NUM_THREADS is {setting!r}; it must begin with a number of at least 1")
        return min(int(first[0]), 1024)
    return num_processors()


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
