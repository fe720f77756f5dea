"""Comparing A and B: two models, texts of unequal length, two heads; each side has its own layers, heads, tokens."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import choose, click, go, press
from pages import CAUSAL, dots_of, exact, explored, number, plain, readout, served, settled, weight_text

import regard
from regard.explorer import Exploration
from regard.explorer.address import read_address

TEXT = "The cat sat on the mat."
HEADS = [[(layer, head) for head in range(12)] for layer in range(6)]  # of MiniLM
LONGER = "The cat sat on the mat because it was tired and hungry."


@pytest.fixture(scope="module")
def two_models(minilm):
    small, traces = regard.load(CAUSAL), []
    for model in (small, minilm):
        traces.append(regard.Trace(maps=True, only="*"))
        model(TEXT, trace=traces[-1])
    exploration = Exploration(*traces, models=[small, minilm], layer=0, head=1)
    with served(exploration) as address:
        yield address, exploration


@pytest.fixture(scope="module")
def unequal(minilm):
    exploration = explored(minilm, TEXT, LONGER)
    with served(exploration) as address:
        yield address, exploration


@pytest.fixture(scope="module")
def split_differently(minilm):
    """Return texts of as many tokens and as many words, which are split in different places."""
    exploration = explored(minilm, "tokenization works", "works tokenization")
    with served(exploration) as address:
        yield address, exploration


def test_another_text_keeps_the_head_the_cell_the_view_and_b(open_page, unequal):
    address, exploration = unequal
    page = open_page(f"{address}#v=head&l=3&h=1&i=6&j=2&s=A")
    box = page.get_by_role("textbox", name="Text", exact=True)
    box.fill(LONGER.replace("tired", "happy"))
    box.press("Enter")
    page.wait_for_function("() => !document.querySelector('.rg-live button').disabled")
    settled(page)
    assert page.locator("h2").first.inner_text() == "Layer 3 · Head 1"
    assert readout(page).startswith("mat attends to cat")
    click(page.locator(".rg-head-panel .rg-side-switch").get_by_role("button", name="A − B", exact=True))
    assert re.search("happy.* − .*tired", plain(page.locator(".rg-head-panel .rg-side-name")))
    run = exploration.run_text(LONGER.replace("tired", "happy"))["run"]
    difference = (exploration.row(run, 3, 1, 6) - exploration.row(1, 3, 1, 6))[2]
    assert exact(page) == pytest.approx(difference, abs=2e-6)
    again = read_address(page.url)
    assert (again.text, again.text_b) == (LONGER.replace("tired", "happy"), LONGER)


def in_words(exploration, run, layer, head):
    """Return a map in whole words: a word looks as its tokens do on average, and is looked at as they are together."""
    weights = exploration.whole(run, layer, head).astype(float)
    words = [token["word"] for token in exploration.manifest()["runs"][run]["tokens"]]
    starts = [n for n, word in enumerate(words) if n == 0 or word is None or word != words[n - 1]]
    rows = np.add.reduceat(weights, starts, axis=0) / np.diff([*starts, len(words)])[:, None]
    return np.add.reduceat(rows, starts, axis=1)


def choices(page, name):
    return page.get_by_label(name, exact=True).locator("option").all_inner_texts()


def side(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    settled(page)


def test_every_head_of_both_models_is_reached(open_page, two_models):
    address, exploration = two_models
    page = open_page(f"{address}#v=heads&l=0&h=1")
    side(page, "B")
    assert page.locator(".rg-side-name:visible").inner_text() == exploration.runs[1].trace.model
    assert page.locator(".rg-head").count() == 72
    page.get_by_role("gridcell", name=re.compile("layer 5, head 11")).dblclick()
    settled(page)
    assert page.locator("h2").first.inner_text() == "Layer 5 · Head 11"
    click(page.locator(".rg-text-panel .rg-word").nth(3))
    assert page.locator(".rg-top .rg-number").first.inner_text() == weight_text(exploration.row(1, 5, 11, 3).max())
    assert choices(page, "Layer") == [str(n) for n in range(6)]
    page.reload()
    settled(page)
    assert page.locator("h2").first.inner_text() == "Layer 5 · Head 11"
    side(page, "A")
    assert page.locator("h2").first.inner_text() == "Layer 0 · Head 1"
    layers = exploration.manifest()["runs"][0]["layers"]
    assert choices(page, "Layer") == [str(n) for n in range(len(layers))]
    assert choices(page, "Head") == [*map(str, range(layers[0]["heads"])), "mean"]
    assert page.locator(".rg-head").count() == sum(layer["heads"] for layer in layers)
    assert page.get_by_role("button", name="A − B").is_disabled()


def test_every_token_of_the_longer_text_is_reached(open_page, unequal):
    address, exploration = unequal
    last = exploration.runs[1].length - 2
    page = open_page(f"{address}#v=head&l=2&h=3&s=B")
    page.locator(".rg-text-panel .rg-word").nth(last).click()
    page.locator(".rg-text-panel .rg-word").nth(last - 1).click(modifiers=["Shift"])
    press(page, "]")
    both = np.sum([exploration.row(1, 2, 4, token) for token in (last, last - 1)], axis=0)
    assert page.locator(".rg-top .rg-number").first.inner_text() == weight_text(both.max())
    assert page.locator(".rg-pinned").count() == 2
    page.goto("about:blank")
    page.goto(f"{address}#v=head&l=2&h=4&s=B&i={last}&j=2&from=2&to={last + 1}")
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    assert exact(page) == pytest.approx(float(exploration.row(1, 2, 4, last)[2]), abs=5e-7)
    assert f"to={last + 1}" in page.url
    side(page, "A")
    assert page.locator(".rg-text-panel .rg-word").count() == exploration.runs[0].length - 2
    page.goto(f"{address}#v=head&l=2&h=4&s=A&from={last - 1}&to={last + 1}")  # where A has nothing
    settled(page)
    assert page.locator(".rg-text-panel .rg-word").count() == exploration.runs[0].length


def test_why_there_is_no_difference_can_be_read(open_page, unequal):
    address, exploration = unequal
    page = open_page(f"{address}#v=head&l=2&h=3&i=2&j=2&s=diff")
    assert (
        exploration.manifest()["difference_blocked_by"] in page.locator(".rg-head-panel .rg-side-switch").inner_text()
    )
    assert exact(page) == pytest.approx(float(exploration.row(0, 2, 3, 2)[2]), abs=5e-7)
    assert "A − B" not in readout(page)


def test_heads_of_two_texts_are_compared_in_the_grid(open_page, address_of_two, two):
    page = open_page(f"{address_of_two}#v=heads&l=2&h=3")
    click(page.locator(".rg-heads .rg-side-switch").get_by_role("button", name="A − B"))
    click(page.get_by_role("button", name="By metric"))
    largest = np.array([[np.abs(two.whole(0, *at) - two.whole(1, *at)).max() for at in row] for row in HEADS])
    layer, head = map(int, np.unravel_index(largest.argmax(), largest.shape))
    assert page.locator(".rg-caption").first.inner_text() == f"L{layer} H{head} · {largest.max():.2f}"
    difference = two.whole(0, layer, head) - two.whole(1, layer, head)
    row, col = np.unravel_index(np.abs(difference).argmax(), difference.shape)  # a pixel each
    pixel = page.locator(".rg-thumb").first.evaluate(
        "(node, [x, y]) => [...node.getContext('2d').getImageData(x, y, 1, 1).data]", [int(col), int(row)]
    )
    assert (pixel[2] > pixel[0]) == (difference[row, col] > 0)  # blue where A is larger
    page.get_by_role("gridcell", name=re.compile(f"layer {layer}, head {head},")).click()
    press(page, "2")
    assert page.locator("h2").first.inner_text() == f"Layer {layer} · Head {head}"
    assert page.get_by_role("button", name="A − B").get_attribute("aria-pressed") == "true"


def test_where_heads_cannot_be_compared_it_is_said(open_page, unequal, address):
    page = open_page(f"{unequal[0]}#v=heads&l=2&h=3")
    switch = page.locator(".rg-heads .rg-side-switch")
    assert switch.get_by_role("button", name="A − B").is_disabled()
    assert unequal[1].manifest()["difference_blocked_by"] in switch.inner_text()
    page = open_page(f"{address}#v=heads&l=2&h=3&b=2.5&s=B")
    switch = page.locator(".rg-heads .rg-side-switch")
    assert switch.get_by_role("button", name="A − B").is_disabled()
    assert "A and B are heads of one run" in switch.inner_text()


def test_words_without_a_partner_have_no_difference(open_page, serve, minilm):
    exploration = explored(minilm, "tokenization works", "the cat works")
    page = open_page(f"{serve(exploration)}#v=head&l=3&h=1&i=1&j=1&s=diff")
    assert "A − B" in readout(page)
    press(page, "w")
    assert "merged into words, A has 4 rows and B 5" in page.locator(".rg-head-panel .rg-side-switch").inner_text()
    assert page.get_by_role("button", name="A − B").is_disabled()
    assert exact(page) == pytest.approx(in_words(exploration, 0, 3, 1)[1, 1], abs=2e-6)
    assert "A − B" not in readout(page)
    press(page, "w")
    assert page.get_by_role("button", name="A − B").is_enabled()


@pytest.mark.parametrize("direction", ["out", "in"])
def test_words_of_each_text_are_its_own(open_page, split_differently, direction):
    address, exploration = split_differently
    page = open_page(f"{address}#v=head&l=3&h=1&i=1&j=1&s=diff&words=1&d={direction}")
    difference = in_words(exploration, 0, 3, 1) - in_words(exploration, 1, 3, 1)
    assert exact(page) == pytest.approx(difference[1, 1], abs=2e-6)
    shares = np.array(
        [number(word.get_attribute("aria-label")) for word in page.locator(".rg-text-panel .rg-word").all()]
    )
    assert shares == pytest.approx(difference[1] if direction == "out" else difference[:, 1], abs=6e-4)


def test_of_two_heads_the_one_that_is_seen_is_chosen(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.get_by_role("button", name="Compare with another head").click()
    choose(page.get_by_label("Head", exact=True), "5")
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 5"
    side(page, "A")
    assert page.get_by_label("Head", exact=True).input_value() == "3"
    press(page, "]")
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 4"
    marks = page.locator(".rg-head[data-side]:not([data-side=''])")
    assert [mark.get_attribute("data-side") for mark in marks.all()] == ["A", "B"]
    go(page, f"{page.url}&i=8&j=2")
    side(page, "A − B")
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 4 − Head 5"
    assert exact(page) == pytest.approx((one.row(0, 2, 4, 8) - one.row(0, 2, 5, 8))[2], abs=2e-6)


def test_two_texts_move_on_one_plane_and_are_told_apart(open_page, address_of_two, two):
    page = open_page(f"{address_of_two}#v=movement&l=2&h=3", selector=".rg-plane[data-drawn]")
    assert [run.split(" · ")[0] for run in page.locator(".rg-runs li").all_inner_texts()] == ["A", "B"]
    assert page.locator(".rg-movement .rg-side-switch").is_hidden()
    shown = np.array(dots_of(page))
    known = np.concatenate([points[-1] for points in two.movement([0, 1])["points"]])
    scale = np.ptp(shown[:, 0]) / np.ptp(known[:, 0])
    assert np.abs((shown - shown.mean(0)) / scale - (known - known.mean(0))).max() < 0.005 * np.ptp(known)


def test_two_models_move_on_planes_of_their_own(open_page, two_models):
    address, exploration = two_models
    page = open_page(f"{address}#v=movement&l=0&h=1", selector=".rg-plane[data-drawn]")
    for run, name in enumerate("AB"):
        side(page, name)
        manifest = exploration.manifest()["runs"][run]
        count = "(count) => document.querySelectorAll('.rg-plane-stage button').length === count"
        page.wait_for_function(count, arg=len(manifest["tokens"]))
        assert page.locator(".rg-plane-stage button").first.inner_text().startswith(f"{name} ")
        assert page.get_by_label("Stage").get_attribute("max") == str(len(manifest["layers"]))
        assert "another model" in page.locator(".rg-movement").inner_text()
