"""Commands on a picture: what one token attends to, printed, drawn and saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from tiny_images import picture

import golden
import regard
from regard import Trace
from regard.cli import main

VIT, CLIP = str(golden.FOLDER / "vit/plain"), str(golden.FOLDER / "clip/plain")


@pytest.fixture
def cat(tmp_path):
    path = tmp_path / "cat.png"
    Image.fromarray(picture()).save(path)
    return str(path)


def weights(folder, path, layer):
    trace, model = Trace(), regard.load(folder)
    getattr(model, "vision", model)(path, trace=trace)
    return trace[f"blocks.{layer}.attn.weights"][0].astype(np.float64)


def test_what_the_token_of_the_picture_attends_to_is_printed(cat, capsys):
    assert main([cat, "--model", VIT, "--top", "2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 layers × 3 heads · 3 × 3 patches" in shown
    assert "Attention of [CLS]: layer 1 of 0–1, mean of 3 heads; --word, --layer and --head choose others" in shown
    row = weights(VIT, cat, 1).mean(0)[0]
    first, second = np.argsort(-row[1:])[:2]
    named = [f"{row[1 + i]:.2f} r{i // 3}c{i % 3}" for i in (first, second)]
    assert f"[CLS] attends most to {', '.join(named)} special" in shown
    assert f"special: {row[0]:.2f} on [CLS]" in shown
    assert "sums to" not in shown


def test_one_patch_one_head_as_json(cat, capsys):
    assert main([cat, "--model", VIT, "--word", "r1c2", "--head", "L0H2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = weights(VIT, cat, 0)[2, 1 + 5]
    np.testing.assert_allclose(found["weights"], row[1:].reshape(3, 3), atol=1e-7)
    assert found["special"] == pytest.approx(row[0], abs=1e-7)
    assert (found["query"], found["layer"], found["head"]) == ("r1c2", 0, 2)


def test_the_half_of_clip_that_looks_is_taken_for_a_file(cat, capsys):
    assert main([cat, "--model", CLIP, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["weights"]
    np.testing.assert_allclose(found, weights(CLIP, cat, 1).mean(0)[0, 1:].reshape(3, 3), atol=1e-7)
    assert main(["w5 w6", "--model", CLIP, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == ["w5", "w6"]


def test_files_are_written(cat, tmp_path, capsys):
    options = ["-o", str(tmp_path / "map.png"), "-o", str(tmp_path / "map.svg")]
    assert main([cat, "--model", VIT, *options, "--head-grid", str(tmp_path / "grid.png")]) == 0
    assert main([cat, "--model", VIT, "-o", str(tmp_path / "x.safetensors")]) == 0
    with Image.open(tmp_path / "map.png") as drawn:
        assert drawn.size[0] > 500
    assert (tmp_path / "grid.png").stat().st_size > 1000
    saved = Trace.load(tmp_path / "x.safetensors")
    assert saved.encodings[0].grid == (3, 3)
    assert "picture" in saved


def test_heads_of_a_picture(cat, capsys):
    assert main(["heads", cat, "--model", VIT, "--all"]) == 0
    assert "6 heads on this picture" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{cat}", "--model", VIT, "--merge-subwords"], "--merge-subwords is for texts: leave it out with a picture"),
        (["{cat}", "--model", VIT, "--show-special-tokens"], "--show-special-tokens is for texts"),
        (["{cat}", "--model", VIT, "--word", "r3c0"], "the picture has no patch 'r3c0': give [CLS], or a row and a"),
        (["{cat}", "--model", VIT, "--layer", "7"], "there is no layer 7: choose from 0 to 1"),
        (["none.png", "--model", VIT], "there is no picture none.png"),
        (["a cat\0", "--model", VIT], "cannot read a cat"),
        (["{cat}", "--model", CLIP, "--word", "w5"], "the picture has no patch 'w5'"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(cat, capsys, arguments, message):
    assert main([each.format(cat=cat) for each in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
