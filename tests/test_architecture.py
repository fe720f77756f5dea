"""The house rules: public names are true, imports go down only, examples in docstrings run, start-up is light."""

from __future__ import annotations

import ast
import doctest
import functools
import graphlib
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard
from regard._utils.lazy import read_stub

PACKAGES = (
    "regard",
    "regard.dask",
    "regard.functional",
    "regard.functional.native",
    "regard.jax",
    "regard.nn",
    "regard.text",
    "regard.models",
    "regard.views",
    "regard.explorer",
    "regard.metrics",
    "regard.plot",
    "regard.terminal",
    "regard.torch",
    "regard.trace",
    "regard.training",
)
SOURCE = Path(regard.__file__).parent
FILES = {  # of each module; found without an import
    ".".join(("regard", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
MODULES = sorted(FILES.keys() - {"regard", "regard.__main__"})

ROOT = Path(__file__).parents[1]


@functools.cache
def tree_of(name):
    """Return the syntax tree of a module, which is not to be changed."""
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_is_defined(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None
    stub = Path(f"{module.__file__}i")
    if name != "regard":
        tree = ast.parse((stub if stub.exists() else Path(module.__file__)).read_text(encoding="utf-8"))
        imported = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.")
            for alias in node.names
            for name in (
                importlib.import_module(node.module).__all__ if alias.name == "*" else [alias.asname or alias.name]
            )
        }
        families = set(getattr(module, "_modules_of_families", set)())  # of regard.models: derived from FAMILIES
        assert imported | families == set(module.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        regard.atention  # noqa: B018


ROOT_NAMES = {name: module for name, module in read_stub("regard").items() if module != "regard"}


@functools.cache
def layers():
    """Return the layer of each package, 0 for the highest, as the contract of import-linter has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    ordered = settings["contracts"][0]["layers"]
    return {name: number for number, names in enumerate(ordered) for name in re.split(r"\W+", names)}


def last_name(function):
    """Return the name by which a call names what it calls, without what stands before it."""
    return getattr(function, "attr", getattr(function, "id", ""))


def hidden_imports(tree):
    """Yield what a module imports unseen by import-linter: by name, and through the package root.

    Of a name made by an f-string it is what stands before the first value.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert "regard" not in [alias.name for alias in node.names], "which of its names are used cannot be read"
        elif isinstance(node, ast.ImportFrom) and node.module == "regard":
            yield from (ROOT_NAMES.get(alias.name, f"regard.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("import_module", "__import__"):
            (name,) = node.args
            yield ast.literal_eval(name.values[0] if isinstance(name, ast.JoinedStr) else name)


BY_STATEMENTS = {"regard._utils.lazy", "regard.cli.deferred"}  # these import what stubs and modules name in statements


def test_hidden_imports_go_down_only():
    layer, upward = layers(), []
    for name in sorted({*MODULES} - BY_STATEMENTS):
        own = name.split(".")[1]
        for imported in hidden_imports(tree_of(name)):
            root, package = (*imported.split("."), "")[:2]
            if root == "regard" and package != own and layer[package] <= layer[own]:
                upward.append((name, imported))
    assert upward == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(): importlib.import_module('regard.explorer')", "regard.explorer"),
        ("import_module(f'regard.cli.{x}')", "regard.cli."),
        ("__import__('regard.cli')", "regard.cli"),
        ("from regard import Trace", "regard.trace"),
        ("from regard import cli", "regard.cli"),
    ],
)
def test_a_hidden_import_is_found(code, found):
    assert list(hidden_imports(ast.parse(code))) == [found]


def imports_of(name):
    """Yield the modules of regard that a module imports, in functions too, but not for its annotations alone."""
    nodes = list(ast.walk(tree_of(name)))
    types = [node.body for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    unused = {id(node) for body in types for statement in body for node in ast.walk(statement)}
    for node in nodes:
        if id(node) in unused:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def test_no_module_imports_itself_by_way_of_others():
    graph = {name: set(imports_of(name)) & set(MODULES) for name in MODULES}
    assert graph["regard.models.base"] > {"regard.models.output", "regard.nn"}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the modules of a circle


FRAMEWORKS = {"torch", "jax", "jaxlib"}


def imported_names(tree):
    """Yield every name that a module imports, with those of the modules that it is in, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module.split(".") if isinstance(node, ast.ImportFrom) else []
            yield from (part for alias in node.names for part in (*module, *alias.name.split(".")))
    yield from (part for name in hidden_imports(tree) for part in name.split("."))


def test_the_mathematics_imports_no_framework():
    mathematics = [name for name in MODULES if name.startswith("regard.functional")]
    assert [name for name in mathematics if not FRAMEWORKS.isdisjoint(imported_names(tree_of(name)))] == []
    assert "regard.functional.reference" in mathematics


@pytest.mark.parametrize(
    "code",
    ["def f(): import torch.nn", "from jax import numpy", "from array_api_compat import torch", "import_module('jax')"],
)
def test_an_import_of_a_framework_is_found(code):
    assert not FRAMEWORKS.isdisjoint(imported_names(ast.parse(code)))


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8")])
def test_examples_in_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_every_module_can_be_imported():
    for name in MODULES:
        importlib.import_module(name)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import regard", ("numpy", "tokenizers", "matplotlib", "rich", "dask")),
        ("import regard.dask", ("numpy", "dask", "distributed")),
        ("import regard.explorer", ("tokenizers", "rjsmin", "matplotlib", "starlette", "anyio")),
        (
            "import regard.models",
            ("tokenizers", "regard.models.bert", "regard.models.llama", "regard.models.language"),
        ),
        (
            "import regard; regard.attention",
            (
                *("tokenizers", "matplotlib", "rich", "array_api_compat"),
                *(f"regard.functional.{name}" for name in ("varlen", "linear_attention", "numpy_vjps")),
                *("regard.torch", "regard.jax"),
            ),
        ),
        ("from regard.cli.parser import parse; parse(['hi'])", ("numpy", "tokenizers", "matplotlib", "rich", "dask")),
        (
            "from regard.cli.parser import build, command_names; build(command_names())[0].format_help()",
            ("numpy", "rich", "json", "secrets"),
        ),
        (
            "import sys; from regard.cli import main; main(['a b', '--toy'])",
            "matplotlib tokenizers huggingface_hub array_api_compat shtab starlette uvicorn anyio dask".split(),
        ),
    ],
)
def test_start_up_imports_nothing_that_it_does_not_need(code, heavy):
    check = f"{code}\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_a_submodule_does_not_hide_the_function_of_its_name():
    code = """
import importlib, pkgutil, types, regard.functional as functional
for module in pkgutil.iter_modules(functional.__path__):
    importlib.import_module(f"regard.functional.{module.name}")
print(*[name for name in functional.__all__ if isinstance(getattr(functional, name), types.ModuleType)])
from regard.functional import *
assert rotary is functional.rotary and set(functional.__all__) <= set(dir(functional)) & set(globals())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_package_that_is_imported_is_an_attribute_of_its_parent():
    code = """
import importlib, pathlib, sys
sys.modules["torch"] = None  # as where it is not installed, which takes less time
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if (path / "__init__.py").exists():
        module = importlib.import_module(f"regard.{path.name}")
        assert vars(sys.modules["regard"])[path.name] is module
"""
    subprocess.run([sys.executable, "-c", code, str(ROOT / "src/regard")], check=True)


def test_little_is_imported_before_the_command_handles_an_interrupt():
    """Ctrl-C before that prints a traceback. What the interpreter itself imports (-S: without site) does not count."""
    check = """import _signal, sys
_signal.signal(_signal.SIGINT, _signal.default_int_handler)  # which nohup and some shells have ignored
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
from regard.cli import main
_signal.signal = lambda *_: sys.exit(" ".join(sorted(set(sys.modules) - before)))
main(["--version"])"""
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", check, str(ROOT / "src")], capture_output=True, text=True, check=False
    )
    loaded = done.stderr.split()
    assert "regard.cli.main" in loaded
    assert {name for name in loaded if not name.startswith("regard")} <= {"__future__", "_signal"}


def test_the_speeds_on_a_page_are_those_that_were_measured():
    rows = re.findall(
        r"\| ([\d.]+) \| \[.*\]\(\.\./(benchmarks/\S+)\) \|", (ROOT / "docs/measurements.md").read_text("utf-8")
    )
    for times, page in rows:
        assert re.search(rf"\b{re.escape(times)}\b", (ROOT / page).read_text("utf-8")), page
    assert len(rows) >= 15
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert {float(times) for times in re.findall(r"\*\*([\d.]+) times\*\*", readme)} == {float(x[0]) for x in rows[:3]}


def test_no_compiler_fuses_multiply_adds_by_itself():
    """What it fuses depends on its version and on the loop: equal cells would get other bits (docs/decisions/0116)."""
    build = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert re.findall(r"-ffp-contract=\w+", build) == ["-ffp-contract=off"]
    assert build.index("add_compile_options(-ffp-contract=off)") < build.index("nanobind_add_module")
    undoing = r"-Ofast|-f(?:fast-math|associative-math|unsafe-math|reciprocal-math)\w*|FP_CONTRACT|optimize\s*\("
    sources = [*(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "csrc").rglob("*.h"), ROOT / "CMakeLists.txt"]
    assert {path.name: found for path in sources if (found := re.findall(undoing, path.read_text("utf-8")))} == {}


READS = {"open", "fdopen", "read_text", "read_bytes", "cat_file", "ParquetFile", "read_table", "open_group"}
LOADS = {"json.load", "np.load", "pickle.load"}
WRITING = set("wax")  # modes of what is not read

READERS = {
    ("_utils/files.py", "open"): "the reader",
    ("_utils/lazy.py", "open"): "a stub of the package",
    ("_utils/memory.py", "read_text"): "what Linux says of its memory",
    ("cli/texts.py", "open"): "a text that the user names, which may be a pipe; read up to a limit",
    ("cli/output.py", "open"): "/dev/null",
    ("cli/tables.py", "ParquetFile"): "of a stream of the reader",
    ("dask/attention_map.py", "open_group"): "the group that this run writes",
    ("dask/output.py", "open"): "at an address of fsspec; read up to a limit",
    ("dask/run.py", "read_table"): "of bytes of the reader",
    ("dask/source.py", "ParquetFile"): "of a stream",
    ("dask/source.py", "open"): "at an address of fsspec, of a regular file; in pieces, or up to a limit",
    ("explorer/bundle.py", "read_text"): "files of the package",
    ("explorer/exploration.py", "read_text"): "what Linux says of this process",
    ("explorer/story.py", "read_text"): "files of the package",
    ("explorer/server.py", "open"): "a browser; and a file that is written",
    ("models/hub/download.py", "open"): "a file of the archive, which has its pinned size, and one that was written",
    ("models/hub/transfer.py", "open"): "both ends of a pipe, which are not read here",
    ("models/images/read.py", "open"): "of bytes of the reader",
    ("models/sentence.py", "open"): "of ConfigReader, which reads by the reader",
    ("models/checkpoint/open.py", "open"): "of ConfigReader, which reads by the reader",
    ("text/render_chat.py", "load"): "the request of the process that starts this one",
    ("trace/stored_map.py", "open_group"): "of a store with limits",
    ("training/alice.py", "read_text"): "a file of the package",
}


def unbounded_reads(tree):
    """Yield the calls by which a module opens or reads a file otherwise than to write it."""
    own = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
           and (node.module or "").startswith("regard") for alias in node.names}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            modes = [x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            if (name == "load" and ast.unparse(node.func) in LOADS) or (
                name in READS - own and not any(set(mode) & WRITING and len(mode) < 4 for mode in modes)
            ):
                yield name, node.lineno


def test_files_are_read_by_the_readers_with_limits():
    """What else reads files is listed with the reason why it neither hangs nor takes all memory."""
    found = {}
    for module, path in FILES.items():
        for name, line in unbounded_reads(tree_of(module)):
            found.setdefault((path.relative_to(SOURCE).as_posix(), name), []).append(line)
    assert {place: lines for place, lines in found.items() if place not in READERS} == {}
    assert sorted(READERS.keys() - found.keys()) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("open(path)", ["open"]),
        ("path.open('rb')", ["open"]),
        ("path.open('wb')", []),
        ("target.open('a', encoding='utf-8')", []),
        ("path.open(encoding='utf-8')", ["open"]),
        ("json.load(file)", ["load"]),
        ("np.load(path)", ["load"]),
        ("from regard.models import load\nload(name)", []),
        ("path.read_text()", ["read_text"]),
        ("json.loads(path.read_bytes())", ["read_bytes"]),
        ("self._fs.cat_file(path)", ["cat_file"]),
        ("open_regular(path)", []),
    ],
)
def test_a_read_without_a_limit_is_found(code, found):
    assert [name for name, _ in unbounded_reads(ast.parse(code))] == found
