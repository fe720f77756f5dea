"""``regard explore``: the served or written page matches the options."""

from __future__ import annotations

import json
import re

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
        (["-o", "page.png"], "-o page.png needs the name of a file that ends with .html\n"),
    ],
)
def test_an_option_without_effect_is_an_error(tmp_path, monkeypatch, capsys, options, says):
    monkeypatch.chdir(tmp_path)
    assert main(["a b a", "--toy", "-o", "run.safetensors"]) == 0
    capsys.readouterr()
    assert main(["explore", "--trace", "run.safetensors", *options]) == 2
    assert capsys.readouterr().err.endswith(says)
