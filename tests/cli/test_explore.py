"""``regard explore``: the served or written page matches the options."""

import pytest
from decode_page import read_page
from PIL import Image

import golden
from regard.cli import main
from regard.explorer import server


@pytest.fixture
def page(run, capsys, tmp_path):
    """Return a function that has a page written, and returns what is said and the manifest of the page."""

    def page(*words):
        capsys.readouterr()
        status, out, err = run("explore", *map(str, words), "-o", str(tmp_path / "page.html"))
        assert (status, out) == (0, "")
        return err, read_page((tmp_path / "page.html").read_bytes())[0]

    return page


def test_a_file_is_written_and_said(page, tmp_path):
    err, found = page("a b a", "b a b", "--toy", "--num-heads", "2")
    assert err == f"wrote {tmp_path / 'page.html'}: the page as one file, which works offline\n"
    assert [run["text"] for run in found["runs"]] == ["a b a", "b a b"]
    assert found["difference_blocked_by"] is None


def test_saved_runs_files_and_two_models_are_explored(page, tmp_path, write_bert):
    saved, letter = str(tmp_path / "run.safetensors"), tmp_path / "letter.txt"
    assert main(["a b a", "--toy", "-o", saved]) == 0
    assert page("--trace", saved, "--head", "0")[1]["title"] == "a b a"
    letter.write_text("dear cat", encoding="utf-8")
    assert page("--file", letter, "--toy")[1]["title"] == "dear cat"
    one, other = (str(write_bert(folder=name)) for name in ("one", "other"))
    found = page("the cat", "--model", one, "--compare-model", other)[1]
    assert [run["model"] for run in found["runs"]] == [one, other]


def test_a_file_holds_the_paths_behind_the_next_token(page):
    assert "paths/0" not in page("qzkfqz", "--model", "induction")[1]["blobs"]
    assert "paths/0" in page("qzkfqz", "--model", "induction", "--paths")[1]["blobs"]


@pytest.fixture
def asked(monkeypatch):
    """Return what the server is asked to serve: each exploration with its options."""
    asked = []
    monkeypatch.setattr(server, "serve", lambda exploration, **options: asked.append((exploration, options)))
    return asked


def test_a_corpus_is_searched_beside_its_first_text_or_another(tmp_path, asked, tiny):
    (tmp_path / "lines.txt").write_text("\nthe cat\nthe cat sat\n", encoding="utf-8")
    words = ["explore", "--model", tiny, "--corpus", str(tmp_path / "lines.txt")]
    assert main(words) == 0
    assert main([*words, "on the mat"]) == 0
    assert [exploration.manifest()["runs"][0]["text"] for exploration, _ in asked] == ["the cat", "on the mat"]
    for exploration, _ in asked:
        assert {row["text"] for row in exploration.strongest_rows(0, 0, 0)["rows"]} == {"the cat", "the cat sat"}


def test_a_failed_page_leaves_the_existing_file(tmp_path, run):
    target = tmp_path / "page.html"
    target.write_text("before")
    status, _, err = run("explore", "word " * 3000, "--toy", "-o", str(target))
    assert (status, "works offline: at most 2,048 tokens, this text has 3,000" in err) == (2, True)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "learned"
    words = ["train", "induction", "--steps", "3", "--batch-size", "2", "--save-every", "1", "--folder", str(folder)]
    assert main(words) == 0
    return folder


def test_a_training_run_is_explored(page, tmp_path, run_folder):
    picture = tmp_path / "run.svg"
    err, found = page(run_folder, "-o", picture, "--theme", "dark")
    assert "the losses and heads of a training run" in err
    assert [each["step"] for each in found["training"]["checkpoints"]] == [1, 2, 3]
    assert "Training of learned" in picture.read_text(encoding="utf-8")


def test_a_training_run_is_explored_on_a_text(page, tmp_path, asked, run_folder):
    _, found = page(run_folder, "abab", "--head", "L0H1")
    assert (found["runs"][0]["text"], found["runs"][0]["initial"]) == (
        "abab",
        {"layer": 0, "head": 1, "row": 3, "col": 2},
    )
    (tmp_path / "text").write_text("xyxy")
    assert page(run_folder, "--file", tmp_path / "text")[1]["runs"][0]["text"] == "xyxy"
    assert main(["explore", str(run_folder)]) == 0
    assert len(asked[0][0].manifest()["runs"]) == 3


def test_options_reach_the_server(asked):
    assert main(["explore", "a b", "--toy", "--num-heads", "2", "--head", "1", "--port", "0", "--no-browser"]) == 0
    ((exploration, options),) = asked
    assert (options["port"], options["browser"], exploration.initial_head) == (0, False, (0, 1))


def test_a_picture_is_explored(page, tmp_path):
    picture = tmp_path / "sky.png"
    Image.new("RGB", (40, 40), (9, 99, 199)).save(picture)
    words = (str(picture), "--model", str(golden.FOLDER / "vit/plain"))
    (found,) = page(*words)[1]["runs"]
    assert (found["picture"]["rows"], found["picture"]["cols"], found["text"]) == (3, 3, "sky.png")
