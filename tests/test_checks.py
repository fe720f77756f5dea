"""The checks themselves: what the guard leaves out and draws, pinned versions, times, and comparisons of pages."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from scripts import fetched, script
from sweeps import is_drawn, pairwise_cover

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"guard", "night", "upgrade", "times"}  # sessions that check nothing themselves


@pytest.fixture(scope="module")
def noxfile():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.delenv("CI", raising=False)
        return script("noxfile.py")


def test_every_session_belongs_to_a_ring(noxfile):
    code = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = set(re.findall(r"^def (\w+)\(session: nox\.Session\) -> None", code, re.MULTILINE))
    assert set(noxfile.NIGHTLY) == sessions - TOOLS
    assert set(noxfile.INPUTS) <= set(noxfile.NIGHTLY)
    assert not set(noxfile.INPUTS) & set(noxfile.NEWCOMER)


def test_inputs_of_sessions_are_files_that_are_there(noxfile):
    parts = {part for inputs in noxfile.INPUTS.values() for part in inputs}
    assert parts
    assert {part for part in parts if not (ROOT / part).exists()} == set()


def test_what_passed_is_a_session_with_inputs(noxfile):
    passed = json.loads((ROOT / ".ci/passed.json").read_text(encoding="utf-8"))
    assert {name for name in passed if not noxfile.INPUTS.get(name)} == set()
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digest in passed.values())


def test_a_digest_is_of_names_and_contents_below_its_inputs(noxfile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("1")
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    before, others = noxfile.digest(["a"]), noxfile.digest(["b"])
    (tmp_path / "a" / "x.tmp").write_text("ignored")
    assert noxfile.digest(["a"]) == before
    (tmp_path / "a" / "file").write_text("2")
    assert noxfile.digest(["a"]) != before
    (tmp_path / "a" / "file").write_text("1")
    (tmp_path / "a" / "new").write_text("")
    assert noxfile.digest(["a"]) != before
    assert noxfile.digest(["b"]) == others
    (tmp_path / "a" / "new").unlink()
    assert noxfile.digest(["a"]) == before


@pytest.mark.parametrize(("ci", "samples"), [("", False), ("true", True), ("1", True), ("full", False)])
def test_only_the_guard_draws_samples(noxfile, monkeypatch, ci, samples):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("REGARD_SEED", "00000010")
    monkeypatch.setattr("nox.registry._REGISTRY", {})
    now = script("noxfile.py")
    assert samples == now.GUARD
    assert now.random_cases(500) == ["--cases", "50" if samples else "500", "--seed", "16"]


@given(st.text(), st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_sample_contains_the_smaller(nodeid, seed, a, b):
    assert is_drawn(nodeid, min(a, b), seed) <= is_drawn(nodeid, max(a, b), seed)
    assert is_drawn(nodeid, 1.0, seed)
    assert not is_drawn(nodeid, 0.0, seed)


def test_over_many_commits_every_case_is_drawn():
    names = [f"test_x.py::test[{number}]" for number in range(2000)]
    drawn = [{name for name in names if is_drawn(name, 0.1, seed)} for seed in range(120)]
    assert all(100 < len(one) < 300 for one in drawn)
    assert set().union(*drawn) == set(names)
    assert drawn[0] != drawn[1]


def test_a_pairwise_cover_has_every_pair():
    values = ([object() for _ in range(count)] for count in (2, 3, 5, 2))
    a, b, c, d = values
    cases = [{"a": w, "b": x, "c": y, "d": z} for w in a for x in b for y in c for z in d]
    cover = [cases[number] for number in pairwise_cover(cases)]
    assert len(cover) < len(cases) / 2
    for one, other in (("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("a", "d"), ("b", "d")):
        wanted = {(id(case[one]), id(case[other])) for case in cases}
        assert {(id(case[one]), id(case[other])) for case in cover} == wanted


def test_a_case_that_fails_is_named_at_once_and_the_file_that_runs(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "def test_good():\n    pass\n\ndef test_bad():\n    raise ValueError('why')\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c"]
    command += [ROOT / "pyproject.toml", "tests/utils/test_files.py", tmp_path / "test_some.py", "--sweep=0.25"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "sweep: 25%, --seed=0" in lines
    assert "[  0%] tests/utils/test_files.py" in lines
    named = [line for line in lines if line.startswith("FAILED ") and "::test_bad" in line]
    assert len(named) == 2  # at once, and in the summary
    assert all(line.endswith(" - ValueError: why") for line in named)
    assert lines[-1].count("1 failed") == 1


def pins():
    return re.findall(r"^([\w.-]+)==", (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_package_that_a_check_needs_is_pinned(noxfile):
    project = noxfile.PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    lists += [noxfile.PROJECT["build-system"]["requires"], *noxfile.PROJECT["dependency-groups"].values()]
    needed = {re.match(r"[\w.-]+", item)[0] for items in lists for item in items if isinstance(item, str)}
    missing = {name for name in needed if name.lower().replace("_", "-") not in pins()}
    assert missing == set()


def test_what_builds_the_package_is_in_the_environment(noxfile):
    assert set(noxfile.PROJECT["build-system"]["requires"]) <= set(noxfile.PROJECT["dependency-groups"]["build"])


def test_planted_faults_are_of_lines_that_are_there():
    faults = script("tests/faults.py")
    assert len(faults.FAULTS) >= 30
    assert not faults.report_misplaced(enumerate(faults.FAULTS, 1))


def test_pins_are_versions_not_addresses():
    lines = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.match(r"[\w.-]+==[\w.+!]+( ; |$)", line)] == []


def test_times_of_sessions_go_into_their_rows():
    times = script(".ci/times.py")
    page = "| session | checks | time |\n| `a` | x | 3 s |\n| `b`, `c` | y | |\n| `d` | z | 7 s |\n"
    assert times.with_times(page, {"a": 1234.4, "b": 2.4, "c": 1.2, "x": 9}) == (
        "| session | checks | time |\n| `a` | x | 1,234 s |\n| `b`, `c` | y | 4 s |\n| `d` | z | 7 s |\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("a 0.123 b", "a 0.124 b", True),
        ("a 0.123", "a 0.125", False),
        ("a 0.123", "a 1.123", False),
        ("3 words", "4 words", False),
        ("-0.00 1.2e-05", " 0.00 1.3e-05", True),
        ("9.99e-06", "1.00e-05", True),
        ("10.0", "9.99", True),
        ("0.1 a", "0.1 b", False),
        ("0.5 0.5", "0.5", False),
        ("0.5", "nan", False),
        ("0.3", "0.3967", False),
        ("[0.1 0.9]", "[0.2 0.8]", False),
        ("torch 2.13.0", "torch 2.14.0", False),
        ("a 0.12.", "a 0.13.", True),
    ],
)
def test_a_page_may_differ_by_rounding_alone(old, new, same):
    assert script("docs/make.py").same_but_for_rounding(old, new) is same


@pytest.mark.parametrize("same", [True, False])
def test_a_picture_that_two_pages_write_is_the_same_in_both(tmp_path, same):
    pages = ["README.md", "docs/lesson.md"]
    (tmp_path / "docs/images").mkdir(parents=True)
    for folder, content in (("README", b"1"), ("lesson", b"1" if same else b"2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "heads.png").write_bytes(content)
    collect = script("docs/make.py").collect_pictures
    if same:
        collect(tmp_path, pages)
        assert (tmp_path / "docs/images/heads.png").read_bytes() == b"1"
    else:
        with pytest.raises(SystemExit, match=r"docs/lesson.md: another page writes docs/images/heads.png"):
            collect(tmp_path, pages)


@pytest.mark.parametrize(
    ("session", "folder", "there"),
    [("world", None, "the variable is not set"), ("suites", "", r"0 of a-\*\.whl in .*")],
)
def test_what_is_not_fetched_is_said_with_the_session_that_does(monkeypatch, tmp_path, session, folder, there):
    variable = f"REGARD_{session.upper()}"
    monkeypatch.delenv(variable, raising=False)
    if folder is not None:
        monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=rf"\({there}\): run `nox -s {session}`"):
        fetched(session, "a-*.whl")
    (tmp_path / "a-1.whl").touch()
    monkeypatch.setenv(variable, str(tmp_path))
    assert fetched(session, "a-*.whl") == tmp_path / "a-1.whl"
