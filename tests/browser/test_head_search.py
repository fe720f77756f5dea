"""Which heads matter, in the grid of heads, and the whole model at one position: held against Python."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from acts import appear, choose, click, go, press, reach
from pages import SEQUENCE, TEXT, check_access, intercept, saved, served, settled

import regard
from regard.explorer import Exploration
from regard.functional import softmax

EFFECT = "v=heads&m=ablation_effect"
CELLS = "v=heads&m=cell_weight"


@pytest.fixture(scope="module")
def saved_address(minilm):
    trace = regard.Trace(maps=True, only="*")
    minilm(TEXT, trace=trace)
    with served(Exploration(trace)) as address:
        yield address


def shown_values(page):
    """Return the numbers below the heads, by layer and head."""
    appear(page, ".rg-head[aria-label*=head]")
    found = {}
    for node in page.locator(".rg-head").all():
        layer, head = re.search(r"layer (\d+), head (\d+)", node.get_attribute("aria-label")).groups()
        number = re.search(r"([−]?\d+\.\d+)$", node.locator(".rg-caption").inner_text())[1]
        found[int(layer), int(head)] = float(number.replace("−", "-"))
    return found


def test_the_effect_of_ablation_is_the_fall_of_the_probability(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#{EFFECT}&i=8&j=0")
    found = shown_values(page)
    before = softmax(np.asarray(induction(SEQUENCE).logits[0, 8], np.float64))
    token = int(before.argmax())
    assert len(found) == 8
    for at, value in found.items():
        logits = induction(SEQUENCE, edit=regard.edits.ablate(at)).logits[0, 8]
        after = softmax(np.asarray(logits, np.float64))
        assert value == pytest.approx(before[token] - after[token], abs=6e-4)
    assert "with all heads" in page.locator(".rg-heads [role=status]").inner_text()


def test_the_effect_on_an_encoder_is_how_far_the_vector_turns(open_page, address, minilm):
    page = open_page(f"{address}#{EFFECT}&i=3&j=2")
    found = shown_values(page)
    vectors = [minilm(TEXT, edit=edit).hidden[0, 3] for edit in (None, regard.edits.ablate((1, 4)))]
    a, b = (np.asarray(vector, np.float64) for vector in vectors)
    assert found[1, 4] == pytest.approx(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=6e-4)


def test_a_sweep_says_how_far_it_is_and_ends_when_the_choice_changes(open_page, address):
    page = open_page(f"{address}#v=heads", allow="aborted")
    asked = []

    def answer_three(route):
        asked.append(route)
        if len(asked) <= 3:
            route.continue_()

    intercept(page, "**/api/sweep*", answer_three)
    page.get_by_label("Metric of heads").select_option("ablation_effect")
    page.wait_for_function(
        "() => document.querySelector('.rg-heads').innerText.match(/layer 3 of 6, about \\d+ s left/)"
    )
    choose(page.get_by_label("Metric of heads"), "entropy")
    assert len(asked) == 4
    assert "Ablating" not in page.locator(".rg-heads").inner_text()


def test_heads_are_ranked_by_the_weight_of_a_cell(open_page, address, weights):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    page.get_by_role("button", name="Find heads with this weight").click()
    page.wait_for_selector(".rg-sorted")
    found = shown_values(page)
    assert found == pytest.approx(dict(np.ndenumerate(weights[:, :, 8, 2])), abs=6e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    page.wait_for_url(re.compile("cells=8.2"))


@pytest.mark.parametrize("way", ["keys", "click", "button"])
def test_cells_are_added_and_removed(open_page, address, weights, way):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2&cells=8.2")
    stage = page.locator(".rg-stage").first
    stage.focus()
    press(page, "ArrowDown")
    if way == "keys":
        page.keyboard.press("x")
    elif way == "button":
        page.get_by_role("button", name="Add this cell").click()
    else:
        box = stage.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.keyboard.down("Shift")
        page.mouse.down()
        page.mouse.up()
        page.keyboard.up("Shift")
    page.wait_for_url(re.compile(r"cells=8\.2_\d+\.\d+"))
    row, col = map(int, re.search(r"cells=8\.2_(\d+)\.(\d+)", page.url).groups())
    page.get_by_role("button", name="Find heads with these weights").click()
    page.wait_for_selector(".rg-sorted")
    found, head = shown_values(page), weights[1, 5]
    assert found[1, 5] == pytest.approx((head[8, 2] + head[row, col]) / 2, abs=6e-4)
    page.go_back()
    page.wait_for_url(re.compile("v=head&|v=head$"))
    page.get_by_role("group", name="Cells to search by").get_by_role("button").first.click()
    page.wait_for_url(re.compile(rf"cells={row}\.{col}(&|$)"))


def test_a_saved_trace_finds_heads_and_says_why_it_has_no_whole_model(open_page, saved_address):
    page = open_page(f"{saved_address}#v=head&l=2&h=3&i=8&j=2")
    options = page.get_by_label("Metric of heads").locator("option")
    assert "Weight of the chosen cells" in options.all_inner_texts()
    assert "Effect of ablation" not in options.all_inner_texts()
    assert not page.get_by_role("button", name="Whole model").is_visible()
    page.get_by_role("button", name="Model", exact=True).click()
    assert not page.get_by_role("button", name="Whole model").is_visible()
    said = open_page(f"{saved_address}#v=model", allow="400").locator(".rg-model-view")
    said.get_by_text("not a saved trace").wait_for()


def test_a_file_has_neither(open_page, file_address):
    page = open_page(f"{file_address}#v=model&i=8&j=2")
    page.locator(".rg-model-view").get_by_text("no model to run").wait_for()
    press(page, "2")
    click(page.get_by_role("button", name="Model", exact=True))
    assert "v=movement" in page.url  # what it has
    assert not page.get_by_role("button", name="Whole model").is_visible()
    assert not page.get_by_role("button", name="Find heads with this weight").is_visible()
    options = page.get_by_label("Metric of heads").locator("option").all_inner_texts()
    assert not {"Weight of the chosen cells", "Effect of ablation"} & set(options)


def number(text):
    return float(re.search(r"[−]?[\d.]+$", text.strip())[0].replace("−", "-"))


def test_the_whole_model_has_what_each_part_adds_and_each_opens(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#v=model&i=8&j=0")
    rows = page.locator(".rg-stream-row[role=group]")
    rows.first.wait_for()
    trace = regard.Trace()
    logits = induction(SEQUENCE, trace=trace).logits[0, 8]
    found = regard.metrics.logit_attribution(induction, trace, int(np.argmax(logits)))
    assert rows.count() == 2
    for n, row in enumerate(rows.all()):
        ticks = [node.get_attribute("title") for node in row.locator(".rg-stream-head").all()]
        expected = found.heads[n][0, :, 8]
        assert [number(title) for title in ticks] == pytest.approx(list(expected), rel=2e-3, abs=2e-4)
        parts = [number(node.inner_text()) for node in row.locator(".rg-stream-part").all()]
        attention = expected.sum() + found.attn_biases[n][0, 8]
        assert parts[0] == pytest.approx(attention, rel=2e-3, abs=2e-4)
        assert parts[1:] == [] or parts[1] == pytest.approx(float(found.mlps[n][0, 8]), rel=2e-3, abs=2e-4)
    assert number(page.get_by_role("button", name="Logit of").inner_text()) == pytest.approx(
        float(found.logit[0, 8]), rel=2e-3
    )
    page.get_by_role("group", name="Layer 1").get_by_role("button", name=re.compile("head 2")).click()
    reach(page, re.compile("v=head"))
    assert page.locator("h2").first.inner_text() == "Layer 1 · Head 2"
    page.go_back()
    page.wait_for_url(re.compile("v=model"))
    page.get_by_role("button", name="Logit of").click()
    page.wait_for_url(re.compile("nt=1"))


def test_an_encoder_shows_lengths(open_page, address, minilm):
    page = open_page(f"{address}#v=model&i=3&j=2")
    rows = page.locator(".rg-stream-row[role=group]")
    rows.first.wait_for()
    trace = regard.Trace()
    minilm(TEXT, trace=trace)
    expected = [np.linalg.norm(trace[f"blocks.{n}.output"][0, 3]) for n in range(6)]
    lengths = [number(node.inner_text()) for node in page.locator(".rg-stream-length").all()]
    assert lengths == pytest.approx(expected, rel=1e-3)
    assert page.locator(".rg-stream-head").count() == 0


def test_it_is_accessible(open_page, sequence_address):
    page = open_page(sequence_address)
    for view in ("v=model", EFFECT, "v=head&cells=8.2_3.1"):
        page.goto(f"{sequence_address}#{view}&i=8&j=2")
        check_access(page, 1440, 320, note=view)


def test_the_cells_to_search_by_are_outlined_on_the_map(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2&cells=8.2_3.1")

    def frames():
        drawing = ElementTree.fromstring(saved(page, "SVG"))
        stroked = [node for node in drawing.iter("{http://www.w3.org/2000/svg}rect") if node.get("fill") == "none"]
        return sorted(
            (float(node.get("x")), float(node.get("y"))) for node in stroked if node.get("stroke-width") == "1.5"
        )

    (x0, y0), (x1, y1) = frames()
    assert (x1 - x0) == pytest.approx((y1 - y0) / 5, abs=0.1)  # cells are square: 1 column, and 5 rows apart
    go(page, f"{address}#v=head&l=2&h=3&i=8&j=2")
    assert frames() == []


def test_cells_are_written_as_words(open_page, address, one, weights):
    page = open_page(f"{address}#v=head&l=2&h=3")
    find = page.get_by_role("button", name=re.compile("Find heads with"))
    field = page.get_by_label("Cells to search by, as words")
    field.fill("it → cat, Tired -> sat")
    field.press("Enter")
    reach(page, re.compile("cells="))
    tokens = [token["text"] for token in one.manifest()["runs"][0]["tokens"]]
    cells = [(tokens.index("it"), tokens.index("cat")), (tokens.index("tired"), tokens.index("sat"))]
    assert re.search(r"cells=([\d._]+)", page.url)[1] == "_".join(f"{i}.{j}" for i, j in cells)
    find.click()
    page.wait_for_selector(".rg-sorted")
    means = np.mean([weights[:, :, i, j] for i, j in cells], axis=0)
    assert shown_values(page) == pytest.approx(dict(np.ndenumerate(means)), abs=6e-4)


def test_cells_that_are_none_are_refused_in_a_sentence(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    field, refused = page.get_by_label("Cells to search by, as words"), "Write it → animal, with words of the text."
    for written in ("it", "it → zebra", "it → cat, dog", "→"):
        field.fill("")
        field.press("Enter")
        page.get_by_text(refused).wait_for(state="detached")
        field.fill(written)
        field.press("Enter")
        page.get_by_text(refused).wait_for()
        settled(page)
        assert "cells=" not in page.url, written
