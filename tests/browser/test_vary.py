"""One thing is varied: a text beside the first, what changes in a head, and the steps of one put into the other."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import choose, click, go, press, reach
from pages import GOLDEN, SEQUENCE, check_access, expect, explored, hold, number, plain, saved, settled

import regard
from regard.explorer import write_page

OTHER = "qzxfbdqzx"


def recovered(page):
    """Return the numbers of the squares, a row for each layer."""
    rows = page.locator(".rg-patching-row:not(.rg-patching-names)").all()
    return np.array(
        [[float(cell.replace("−", "-")) for cell in row.locator("button").all_inner_texts()] for row in rows]
    ).T


def test_a_word_is_varied_and_its_run_is_patched(open_page, serve, induction):
    exploration = explored(induction, SEQUENCE, layer=1, head=0)
    page = open_page(f"{serve(exploration)}#v=head&l=1&h=0&i=8&j=3")
    click(page.get_by_role("button", name="Compare with…"))
    field = page.get_by_label("Text of B")
    expect(field).to_be_focused()
    assert field.input_value() == SEQUENCE
    field.fill(OTHER)
    press(page, "Enter")
    reach(page, re.compile(f"l=1&h=0&i=8&j=3&s=diff&.*text_b={OTHER}"))
    assert page.locator(".rg-aligned mark").all_inner_texts() == ["k", "x", "k", "x"]
    b = explored(induction, OTHER, layer=1, head=0)
    difference = exploration.whole(0, 1, 0)[8, 3] - b.whole(0, 1, 0)[8, 3]
    assert float(plain(page.locator(".rg-readout").first).split()[-1].replace("−", "-")) == pytest.approx(
        difference, abs=6e-4
    )
    click(page.get_by_role("button", name="Calculation"))
    scores = page.locator(".rg-step-columns [data-step=weight] .rg-value").all_inner_texts()
    expected = [each.cell(0, 1, 0, 8, 3)["weight"] for each in (exploration, b)]
    assert [float(score.split()[-1]) for score in scores] == pytest.approx(expected, abs=6e-4)
    check_access(page)
    let_go = hold(page, "**/api/patching")
    page.keyboard.press("8")
    page.get_by_role("button", name="Cancel").click()
    assert page.locator("[data-ref=patchingStatus]").inner_text() == "Cancelled."
    let_go()
    page.unroute_all()
    click(page.get_by_role("button", name="Start again"))
    both = explored(induction, SEQUENCE, OTHER, layer=1, head=0)
    np.testing.assert_allclose(recovered(page), both.patching(0, 1)["recovered"], atol=0.0051)
    click(page.get_by_label("What is put into B").get_by_text("Heads"))
    likely = both.patching(0, 1)["likely"]
    token = next(
        each["token"]
        for each in likely
        if each["token"] not in (both.patching(0, 1)["versus"], both.patching(0, 1)["token"])
    )
    choose(page.get_by_label("Next token of the patching"), str(token))
    answer = both.patching(0, 1, over="head", token=token)
    np.testing.assert_allclose(recovered(page), answer["recovered"], atol=0.0051)
    table = [line.split(",") for line in saved(page, "CSV").decode().splitlines()]
    assert table[0] == ["layer", "head", "value", "recovered"]
    assert [float(row[3]) for row in table[1:]] == pytest.approx(np.ravel(answer["recovered"]))
    svg = saved(page, "SVG").decode()
    assert f"induction  ·  A: {SEQUENCE}  ·  B: {OTHER}" in svg
    assert len(re.findall('<rect [^>]*stroke="rgb', svg)) == np.size(answer["recovered"])
    assert saved(page, "PNG").startswith(b"\x89PNG")
    page.get_by_text("Save", exact=True).click()
    expect(page.get_by_label("The Python that draws it again")).to_have_value(re.compile("regard.plot.patching"))
    press(page, "Escape")
    check_access(page, 1440, 390, themes=("dark", "forced"))
    page.set_viewport_size({"width": 1440, "height": 900})
    check_path(page, both, token)
    click(page.get_by_label("What is put into B").get_by_text("Heads"))
    click(page.locator(".rg-patching-row:not(.rg-patching-names)").nth(2).locator("button").nth(1))
    reach(page, re.compile("v=head&l=1&h=2&i=8"))
    page.go_back()
    reach(page, re.compile("v=patching"))
    click(page.get_by_role("button", name="End the comparison"))
    assert "text_b" not in page.url
    expect(page.get_by_role("button", name="Compare with…")).to_be_focused()
    assert page.locator("[data-ref=patchingStatus]").inner_text().startswith("Patching needs a text B")
    page.get_by_text("Save", exact=True).click()
    expect(page.locator("[data-ref=saveStatus]")).to_have_text("There is nothing to save: the view says why.")


def path_numbers(page):
    cells = page.locator("[data-ref=patchingGrid] td").all_inner_texts()
    return np.array([number(cell) for cell in cells]).reshape(3, 3)


def check_path(page, both, token):
    """Go to the path between two heads and choose others, by keys; what the page shows is what Python computes."""
    page.get_by_label("What is put into B").get_by_text("Path").focus()
    press(page, "Enter")
    answer = both.patching(0, 1, over="path", token=token)
    np.testing.assert_allclose(path_numbers(page)[:, 2], answer["recovered"][0], atol=0.0051)
    sender, receiver = (page.get_by_label(f"Head {way} which the path goes") for way in ("from", "to"))
    assert [sender.input_value(), receiver.input_value()] == [
        f"{layer},{head}" for layer, head in (answer["sender"], answer["receiver"])
    ]
    sender.focus()
    press(page, "L", "0", "H", "3")
    choose(receiver, "1,2")
    assert "po=path&ps=0.3&pr=1.2" in page.url
    answer = both.patching(0, 1, over="path", token=token, sender=(0, 3), receiver=(1, 2))
    changes = np.subtract(answer["values"][0], answer["corrupted"])
    np.testing.assert_allclose(path_numbers(page)[:, 1:], np.transpose([changes, answer["recovered"][0]]), atol=0.0051)
    check_access(page, 1440, 390, themes=("dark", "forced"))
    page.set_viewport_size({"width": 1440, "height": 900})
    table = [line.split(",") for line in saved(page, "CSV").decode().splitlines()]
    assert [row[:5] for row in table[1:]] == [["0", "3", "1", "2", into] for into in "qkv"]
    assert [float(row[6]) for row in table[1:]] == pytest.approx(answer["recovered"][0])
    assert "reaches one input of L1H2" in saved(page, "SVG").decode()
    assert page.get_by_role("group", name="Figure for print").count() == 0
    press(page, "Escape")
    page.reload()
    settled(page)
    np.testing.assert_allclose(path_numbers(page)[:, 2], answer["recovered"][0], atol=0.0051)


def test_a_path_that_cannot_be_is_shown_beside_why(open_page, serve, induction):
    both = explored(induction, SEQUENCE, OTHER, layer=1, head=0)
    address = f"{serve(both)}#v=patching&po=path&l=1&h=0"
    page = open_page(address, selector=".rg-path-table", allow="400 (Bad Request)")
    sender, receiver = (page.get_by_label(f"Head {way} which the path goes") for way in ("from", "to"))
    for refused, shown, message in (
        ("ps=1.2&pr=0.3", ["1,2", "0,3"], "must be in a later layer than the sender"),
        ("ps=0.3&pr=7.9", ["0,3", "7,9"], "There is no head (7, 9)"),
        ("ps=1.2", ["1,2", ""], "the sender, L1H2, is one of the last"),
    ):
        go(page, f"{address}&{refused}")
        assert message in page.locator("[data-ref=patchingStatus]").inner_text()
        assert [sender.input_value(), receiver.input_value()] == shown
    choose(receiver, "1,1")  # what cannot go there is left out
    answer = both.patching(0, 1, over="path", receiver=(1, 1))
    assert [sender.input_value(), receiver.input_value()] == [f"0,{answer['sender'][1]}", "1,1"]
    np.testing.assert_allclose(path_numbers(page)[:, 2], answer["recovered"][0], atol=0.0051)


def test_a_comparison_that_is_ended_while_it_runs_leaves_nothing(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=3")
    click(page.get_by_role("button", name="Compare with…"))
    let_go = hold(page, "**/api/run_text")
    page.get_by_label("Text of B").fill(OTHER)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Run B")).to_be_disabled()
    page.get_by_role("button", name="End the comparison").click()
    let_go()
    page.unroute_all()
    click(page.get_by_role("button", name="Compare with…"))
    expect(page.get_by_role("button", name="Run B")).to_be_enabled()
    assert page.locator("[data-ref=liveStatusB]").inner_text() == ""


def test_a_layer_without_a_map_has_squares_of_its_own(open_page, serve):
    model = regard.load(GOLDEN / "qwen3_next" / "mixed", dtype=np.float64)  # layers 0 and 2 attend
    both = explored(model, "w4 w8 w6", "w4 w9 w6", layer=0, head=0)
    page = open_page(f"{serve(both)}#v=patching&po=mlp", selector=".rg-patching-cell")
    np.testing.assert_allclose(recovered(page), both.patching(0, 1, over="mlp")["recovered"], atol=0.0051)
    last = page.locator(".rg-patching-row").last.locator("button")
    linear = re.compile("^Layer 1, MLP at w6: .*; this layer is linear attention, which has no map to open$")
    readout = page.locator("[data-ref=patchingReadout]")
    assert linear.match(last.nth(1).get_attribute("aria-label"))
    assert last.nth(1).is_disabled()
    last.nth(0).hover()
    assert re.match("^Layer 0, MLP at w6: [^;]*$", readout.inner_text())
    click(last.nth(1), force=True)  # it says what it is, and stays a place for keys
    assert linear.match(readout.inner_text())
    assert "v=patching" in page.url
    press(page, "ArrowRight")
    expect(last.nth(2)).to_be_focused()
    check_access(page, 1440)
    click(last.nth(2))
    reach(page, re.compile("v=head&l=1&h=mean&i=2"))
    page.go_back()
    reach(page, re.compile("v=patching"))
    page.get_by_label("What is put into B").get_by_text("Path").focus()
    press(page, "Enter")
    answer = both.patching(0, 1, over="path")
    np.testing.assert_allclose(path_numbers(page)[:, 2], answer["recovered"][0], atol=0.0051)
    assert page.get_by_label("Head to which the path goes").input_value() == f"2,{answer['receiver'][1]}"


def test_a_square_has_the_name_of_its_token(open_page, serve, minilm):
    page = open_page(
        f"{serve(explored(minilm, 'head to head today', 'head to hand today'))}#v=patching",
        selector=".rg-patching-cell",
    )
    rows = page.locator(".rg-patching-row:not(.rg-patching-names)")
    names = [rows.nth(n).locator("button").first.get_attribute("aria-label") for n in (1, 3)]
    said = [name.partition(", the number")[0].rpartition(": ")[0] for name in names]
    assert said == [f"Layer 0, residual stream at {token}" for token in ("head:1", "head:2 | hand")]


def test_a_file_has_the_grid_of_its_pair(open_page, induction, tmp_path):
    exploration, path = explored(induction, SEQUENCE, OTHER, layer=1, head=0), tmp_path / "page.html"
    write_page(exploration, path)
    page = open_page(f"{path.as_uri()}#v=patching&l=1&h=0", selector=".rg-patching-cell")
    np.testing.assert_allclose(recovered(page), exploration.patching(0, 1)["recovered"], atol=0.0051)
    tokens = page.get_by_label("Next token of the patching")
    default = tokens.input_value()
    values = tokens.evaluate("(list) => [...list.options].map((one) => one.value)")
    other = next(value for value in values if value != default)
    choose(tokens, other)
    assert page.locator("[data-ref=patchingStatus]").inner_text().startswith("This file does not hold this")
    choose(tokens, default)
    np.testing.assert_allclose(recovered(page), exploration.patching(0, 1)["recovered"], atol=0.0051)
    click(page.get_by_role("button", name="MLP"))
    assert page.locator("[data-ref=patchingStatus]").inner_text().startswith("This file does not hold this")
