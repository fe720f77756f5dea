"""Steps of a release: write its version and date, compare them with a tag, print what has changed, rehearse all of it.

    python .ci/release.py prepare 0.1.0    # on main; commit what it writes
    git tag v0.1.0 && git push --tags      # .github/workflows/release.yml does the rest

`nox -s release` rehearses both in a clone, and what the workflow does with its artifacts. `nox -s wheels` makes these.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSION, CITATION, CHANGELOG = "src/regard/_version.py", "CITATION.cff", "CHANGELOG.md"
RECIPE = ".ci/conda/recipe.yaml"
SITE = "site.tar.gz"  # of a release: its documentation
REPORT = "report"  # beside artifacts: a list of the checks of each, and the results of its tests, for each interpreter
# Of kernels, by the beginning of the system's name in a tag: format, and what of the system they may load.
KERNELS = {
    "manylinux": ("ELF", r"lib(?:c|m|pthread|dl)\.so\.\d|ld-linux-[\w-]+\.so\.\d"),
    "musllinux": ("ELF", r"libc\.so"),
    "macosx": ("MACHO", r"/usr/lib/libSystem\.B\.dylib"),
    "win": ("PE", r"python3\.dll|KERNEL32\.dll|api-ms-win-crt-[\w-]+\.dll"),
}
_SYSTEMS = {"Linux": "manylinux_2_28", "Darwin": "macosx_11_0"}  # of wheels for this machine
EXPORTS = {"PyInit__kernel", "regard_num_threads", "regard_set_num_threads"}  # as in csrc/exports.map
MACHINES = {"x86_64": "X86_64", "aarch64": "(AARCH64|ARM64)", "arm64": "(AARCH64|ARM64)", "amd64": "AMD64"}
# Of the kernel; and what a processor that is emulated runs in minutes.
TESTS = ["tests/functional"]
SOME_TESTS = [f"tests/functional/native/test_{name}.py" for name in ("quantized", "tiles", "varlen")]
_NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
_WRITTEN = re.compile(rf'__version__ = "({_NUMBER})"')
_CITED = re.compile(r"^(?:version|date-released): .*\n", re.MULTILINE)
_SECTION = re.compile(
    rf"^## \[({_NUMBER}|Unreleased)\](?: - (\d{{4}}-\d\d-\d\d))?\n(.*?)(?=^## \[|\Z)", re.DOTALL | re.MULTILINE
)
_NOTHING_YET = re.compile(r"^Nothing has been released yet: .*\n\n", re.MULTILINE)


def prepare(root: Path, version: str, date: str) -> None:
    """Write the version and its date where they stand; what was unreleased becomes its section of the CHANGELOG."""
    if not re.fullmatch(_NUMBER, version):
        raise SystemExit(f"{version} is not a version such as 0.1.0 or 0.2.0rc1")
    sections = _sections(root)
    if version in sections:
        raise SystemExit(f"{CHANGELOG} has a section {version} already")
    if not (text := _NOTHING_YET.sub("", sections["Unreleased"][1]).strip()):
        raise SystemExit(f"{CHANGELOG} has nothing that is unreleased")
    _replace(root / VERSION, lambda old: _WRITTEN.sub(f'__version__ = "{version}"', old))
    lines = f"version: {version}\ndate-released: {date}\n"
    _replace(root / CITATION, lambda old: _CITED.sub("", old).replace("license:", f"{lines}license:", 1))
    _replace(root / RECIPE, lambda old: re.sub(r'  version: "[^"]*"', f'  version: "{version}"', old, count=1))
    section = f"## [Unreleased]\n\n## [{version}] - {date}\n\n{text}\n\n"
    _replace(root / CHANGELOG, lambda old: _SECTION.sub(lambda _: section, old, count=1).rstrip() + "\n")


def check(root: Path, tag: str) -> None:
    """Stop unless the tag, the package, the citation and a dated section of the CHANGELOG name one version."""
    version, sections = tag.removeprefix("v"), _sections(root)
    citation = (root / CITATION).read_text(encoding="utf-8")
    date = sections.get(version, (None, ""))[0]
    problems = [
        (f"{tag} is not a tag such as v0.1.0", not re.fullmatch(f"v{_NUMBER}", tag)),
        (f"{VERSION} has another version", _WRITTEN.findall((root / VERSION).read_text(encoding="utf-8")) != [version]),
        (f"{CITATION} has another version", f"\nversion: {version}\n" not in citation),
        (f"{RECIPE} has another version", f'\n  version: "{version}"\n' not in (root / RECIPE).read_text("utf-8")),
        (f"{CHANGELOG} has no section {version} with a date", date is None),
        (
            f"{CITATION} has another date than {CHANGELOG}",
            date is not None and f"\ndate-released: {date}\n" not in citation,
        ),
    ]
    if wrong := [message for message, holds in problems if holds]:
        raise SystemExit(
            f"{tag}: {'; '.join(wrong)}: run `python .ci/release.py prepare {version}`, and tag that commit"
        )


def notes(root: Path, tag: str) -> str:
    """Return what the CHANGELOG says of the version of a tag."""
    return _sections(root)[tag.removeprefix("v")][1].strip() + "\n"


def _sections(root: Path) -> dict[str, tuple[str | None, str]]:
    """Return the date and the text of each section of the CHANGELOG, by version."""
    found = _SECTION.findall((root / CHANGELOG).read_text(encoding="utf-8"))
    return {version: (date or None, text) for version, date, text in found}


def _replace(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def verify(artifacts: Path) -> None:
    """Check files to be published, and install the wheel of this machine in an empty environment, as a user does.

    Prints seconds and megabytes of the installation, with what pip compiled; pip itself is not counted.
    """
    files = sorted(path for path in artifacts.iterdir() if path.name.endswith((".whl", ".tar.gz")))
    checks = {path.name: ["twine"] for path in files}
    _run(sys.executable, "-m", "twine", "check", "--strict", *files)
    if stable := [path for path in files if "-abi3-" in path.name]:
        _run(sys.executable, "-m", "abi3audit", "--strict", *stable)
    for path in files:
        found = checks[path.name]
        if path in stable:
            found.append("abi3audit")
        if "manylinux_" in path.name:  # musl has no versions of symbols; auditwheel wants Alpine's name of libc.so
            found.append(f"auditwheel ({_check_libraries(path)})")
        if path.suffix == ".whl" and (content := _kernel(path)):
            kernel = describe(content)
            if wrong := misfit(path.name, kernel):
                raise SystemExit(f"{path.name}: its kernel {wrong}")
            found.append(f"{kernel['format']} {kernel['machine']}")
    (artifacts / REPORT).mkdir(exist_ok=True)
    (artifacts / REPORT / "checks.json").write_text(json.dumps(checks, indent=2) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        user = _environment(Path(folder) / "user")
        before, start, used = _bytes_in(user.parent), time.perf_counter(), _processor_seconds()
        _install(user, *_from(artifacts))
        seconds, used = time.perf_counter() - start, _processor_seconds() - used
        size = (_bytes_in(user.parent) - before) / 1e6
        print(f"installed in {seconds:.0f} s, {used:.0f} of a processor; {size:.0f} MB, all that it needs included")
        _run(user / "regard", "The cat sat on the mat", "--toy")
        _run(user / "regard", "info")


def try_wheels(artifacts: Path, pythons: list[str], *, pure: bool, platform: str | None = None) -> None:
    """Install the wheel that each interpreter takes in an environment of its own, and run the tests of the kernel.

    A test fails if that wheel has no kernel, or, with `pure`, if it has one. With a `platform` this interpreter runs
    pip for the others, which are commands such as ``qemu-aarch64 -L TREE python3``; of the tests they run some.
    """
    lists = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    others = [*lists["project"]["dependencies"], *lists["dependency-groups"]["kernel"]]
    for name in pythons:
        with tempfile.TemporaryDirectory() as folder:
            env, tests = {"REGARD_PURE": str(int(pure))}, TESTS
            python: list[object] = [*name.split()]
            lacking: list[str] = []
            if platform:
                version = _output(*python, "-c", "import platform; print(platform.python_version())")
                older = platform.replace("_2_28", "2014").replace("_1_2", "_1_1")  # whose wheels it takes too
                options = ("--target", folder, "--python-version", version, "--platform", platform, "--platform", older)
                _run(sys.executable, "-m", "pip", "install", "--quiet", *options, *_from(artifacts), *others)
                env, tests = {**env, "PYTHONPATH": folder}, SOME_TESTS
            else:
                programs = _environment(Path(folder), python=name)
                python, lacking = [programs / "python"], _install_wheels(programs, _from(artifacts), others)
            marked = ("-m", "not minilm and not smollm2")  # whose files it lacks
            tried = _output(*python, "-c", _TRIED, env=env) + (f" ({Path(name.split()[0]).name})" if platform else "")
            tried += f" without {', '.join(lacking)}" if lacking else ""
            results = artifacts / REPORT / f"{tried}.xml"
            _run(*python, "-m", "pytest", "-q", *marked, f"--junitxml={results}", *tests, folder=ROOT, env=env)
            if not pure and not platform:  # they call the kernel by name
                _run(*python, "tests/mixed_calls.py", "--calls", "5000", folder=ROOT, env=env)


# What an interpreter says of the wheel in its environment: the tag, and itself.
_TRIED = """
import importlib.metadata, platform
lines = importlib.metadata.distribution("regard").read_text("WHEEL").splitlines()
print(*(line[5:] for line in lines if line[:5] == "Tag: "), platform.python_implementation(), platform.python_version())
"""


def table(artifacts: Path) -> str:
    """Return the artifacts as a table in Markdown: size, checks passed, tests of the kernel that ran and where."""
    report = artifacts / REPORT
    checks = json.loads((report / "checks.json").read_text(encoding="utf-8"))
    lines = ["| artifact | MB | checks | tests |", "|---|---|---|---|"]
    for name, passed in checks.items():
        tag = "-".join(name.removesuffix(".whl").split("-")[2:]) or "source"
        ran = [f"{_passed(path)}, {path.stem.partition(' ')[2]}" for path in sorted(report.glob(f"{tag} *.xml"))]
        size = (artifacts / name).stat().st_size / 1e6
        lines.append(f"| `{tag}` | {size:.1f} | {', '.join(passed)} | {'; '.join(ran) or 'not run'} |")
    return "\n".join([*lines, ""])


def _passed(results: Path) -> str:
    """Return how many tests passed, and how many did not."""
    suites = list(ET.parse(results).getroot().iter("testsuite"))
    tests, skipped, failures, errors = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "skipped", "failures", "errors")
    )
    wrong = failures + errors
    return f"{tests - skipped - wrong:,} passed" + (f", {wrong} failed" if wrong else "")


def _from(artifacts: Path) -> tuple[str, ...]:
    """Return what makes pip install the wheel for the interpreter."""
    (version,) = {path.name.split("-")[1] for path in artifacts.glob("*.whl")}
    return ("--find-links", str(artifacts), "--only-binary", ":all:", f"regard=={version}")


def _check_libraries(wheel: Path) -> str:
    """Return the tag that a wheel for Linux could have; stop unless that of its name promises as much."""
    needed = str(json.loads(_output(sys.executable, "-m", "auditwheel", "show", "--json", wheel))["overall_tag"])
    print(f"{wheel.name} needs {needed}")
    if not is_promised(wheel.name, needed):
        raise SystemExit(f"{wheel.name} needs {needed}: it runs on fewer systems than its name says")
    return needed


def _kernel(wheel: Path) -> bytes | None:
    """Return the kernel that a wheel has, if it has one."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if re.search(r"/_kernel\.[^/]*(so|pyd)$", name))
        return archive.read(name) if (name := next(names, None)) else None


def describe(kernel: bytes) -> dict[str, Any]:
    """Return what a kernel is: format, processor, exported names, libraries that it loads."""
    import lief  # reads the formats of all systems

    parsed: Any = lief.parse(list(kernel))
    if isinstance(parsed, lief.MachO.FatBinary):
        parsed = parsed.at(0)
    header, libraries = parsed.header, parsed.libraries
    if isinstance(parsed, lief.ELF.Binary):
        machine = header.machine_type
    elif isinstance(parsed, lief.MachO.Binary):
        machine = header.cpu_type
        own = lief.MachO.LoadCommand.TYPE.ID_DYLIB  # the name of the kernel itself
        libraries = [each.name for each in libraries if each.command != own]
    else:
        machine = header.machine
    return {
        "format": parsed.format.name,
        "machine": machine.name,
        "exports": sorted(function.name for function in parsed.exported_functions),
        "libraries": sorted(map(str, libraries)),
    }


def misfit(wheel: str, kernel: Mapping[str, Any]) -> str | None:
    """Say in what a kernel is not that of the system in the name of its wheel, or shows more than it should."""
    tag = wheel.removesuffix(".whl").rpartition("-")[2]
    format_, libraries = KERNELS[tag.partition("_")[0]]
    machine = next(pattern for ending, pattern in MACHINES.items() if tag.endswith(ending))
    if kernel["format"] != format_ or not re.fullmatch(machine, kernel["machine"]):
        return f"is {kernel['format']} for {kernel['machine']}"
    if foreign := [name for name in kernel["libraries"] if not re.fullmatch(libraries, name)]:
        return f"loads {', '.join(foreign)}"
    exports = set(kernel["exports"])
    if format_ != "ELF":  # Zig's linkers for macOS and Windows take no list
        exports = {name.removeprefix("_") if format_ == "MACHO" else name for name in exports} & EXPORTS
    if exports != EXPORTS:
        return f"exports {', '.join(kernel['exports'][:5]) or 'nothing'}"
    return None


def is_promised(wheel: str, needed: str) -> bool:
    """Tell whether every system with the tag in the name of a wheel for Linux has what the tag `needed` names."""
    tag = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
    promised, least = tag.fullmatch(wheel.removesuffix(".whl").rpartition("-")[2]), tag.fullmatch(needed)
    if promised is None or least is None:
        return False
    versions = [tuple(map(int, each.group(1, 2))) for each in (promised, least)]
    return promised.group(3) == least.group(3) and versions[0] >= versions[1]


def rehearse(version: str) -> None:
    """Run every step of a release that needs no account, in a clone, with the wheel of this machine alone."""
    with tempfile.TemporaryDirectory() as folder:
        clone, artifacts, python = Path(folder) / "regard", Path(folder) / "artifacts", sys.executable
        _run("git", "clone", "--quiet", ROOT, clone)
        script = clone / ".ci/release.py"
        _run(python, script, "prepare", version)
        git = ("git", "-C", clone, "-c", "user.name=regard", "-c", "user.email=regard@localhost")
        _run(*git, "commit", "-qam", f"Release {version}")
        _run(*git, "tag", f"v{version}")
        _run(python, script, "check", f"v{version}")
        # The archive, the wheel of pure Python, and from it that of this interpreter and system.
        system = f"{_SYSTEMS[platform.system()]}_{platform.machine()}"
        _run(python, clone / ".ci/wheels.py", artifacts, "--python", python, "--only", system)
        _run(python, script, "verify", artifacts)
        _run(python, script, "notes", f"v{version}")


def _environment(folder: Path, *packages: str, python: str = sys.executable) -> Path:
    """Make an environment with some packages; return the folder of its programs."""
    _run(python, "-m", "venv", folder)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    if packages:
        _install(programs, *packages)
    return programs


def _install(programs: Path, *packages: str) -> None:
    _run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)


def _install_wheels(programs: Path, own: tuple[str, ...], others: list[str]) -> list[str]:
    """Install `own` and the others; return the names of the others of which this interpreter has no wheel yet."""
    try:
        _install(programs, *own, *others)
        return []
    except subprocess.CalledProcessError:
        _install(programs, "--no-deps", *own)
    lacking = []
    for package in others:
        try:
            _install(programs, "--only-binary", ":all:", package)
        except subprocess.CalledProcessError:
            lacking.append(re.split(r"[<>=\[]", package)[0])
    return lacking


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _processor_seconds() -> float:
    """Return what the processes that have ended used."""
    times = os.times()
    return times.children_user + times.children_system


def _output(*command: object, env: Mapping[str, str] = MappingProxyType({})) -> str:
    options: dict[str, Any] = {"env": {**os.environ, **env}, "stdout": subprocess.PIPE, "text": True}
    return str(subprocess.run([str(part) for part in command], check=True, **options).stdout).strip()


def _run(*command: object, folder: Path | None = None, env: Mapping[str, str] = MappingProxyType({})) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=folder, env={**os.environ, **env})


def pages(sites: Path, out: Path, address: str) -> None:
    """Write the folder that is published: the newest site, those of all versions below it, and the list of these.

    `sites` has a folder for each tag, with the site of that version as `SITE`. A release is newer than what came
    before it, and a pre-release is the newest only if there is no release.
    """
    archives = {path.parent.name.removeprefix("v"): path for path in sites.glob(f"v*/{SITE}")}
    order = sorted(archives, key=lambda version: [int(number) for number in re.findall(r"\d+", version)], reverse=True)
    newest = next((version for version in order if re.fullmatch(r"[\d.]+", version)), order[0])
    for folder, version in [(out, newest), *((out / version, version) for version in order)]:
        with tarfile.open(archives[version]) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.0 to 3.11.3
            archive.extractall(folder)
    listed = [
        {"version": version, "url": f"{address}{version}/"}
        if version != newest
        else {"version": version, "name": f"{version} (newest)", "url": address, "preferred": True}
        for version in order
    ]
    (out / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("prepare", help="write version and date").add_argument("version")
    for name, help_ in {"check": "compare a tag with what is written", "notes": "print what has changed"}.items():
        steps.add_parser(name, help=help_).add_argument("tag")
    steps.add_parser("verify", help="check and install what is to be published").add_argument("artifacts", type=Path)
    step = steps.add_parser("try", help="run the tests of the kernel with what is to be published")
    step.add_argument("artifacts", type=Path)
    step.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters; this one by default")
    step.add_argument("--pure", action="store_true", help="the wheel of the system is that of pure Python")
    step.add_argument("--platform", help="of the interpreters, e.g. manylinux_2_28_aarch64, if pip runs in this one")
    steps.add_parser("table", help="print what was checked and run").add_argument("artifacts", type=Path)
    step = steps.add_parser("pages", help="write the site of all versions")
    step.add_argument("sites", type=Path, help="a folder for each tag, with its site")
    step.add_argument("out", type=Path)
    steps.add_parser("rehearse", help="all of it, in a clone")
    arguments = parser.parse_args()
    match arguments.step:
        case "prepare":
            prepare(ROOT, arguments.version, datetime.date.today().isoformat())
        case "check":
            check(ROOT, arguments.tag)
        case "notes":
            sys.stdout.write(notes(ROOT, arguments.tag))
        case "verify":
            verify(arguments.artifacts.resolve())
        case "try":
            try_wheels(
                arguments.artifacts.resolve(), arguments.pythons, pure=arguments.pure, platform=arguments.platform
            )
        case "table":
            sys.stdout.write(table(arguments.artifacts))
        case "pages":
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            pages(arguments.sites, arguments.out, project["urls"]["Documentation"])
        case "rehearse":
            rehearse("0.1.0")


if __name__ == "__main__":
    main()
