"""The page's modules as one piece of JavaScript, for where there is no server to fetch them from.

Every module becomes a function that returns what it exports. It understands what our own modules are written in: named
imports and exports, each at the beginning of a line; anything else of that kind is an error, so that none is lost.
"""

from __future__ import annotations

import re
from importlib.resources import files

from regard._errors import RegardError

_IMPORT = re.compile(
    r'^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+))\s+from\s+["\']\./([\w.-]+)["\'];?[ \t]*$', re.MULTILINE
)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|class)\s+(\w+)", re.MULTILINE)
_LIST = re.compile(r"^export\s+\{([^}]*)\};?[ \t]*$", re.MULTILINE)
# Comments, indents and empty lines, which are for who reads the modules. No string of theirs has a line of its own.
_SAID = re.compile(r"/\*\*.*?\*/|^[ \t]*//[^\n]*\n|^[ \t]+|^\n", re.MULTILINE | re.DOTALL)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def static(name: str) -> str:
    """Return the text of one of the page's own files."""
    return (files("regard.web") / "static" / name).read_text(encoding="utf-8")


def static_names() -> tuple[str, ...]:
    """Return the names of the page's own files."""
    return tuple(sorted(entry.name for entry in (files("regard.web") / "static").iterdir() if entry.is_file()))


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
    code = _SAID.sub("", static(name))
    for _, _, other in _IMPORT.findall(code):
        _collect(other, (*above, name), order, parts)
    exports = [word for _, word in _EXPORT.findall(code)]
    exports += [part.strip().replace(" as ", ": ") for found in _LIST.findall(code) for part in found.split(",")]
    pairs = []
    for export in filter(None, exports):
        inner, _, outer = export.partition(": ")
        pairs.append(f"{outer}: {inner}" if outer else inner)
    code = _IMPORT.sub(_as_constant, code)
    code = _LIST.sub("", _EXPORT.sub(r"\1 \2", code))
    if other := _OTHER.search(code):
        raise RegardError(f"{name} has a line that cannot be made a part of one script: {other[0]}")
    parts[name] = f"const {_variable(name)} = (() => {{\n{code}\nreturn {{ {', '.join(pairs)} }};\n}})();"
    order.append(name)


def _as_constant(found: re.Match[str]) -> str:
    names, star, module = found.groups()
    what = (
        star
        if star
        else "{ " + ", ".join(part.strip().replace(" as ", ": ") for part in names.split(",") if part.strip()) + " }"
    )
    return f"const {what} = {_variable(module)};"


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
