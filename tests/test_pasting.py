"""The Python blocks of the pages can be pasted into Python's own prompt, and the lessons and exercises run there.

The prompt ends a compound statement at its first blank line and nowhere else: a blank line inside a body, or a
statement right after one, is a syntax error there, though not in a file.
"""

import ast
import codeop
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import script
from sweeps import sweep_after

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.stem: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
same_but_for_rounding = script("docs/make.py").same_but_for_rounding
LESSONS = ("lesson", "learning", "writers", "exercises")

_BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def blocks(page):
    """Return the line of each block of a page, its code, and what the page says that it prints."""
    text = PAGES[page].read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m[1], m[2] or "") for m in _BLOCK.finditer(text)]


def pasted(code):
    """Return the statements that the prompt makes of code, line by line."""
    compiler, lines, statements = codeop.CommandCompiler(), [], []
    for line in [*code.splitlines(), ""]:
        lines.append(line)
        if compiler(source := "\n".join(lines)) is not None:
            statements += ast.parse(source).body
            lines = []
    assert lines == [], "the last statement does not end"
    return statements


def problem(code):
    """Return what the prompt says of code, "" if it runs what the block says."""
    try:
        statements = pasted(code)
    except SyntaxError as error:
        return error.msg
    return "" if [*map(ast.dump, statements)] == [*map(ast.dump, ast.parse(code).body)] else "other statements"


@pytest.mark.parametrize("page", [name for name in PAGES if blocks(name)])
def test_every_block_can_be_pasted(page):
    assert {f"{page}:{line}": said for line, code, _ in blocks(page) if (said := problem(code))} == {}


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        ("for i in range(2):\n    print(i)\n\nprint(3)\n", False),
        ("for i in range(2):\n    print(i)\nprint(3)\n", True),
        ("def f():\n    a = 1\n\n    return a\n", True),
        ("def f():\n    return 1\n# a comment\nprint(f())\n", True),
        ("x = (\n    1,\n\n    2,\n)\nprint(x)\n", False),
        ("if x:\n    y = 1\nelse:\n    y = 2\n", False),
        ("if x:\n    y = 1\n\nelse:\n    y = 2\n", True),
    ],
)
def test_what_cannot_be_pasted(code, fails):
    assert bool(problem(code)) is fails


def end_of(output, printed, start):
    """Return the line of `printed` after the first block of lines from `start` on that is `output`, or None."""
    for end in range(start + len(output), len(printed) + 1):
        if all(map(same_but_for_rounding, output, printed[end - len(output) : end])):
            return end
    return None


@pytest.mark.parametrize(
    ("output", "start", "end"),
    [
        (["a", "b 0.25"], 0, 3),
        (["a", "b 0.26"], 0, 3),
        (["a", "b 0.28"], 0, None),
        (["a", "b 0.25"], 2, None),
        (["a"], 1, 2),
        (["a"], 2, 4),
        (["a", "c"], 0, None),
    ],
)
def test_an_output_is_a_block_of_lines(output, start, end):
    assert end_of(output, ["echo", "a", "b 0.25", "a"], start) == end


@pytest.mark.parametrize("page", sweep_after(1, LESSONS))
def test_a_lesson_runs_in_pythons_own_prompt(page, tmp_path, minilm_dir):
    """All blocks, typed one after the other in an empty folder: no errors, the pictures, the outputs in order."""
    typed = "\n".join(code for _, code, _ in blocks(page))
    environment = {**os.environ, "PYTHONPATH": str(Path(sys.modules["regard"].__file__).parents[1])}
    run = [sys.executable, "-i", "-q"]
    done = subprocess.run(run, input=typed, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=900)
    assert "Error" not in done.stderr, done.stderr[-2000:]
    printed, start = done.stdout.splitlines(), 0
    for line, _, output in blocks(page):
        start = end_of(output.splitlines(), printed, start)
        assert start is not None, f"{page}:{line} does not print this after the blocks above:\n{output}"
    named = re.findall(r'"([\w-]+\.png)"', typed)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(named)
