"""Imports of a command that wait until it runs, so that parsing and ``--help`` import nothing heavy.

From Python 3.15 on the language has this: ``lazy import``, PEP 810.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
from typing import Any, NoReturn


class DeferredName:
    """Stands for a name of a module, or for the module if `name` is "", until `bind_imports`."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self._module} is not imported before the command runs: {self._name or name} cannot be used"
        )

    def load(self) -> Any:
        """Import it."""
        module = importlib.import_module(self._module)
        if not self._name:
            return module
        if not hasattr(module, self._name):
            importlib.import_module(f"{self._module}.{self._name}")
        return getattr(module, self._name)


class deferred_imports:
    """Lets the import statements of a ``with`` block, at the top of a module, wait until `bind_imports`.

    Until then the names cannot be used, as a base class or decorator at the top of the module would. A module in a
    package is imported by ``from package import module``.
    """

    _replacing = threading.Lock()  # `builtins.__import__` is that of all threads

    def __enter__(self) -> None:
        self._replacing.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._note  # type: ignore[assignment]  # it returns no module
        self._module = sys._getframe(1).f_globals

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        self._replacing.release()

    def _note(self, name: str, module: Any = None, local: Any = None, names: Any = (), level: int = 0) -> Any:
        if module is not self._module:  # another thread imports something
            return self._import(name, module, local, names, level)
        if level or ("." in name and not names):
            raise ImportError(f"a deferred import of {name} has the form: from package.module import name")
        return _DeferredModule(name) if names else DeferredName(name, "")


class _DeferredModule:
    """What ``from module import name`` takes its names from."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> DeferredName:
        return DeferredName(self._module, name)


def bind_imports(module: Any) -> None:
    """Import what `module` has in blocks of `deferred_imports`."""
    for name, value in list(vars(module).items()):
        if isinstance(value, DeferredName):
            setattr(module, name, value.load())
