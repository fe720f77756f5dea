"""Check that the notebooks of the lessons are current, or write them anew.

A notebook has the prose and the Python of its page, in order, without outputs. Besides that it installs regard where
it is not there, as on Colab; shows the pictures that its cells save; and has an empty cell for each answer that a
check waits for, above the folded solution. A check whose answer is not there yet does not stop *Run all*.

    python docs/make_notebooks.py            write nothing; exit with 1 if a notebook is not current
    python docs/make_notebooks.py --write    write what has changed

`docs/run_notebooks.py` runs them.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/notebooks"
LESSONS = ("lesson", "learning", "gpt", "writers", "exercises")
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
INSTALL = """\
try:
    import regard
except ImportError:
    %pip install --quiet regard
"""
ANSWER = "# Your answer\n"
ELSEWHERE = re.compile(r"^\[As a notebook\].*\n\n", re.MULTILINE)  # the line that leads here
TAGS = {"show": ["show"], "answer": ["answer"], "check": ["raises-exception"]}  # by kind; the last one is Jupyter's own

_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?^```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
_FOLDED = re.compile(r"^<details>\n.*?^</details>\n", re.MULTILINE | re.DOTALL)
_CELL = re.compile(f"(?P<folded>{_FOLDED.pattern})|{_PYTHON.pattern}", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"^!\[(?P<alt>[^\]]*)\]\(images/(?P<name>[^)]+)\)\n", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s:]*)(?=\))")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of each cell, "markdown", "code" or one of `TAGS`, and its text."""
    page = ELSEWHERE.sub("", page)
    saved = set(re.findall(r'"([\w-]+\.png)"', "".join(match["code"] for match in _PYTHON.finditer(page))))
    matches = list(_CELL.finditer(page))
    yield "code", INSTALL
    done, is_checked = 0, False
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        yield from _prose(page[done : match.start()], saved)
        if match["folded"]:
            is_checked = following is not None and "check(" in (following["code"] or "")
            if is_checked:
                yield "answer", ANSWER
            yield "markdown", match["folded"]
        else:
            yield "check" if is_checked else "code", match["code"]
            is_checked = False
        done = match.end()
    yield from _prose(page[done:], saved)


def _prose(text: str, saved: set[str]) -> Iterator[tuple[str, str]]:
    done = 0
    for image in _IMAGE.finditer(text):
        if image["name"] in saved:
            yield "markdown", text[done : image.start()]
            alt = json.dumps(image["alt"], ensure_ascii=False)
            yield "show", f'from IPython.display import Image\n\nImage("{image["name"]}", alt={alt})\n'
            done = image.end()
    yield "markdown", text[done:]


def notebook(page: str) -> str:
    """Return the notebook of a page, as its file has it."""
    made: list[dict[str, Any]] = []
    for kind, text in cells(page):
        is_code = kind != "markdown"
        source = (text if is_code else _with_addresses(text)).strip("\n")
        if not source:
            continue
        cell: dict[str, Any] = {"cell_type": "code" if is_code else "markdown", "id": f"cell-{len(made)}"}
        cell["metadata"] = {"tags": TAGS[kind]} if kind in TAGS else {}
        if is_code:
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell | {"source": source.splitlines(keepends=True)})
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _with_addresses(text: str) -> str:
    parts = _FENCED.split(text)
    return "".join(part if n % 2 else _LINK.sub(_absolute, part) for n, part in enumerate(parts))


def _absolute(link: re.Match[str]) -> str:
    """Return the address of what a page links to: a notebook may be anywhere."""
    path, sharp, place = link["target"].partition("#")
    if not path:
        return link["target"]
    kind = "raw" if path.endswith((".png", ".gif", ".svg")) else "blob"
    return f"{REPOSITORY}/{kind}/main/{posixpath.normpath(posixpath.join('docs', path))}{sharp}{place}"


def stale(folder: Path = FOLDER) -> dict[str, str]:
    """Return the names and the new texts of the notebooks that are not current."""
    new = {f"{name}.ipynb": notebook((ROOT / f"docs/{name}.md").read_text(encoding="utf-8")) for name in LESSONS}
    paths = {name: folder / name for name in new}
    return {
        name: text
        for name, text in new.items()
        if not paths[name].exists() or paths[name].read_text(encoding="utf-8") != text
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the notebooks are current, or write them anew.")
    parser.add_argument("--write", action="store_true", help="write what has changed")
    write, found = parser.parse_args().write, stale()
    for name, text in found.items():
        print(f"{name} {'is written' if write else 'is not what its page says'}")
        if write:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
    if not found:
        print("All notebooks are current.")
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main())
