"""Cross-attention in a browser: rows of the target, columns of the text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import choose, click
from pages import GOLDEN, number, readout, served, settled

import regard
from regard.explorer.export_html import write_page
from regard.explorer.launch import exploration_of

TEXT, TARGET = "w5 w6 w7 w8 w9 w11 w12", "w13 w14 w10"
CROSS, HEAD = 3, 1  # the first cross-attention


@pytest.fixture(scope="module")
def weights():
    trace = regard.Trace(only="*attn.weights")
    regard.load(GOLDEN / "bart" / "tied")(TEXT, TARGET, trace=trace)
    return trace


@pytest.fixture(scope="module")
def exploration():
    model = regard.load(GOLDEN / "bart" / "tied")
    return exploration_of([f"{TEXT} → {TARGET}"], model, layer=CROSS, head=HEAD)


@pytest.fixture(scope="module", params=["server", "file"])
def address(request, exploration, tmp_path_factory):
    if request.param == "file":
        path = tmp_path_factory.mktemp("page") / "pair.html"
        write_page(exploration, path)
        yield path.as_uri()
    else:
        with served(exploration) as address:
            yield address


def words(page):
    return page.locator(".rg-text-panel .rg-word").all_inner_texts()


def test_a_word_of_the_target_attends_to_those_of_the_text(open_page, address, weights):
    page = open_page(address)
    assert page.locator("h2").first.inner_text() == f"Cross 0 · Head {HEAD}"
    assert words(page)[:7] == TEXT.split()
    assert words(page)[-3:] == TARGET.split()
    click(page.locator(".rg-text-panel .rg-word", has_text="w10"))
    row = weights["decoder.blocks.0.cross_attn.weights"][0, HEAD, -1]
    top = page.locator(".rg-top li")
    assert top.first.locator(".rg-top-word").inner_text() == TEXT.split()[int(row.argmax())]
    assert number(top.first.locator(".rg-number").inner_text()) == pytest.approx(row.max(), rel=0.006)

    page.get_by_text("Attended by", exact=True).click()
    click(page.locator(".rg-text-panel .rg-word", has_text="w7"))
    column = weights["decoder.blocks.0.cross_attn.weights"][0, HEAD, :, 2]
    assert number(top.first.locator(".rg-number").inner_text()) == pytest.approx(column.max(), rel=0.006)


def test_the_map_has_a_row_for_each_token_of_the_target(open_page, address, weights):
    page = open_page(address)
    stage = page.locator(".rg-stage")
    stage.focus()
    for _ in range(12):
        page.keyboard.press("ArrowUp")
    shown = set()
    for _ in range(12):
        shown.add(readout(page).split(" attends to ")[0])
        page.keyboard.press("ArrowDown")
    assert set(TARGET.split()) <= shown
    assert not shown & set(TEXT.split())
    assert len(shown) == weights["decoder.blocks.0.cross_attn.weights"].shape[-2]


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_calculation_is_of_the_cell(open_page, address, weights, exploration, layer):
    described = exploration.manifest()["runs"][0]["layers"][layer]
    (row, col) = (edges["to"] - 1 for edges in described["block"])
    name = f"{described['name']}.weights"
    page = open_page(f"{address}#v=cell&l={layer}&h=0&i={row}&j={col}", selector=".rg-cell-view, .rg-cell")
    settled(page)
    shown = number(re.search(r": ([\d.]+)", readout(page))[1])
    assert shown == pytest.approx(np.float64(weights[name][0, 0, -1, -1]), rel=0.006, abs=0.0006)


def test_two_heads_with_other_tokens_are_not_subtracted(open_page, address):
    page = open_page(address)
    page.get_by_role("button", name="Compare with another head").click()
    choose(page.get_by_label("Layer", exact=True), "Encoder 0")
    assert page.get_by_text("cannot be compared cell by cell").first.is_visible()
