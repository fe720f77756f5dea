"""``regard explore``: the served or written page matches the options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regard.cli import main
from regard.explorer import server


def manifest(path):
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="regard-manifest">(.*?)</script>', page, re.DOTALL)[1])


def test_a_file_is_written_and_said(tmp_path, capsys):
    target = tmp_path / "page.html"
    assert main(["explore", "a b a", "b a b", "--toy", "--num-heads", "2", "-o", str(target)]) == 0
    assert capsys.readouterr() == ("", f"wrote {target}: the page as one file, which works offline\n")
    found = manifest(target)
    assert [run["text"] for run in found["runs"]] == ["a b a", "b a b"]
    assert found["difference_blocked_by"] is None


def test_a_saved_run_is_explored(tmp_path, capsys):
    saved, target = tmp_path / "run.safetensors", tmp_path / "page.html"
    assert main(["a b a", "--toy", "-o", str(saved)]) == 0
    assert main(["explore", "--trace", str(saved), "-o", str(target), "--head", "0"]) == 0
    assert manifest(target)["title"] == "a b a"
    capsys.readouterr()


def test_two_models_read_one_text(tmp_path, capsys, write_bert):
    target = tmp_path / "page.html"
    one, other = (str(write_bert(folder=name)) for name in ("one", "other"))
    assert main(["explore", "the cat", "--model", one, "--compare-model", other, "-o", str(target)]) == 0
    assert [run["model"] for run in manifest(target)["runs"]] == [one, other]
    capsys.readouterr()


def test_a_text_from_a_file_is_explored(tmp_path, capsys):
    (tmp_path / "letter.txt").write_text("dear cat", encoding="utf-8")
    target = tmp_path / "page.html"
    assert main(["explore", "--file", str(tmp_path / "letter.txt"), "--toy", "-o", str(target)]) == 0
    assert manifest(target)["title"] == "dear cat"
    capsys.readouterr()


def test_a_corpus_is_searched_beside_its_first_text_or_another(tmp_path, capsys, monkeypatch, write_bert):
    asked = []
    monkeypatch.setattr(server, "serve", lambda exploration, **options: asked.append(exploration))
    (tmp_path / "lines.txt").write_text("\nthe cat\nthe cat sat\n", encoding="utf-8")
    words = ["explore", "--model", str(write_bert(folder="one")), "--corpus", str(tmp_path / "lines.txt")]
    assert main(words) == 0
    assert main([*words, "on the mat"]) == 0
    assert [exploration.manifest()["runs"][0]["text"] for exploration in asked] == ["the cat", "on the mat"]
    for exploration in asked:
        assert {row["text"] for row in exploration.strongest_rows(0, 0, 0)["rows"]} == {"the cat", "the cat sat"}
    capsys.readouterr()


def test_a_failed_page_leaves_the_existing_file(tmp_path, capsys):
    target = tmp_path / "page.html"
    target.write_text("before")
    assert main(["explore", "word " * 3000, "--toy", "-o", str(target)]) == 2
    assert "works offline: at most 2,048 tokens, this text has 3,000" in capsys.readouterr().err
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.minilm
def test_a_text_too_long_for_the_model_is_an_error(tmp_path, capsys, minilm_dir):
    (tmp_path / "long.txt").write_text("word " * 1000, encoding="utf-8")
    assert main(["explore", "--file", str(tmp_path / "long.txt"), "--model", str(minilm_dir)]) == 2
    message = capsys.readouterr().err
    assert "the text has 1002 tokens" in message
    assert "accepts at most 512" in message


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "learned"
    words = ["train", "induction", "--steps", "3", "--batch-size", "2", "--save-every", "1", "--folder", str(folder)]
    assert main(words) == 0
    return folder


def test_a_training_run_is_explored(tmp_path, capsys, run_folder):
    page, picture = tmp_path / "page.html", tmp_path / "run.svg"
    assert main(["explore", str(run_folder), "-o", str(page), "-o", str(picture), "--theme", "dark"]) == 0
    assert "the losses and heads of a training run" in capsys.readouterr().err
    found = manifest(page)
    assert [each["step"] for each in found["training"]["checkpoints"]] == [1, 2, 3]
    assert "Training of learned" in picture.read_text(encoding="utf-8")


def test_a_training_run_is_explored_on_a_text(tmp_path, capsys, monkeypatch, run_folder):
    page = tmp_path / "page.html"
    assert main(["explore", str(run_folder), "abab", "--head", "L0H1", "-o", str(page)]) == 0
    found = manifest(page)
    assert (found["runs"][0]["text"], found["runs"][0]["initial"]) == ("abab", {"layer": 0, "head": 1})
    (tmp_path / "text").write_text("xyxy")
    assert main(["explore", str(run_folder), "--file", str(tmp_path / "text"), "-o", str(page)]) == 0
    assert manifest(page)["runs"][0]["text"] == "xyxy"
    asked = {}
    monkeypatch.setattr(server, "serve", lambda exploration, **options: asked.update(x=exploration))
    assert main(["explore", str(run_folder)]) == 0
    assert len(asked["x"].manifest()["runs"]) == 3
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--toy"], "which has its models: leave out --toy\n"),
        (["--model", "minilm", "--compare-model", "x"], "leave out --model, --compare-model\n"),
        (["a", "b"], "a training run is seen on one text, got 2: quote the text\n"),
        (["a", "--head", "9"], "there is no head 9: choose from 0 to 3\n"),
    ],
)
def test_what_a_training_run_does_not_take(tmp_path, capsys, run_folder, options, says):
    capsys.readouterr()
    assert main(["explore", str(run_folder), *options, "-o", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_a_picture_of_a_text_is_an_error(tmp_path, capsys):
    assert main(["explore", "a b", "--toy", "-o", str(tmp_path / "page.png")]) == 2
    assert "a picture is of a training run" in capsys.readouterr().err


def test_options_reach_the_server(monkeypatch):
    asked = {}
    monkeypatch.setattr(server, "serve", lambda exploration, **options: asked.update(options, x=exploration))
    assert main(["explore", "a b", "--toy", "--num-heads", "2", "--head", "1", "--port", "0", "--no-browser"]) == 0
    assert (asked["port"], asked["browser"], asked["x"].initial_head) == (0, False, (0, 1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--model", "minilm"], "--trace shows a saved run: leave out --model\n"),
        (["--seed", "3", "--num-heads", "2"], "leave out --seed, --num-heads\n"),
        (["--toy", "--compare-model", "x"], "leave out --compare-model, --toy\n"),
        (["-o", "page.html", "--port", "80"], "leave out --port and --no-browser\n"),
        (["-o", "page.html", "--no-browser"], "leave out --port and --no-browser\n"),
        (
            ["-o", "page.png"],
            "-o page.png: a picture is of a training run, whose folder is given; of a text: regard show\n",
        ),
        (["-o", "page.txt"], "-o page.txt needs the name of a file that ends with .html, .png, .svg or .pdf\n"),
    ],
)
def test_an_option_without_effect_is_an_error(tmp_path, monkeypatch, capsys, options, says):
    monkeypatch.chdir(tmp_path)
    assert main(["a b a", "--toy", "-o", "run.safetensors"]) == 0
    capsys.readouterr()
    assert main(["explore", "--trace", "run.safetensors", *options]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_a_picture_is_explored(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    picture, target = tmp_path / "sky.png", tmp_path / "sky.html"
    image.new("RGB", (40, 40), (9, 99, 199)).save(picture)
    model = str(Path(__file__).parent.parent / "models" / "golden" / "vit" / "plain")
    assert main(["explore", str(picture), "--model", model, "-o", str(target)]) == 0
    (found,) = manifest(target)["runs"]
    assert (found["picture"]["rows"], found["picture"]["cols"], found["text"]) == (3, 3, "sky.png")
    capsys.readouterr()
    assert main(["explore", str(picture), "--model", model, "--compare-model", "minilm"]) == 2
    assert "--compare-model is for texts" in capsys.readouterr().err
