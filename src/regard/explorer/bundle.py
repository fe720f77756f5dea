"""Bundle the page's ES modules into one script, and its style sheets into one.

Every module becomes a function that returns its exports. Supported: relative imports of names or of a namespace, and
named exports, each at the beginning of a line. Any other import or export is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable

from regard._utils.errors import RegardError

_IMPORT = re.compile(
    r'^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+))\s+from\s+["\'](\.{1,2}/[\w./-]+)["\'];?[ \t]*$', re.MULTILINE
)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|class)\s+(\w+)", re.MULTILINE)
_LIST = re.compile(r"^export\s+\{([^}]*)\};?[ \t]*$", re.MULTILINE)
# Comments, indents and empty lines. No module has a string with a line break.
_BLANKS = re.compile(r"/\*\*.*?\*/|^[ \t]*//[^\n]*\n|^[ \t]+|^\n", re.MULTILINE | re.DOTALL)
_STYLE_BLANKS = re.compile(r"/\*.*?\*/|^[ \t]+|^\n", re.MULTILINE | re.DOTALL)
_STYLE_IMPORT = re.compile(r'^@import "\./([\w./-]+)";$', re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def static(name: str) -> str:
    """Return the text of one of the page's own files."""
    return (files("regard.explorer") / "frontend" / name).read_text(encoding="utf-8")


def static_names() -> tuple[str, ...]:
    """Return the paths of the page's own files, relative to their folder."""

    def names(folder: Traversable, prefix: str) -> Iterator[str]:
        for entry in folder.iterdir():
            if entry.is_file():
                yield prefix + entry.name
            else:
                yield from names(entry, f"{prefix}{entry.name}/")

    return tuple(sorted(names(files("regard.explorer") / "frontend", "")))


def stylesheet() -> str:
    """Return the page's style sheets as one, without comments and indents."""
    return _STYLE_BLANKS.sub("", _STYLE_IMPORT.sub(lambda found: static(found[1]), static("style.css")))


def bundled(entry: str) -> str:
    """Return a module with all that it imports as one script, whose last value has the name ``$entry``."""
    order: list[str] = []
    parts: dict[str, str] = {}
    _collect(entry, (), order, parts)
    return "\n".join([*(parts[name] for name in order), f"const $entry = {_variable(entry)};\n"])


def _collect(name: str, above: tuple[str, ...], order: list[str], parts: dict[str, str]) -> None:
    if name in parts:
        return
    if name in above:
        raise RegardError(f"modules import each other in a circle: {' → '.join([*above, name])}")
    code = _BLANKS.sub("", static(name))
    for _, _, path in _IMPORT.findall(code):
        _collect(_resolve(path, name), (*above, name), order, parts)
    exports = [word for _, word in _EXPORT.findall(code)]
    exports += [part.strip().replace(" as ", ": ") for found in _LIST.findall(code) for part in found.split(",")]
    pairs = []
    for export in filter(None, exports):
        inner, _, outer = export.partition(": ")
        pairs.append(f"{outer}: {inner}" if outer else inner)
    code = _IMPORT.sub(partial(_as_constant, importer=name), code)
    code = _LIST.sub("", _EXPORT.sub(r"\1 \2", code))
    if other := _OTHER.search(code):
        raise RegardError(f"{name} has a line that cannot be made a part of one script: {other[0]}")
    parts[name] = f"const {_variable(name)} = (() => {{\n{code}\nreturn {{ {', '.join(pairs)} }};\n}})();"
    order.append(name)


def _as_constant(found: re.Match[str], importer: str) -> str:
    names, star, path = found.groups()
    what = (
        star
        if star
        else "{ " + ", ".join(part.strip().replace(" as ", ": ") for part in names.split(",") if part.strip()) + " }"
    )
    return f"const {what} = {_variable(_resolve(path, importer))};"


def _resolve(path: str, importer: str) -> str:
    """Return the name of the module at a path relative to its importer."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
