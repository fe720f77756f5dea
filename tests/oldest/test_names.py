"""Whether other packages have the names and keywords that the package uses, in the versions of this environment."""

import ast
import functools
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import regard

OWN = {*sys.stdlib_module_names, "regard"}
PINNED = {"torch", "transformers", "jax", "bokeh"}  # by `nox -s parity`; bokeh is looked for
MANY = 25  # packages
Place = tuple[str, list[str]]  # a module, and the parts of a name there


@functools.cache
def uses() -> dict[str, set[tuple[str, str, str, frozenset[str]]]]:
    """Return, for each package, its uses: file, module, dotted name in that, and the keywords of a call."""
    found = defaultdict(set)
    for path in sorted(Path(regard.__file__).parent.rglob("*.py")):
        for nodes, imported in scopes(ast.parse(path.read_text(encoding="utf-8")), {}):
            keywords = {
                id(node.func): frozenset(each.arg for each in node.keywords if each.arg)
                for node in nodes
                if isinstance(node, ast.Call)
            }
            named = [(parts, keywords.get(id(node), frozenset())) for node in nodes if (parts := dotted(node))]
            for (name, *rest), given in [*named, *(([name], frozenset()) for name in imported)]:
                if name in imported:
                    module, within = imported[name]
                    found[module.partition(".")[0]].add((path.name, module, ".".join([*within, *rest]), given))
    return found


def scopes(node: ast.AST, outer: dict[str, Place]) -> Iterator[tuple[list[ast.AST], dict[str, Place]]]:
    """Yield the nodes of a module or function, and of each function in it, with what names stand for there."""
    nodes, functions, left = [], [], list(ast.iter_child_nodes(node))
    while left:
        each = left.pop()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(each)
        else:
            nodes.append(each)
            left += ast.iter_child_nodes(each)
    imported = outer | {name: place for each in nodes for name, place in imports(each)}
    yield nodes, imported
    for function in functions:
        yield from scopes(function, imported)


def imports(node: ast.AST) -> Iterator[tuple[str, Place]]:
    """Yield each name that an import binds, with the module and the name there; Python's own are left out."""
    if isinstance(node, ast.Import):
        for each in node.names:
            top = each.name.partition(".")[0]
            if top not in OWN:
                yield each.asname or top, (each.name if each.asname else top, [])
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] not in OWN:
        for each in node.names:
            yield each.asname or each.name, (node.module, [each.name])


def dotted(node: ast.AST) -> list[str]:
    """Return the parts of ``a.b.c``, none for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := dotted(node.value)):
        return [*parts, node.attr]
    return []


def resolved(module: str, name: str) -> Any:
    """Return what a name stands for; None below an instance, whose attributes may be made with it."""
    target: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        if isinstance(target, ModuleType) and not hasattr(target, part):
            target = importlib.import_module(f"{target.__name__}.{part}")
        elif isinstance(target, ModuleType | type):
            target = getattr(target, part)
        else:
            return None
    return target


def refused(function: Any, keywords: frozenset[str]) -> set[str]:
    """Return the keywords that a function does not take, as far as it says which."""
    if getattr(function, "__text_signature__", None):  # written by hand, of compiled code, and not always right
        return set()
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return set()
    return keywords - {each.name for each in parameters}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # at their import
def test_packages_have_the_names_that_are_used():
    problems = set()
    packages = {package: found for package, found in uses().items() if package not in PINNED}
    assert len(packages) > MANY
    for file, module, name, keywords in set().union(*packages.values()):
        try:
            problems |= {f"{file}: {module}.{name}({key}=)" for key in refused(resolved(module, name), keywords)}
        except (ImportError, AttributeError) as error:
            problems.add(f"{file}: {error}")
    assert sorted(problems) == []
