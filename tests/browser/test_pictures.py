"""The pictures of the explorer in the docs are those that ``python docs/draw_explorer.py`` draws now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from matplotlib.image import imread

DOCS = Path(__file__).parents[2] / "docs"
SIDE = 24  # pixels of a cell, which takes in a line of text: fonts differ from machine to machine
CLEARLY = 0.06  # by which a cell's mean colour may differ, 1 = black against white
MOST = 0.02  # share of the cells that differ clearly


def differing(one, other):
    """Return the share of two pictures' cells that differ clearly; 1 where their sizes do."""
    if one.shape != other.shape:
        return 1.0
    high, wide = (side // SIDE for side in one.shape[:2])
    cells = [
        picture[: high * SIDE, : wide * SIDE, :3].reshape(high, SIDE, wide, SIDE, 3).mean((1, 3))
        for picture in (one, other)
    ]
    return float((np.abs(cells[0] - cells[1]).max(axis=-1) > CLEARLY).mean())


def test_pictures_are_those_of_this_page(browser, minilm, tmp_path):
    spec = importlib.util.spec_from_file_location("draw_explorer", DOCS / "draw_explorer.py")
    draw_explorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw_explorer)
    draw_explorer.draw(browser, minilm, tmp_path)
    known = {path.name: imread(path) for path in (DOCS / "images").glob("explorer-*.png")}
    drawn = {path.name: imread(path) for path in tmp_path.iterdir()}
    assert known.keys() == drawn.keys()
    off = {name: share for name in drawn if (share := differing(known[name], drawn[name])) > MOST}
    assert off == {}, "python docs/draw_explorer.py draws them anew"
    views = ["explorer-head.png", "explorer-heads.png", "explorer-cell.png", "explorer-movement.png"]
    for view in views:  # what would not do: another view, the other theme
        assert all(differing(drawn[view], drawn[other]) > 5 * MOST for other in drawn if other != view)
