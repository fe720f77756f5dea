"""Write the types of the explorer's queries for the page, from the annotations in Python, and those of its elements.

    python tests/make_query_types.py

`tests/explorer/test_query.py` compares the file with what this would write.
"""

import re
import textwrap
import types
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

import regard.explorer.exploration  # noqa: F401 - declares the queries
from regard.explorer.bundle import page_markup
from regard.explorer.query import QUERIES

PATH = Path(__file__).parents[1] / "src/regard/explorer/frontend/queries.d.ts"
HEADER = """\
// The queries of the page and their answers: written by `python tests/make_query_types.py` from the annotations of the
// functions that `regard.explorer.query.query` decorates, which say what each is; and the elements of the page.
"""
_PLAIN = ("aside", "dd", "div", "footer", "header", "h1", "h2", "h3", "h4", "kbd", "label", "li", "main", "ol", "p",
          "section", "span", "tbody", "td", "th", "ul")  # fmt: skip
_SIMPLE = {
    int: "number",
    float: "number",
    bool: "boolean",
    str: "string",
    types.NoneType: "null",
    bytes: "Uint8Array<ArrayBuffer>",
    np.ndarray: "Float32Array<ArrayBuffer>",
}


def render() -> str:
    """Return the content of the file."""
    named: dict[str, Any] = {}
    for name in sorted(QUERIES):
        _collect(QUERIES[name].types["return"], named)
    methods = "\n".join(_method(name) for name in sorted(QUERIES))
    source = f"// prettier-ignore\ninterface Source {{\n{methods}\n}}\n"
    return "\n".join([HEADER, *map(_interface, named.values()), source, _elements(page_markup())])


def _collect(hint: Any, named: dict[str, Any]) -> None:
    """Add the types that a type consists of, by name."""
    if is_typeddict(hint):
        assert named.setdefault(hint.__name__, hint) is hint, f"two types have the name {hint.__name__}"
        parts = tuple(get_type_hints(hint, include_extras=True).values())
    else:
        parts = get_args(hint)
    for part in parts:
        _collect(part, named)


def _elements(markup: str) -> str:
    """Return the type of the named elements of the page: those of a text box are there for A and for B."""
    twice = re.search(r'<template data-ref="liveBox">(.*?)</template>', markup, re.DOTALL)[1]  # type: ignore[index]
    of_b = re.sub(r'data-ref="(\w+)"', r'data-ref="\1B"', twice)
    named = defaultdict(list)
    for tag, name in re.findall(r'<(\w+)[^>]*? data-ref="(\w+)"', markup + of_b):
        named["HTMLElement" if tag in _PLAIN else f'HTMLElementTagNameMap["{tag}"]'].append(f'"{name}"')
    lines = [f"Record<{' | '.join(sorted(names))}, {kind}>" for kind, names in sorted(named.items())]
    wrapped = textwrap.fill(" & ".join(lines), 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"/** by their `data-ref` */\n// prettier-ignore\ntype Refs =\n{wrapped};\n"


def _interface(answer: Any) -> str:
    lines = []
    for name, hint in get_type_hints(answer, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        lines.append(f"  {name}{'?' * optional}: {written(get_args(hint)[0] if optional else hint)};")
    return "\n".join([f"interface {answer.__name__} {{", *lines, "}\n"])


def _method(name: str) -> str:
    query = QUERIES[name]
    fields = [
        f"{each}: {written(query.types[each])}"
        if is_needed
        else f"{each}?: {_without_null(written(query.types[each]))}"
        for each, is_needed in query.parameters.items()
    ]
    optional = "?" * (not any(query.parameters.values()))
    params = f"params{optional}: {{ {'; '.join(fields)} }}" if fields else "params?: {}"
    return f"  {name}: ({params}, signal?: AbortSignal) => Promise<{written(query.types['return'])}>;"


def written(hint: Any) -> str:
    """Return a type of Python as TypeScript has it."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return _union(written(part) for part in parts)
    if kind is Literal:
        return _union(f'"{part}"' for part in parts)
    if kind is dict:
        return f"Record<string, {written(parts[1])}>"
    if kind is tuple:
        return f"[{', '.join(map(written, parts))}]"
    if kind in (list, Sequence):
        item = written(parts[0])
        return f"({item})[]" if "|" in item and not item.endswith("]") else f"{item}[]"
    return hint.__name__ if is_typeddict(hint) else _SIMPLE[hint]


def _without_null(text: str) -> str:
    """Return the type of a parameter that is left out in place of None."""
    return text.removesuffix(" | null")


def _union(parts: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(parts))


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
