"""Make the pages' outputs and pictures anew, or check that they are current.

A page is its own source. Each ``python`` block of a page runs, all in one namespace, and what it prints stands in the
``text`` block behind it; each line of a ``console`` block that begins with ``$`` is run by the shell, and what it
prints stands below it. This script puts there what they print now. Pictures are whatever the blocks write to
``docs/images``.

    python docs/make.py            write what has changed
    python docs/make.py --check    write nothing; exit with 1 if a page or a picture is not current

Blocks marked ``norun`` behind the language (```console norun) are left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/lesson.md", "docs/attention.md", "docs/kernel.md", "docs/models.md")
IMAGES = Path("docs/images")
BY_A_BROWSER = "explorer-"  # what draw_explorer.py makes begins so
MOST_PIXELS_OFF = 0.01  # mean difference of two renderings, 1 = black against white: fonts differ by a hair

_BLOCK = re.compile(
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n(?:(?P<gap>\n?)^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_VOLATILE = re.compile(r"\d+\.\d\d s\b")


def remade(page: str, name: str = "page") -> str:
    """Return the text of a page with the outputs that its blocks have now; `name` is for tracebacks."""
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
        return f"{head}{match['gap'] or ''}```text\n{_settled(printed.getvalue(), match['output'] or '')}```\n"

    with np.printoptions():  # what one page sets for itself does not reach the next
        return _BLOCK.sub(block, page)


def _after(match: re.Match[str]) -> str:
    """Return what follows a console block, whose output stands inside it."""
    return "" if match["output"] is None else f"{match['gap']}```text\n{match['output']}```\n"


def _console(code: str) -> str:
    before = re.split(r"^\$ (.*)\n", code, flags=re.MULTILINE)
    lines = [before[0]]
    for command, old in zip(before[1::2], before[2::2], strict=True):
        done = subprocess.run(
            command, shell=True, check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}
        )
        new = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
        lines.append(f"$ {command}\n{_settled(new, old)}")
    return "".join(lines)


def _settled(new: str, old: str) -> str:
    """Return `old` where the two differ in nothing but how long something took."""
    return old if _VOLATILE.sub("", new) == _VOLATILE.sub("", old) else new


def differences(folder: Path) -> list[str]:
    """Return what is not current in the repository, as compared with the fresh copy in `folder`."""
    found: list[str] = []
    for name in PAGES:
        old, new = ((root / name).read_text(encoding="utf-8").splitlines(keepends=True) for root in (ROOT, folder))
        found += difflib.unified_diff(old, new, name, f"{name} now")
    names = {path.name for root in (ROOT, folder) for path in (root / IMAGES).glob("*")}
    for name in sorted(name for name in names if not name.startswith(BY_A_BROWSER)):
        if problem := _picture_differs(ROOT / IMAGES / name, folder / IMAGES / name):
            found.append(f"{IMAGES / name}: {problem}\n")
    return found


def _picture_differs(old: Path, new: Path) -> str:
    from matplotlib.image import imread

    if not new.exists():
        return "no page makes it"
    if not old.exists():
        return "is new"
    if old.suffix != ".png":
        return "" if old.read_bytes() == new.read_bytes() else "differs"
    a, b = imread(old), imread(new)
    if a.shape != b.shape:
        return f"was {a.shape[1]} × {a.shape[0]}, is {b.shape[1]} × {b.shape[0]} pixels"
    off = float(np.abs(a - b).mean())
    return f"pixels differ by {off:.3f} on the average" if off > MOST_PIXELS_OFF else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pages anew, or check that they are current.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something is not current")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / IMAGES).mkdir(parents=True)
        (folder / "tests").symlink_to(ROOT / "tests")  # whose small models the pages load
        os.chdir(folder)  # where the blocks write
        for page in PAGES:
            text = (ROOT / page).read_text(encoding="utf-8")
            (folder / page).write_text(remade(text, page), encoding="utf-8")
        os.chdir(ROOT)
        found = differences(folder)
        if found and not check:
            for page in PAGES:
                shutil.copy(folder / page, ROOT / page)
            shutil.rmtree(ROOT / IMAGES, ignore_errors=True)
            shutil.copytree(folder / IMAGES, ROOT / IMAGES)
    sys.stdout.writelines(found or ["Everything is current.\n"])
    return 1 if found and check else 0


if __name__ == "__main__":
    sys.exit(main())
