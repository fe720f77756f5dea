"""A picture: its patches lie over it, and are shaded by the attention to or from the one that is chosen."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from acts import click
from pages import GOLDEN, check_access, number, served, settled

import regard
from regard.explorer import Exploration, write_page
from regard.explorer.run import STEPS
from regard.trace import Trace

PICTURE = np.random.default_rng(2).integers(0, 256, (40, 40, 3), dtype=np.uint8)
SIDE = 8  # patches along it


@pytest.fixture(scope="module")
def picture_trace():
    trace = Trace(maps=True, optional=STEPS)
    regard.load(GOLDEN / "vit" / "long")(PICTURE, trace=trace)
    return trace


@pytest.fixture(scope="module")
def patches(picture_trace):
    return Exploration(picture_trace, layer=1, head=0)


@pytest.fixture(scope="module", params=["server", "file"])
def picture_address(request, patches, tmp_path_factory):
    if request.param == "server":
        with served(patches) as address:
            yield address
    else:
        path = tmp_path_factory.mktemp("pages") / "picture.html"
        write_page(patches, path)
        yield path.as_uri()


def test_the_page_has_the_pixels_that_the_model_saw(patches, picture_trace):
    described = patches.manifest()["runs"][0]["picture"]
    assert (described["rows"], described["cols"]) == (SIDE, SIDE)
    pixels = np.frombuffer(base64.b64decode(described["pixels"]), np.uint8)
    seen = picture_trace["picture"][0]
    np.testing.assert_array_equal(pixels.reshape(described["height"], described["width"], 3), seen)


def test_patches_lie_where_they_are(open_page, picture_address):
    page = open_page(f"{picture_address}#v=head&l=1&h=0")
    settled(page)
    canvas = page.locator(".rg-patches canvas").bounding_box()
    assert page.locator(".rg-patch").count() == SIDE**2
    for row, col in [(0, 0), (3, 5), (7, 7)]:
        box = page.locator(".rg-patch").nth(row * SIDE + col).bounding_box()
        assert box["x"] == pytest.approx(canvas["x"] + col * canvas["width"] / SIDE, abs=1)
        assert box["y"] == pytest.approx(canvas["y"] + row * canvas["height"] / SIDE, abs=1)
    assert page.locator(".rg-words > .rg-word").all_inner_texts() == ["[CLS]"]


def test_a_chosen_patch_shades_the_others(open_page, picture_address, picture_trace):
    page = open_page(f"{picture_address}#v=head&l=1&h=0")
    settled(page)
    click(page.locator(".rg-patch").nth(3 * SIDE + 5))
    weights = np.asarray(picture_trace["blocks.1.attn.weights"])[0, 0, 1 + 3 * SIDE + 5]
    strongest = int(weights.argmax())
    name = "[CLS]" if strongest == 0 else f"r{(strongest - 1) // SIDE}c{(strongest - 1) % SIDE}"
    top = page.locator(".rg-top li").first
    assert top.inner_text().startswith(name)
    assert number(top.inner_text()) == pytest.approx(weights[strongest], abs=1e-4)
    shades = page.locator(".rg-patch").evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)")
    colors = [[float(x) for x in re.findall(r"[\d.]+", shade)] for shade in shades]
    light = np.array([765 if len(color) == 4 and color[3] == 0 else sum(color[:3]) for color in colors])
    order = np.argsort(weights[1:])
    assert light[order[-1]] < light[order[SIDE * SIDE // 2]] <= light[order[0]]
    assert np.corrcoef(light, np.sqrt(weights[1:]))[0, 1] < -0.9
    assert "r3c5" in page.locator(".rg-text-panel h3").inner_text()


def test_axe_finds_nothing_serious(open_page, picture_address):
    check_access(open_page(f"{picture_address}#v=head&l=1&h=0&i=5&j=2"), 1440)
