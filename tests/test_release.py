"""The steps of a release, of which `nox -s release` rehearses all."""

import itertools
import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import ROOT, script

release = script(".ci/release.py")
_LIBSYSTEM = "/usr/lib/libSystem.B.dylib"
WRITTEN = (release.VERSION, release.CITATION, release.CHANGELOG, release.RECIPE)


@pytest.fixture
def root(tmp_path):
    for name in WRITTEN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_prepared_version_passes_the_check_of_its_tag(root):
    unreleased = release.notes(root, "Unreleased")
    release.prepare(root, "9.8.7rc1", "2031-02-03")
    release.check(root, "v9.8.7rc1")
    changelog = (root / release.CHANGELOG).read_text("utf-8")
    assert "## [Unreleased]\n\n## [9.8.7rc1] - 2031-02-03\n\n### Added\n" in changelog
    assert release.notes(root, "v9.8.7rc1") == unreleased.partition("\n\n")[2]  # without the sentence that none was
    assert changelog.count("\n- ") == (ROOT / release.CHANGELOG).read_text("utf-8").count("\n- ")
    assert "version: 9.8.7rc1\ndate-released: 2031-02-03\nlicense: " in (root / release.CITATION).read_text("utf-8")


def test_versions_follow_each_other(root):
    release.prepare(root, "9.0.0", "2031-01-01")
    with pytest.raises(SystemExit, match="nothing that is unreleased"):
        release.prepare(root, "9.1.0", "2031-01-02")
    path = root / release.CHANGELOG
    path.write_text(
        path.read_text("utf-8").replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- One.\n"), "utf-8"
    )
    release.prepare(root, "9.1.0", "2031-01-02")
    release.check(root, "v9.1.0")
    assert release.notes(root, "v9.1.0") == "### Fixed\n\n- One.\n"
    with pytest.raises(SystemExit, match=r"v9\.0\.0: src/regard/_version.py has another version; CITATION"):
        release.check(root, "v9.0.0")
    with pytest.raises(SystemExit, match=r"has a section 9\.0\.0 already"):
        release.prepare(root, "9.0.0", "2031-01-03")


@pytest.mark.parametrize("tag", ["v0.1", "0.1.0", "v0.1.0-1", "v00"])
def test_other_tags_are_refused(root, tag):
    release.prepare(root, "0.1.0", "2031-01-01")
    with pytest.raises(SystemExit, match=r"is not a tag such as v0\.1\.0"):
        release.check(root, tag)


@pytest.mark.parametrize("name", WRITTEN)
def test_each_place_that_names_the_version_is_compared(root, name):
    release.prepare(root, "9.9.9", "2031-01-01")
    text = (root / name).read_text("utf-8")
    (root / name).write_text(text.replace("9.9.9", "9.9.8"), "utf-8")
    with pytest.raises(SystemExit, match=re.escape(name)):
        release.check(root, "v9.9.9")


def test_the_citation_has_the_version_of_the_package():
    version = release._WRITTEN.findall((ROOT / release.VERSION).read_text("utf-8"))
    assert re.findall(r"^version: (.*)$", (ROOT / release.CITATION).read_text("utf-8"), re.MULTILINE) == version


def test_the_recipe_requires_what_the_package_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [each.split(">=") for each in project["dependencies"]]
    recipe = (ROOT / release.RECIPE).read_text("utf-8").partition("  run:\n")[2].partition("\n\n")[0]
    wanted = {(name.replace("matplotlib", "matplotlib-base"), version) for name, version in named}
    assert set(re.findall(r"^    - ([a-z0-9-]+) >=([\d.]+)$", recipe, re.MULTILINE)) == wanted


@pytest.mark.parametrize(
    ("needed", "is_promised"),
    [
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_5_x86_64", True),
        ("manylinux_2_34_x86_64", False),
        ("manylinux_3_1_x86_64", False),
        ("manylinux_2_28_aarch64", False),
        ("musllinux_1_2_x86_64", False),
        ("linux_x86_64", False),
    ],
)
def test_a_wheel_needs_no_more_than_its_name_says(needed, is_promised):
    assert release.is_promised("regard-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl", needed) is is_promised


def test_a_wheel_for_linux_at_large_promises_nothing():
    assert not release.is_promised("regard-0.1.0-cp312-abi3-linux_x86_64.whl", "linux_x86_64")


def test_the_verdict_is_what_auditwheel_finds_not_the_name_that_it_repeats(monkeypatch):
    wheel = Path("regard-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl")

    def audited(found):
        shown = json.dumps({"wheel": wheel.name, "overall_tag": found})
        monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=shown))
        release._check_libraries(wheel)

    audited("manylinux_2_24_x86_64")
    with pytest.raises(SystemExit, match="needs manylinux_2_34_x86_64: it runs on fewer systems than its name says"):
        audited("manylinux_2_34_x86_64")


def kernel(**facts):
    exports = sorted(release.EXPORTS)
    return {"format": "ELF", "machine": "X86_64", "exports": exports, "libraries": ["libc.so.6"], **facts}


@pytest.mark.parametrize(
    ("system", "facts", "says"),
    [
        ("manylinux_2_28_x86_64", {}, None),
        ("manylinux_2_28_x86_64", {"libraries": ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]}, None),
        ("manylinux_2_28_x86_64", {"libraries": ["libstdc++.so.6"]}, "loads libstdc++.so.6"),
        (
            "manylinux_2_28_x86_64",
            {"exports": ["PyInit__kernel", "nb_type_put"]},
            "exports PyInit__kernel, nb_type_put",
        ),
        ("manylinux_2_28_x86_64", {"exports": []}, "exports nothing"),
        ("manylinux_2_28_aarch64", {}, "is ELF for X86_64"),
        ("musllinux_1_2_x86_64", {}, "loads libc.so.6"),
        ("macosx_11_0_x86_64", {}, "is ELF for X86_64"),
        (
            "macosx_11_0_arm64",
            {
                "format": "MACHO",
                "machine": "ARM64",
                "exports": [f"_{name}" for name in release.EXPORTS],
                "libraries": [_LIBSYSTEM],
            },
            None,
        ),
        ("win_amd64", {"format": "PE", "machine": "AMD64", "libraries": ["KERNEL32.dll", "python3.dll"]}, None),
        ("win_amd64", {"format": "PE", "machine": "AMD64", "libraries": ["python312.dll"]}, "loads python312.dll"),
        ("win_amd64", {"format": "PE", "machine": "I386"}, "is PE for I386"),
    ],
)
def test_a_kernel_fits_the_name_of_its_wheel(system, facts, says):
    assert release.misfit(f"regard-0.1.0-cp312-abi3-{system}.whl", kernel(**facts)) == says


@pytest.mark.parametrize(
    ("system", "facts", "prefix"),
    [
        ("macosx_11_0_x86_64", {"format": "MACHO", "machine": "X86_64", "libraries": [_LIBSYSTEM]}, "_"),
        ("win_amd64", {"format": "PE", "machine": "AMD64", "libraries": ["python3.dll"]}, ""),
    ],
)
def test_a_kernel_for_macos_or_windows_may_show_what_its_linker_adds(system, facts, prefix):
    exports = [*(prefix + name for name in release.EXPORTS), "_ZTVN8nanobind4abi112python_errorE"]
    wheel = f"regard-0.1.0-cp312-abi3-{system}.whl"
    assert release.misfit(wheel, {**facts, "exports": exports}) is None
    assert "exports" in release.misfit(wheel, {**facts, "exports": exports[1:]})


def test_the_kernel_exports_what_is_listed():
    (listed,) = re.findall(r"global: (.*);\n", (ROOT / "csrc/exports.map").read_text("utf-8"))
    assert set(listed.split("; ")) == release.EXPORTS


def test_every_system_that_is_built_has_a_rule_for_its_kernel():
    for tag in script(".ci/wheels.py").SYSTEMS:
        assert release.misfit(f"regard-0.1.0-cp312-abi3-{tag}.whl", kernel(format="none")) == "is none for X86_64"


def test_the_table_says_what_was_checked_and_run_and_what_was_not(tmp_path):
    report = tmp_path / release.REPORT
    report.mkdir()
    checks = {
        "regard-1.tar.gz": ["twine"],
        "regard-1-py3-none-any.whl": ["twine"],
        "r-1-a-b-c.whl": ["twine", "x"],
    }
    (report / "checks.json").write_text(json.dumps(checks), "utf-8")
    for name in checks:
        (tmp_path / name).write_bytes(b"0" * 1_260_000)
    suite = '<testsuites><testsuite tests="1234" skipped="4" failures="{}" errors="1"/></testsuites>'
    (report / "a-b-c CPython 3.13.0.xml").write_text(suite.replace('errors="1"', "").format(0), "utf-8")
    (report / "a-b-c CPython 3.14.0.xml").write_text(suite.format(2), "utf-8")
    assert release.table(tmp_path).splitlines()[2:] == [
        "| `source` | 1.3 | twine | not run |",
        "| `py3-none-any` | 1.3 | twine | not run |",
        "| `a-b-c` | 1.3 | twine, x | 1,230 passed, CPython 3.13.0; 1,227 passed, 3 failed, CPython 3.14.0 |",
    ]


@pytest.mark.parametrize("pure", [False, True])
def test_a_wheel_is_tried_with_the_kernel_or_without(monkeypatch, tmp_path, pure):
    (tmp_path / "regard-0.1.0-py3-none-any.whl").touch()
    ran = []
    monkeypatch.setattr(release, "_environment", lambda *_, **__: Path("bin"))
    monkeypatch.setattr(release, "_output", lambda *_, **__: "py3-none-any CPython 3.13.0")
    monkeypatch.setattr(release, "_run", lambda *command, folder=None, env=None: ran.append((command[1:], env)))
    monkeypatch.setattr(release.sys, "argv", ["release.py", "try", str(tmp_path), *(["--pure"] if pure else [])])
    release.main()
    (pip, _), (tests, env), *others = ran
    assert {"--only-binary", ":all:", "regard==0.1.0", "pytest>=8"} <= set(pip)
    assert f"--junitxml={tmp_path / release.REPORT / 'py3-none-any CPython 3.13.0.xml'}" in tests
    assert env == {"REGARD_PURE": "1" if pure else "0"}
    assert [command[0] for command, _ in others] == ([] if pure else ["tests/mixed_calls.py"])


def test_what_an_interpreter_has_no_wheel_of_is_left_out_and_said(monkeypatch):
    def install(programs, *options):
        if any(option.startswith("tokenizers") for option in options):
            raise subprocess.CalledProcessError(1, "pip")
        ran.append(options)

    ran = []
    monkeypatch.setattr(release, "_install", install)
    lacking = release._install_wheels(Path("bin"), ("regard==0.1.0",), ["numpy>=2", "tokenizers>=0.22", "dask[array]"])
    assert lacking == ["tokenizers"]
    assert ran[0] == ("--no-deps", "regard==0.1.0")
    assert [options[-1] for options in ran[1:]] == ["numpy>=2", "dask[array]"]


def test_a_command_tries_the_wheel_of_its_platform_with_what_this_pip_brings(monkeypatch, tmp_path):
    (tmp_path / "regard-0.1.0-py3-none-any.whl").touch()
    ran = []
    monkeypatch.setattr(release, "_output", lambda *_, **__: "3.13.0")
    monkeypatch.setattr(release, "_run", lambda *command, **_: ran.append(command))
    release.try_wheels(tmp_path, ["/bin/qemu -L tree python3"], pure=False, platform="manylinux_2_28_aarch64")
    pip, tests = ran
    assert {"--only-binary", ":all:", "pytest>=8"} <= set(pip)
    assert {"manylinux_2_28_aarch64", "manylinux2014_aarch64"} <= set(pip)
    assert tests[:4] == ("/bin/qemu", "-L", "tree", "python3")
    assert f"--junitxml={tmp_path / release.REPORT / '3.13.0 (qemu).xml'}" in tests


def test_the_systems_without_a_kernel_are_tried_as_such():
    workflow, wheels = (ROOT / ".github/workflows/release.yml").read_text("utf-8"), script(".ci/wheels.py")
    systems, versions = re.findall(r"os: \[(.*macos.*)\]\n +python: \[(.*)\]", workflow)[0]
    names = {"ubuntu": "Linux", "macos": "Darwin", "windows": "Windows"}

    def has_kernel(system, version):
        python = wheels.Python("", Path(), version.removeprefix("3."))
        made = [each.name for each in wheels.SYSTEMS.values() if python.makes(each)]
        return names[system.split("-")[0]] in made

    jobs = itertools.product(systems.split(", "), re.findall(r'"(.*?)"', versions))
    pure = re.findall(r'- { os: (\S+), python: "(\S+)", wheel: --pure }', workflow)
    assert pure == [job for job in jobs if not has_kernel(*job)]


def test_the_site_of_all_versions_begins_with_the_newest_release(tmp_path):
    for tag in ("v0.9.0", "v0.10.0", "v0.11.0rc1"):
        folder = tmp_path / "sites" / tag
        folder.mkdir(parents=True)
        (tmp_path / "index.html").write_text(tag, encoding="utf-8")
        with tarfile.open(folder / release.SITE, "w:gz") as archive:
            archive.add(tmp_path / "index.html", "index.html")
    release.pages(tmp_path / "sites", out := tmp_path / "out", "https://example.org/regard/")
    pages = {str(path.relative_to(out)): path.read_text("utf-8") for path in out.rglob("*.html")}
    assert pages == {
        "index.html": "v0.10.0",
        **{f"{tag[1:]}/index.html": tag for tag in ("v0.9.0", "v0.10.0", "v0.11.0rc1")},
    }
    assert json.loads((out / "versions.json").read_text("utf-8")) == [
        {"version": "0.11.0rc1", "url": "https://example.org/regard/0.11.0rc1/"},
        {"version": "0.10.0", "name": "0.10.0 (newest)", "url": "https://example.org/regard/", "preferred": True},
        {"version": "0.9.0", "url": "https://example.org/regard/0.9.0/"},
    ]


@pytest.mark.parametrize(("system", "machine"), [("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")])
def test_a_rehearsal_builds_a_wheel_as_it_is_published(monkeypatch, system, machine):
    ran = []
    monkeypatch.setattr(release, "_run", lambda *command, **_: ran.append(command))
    monkeypatch.setattr(release.platform, "system", lambda: system)
    monkeypatch.setattr(release.platform, "machine", lambda: machine)
    release.rehearse("0.1.0")
    (built,) = [command[-1] for command in ran if str(command[1]).endswith("wheels.py")]
    assert built in script(".ci/wheels.py").SYSTEMS
    assert release.is_promised(f"regard-0.1.0-cp312-abi3-{built}.whl", built) or system == "Darwin"
