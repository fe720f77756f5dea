"""Check that the outputs and images of the pages are current, or write them anew.

All ``python`` blocks of a page run in one namespace; the output of each is in the ``text`` block after it. Lines of a
``console`` block that begin with ``$`` are run by the shell; their output follows in the block. Pictures are the PNG
files that the blocks write to the current folder, as they do for a reader; they are kept in ``docs/images``.

    python docs/make.py            write nothing; exit with 1 if a page or an image is not current
    python docs/make.py --write    write what has changed
    python docs/make.py docs/steering.md   that page alone, with or without --write

A page in `LONG` trains for minutes. Without ``--whole`` its training is cut short, and from there on its blocks only
run: their outputs and pictures stay as they are.

    python docs/make.py --write --whole docs/gpt.md

A page is current if it differs by measured times and rounding alone: sums have other last bits on another processor.

Blocks marked ``norun`` after the language (```console norun) are left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
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
    "gpt",
    "writers",
    "exercises",
    "worksheet",
    "diagrams",
    "command",
    "attention",
    "kernel",
    "models",
    "images",
    "embeddings",
    "gradients",
    "attribution",
    "interventions",
    "circuits",
    "why",
    "indirect-objects",
    "steering",
    "punctuation",
    "training",
    "without-installing",
)
PAGES = ("README.md", *(f"docs/{name}.md" for name in _NAMES))
LONG = {  # a line of a page, and what is run in its place
    "docs/gpt.md": (
        "steps, batches, held_out = 1500, task.batches(seed=0), task.held_out(4)",
        "steps, batches, held_out = 15, training.text_task(text, batch_size=2).batches(seed=0), task.held_out(1)",
    )
}
IMAGES = Path("docs/images")
BROWSER_PICTURES = ("explorer-", "explorer.")  # prefixes of those by draw_explorer.py and record_explorer.py
MAX_PIXEL_DIFFERENCE = 0.01  # mean over all pixels, 1: black against white; font versions differ slightly

_BLOCK = re.compile(
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n(?:(?P<gap>\n?)^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_VOLATILE = re.compile(r"\d+\.\d\d s\b")
_DECIMAL = re.compile(r"((?<![\d.])[-+]?\d+\.\d+(?:e[-+]?\d+)?(?!\.?\d))")


def regenerate(page: str, name: str = "page", *, exact: bool = True, short: tuple[str, str] | None = None) -> str:
    """Return the text of a page with current outputs; `name` is for tracebacks.

    A line that differs by a measured time alone stays; if not `exact`, one that differs by rounding too. `short` is a
    line and what is run in its place: from that block on outputs stay, and pictures are those of the repository.
    """
    long_from = page.index(short[0]) if short else len(page)
    keep = functools.partial(_keep, exact=exact)
    namespace: dict[str, Any] = {"__name__": "__page__"}

    def block(match: re.Match[str]) -> str:
        if match["language"] == "console":
            return f"```console\n{_console(match['code'], keep)}```\n" + _after(match)
        printed = io.StringIO()
        lines_above = page[: match.start("code")].count("\n")
        with contextlib.redirect_stdout(printed):
            code = match["code"].replace(*short) if short else match["code"]
            exec(compile("\n" * lines_above + code, name, "exec"), namespace)  # our own page's code
        if match.end("code") > long_from:
            return match[0]
        head = f"```python\n{match['code']}```\n"
        if not printed.getvalue():
            return head
        return f"{head}{match['gap'] or ''}```text\n{keep(printed.getvalue(), match['output'] or '')}```\n"

    with np.printoptions():  # a page does not change those of the next
        return _BLOCK.sub(block, page)


def _after(match: re.Match[str]) -> str:
    """Return the text block after a console block, unchanged."""
    return "" if match["output"] is None else f"{match['gap']}```text\n{match['output']}```\n"


def _console(code: str, keep: Callable[[str, str], str]) -> str:
    before = re.split(r"^\$ (.*)\n", code, flags=re.MULTILINE)
    lines = [before[0]]
    for command, old in zip(before[1::2], before[2::2], strict=True):
        done = subprocess.run(
            command, shell=True, check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}
        )
        new = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
        lines.append(f"$ {command}\n{keep(new, old)}")
    return "".join(lines)


def _keep(new: str, old: str, *, exact: bool) -> str:
    """Return `new`, with the line of `old` wherever the two differ only in measured times, or by rounding."""
    known = {_VOLATILE.sub("", line): line for line in old.splitlines(keepends=True)}
    lines = [known.get(_VOLATILE.sub("", line), line) for line in new.splitlines(keepends=True)]
    before = old.splitlines(keepends=True)
    if not exact and len(before) == len(lines):
        lines = [one if same_but_for_rounding(one, line) else line for one, line in zip(before, lines, strict=True)]
    return "".join(lines)


def same_but_for_rounding(old: str, new: str) -> bool:
    """Return whether two lines differ at most by one unit in the last digit of their numbers with a decimal point.

    A number that falls between two that can be printed is rounded to either. One of a single digit must be the same.
    """
    one, other = _DECIMAL.split(old), _DECIMAL.split(new)
    if len(one) != len(other) or any(a.split() != b.split() for a, b in zip(one[::2], other[::2], strict=True)):
        return False
    return all(map(_are_close, map(Decimal, one[1::2]), map(Decimal, other[1::2])))


def _are_close(a: Decimal, b: Decimal) -> bool:
    (_, digits, p), (_, _, q) = a.as_tuple(), b.as_tuple()
    assert isinstance(p, int)  # the pattern matches neither NaN nor infinities
    assert isinstance(q, int)
    decades = abs(p - q) <= 1  # 9.99 and 10.0 have as many digits
    return a == b or (len(digits) > 1 and decades and abs(a - b) <= Decimal(1).scaleb(min(p, q)))


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


def _keep_pictures(page: str, short: tuple[str, str], folder: Path) -> None:
    """Put the stored pictures in the place of those that blocks after a shortened training have drawn."""
    for name in re.findall(r'"([\w-]+\.png)"', page[page.index(short[0]) :]):
        (folder / name).unlink()
        if (ROOT / IMAGES / name).exists():
            shutil.copy(ROOT / IMAGES / name, folder)


def _write_regenerated(page: str, folder: Path, exact: bool, whole: bool) -> None:
    own = folder / Path(page).stem
    own.mkdir()
    (own / "tests").symlink_to(ROOT / "tests")  # the pages load its small models
    os.chdir(own)  # the blocks write here
    text = (ROOT / page).read_text(encoding="utf-8")
    short = None if whole else LONG.get(page)
    (folder / page).write_text(regenerate(text, page, exact=exact, short=short), encoding="utf-8")
    if short:
        _keep_pictures(text, short, own)


def collect_pictures(folder: Path, pages: Sequence[str]) -> None:
    """Move the pictures of all pages into one folder; those that two pages write must be the same."""
    for page in pages:
        for path in (folder / Path(page).stem).glob("*.png"):
            other = folder / IMAGES / path.name
            if other.exists() and other.read_bytes() != path.read_bytes():
                raise SystemExit(f"{page}: another page writes {IMAGES / path.name} with another content: rename it")
            path.replace(other)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the pages are current, or write them anew.")
    parser.add_argument("--write", action="store_true", help="write what has changed")
    parser.add_argument("--whole", action="store_true", help="train as long as the pages say")
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], metavar="PAGE", help="all by default")
    arguments = parser.parse_args()
    write, whole, pages = arguments.write, arguments.whole, arguments.pages or PAGES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / IMAGES).mkdir(parents=True)
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
            deque(pool.map(_write_regenerated, pages, *map(repeat, (folder, write, whole))), maxlen=0)  # raises errors
        collect_pictures(folder, pages)
        found = differences(folder, pages)
        if found and write:
            for page in pages:
                shutil.copy(folder / page, ROOT / page)
            for name in stale_pictures(folder, pages):
                (ROOT / IMAGES / name).unlink(missing_ok=True)
                if (folder / IMAGES / name).exists():
                    shutil.copy(folder / IMAGES / name, ROOT / IMAGES)
    sys.stdout.writelines(found or ["Everything is current.\n"])
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main())
