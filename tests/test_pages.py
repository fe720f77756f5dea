"""Tasks of the pages on research take five lines of user code at most.

What is counted: a page is `docs/*.md` as listed in `PAGES`, and a task is a block of Python. Its lines are all lines as
they are written, those that print among them, except blank lines, comments and imports; none is longer than 120
characters or holds two statements, so that nothing is crammed.

What is not counted: a block below ``<!-- set-up -->``. It loads the model, writes the texts, and draws pictures with
matplotlib, which a reader would do in some way of their own. No analysis may hide there: it may import, but not call,
anything of `regard.metrics`, `regard.edits` or `model.circuits`, generate a text, run texts, or make a trace.
"""

import ast
import re
from pathlib import Path

import pytest

from regard import edits, metrics

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("circuits", "why", "interventions", "indirect-objects", "steering", "punctuation")
MOST = 5
ANALYSIS = {*metrics.__all__, *edits.__all__, "circuits", "generate", "iter_traces", "predictions", "embed", "Trace"}
ANALYSIS |= {"why", "carried", "paths"}
ANALYSIS -= {"scale", "add"}  # words of other libraries too; `edits` below covers them
MODELS = {"model", "minilm", "smollm2"}

_BLOCK = re.compile(r"^(<!-- set-up -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUESTION = re.compile(
    r"^\*\*Predict\.\*\* [^<]*\?[^<]*\n<details>\n<summary>The answer</summary>\n.*?^</details>\n",
    re.MULTILINE | re.DOTALL,
)


def blocks(page):
    """Return the blocks of a page: whether each is set-up, its first line in the page, its code."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return [(bool(m[1]), text.count("\n", 0, m.start(2)) + 1, m[2]) for m in _BLOCK.finditer(text)]


def lines_of(code):
    """Return the lines that count."""
    imports = {
        number
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, node.end_lineno + 1)
    }
    numbered = enumerate(code.splitlines(), 1)
    return [line for n, line in numbered if n not in imports and line.strip() and not line.lstrip().startswith("#")]


def analysis_in(code):
    """Return what of regard's analysis is used in a block, imports aside."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    return sorted((names & (ANALYSIS | {"edits", "metrics"})) | {f"{name}()" for name in calls & MODELS})


@pytest.mark.parametrize("page", PAGES)
def test_no_task_takes_more_than_five_lines(page):
    tasks = [(line, lines_of(code)) for is_setup, line, code in blocks(page) if not is_setup]
    long = {f"{page}.md:{line}": len(lines) for line, lines in tasks if len(lines) > MOST}
    assert len(tasks) >= 4
    assert long == {}


@pytest.mark.parametrize("page", PAGES)
def test_a_line_is_one_statement_of_usual_length(page):
    for _, first, code in blocks(page):
        assert [line for line in code.splitlines() if len(line) > 120] == [], f"{page}.md:{first}"
        starts = [node.lineno for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
        assert len(starts) == len(set(starts)), f"{page}.md:{first} has two statements in a line"


@pytest.mark.parametrize("page", PAGES)
def test_no_analysis_is_in_the_set_up(page):
    found = {f"{page}.md:{line}": analysis_in(code) for is_setup, line, code in blocks(page) if is_setup}
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_it_does_not_show(page):
    headings = re.findall(r"^## (.*)$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading != "Sources"][-1] == "What this does not show"


def test_what_counts():
    code = "import numpy\nfrom x import (\n    y,\n)\n\n# why\nz = y(\n    1,\n)\nprint(z)\n"
    assert lines_of(code) == ["z = y(", "    1,", ")", "print(z)"]
    assert analysis_in("from regard.metrics import patch_grid\nx = [1]\n") == []
    assert analysis_in("a = patch_grid(model)\nb = smollm2(text)\nc = edits.add(1)\nd = smollm2.paths(text)\n") == [
        *("edits", "patch_grid", "paths", "smollm2()"),
    ]


@pytest.mark.parametrize(("page", "sections"), [("lesson", 16), ("learning", 7), ("gpt", 9), ("writers", 6)])
def test_each_section_of_a_lesson_asks_before_it_shows(page, sections):
    """One question with a folded answer, in or after which numbers or a picture come; not so where lessons begin."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (\d+)\. .*\n", text, flags=re.MULTILINE)
    section = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    for number in range(1, sections + 1):
        (question,) = _QUESTION.finditer(section[number])
        shown = section[number][question.start() :]
        assert "```text\n" in shown or "![" in shown or (page, number) == ("lesson", 1), f"{page}.md, section {number}"


@pytest.mark.parametrize("plan", ["A", "B"])
def test_a_plan_of_a_lesson_takes_45_minutes(plan):
    text = (DOCS / "teaching.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## Plan {plan}: .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    begins, ends = zip(*re.findall(r"^\| (\d+)–(\d+) \|", section, re.MULTILINE), strict=True)
    assert (begins[0], ends[-1]) == ("0", "45")
    assert begins[1:] == ends[:-1]


def test_no_output_has_digits_that_another_processor_rounds_otherwise():
    """A run in float32 has seven; of float64, printed whole, the last ones are those of one BLAS on one processor."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (DOCS.parent / "README.md", *DOCS.glob("*.md"))}
    outputs = re.compile(r"^```(?:text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    digits = re.compile(r"(?<![\d.])\d+\.\d+")
    long = {
        (name, number)
        for name, text in pages.items()
        for block in outputs.findall(text)
        for number in digits.findall(block)
        if len(number.replace(".", "").lstrip("0")) > 7
    }
    assert not long
