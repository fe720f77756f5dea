"""Packages whose names are imported on first use; the stub beside ``__init__.py`` lists them.

lazy_loader does so too, but reads the stub when the package is imported, and no import may delay the handler of
interrupts in `regard.cli.main`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)


class _Package(ModuleType):
    """A package in which a submodule does not hide the name of its own that it defines, such as `rotary`."""

    def __setattr__(self, name: str, value: Any) -> None:
        own = vars(value).get(name) if isinstance(value, ModuleType) else None
        if own is None or isinstance(own, ModuleType):
            super().__setattr__(name, value)


def attach(
    package: str, others: Callable[[], Mapping[str, str]] = dict
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that has a stub.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    others : function, optional
        Returns further names, and the module of each; called when a name is looked for.
    """
    sources: dict[str, str] = {}

    def names() -> dict[str, str]:
        if not sources:
            sources.update({**read_stub(package), **others()})
        return sources

    def get(name: str) -> Any:
        if name == "__all__":
            return list(names())
        if name.startswith("__") or name not in names():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        module = None if names()[name] == package else import_module(names()[name])
        value = getattr(module, name) if hasattr(module, name) else import_module(f"{names()[name]}.{name}")
        vars(sys.modules[package])[name] = value  # so that this function runs once a name
        return value

    sys.modules[package].__class__ = _Package
    return get, lambda: sorted({*vars(sys.modules[package]), *names()})


def read_stub(package: str) -> dict[str, str]:
    """Return the names that the stub of a package imports from regard, and the module of each.

    ``import *`` is of what ``__all__`` of the module lists, a tuple of strings.
    """
    import ast

    with open(f"{sys.modules[package].__file__}i", encoding="utf-8") as file:  # noqa: PTH123 (pathlib takes time)
        imports = [node for node in ast.parse(file.read()).body if isinstance(node, ast.ImportFrom)]
    return {
        name: node.module
        for node in imports
        if node.module and node.module.partition(".")[0] == "regard"
        for alias in node.names
        for name in (_all_of(package, node.module) if alias.name == "*" else (alias.name,))
    }


def _all_of(package: str, module: str) -> tuple[str, ...]:
    """Return ``__all__`` of a module of a package, which is not imported."""
    import ast

    folder = sys.modules[package].__file__.removesuffix("__init__.py")  # type: ignore[union-attr]
    with open(f"{folder}{module.removeprefix(f'{package}.').replace('.', '/')}.py", encoding="utf-8") as file:  # noqa: PTH123
        start = file.read().partition("\n__all__ = ")[2]
    names: tuple[str, ...] = ast.literal_eval(start[: start.index(")") + 1])
    return names
