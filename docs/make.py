"""Regenerate the outputs and pictures of the pages, or check that they are current.

All ``python`` blocks of a page run in one namespace; the output of each is in the ``text`` block after it. Lines of a
``console`` block that begin with ``$`` are run by the shell; their output follows in the block. Pictures are the files
that the blocks write to ``docs/images``.

    python docs/make.py            write what has changed
    python docs/make.py --check    write nothing; exit with 1 if a page or a picture is not current
    python docs/make.py docs/steering.md   that page alone, with or without --check

Blocks marked ``norun`` after the language (```console norun) are left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
_NAMES = (
    "lesson",
    "learning",
    "attention",
    "kernel",
    "models",
    "images",
    "gradients",
    "attribution",
    "interventions",
    "circuits",
    "indirect-objects",
    "steering",
    "punctuation",
    "training",
)
PAGES = ("README.md", *(f"docs/{name}.md" for name in _NAMES))
IMAGES = Path("docs/images")
BROWSER_PICTURES = ("explorer-", "explorer.")  # prefixes of those by draw_explorer.py and record_explorer.py
MAX_PIXEL_DIFFERENCE = 0.01  # mean over all pixels, 1: black against white; font versions differ slightly

_BLOCK = re.compile(
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n(?:(?P<gap>\n?)^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_VOLATILE = re.compile(r"\d+\.\d\d s\b")
_DECIMAL = re.compile(r"([-+]?\d+\.\d+(?:e[-+]?\d+)?)")


def regenerate(page: str, name: str = "page") -> str:
    """Return the text of a page with current outputs; `name` is for tracebacks."""
    namespace: dict[str, Any] = {"__name__": "__page__"}

    def block(match: re.Match[str]) -> str:
        if match["language"] == "console":
            return f"```console\n{_console(match['code'])}```\n" + _after(match)
        printed = io.StringIO()
        lines_above = page[: match.start("code")].count("\n")
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * lines_above + match["code"], name, "exec"), namespace)  # our own page's code
        head = f"```python\n{match['code']}```\n"
        if not printed.getvalue():
            return head
        return f"{head}{match['gap'] or ''}```text\n{_unless_volatile(printed.getvalue(), match['output'] or '')}```\n"

    with np.printoptions():  # a page does not change those of the next
        return _BLOCK.sub(block, page)


def _after(match: re.Match[str]) -> str:
    """Return the text block after a console block, unchanged."""
    return "" if match["output"] is None else f"{match['gap']}```text\n{match['output']}```\n"


def _console(code: str) -> str:
    before = re.split(r"^\$ (.*)\n", code, flags=re.MULTILINE)
    lines = [before[0]]
    for command, old in zip(before[1::2], before[2::2], strict=True):
        done = subprocess.run(
            command, shell=True, check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}
        )
        new = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
        lines.append(f"$ {command}\n{_unless_volatile(new, old)}")
    return "".join(lines)


def _unless_volatile(new: str, old: str) -> str:
    """Return `new`, with the line of `old` wherever the two differ only in measured times, or by rounding."""
    known = {_VOLATILE.sub("", line): line for line in old.splitlines(keepends=True)}
    lines = [known.get(_VOLATILE.sub("", line), line) for line in new.splitlines(keepends=True)]
    before = old.splitlines(keepends=True)
    if len(before) == len(lines):
        lines = [one if same_but_for_rounding(one, line) else line for one, line in zip(before, lines, strict=True)]
    return "".join(lines)


def same_but_for_rounding(old: str, new: str) -> bool:
    """Return whether two lines differ at most by one unit in the last digit of numbers with a decimal point.

    Sums have other last bits on another processor, and a number between two that can be printed falls to either side.
    """
    one, other = _DECIMAL.split(old), _DECIMAL.split(new)
    if len(one) != len(other) or any(a.split() != b.split() for a, b in zip(one[::2], other[::2], strict=True)):
        return False
    pairs = zip(map(Decimal, one[1::2]), map(Decimal, other[1::2]), strict=True)
    return all(abs(a - b) <= Decimal(1).scaleb(max(_exponent(a), _exponent(b))) for a, b in pairs)


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # the pattern matches neither NaN nor infinities
    return exponent


def differences(folder: Path, pages: Sequence[str] = PAGES) -> list[str]:
    """Return the differences between the repository and the regenerated copy of some pages in `folder`."""
    found: list[str] = []
    for name in pages:
        old, new = ((root / name).read_text(encoding="utf-8").splitlines(keepends=True) for root in (ROOT, folder))
        found += difflib.unified_diff(old, new, name, f"{name} now")
    return found + [f"{IMAGES / name}: {problem}\n" for name, problem in stale_pictures(folder, pages).items()]


def stale_pictures(folder: Path, pages: Sequence[str] = PAGES) -> dict[str, str]:
    """Return the names of the pictures that are not current, with what is wrong; for all pages, of all pictures."""
    roots = (ROOT, folder) if set(pages) == set(PAGES) else (folder,)
    names = {path.name for root in roots for path in (root / IMAGES).glob("*")}
    problems = {name: _picture_differs(ROOT / IMAGES / name, folder / IMAGES / name) for name in sorted(names)}
    return {name: text for name, text in problems.items() if text and not name.startswith(BROWSER_PICTURES)}


def _picture_differs(old: Path, new: Path) -> str:
    from matplotlib.image import imread

    if not new.exists():
        return "no page writes it"
    if not old.exists():
        return "is new"
    if old.suffix != ".png":
        return "" if old.read_bytes() == new.read_bytes() else "differs"
    a, b = imread(old), imread(new)
    if a.shape != b.shape:
        return f"was {a.shape[1]} × {a.shape[0]} pixels, is {b.shape[1]} × {b.shape[0]}"
    difference = float(np.abs(a - b).mean())
    return f"pixels differ by {difference:.3f} on average" if difference > MAX_PIXEL_DIFFERENCE else ""


def _write_regenerated(page: str, folder: Path) -> None:
    os.chdir(folder)  # the blocks write here
    text = (ROOT / page).read_text(encoding="utf-8")
    (folder / page).write_text(regenerate(text, page), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Regenerate the pages, or check that they are current.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something is not current")
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], metavar="PAGE", help="all by default")
    arguments = parser.parse_args()
    check, pages = arguments.check, arguments.pages or PAGES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / IMAGES).mkdir(parents=True)
        (folder / "tests").symlink_to(ROOT / "tests")  # the pages load its small models
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
            deque(processes.map(_write_regenerated, pages, repeat(folder)), maxlen=0)  # raises what one has raised
        found = differences(folder, pages)
        if found and not check:
            for page in pages:
                shutil.copy(folder / page, ROOT / page)
            for name in stale_pictures(folder, pages):
                (ROOT / IMAGES / name).unlink(missing_ok=True)
                if (folder / IMAGES / name).exists():
                    shutil.copy(folder / IMAGES / name, ROOT / IMAGES)
    sys.stdout.writelines(found or ["Everything is current.\n"])
    return 1 if found and check else 0


if __name__ == "__main__":
    sys.exit(main())
