"""Bundle the page's ES modules into one script, and its style sheets into one.

Every module becomes a function that returns its exports. Supported: relative imports of names or of a namespace, and
named exports, each at the beginning of a line. Any other import or export is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from regard._utils.errors import RegardError

_IMPORT = re.compile(
    r'^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+))\s+from\s+["\'](\.{1,2}/[\w./-]+)["\'];?[ \t]*$', re.MULTILINE
)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|class)\s+(\w+)", re.MULTILINE)
_LIST = re.compile(r"^export\s+\{([^}]*)\};?[ \t]*$", re.MULTILINE)
_STYLE_BLANKS = re.compile(r"/\*.*?\*/|^[ \t]+|^\n|(?<=[{};,])\s+|\s+(?=[{}])", re.MULTILINE | re.DOTALL)
_STYLE_IMPORT = re.compile(r'^@import "\./([\w./-]+)";$', re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def frontend_file(name: str) -> str:
    """Return the text of one of the page's files."""
    return (files("regard.explorer") / "frontend" / name).read_text(encoding="utf-8")


@cache
def frontend_files() -> tuple[str, ...]:
    """Return the paths of the page's files, relative to ``frontend``; declarations of types are none of them."""

    def names(folder: Traversable, prefix: str) -> Iterator[str]:
        for entry in folder.iterdir():
            if entry.name.endswith(".d.ts"):
                continue
            if entry.is_file():
                yield prefix + entry.name
            else:
                yield from names(entry, f"{prefix}{entry.name}/")

    return tuple(sorted(names(files("regard.explorer") / "frontend", "")))


def bundle_page() -> str:
    """Return the page without comments, indents and spaces within tags."""
    page = re.sub(r"<!--.*?-->", "", frontend_file("index.html"), flags=re.DOTALL)
    tags = re.sub(r"<[^>]+>", lambda tag: re.sub(r"\s+(?=/?>)", "", re.sub(r"\s+", " ", tag[0])), page)
    return re.sub(r"\s*\n\s*", "\n", tags)


def door_page() -> str:
    """Return the page at which a class enters: the head of the page, with a form in place of its body."""
    content, files = re.compile(r'<div id="regard".*</template>', re.DOTALL), re.compile(r"static/(app/main|style)\.")
    page = content.sub(lambda _: frontend_file("enter.html"), frontend_file("index.html"))
    return files.sub("/static/enter.", page)


def page_markup() -> str:
    """Return the ``<template>`` of the page's markup."""
    return re.search(r"<template.*</template>", bundle_page(), re.DOTALL)[0]  # type: ignore[index]


def bundle_styles(name: str = "style.css") -> str:
    """Return a style sheet and those that it imports as one, without comments and indents."""
    return _STYLE_BLANKS.sub("", _STYLE_IMPORT.sub(lambda match: frontend_file(match[1]), frontend_file(name)))


def bundle_module(entry: str) -> str:
    """Return a module and everything it imports as one script without comments; its exports are in ``$entry``."""
    scripts: dict[str, str] = {}
    _collect(entry, (), scripts)
    script = "\n".join([*scripts.values(), f"const $entry = {_variable(entry)};"])
    try:
        from rjsmin import jsmin
    except ModuleNotFoundError:
        return f"{script}\n"  # longer
    return f"{jsmin(script)}\n"


def _collect(name: str, importers: tuple[str, ...], scripts: dict[str, str]) -> None:
    """Add a module to the scripts, after those that it imports."""
    if name in scripts:
        return
    if name in importers:
        raise RegardError(f"circular import: {' → '.join([*importers, name])}")
    code = frontend_file(name)
    for _, _, path in _IMPORT.findall(code):
        _collect(_resolve(path, name), (*importers, name), scripts)
    exports = [word for _, word in _EXPORT.findall(code)]
    exports += [_property(outer, inner) for listed in _LIST.findall(code) for inner, outer in _renamings(listed)]

    def to_constant(match: re.Match[str]) -> str:
        names, namespace, path = match.groups()
        target = namespace or "{ " + ", ".join(_property(*each) for each in _renamings(names)) + " }"
        return f"const {target} = {_variable(_resolve(path, name))};"

    code = _LIST.sub("", _EXPORT.sub(r"\1 \2", _IMPORT.sub(to_constant, code)))
    if other := _OTHER.search(code):
        raise RegardError(f"{name} has an unsupported import or export: {other[0]}")
    scripts[name] = f"const {_variable(name)} = (() => {{\n{code}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _renamings(listed: str) -> list[tuple[str, str]]:
    """Return (name, other name) of ``a, b as c``: a is its own other name."""
    parts = [part.split(" as ") for part in map(str.strip, listed.split(",")) if part]
    return [(part[0].strip(), part[-1].strip()) for part in parts]


def _property(key: str, value: str) -> str:
    return key if key == value else f"{key}: {value}"


def _resolve(path: str, importer: str) -> str:
    """Return the name of the module at a path relative to its importer."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
