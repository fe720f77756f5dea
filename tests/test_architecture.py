"""The house rules: public names are true, imports go down only, examples in docstrings run, start-up is light."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

PACKAGES = (
    "regard",
    "regard.functional",
    "regard.functional.native",
    "regard.nn",
    "regard.text",
    "regard.models",
    "regard.views",
    "regard.explorer",
    "regard.metrics",
    "regard.plot",
    "regard.terminal",
    "regard.trace",
)
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(regard.__path__, "regard.")
    if module.name not in ("regard.__main__", "regard.functional.native._kernel")  # the last is compiled
)

# From the top of the house to the ground. A module may import from its own floor and from those below.
FLOORS = (
    ("regard.cli", "regard.__main__"),
    ("regard.explorer",),
    ("regard.plot", "regard.terminal"),
    ("regard.views",),
    ("regard.metrics",),
    ("regard.models", "regard._capture"),
    ("regard.trace",),
    ("regard.nn",),
    ("regard.functional",),
    ("regard.text",),
    ("regard.formats",),
    ("regard._utils", "regard._version"),
)


def floor(module):
    """Return the number of the floor that a module is on; the largest is the ground."""
    found = [
        n for n, names in enumerate(FLOORS) if any(module == name or module.startswith(f"{name}.") for name in names)
    ]
    assert found, f"{module} is on no floor: add it to FLOORS"
    return found[0]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_is_defined(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None
    if name not in ("regard",):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.")
            for alias in node.names
        }
        assert imported == set(module.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        regard.atention  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down_only(name):
    module = importlib.import_module(name)
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            assert floor(node.module) >= floor(name), f"{name} imports {node.module}, which stands above it"


@pytest.mark.parametrize("name", ["regard", *MODULES])
def test_examples_in_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import regard", ("numpy", "tokenizers", "matplotlib", "rich")),
        (
            "import regard.models",
            ("tokenizers", "regard.models.bert", "regard.models.llama", "regard.models.language"),
        ),
        ("import regard; regard.attention", ("tokenizers", "matplotlib", "rich", "array_api_compat")),
        ("from regard.cli.parser import parse; parse(['hi'])", ("numpy", "tokenizers", "matplotlib", "rich")),
        (
            "import sys; from regard.cli import main; main(['a b', '--random'])",
            (
                "matplotlib",
                "tokenizers",
                "huggingface_hub",
                "array_api_compat",
                "shtab",
                "starlette",
                "uvicorn",
                "anyio",
            ),
        ),
    ],
)
def test_start_up_imports_nothing_that_it_does_not_need(code, heavy):
    check = f"{code}\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_the_readme_prints_the_cold_start_that_was_measured():
    root = Path(__file__).parent.parent
    measured = re.search(
        r"times faster\*\* \| \*\*([\d.]+)", (root / "benchmarks/results/cold_start.md").read_text("utf-8")
    )
    assert f"is **{measured[1]} times** as fast" in (root / "README.md").read_text("utf-8")
    assert float(measured[1]) >= 8


def test_the_readme_prints_the_speed_of_attention_that_was_measured():
    root = Path(__file__).parent.parent
    page = (root / "benchmarks/results/attention.md").read_text("utf-8")
    forward, both = re.findall(r"Geometric mean \*\*([\d.]+)\*\*", page)
    readme = " ".join((root / "README.md").read_text("utf-8").split())
    assert f"**{forward} times** as fast as PyTorch's" in readme
    assert f"**{both} times** with its gradients" in readme
