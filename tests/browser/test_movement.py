"""The plane of the token vectors: fitted without sinks, on a canvas that zooms, reached by keys and pointer."""

from __future__ import annotations

import numpy as np
import pytest
from acts import click, press
from pages import dots_of, expect, hold, plane_of, served, settled, traced

from regard.explorer import Exploration

PLANE = ".rg-plane[data-drawn]"
VIEW = "v=movement&l=2&h=3"
SLOWLY = (
    "() => { let now = 0; performance.now = () => (now += 20); }"  # a play has 20 ms a frame, however long one takes
)


def with_vectors(tokens, sink=None):
    """Return an exploration with the vectors of three stages, one of them of a sink."""
    trace = traced(tokens)
    vectors = np.random.default_rng(3).standard_normal((3, 1, len(tokens), 16), dtype=np.float32)
    if sink is not None:
        vectors[1:, 0, sink] *= 90
    trace("embeddings", vectors[0], "B T E")
    for number in range(2):
        trace(f"blocks.{number}.output", vectors[number + 1], "B T E")
    return Exploration(trace)


@pytest.fixture(scope="module")
def sunk():
    with served(with_vectors([f"w{n}" for n in range(9)], sink=4)) as address:
        yield address


def described(page):
    return page.locator(".rg-movement > .rg-description").inner_text()


def spread(page):
    return np.ptp(np.array(dots_of(page)), axis=0).max()


def middle(page):
    box = page.locator(".rg-plane-stage").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_sink_is_outside_until_one_zooms_out_and_keys_wheel_and_drag_move_the_plane(open_page, sunk):
    page = open_page(f"{sunk}#v=movement", selector=PLANE)
    assert "“w4” is left out of the fit: its vector is more than 10 times as long as the median" in described(page)
    assert len(dots_of(page)) == 8
    assert spread(page) > 200  # the others fill the plane
    for _ in range(12):
        click(page.get_by_role("button", name="Zoom out (−)"))
    assert len(dots_of(page)) == 9
    click(page.get_by_role("button", name="Show all tokens (0)"))
    assert len(dots_of(page)) == 8
    whole = dots_of(page)
    press(page, "+")
    x, y = middle(page)
    zoomed = np.array(dots_of(page))
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    settled(page)
    nearer = dots_of(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 25, steps=4)
    page.mouse.up()
    settled(page)
    shifts = np.array(dots_of(page))[:, None] - np.array(nearer)[None]
    assert (np.abs(shifts - [40, -25]).max(axis=-1) < 0.6).any(axis=1).sum() >= 2
    assert len(set(whole) & set(map(tuple, zoomed))) == len(set(nearer) & set(map(tuple, zoomed))) == 0
    press(page, "0")
    assert dots_of(page) == whole


def test_what_is_far_out_at_some_stage_lies_outside_until_one_zooms_out(open_page, serve):
    exploration = with_vectors([f"w{n}" for n in range(9)])
    vectors = exploration.runs[0].trace["blocks.0.output"]
    vectors[0, 4] *= 7  # less than ten times as long as the others: no sink
    page = open_page(f"{serve(exploration)}#v=movement", selector=PLANE)
    assert "What is far from all others at some stage lies outside until one zooms out." in described(page)
    assert len(dots_of(page)) == 9
    assert spread(page) > 200  # after the last layer, where nothing is far out
    page.get_by_label("Stage").fill("1")
    assert len(dots_of(page)) == 8
    for _ in range(12):
        click(page.get_by_role("button", name="Zoom out (−)"))
    assert len(dots_of(page)) == 9


def test_a_click_on_a_dot_or_its_name_chooses_the_token_and_arrows_the_stage(open_page, sunk):
    page = open_page(f"{sunk}#v=movement", selector=PLANE)
    box = page.locator(".rg-plane-stage").bounding_box()
    dots, labels = plane_of(page)
    x, y, _, name = labels[-1]
    page.mouse.click(box["x"] + x + 4, box["y"] + y - 4)
    settled(page)
    assert page.locator(".rg-plane-stage [aria-pressed=true]").inner_text() == f"A {name}"
    x, y = dots[0]
    page.mouse.move(box["x"] + x + 2, box["y"] - y + 2)
    assert page.locator(".rg-plane .rg-tip").inner_text().startswith("w")
    page.mouse.click(box["x"] + x + 2, box["y"] - y + 2)
    settled(page)
    assert page.locator(".rg-plane-stage [aria-pressed=true]").inner_text() == "A w0"
    page.get_by_label("Stage").focus()
    names = []
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight"):
        press(page, key)
        names.append(page.locator(".rg-stage-name").inner_text())
    assert names == ["after layer 0", "embeddings", "after layer 0"]


def test_until_the_plane_is_computed_the_page_says_so_and_does_not_play(open_page, sunk):
    page = open_page(f"{sunk}#v=head")
    let_go = hold(page, "**/api/movement*")
    page.keyboard.press("4")
    page.wait_for_selector("text=Computing the plane of all stages")
    play = page.locator(".rg-movement .rg-primary")
    assert play.is_disabled()
    assert play.is_hidden()
    let_go()
    page.wait_for_selector(PLANE)
    page.evaluate(SLOWLY)
    play.click()
    expect(play).to_have_text("Pause")


def test_the_address_has_the_stage_where_one_paused(open_page, sunk):
    page = open_page(f"{sunk}#v=movement", selector=PLANE)
    page.evaluate(SLOWLY)
    page.get_by_role("button", name="Play").click()
    page.evaluate(
        """async () => {
          while (document.querySelector("input[type=range][data-ref=stage]").value < 0.3)
            await new Promise(requestAnimationFrame);
          document.querySelector(".rg-movement .rg-primary").click();
        }"""
    )
    settled(page)
    assert 0 < float(page.get_by_label("Stage").input_value()) < 2
    again = open_page(page.url, selector=PLANE)
    assert again.get_by_label("Stage").input_value() == page.get_by_label("Stage").input_value()
    assert dots_of(again) == dots_of(page)


def test_of_many_tokens_only_the_chosen_leave_a_trail(open_page, serve):
    tokens = [f"w{n}" for n in range(600)]
    page = open_page(f"{serve(with_vectors(tokens))}#v=movement&i=7", selector=PLANE)
    assert "only those that are chosen leave a trail" in described(page)
    assert 570 <= len(dots_of(page)) <= 600
    before = int(page.locator(PLANE).get_attribute("data-drawn"))
    page.get_by_label("Stage").fill("0")
    page.evaluate(SLOWLY)
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Play").wait_for()
    assert int(page.locator(PLANE).get_attribute("data-drawn")) > before + 10


@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"forced_colors": "active"}, {"device_scale_factor": 2}])
def test_the_canvas_follows_the_theme_and_the_screen(open_page, sunk, options):
    page = open_page(f"{sunk}#v=movement", selector=PLANE, **options)
    canvas = page.locator(".rg-plane .rg-canvas")
    pixel = "(canvas) => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data].join()"
    dark = options.get("color_scheme") == "dark"
    assert canvas.evaluate(pixel) == ("21,23,29,255" if dark else "255,255,255,255")
    ratio = options.get("device_scale_factor", 1)
    assert canvas.evaluate("(canvas) => canvas.width / canvas.clientWidth") == pytest.approx(ratio, abs=0.01)
