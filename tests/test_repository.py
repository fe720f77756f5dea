"""What the files around the code promise of one another."""

import functools
import hashlib
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from regard.cli.parser import parse

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")),
]
RECORDS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_pre_commit_runs_the_versions_that_lint_runs():
    pinned = dict(re.findall(r'"([\w-]+)[=@]+([\d.]+)"', read(".pre-commit-config.yaml")))
    assert set(pinned) == {"ruff", "clang-format", "prettier"}
    lint = dict(
        item.split("==") for item in tomllib.loads(read("pyproject.toml"))["dependency-groups"]["lint"] if "==" in item
    )
    assert pinned["ruff"] == lint["ruff"]
    assert pinned["clang-format"] == lint["clang-format"]
    assert f"prettier@{pinned['prettier']}" in read("noxfile.py")


@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_a_decision_has_its_three_parts_and_a_row_in_the_index(path):
    text = path.read_text(encoding="utf-8")
    title = text.splitlines()[0].removeprefix("# ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequence"]
    assert f"| [{path.name[:4]}]({path.name}) | {title} |" in read("docs/decisions/README.md")


def test_decisions_have_numbers_of_their_own():
    numbers = [path.name[:4] for path in RECORDS]
    assert len(set(numbers)) == len(numbers)


def test_no_two_pictures_are_the_same():
    names = {}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".png", ".gif", ".svg", ".jpg", ".webp"):
            names.setdefault(hashlib.sha256(path.read_bytes()).digest(), []).append(path.name)
    assert len(names) > 10
    assert [same for same in names.values() if len(same) > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", link)]
    broken = [link for link in links if link and not ((ROOT / page).parent / link).exists()]
    assert broken == []


def test_contributing_lists_every_session():
    listed = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", read("CONTRIBUTING.md"), re.MULTILINE)
    sessions = re.findall(r"^def (\w+)\(session: nox\.Session\) -> None", read("noxfile.py"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(listed))) == sorted(sessions)


def test_no_file_has_a_conflict_of_a_merge():
    marks = ("<" * 7, ">" * 7)
    for path in [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.*")]:
        if path.suffix in (".md", ".toml", ".py", ".js", ".ts", ".css", ".html"):
            lines = path.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if line.startswith(marks)], path


def test_the_way_of_a_call_names_functions_that_are_there():
    tables = re.findall(r"^\| \| (?:calls|from).*?(?=\n\n)", read("docs/architecture.md"), re.MULTILINE | re.DOTALL)
    assert len(tables) == 3
    folders = ("src/regard/functional", "src/regard", "csrc")
    file, checked = "", 0
    for name in re.findall(r"`([^`]+)`", "".join(tables)):
        if "." in name:
            (file,) = (path for folder in folders if (path := ROOT / folder / name).exists())
        else:
            assert re.search(
                rf"(?:def |\w[&*>]? ){name}\(|(?:class|struct) {name} ", file.read_text(encoding="utf-8")
            ), f"{file} defines no {name}"
            checked += 1
    assert checked > 26


@functools.cache
def ends_of_paths():
    """Return the paths of all files, and what is left of each without its first folders."""
    paths = [
        path.relative_to(ROOT).parts
        for folder in ("src", "csrc", "tests", "docs", "benchmarks")
        for path in (ROOT / folder).rglob("*.*")
    ]
    return {"/".join(parts[first:]) for parts in paths for first in range(len(parts))}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|pyi|cpp|h|js|md))`", read(page))
    missing = [name for name in named if not (ROOT / name).exists() and name not in ends_of_paths()]
    assert missing == []


def test_names_in_the_glossary_are_names_in_the_code():
    files = [path for folder in ("src", "csrc") for path in (ROOT / folder).rglob("*")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".h", ".cpp", ".js"))
    terms = re.findall(r"^\| ([^|]*) \| .* \|$", read("docs/glossary.md"), re.MULTILINE)
    names = [name for term in terms for name in re.findall(r"`([\w.]+)=?`", term)]
    words = set(re.findall(r"\w+", code))
    missing = [name for name in names if name.split(".")[-1] not in words]
    assert len(names) > 50
    assert missing == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/models.md"])
def test_names_that_a_page_places_in_a_file_are_there(page):
    placed = re.findall(r"`(\w+)` (?:of|in|\()\s*\[?`([\w./-]+\.(?:py|h))`", read(page))
    for name, file in placed:
        (found,) = [path for path in {ROOT / file, *ROOT.glob(f"src/regard/**/{file}")} if path.exists()]
        assert re.search(rf"\b{name}\b", found.read_text(encoding="utf-8")), f"{file} has no {name}"
    assert len(placed) >= 2


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{name}.md" for name in ("lesson", "learning", "command", "explorer", "models"))]
)
def test_commands_in_a_page_are_valid(page):
    text = read(page)
    commands = re.findall(r"^\$ (?:.*&& )?regard (.*)$", text, re.MULTILINE) + re.findall(r"`regard ([^`…]*)`", text)
    for line in commands:
        command = line.partition(" | ")[0]
        if command.strip() != "TEXT --json":
            parse(shlex.split(command.replace("FOLDER", "folder")))
    assert commands
