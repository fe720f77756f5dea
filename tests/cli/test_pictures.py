"""Commands on a picture: what one token attends to, printed, drawn and saved."""

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


def test_what_the_token_of_the_picture_attends_to_is_printed(cat, run):
    shown = " ".join(run(cat, "--model", VIT, "--top", "2")[1].split())
    assert "2 layers × 3 heads · 3 × 3 patches" in shown
    assert "Attention of [CLS]: layer 1 of 0–1, mean of 3 heads; --word, --layer and --head choose others" in shown
    row = weights(VIT, cat, 1).mean(0)[0]
    first, second = np.argsort(-row[1:])[:2]
    named = [f"{row[1 + i]:.2f} r{i // 3}c{i % 3}" for i in (first, second)]
    assert f"[CLS] attends most to {', '.join(named)} special" in shown
    assert f"special: {row[0]:.2f} on [CLS]" in shown
    assert "sums to" not in shown
    assert "6 heads on this picture" in run("heads", cat, "--model", VIT, "--all")[1]


def test_one_patch_of_one_head_as_json_and_as_a_table(cat, run, tmp_path):
    path = tmp_path / "map.csv"
    argv = (cat, "--model", VIT, "--word", "r1c2", "--head", "L0H2", "--json", "-o", str(path))
    shown, row = json.loads(run(*argv)[1]), weights(VIT, cat, 0)[2, 1 + 5]
    assert shown["special"] == pytest.approx(row[0], abs=1e-7)
    assert (shown["query"], shown["layer"], shown["head"]) == ("r1c2", 0, 2)
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    assert (header, [row[0] for row in rows]) == (["weight", "c0", "c1", "c2"], ["r0", "r1", "r2"])
    for values in (shown["weights"], [[float(x) for x in row[1:]] for row in rows]):
        np.testing.assert_allclose(values, row[1:].reshape(3, 3), atol=1e-7)


def test_the_half_of_clip_that_looks_is_taken_for_a_file(cat, run):
    found = json.loads(run(cat, "--model", CLIP, "--json")[1])["weights"]
    np.testing.assert_allclose(found, weights(CLIP, cat, 1).mean(0)[0, 1:].reshape(3, 3), atol=1e-7)
    assert json.loads(run("w5 w6", "--model", CLIP, "--json")[1])["queries"] == ["w5", "w6"]


def test_files_are_written(cat, tmp_path):
    files = [str(tmp_path / name) for name in ("map.png", "map.svg", "grid.png", "x.safetensors")]
    assert main([cat, "--model", VIT, "-o", files[0], "-o", files[1], "--head-grid", files[2]]) == 0
    assert main([cat, "--model", VIT, "-o", files[3]]) == 0
    with Image.open(files[0]) as drawn:
        assert drawn.size[0] > 500
    assert (tmp_path / "grid.png").stat().st_size > 1000
    saved = Trace.load(files[3])
    assert saved.encodings[0].grid == (3, 3)
    assert "picture" in saved
