"""Tests are stable by construction: rules for the kinds of tests that once failed where nothing was wrong."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
CLOCKS = {"perf_counter", "process_time", "monotonic", "thread_time", "time", "perf_counter_ns", "monotonic_ns"}
LONG = 60  # seconds that a limit lets pass at least: it is for what hangs, and no load reaches it
IN_MILLISECONDS = {  # Playwright's
    *("wait_for_selector", "wait_for_function", "wait_for", "goto", "click", "expect_download", "set_options"),
    *(f"to_{what}" for what in ("have_text", "have_count", "be_visible", "be_hidden", "have_attribute")),
}


class Calls(ast.NodeVisitor):
    """The calls in a file: each with the name, the text before the name, and whether a loop repeats it."""

    def __init__(self):
        self.found, self._loops = [], 0

    def visit_loop(self, node):
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1

    visit_While = visit_For = visit_loop

    def visit_Call(self, node):
        before, _, name = ast.unparse(node.func).rpartition(".")
        self.found.append((before, name, node, self._loops > 0))
        self.generic_visit(node)


@pytest.fixture(scope="module")
def wrong_calls():
    """Return a function that lists the calls in all tests which a rule finds wrong."""
    calls = {}
    for path in sorted(TESTS.rglob("*.py")):
        if "node_modules" not in path.parts:
            visitor = Calls()
            visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
            calls[path.relative_to(TESTS)] = visitor.found

    def wrong(rule, files="*.py"):
        return [
            f"{file}:{node.lineno}: {ast.unparse(node)[:100]}"
            for file, found in calls.items()
            for before, name, node, in_a_loop in found
            if file.match(files) and rule(before, name, node, in_a_loop)
        ]

    return wrong


def option(node, name, position=None):
    """Return the constant that a call passes under a name, or at a position; None where it passes another value."""
    values = [keyword.value for keyword in node.keywords if keyword.arg == name]
    values += node.args[position : position + 1] if position is not None else []
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def test_nothing_waits_for_a_time(wrong_calls):
    """A loop that asks for a condition may pause: the condition ends it, not the time."""

    def waits(before, name, node, in_a_loop):
        if (before, name) != ("time", "sleep"):
            return name == "wait_for_timeout"
        seconds = option(node, "secs", 0)
        return not in_a_loop or seconds is None or seconds > 0.05

    assert wrong_calls(waits) == []


def test_no_test_reads_a_clock(wrong_calls):
    """Benchmarks measure times. The fuzzers, and the faults, read a clock to say how far they are."""
    read = wrong_calls(lambda before, name, *_: before in ("time", "") and name in CLOCKS)
    assert [call for call in read if not call.startswith(("fuzz/fuzz_", "faults.py"))] == []


def test_a_time_limit_is_for_what_hangs(wrong_calls):
    def is_short(before, name, node, in_a_loop):
        limit = option(node, "timeout", 0 if name in ("join", "wait", "result", "acquire") else None)
        return isinstance(limit, int | float) and 0 < limit < LONG * (1000 if name in IN_MILLISECONDS else 1)

    assert wrong_calls(is_short) == []


def test_requests_of_an_open_page_are_intercepted_for_sure(wrong_calls):
    """``page.route`` returns before its first route is in force: ``intercept`` of ``pages.py`` waits for that."""
    routes = wrong_calls(lambda before, name, *_: before == "page" and name == "route", "browser/*.py")
    assert [call for call in routes if not call.startswith("browser/pages.py")] == []


def test_properties_have_no_deadline(wrong_calls):
    def has_deadline(before, name, node, in_a_loop):
        return name == "settings" and any(
            keyword.arg == "deadline" and ast.unparse(keyword.value) != "None" for keyword in node.keywords
        )

    assert wrong_calls(has_deadline) == []


def test_nothing_is_tried_again():
    files = [*TESTS.rglob("*.py"), TESTS.parent / "pyproject.toml", TESTS.parent / "noxfile.py"]
    words = ("fla" + "ky", "re" + "runs", "rerun" + "failures")
    assert [path for path in files if any(word in path.read_text(encoding="utf-8") for word in words)] == []
