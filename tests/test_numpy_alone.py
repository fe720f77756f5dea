"""regard where NumPy is the only other package, and no kernel is compiled: what runs, and what each refusal says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from scripts import script
from test_pasting import blocks

same_but_for_rounding = script("docs/make.py").same_but_for_rounding

SETUP = """
import regard
model, trace = regard.load("induction"), regard.Trace(maps=True, only="*")
output = model("abcabc", trace=trace)
view = regard.views.select(trace, layer=1, head=0)
"""
RUNS = {
    "found": """
from importlib.util import find_spec
from regard.functional.native import loader
print([name for name in ("tokenizers", "rich", "matplotlib", "pip") if find_spec(name)], loader.kernel())
""",
    "tables": """
print(regard.terminal.terminal_table(view), regard.terminal.terminal_heatmap(view, width=60), sep="\\n")
print(regard.terminal.explain_row(trace, 3, layer=1))
print(regard.terminal.heads_table(regard.metrics.head_metrics(trace)))
print(regard.views.escape("e\\u0301 字 \\u202e", 4))
""",
    "generated": 'print(model.generate("abcdabc", max_new_tokens=1).text)',
    "why": "print(round(trace.why(1, 0, 3, 1).score, 3))",
    "trained": """
from regard import training
task = training.make_task("sort", batch_size=2)
print(len(regard.train(task.new_model(seed=0), task.batches(seed=0), steps=2).steps))
""",
    "explored": "regard.explore(trace, html='page.html')",
    "command": """
import sys
from regard.cli import main
sys.stderr = sys.stdout
print(main(["abc", "--model", "induction"]))
""",
}
MISSING = {
    "regard.plot.heatmap(trace)": "a figure needs matplotlib: pip install matplotlib",
    "regard.explore(trace)": "the explorer's server (a file, with html=, does not) needs anyio: pip install anyio",
    "regard.metrics.head_metrics(trace).to_frame()": (
        "a table needs pandas or polars: pip install pandas; to_columns() gives plain arrays"
    ),
    "regard.softmax(type('A', (), {'__module__': 'a', '__array_namespace__': 0, 'dtype': 'f', 'shape': (1,)})())": (
        "an array of another library needs array_api_compat: pip install array_api_compat"
    ),
    "regard.training.tokenizers.byte_pair_tokenizer('abc', 300)": (
        "learning byte pairs needs tokenizers: pip install tokenizers"
    ),
}
DRIVER = """
import contextlib, io, json, sys, traceback
printed = {}
setup, *codes = json.load(sys.stdin)
exec(setup, shared := {})
for code in codes:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(code, shared)
        except Exception as error:
            print(error if type(error).__name__ == "RegardError" else traceback.format_exc())
    printed[code] = out.getvalue()
json.dump(printed, sys.__stdout__)
"""


def lesson():
    """Return the blocks of the first lesson up to its trained model, but for what draws, with what each prints."""
    shown = blocks("lesson")
    end = next(line for line, code, _ in shown if "regard.load" in code)
    return {code: output for line, code, output in shown if line < end and "plot.heatmap" not in code}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return the folder in which Python runs."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def printed(tmp_path_factory, home):
    """Return what each run prints where Python has NumPy, and the package without its kernel."""
    packages = tmp_path_factory.mktemp("packages")
    for folder in Path(np.__file__).parent.parent.glob("numpy*"):
        if folder.name in ("numpy", "numpy.libs"):
            (packages / folder.name).symlink_to(folder)
    own = Path(regard.__file__).parent
    shutil.copytree(own, packages / "regard", copy_function=os.symlink, ignore=shutil.ignore_patterns("_kernel*"))
    environment = {**os.environ, "PYTHONPATH": str(packages), "HOME": str(home), "XDG_CACHE_HOME": ""}
    codes = json.dumps([SETUP, *RUNS.values(), *MISSING, *lesson()])
    command = [sys.executable, "-S", "-c", DRIVER]  # -S: without site-packages
    done = subprocess.run(command, input=codes, capture_output=True, text=True, cwd=home, env=environment, check=True)
    return json.loads(done.stdout)


def test_there_is_nothing_else(printed):
    assert printed[RUNS["found"]] == "[] None\n"


def test_tables_are_those_that_rich_makes(printed, capsys):
    exec(SETUP + RUNS["tables"], {})
    assert printed[RUNS["tables"]] == capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "output"), [("generated", "d\n"), ("why", "16.983\n"), ("trained", "2\n"), ("explored", "")]
)
def test_a_model_runs(printed, name, output):
    assert printed[RUNS[name]] == output


def test_the_explorers_file_has_the_text_and_the_maps(printed, home):
    page = (home / "page.html").read_text(encoding="utf-8")
    manifest = json.loads(re.search(r'id="regard-manifest">(.*?)</script>', page, re.DOTALL)[1])
    assert manifest["runs"][0]["text"] == "abcabc"
    assert len([name for name in manifest["blobs"] if name.startswith("weights/")]) == 8


@pytest.mark.parametrize("code", lesson(), ids=range(len(lesson())))
def test_the_first_lesson_runs_up_to_its_model(printed, code):
    output, lines = lesson()[code].splitlines(), printed[code].splitlines()
    assert len(output) == len(lines)
    assert all(map(same_but_for_rounding, output, lines))


@pytest.mark.parametrize("call", MISSING)
def test_what_is_missing_is_named(printed, call):
    assert printed[call] == f"{MISSING[call]}\n"


def test_the_command_names_what_it_lacks(printed):
    assert printed[RUNS["command"]] == "regard: this command needs rich: pip install rich\n2\n"
