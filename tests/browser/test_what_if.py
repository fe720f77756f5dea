"""Other scores of a row in the calculation: its weights, its context and what the model predicts then."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import click, press, reach
from pages import check_access, plain, saved, settled

CELL = "v=cell&l=1&h=0&i=8&j=3&wi=1"
PANEL = ".rg-what-if"


def weights(page):
    """Return the weights that are shown, by the key."""
    inputs = page.locator(f"{PANEL} input[type=number]").all()
    return {each.get_attribute("aria-label").removeprefix("Weight of "): float(each.input_value()) for each in inputs}


def check_weights(page, expected):
    """Hold the weights, which have four decimals, against those of all keys."""
    shown = weights(page)
    assert len(shown) == 8
    names = ["q:1", "z:1", "k:1", "f", "b", "d", "q:2", "z:2", "k:2"]
    assert shown == pytest.approx({name: expected[names.index(name)] for name in shown}, abs=6e-5)


def check(page, sequence, scores):
    """Hold what the panel shows against the model's own run; return this."""
    answer = sequence.what_if(0, 1, 0, 8, scores)
    check_weights(page, answer["weights"])
    tokens = [re.findall(r"\S+", plain(row)) for row in page.locator("[data-ref=whatIfTokens] tbody tr").all()]
    assert [row[0] for row in tokens] == [each["token"] for each in answer["next_tokens"]]
    return answer


def test_a_masked_key_leaves_its_weight_to_the_others(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#{CELL}", selector="[data-step=weight]")
    cell = sequence.cell(0, 1, 0, 8, 3)
    check_weights(page, cell["row"]["weights"])
    assert not page.locator("[data-ref=whatFollows]").is_visible()
    click(page.get_by_label("Mask the key of f", exact=True))
    reach(page, re.compile(r"ws=1\.0\.8_3\.m"))
    answer = check(page, sequence, [(3, None)])
    assert page.get_by_label("Score of f", exact=True).is_disabled()
    context = plain(page.locator("[data-ref=changedContext] p"))
    values = {j: sequence.cell(0, 1, 0, 8, j)["v"] for j in range(9)}
    after = sum(answer["weights"][j] * np.array(v) for j, v in values.items())
    before = np.array(cell["output"])
    angle = np.degrees(np.arccos(before @ after / np.linalg.norm(before) / np.linalg.norm(after)))
    assert float(re.search(r"turns by ([\d.]+)°", context)[1]) == pytest.approx(angle, abs=0.11)
    check_access(page)
    assert b"<svg" in saved(page, "SVG")
    page.reload()
    page.wait_for_selector("[data-step=weight]")
    check(page, sequence, [(3, None)])
    click(page.get_by_role("button", name="Restore the row"))
    check_weights(page, cell["row"]["weights"])
    assert not page.locator("[data-ref=whatFollows]").is_visible()


def test_a_slider_and_a_weight_set_the_score(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#{CELL}", selector="[data-step=weight]")
    slider = page.get_by_label("Score of q:2", exact=True)
    slider.fill(str(round(float(slider.input_value()) + 2, 2)))
    reach(page, re.compile(r"ws=1\.0\.8_6\."))
    score = float(re.search(r"ws=1\.0\.8_6\.(-?[\d.]+)", page.url)[1])
    check(page, sequence, [(6, score)])
    weight = page.get_by_label("Weight of q:2", exact=True)
    weight.fill("0.6")
    weight.press("Enter")
    reach(page, re.compile(rf"ws=1\.0\.8_6\.(?!{re.escape(str(score))}(&|$))"))
    assert float(weight.input_value()) == pytest.approx(0.6)
    score = float(re.search(r"ws=1\.0\.8_6\.(-?[\d.]+)", page.url)[1])
    assert sequence.what_if(0, 1, 0, 8, [(6, score)])["weights"][6] == pytest.approx(0.6, abs=1e-3)
    page.locator("[data-ref=cellTitle]").click()  # out of the field
    press(page, "ArrowUp")
    reach(page, re.compile("i=7&"))
    assert not page.locator("[data-ref=whatFollows]").is_visible()


def test_a_file_computes_the_row_and_says_that_it_runs_no_model(open_page, sequence_file, sequence):
    page = open_page(f"{sequence_file}#{CELL}", selector="[data-step=weight]")
    click(page.get_by_label("Mask the key of f", exact=True))
    answer = sequence.what_if(0, 1, 0, 8, [(3, None)])
    check_weights(page, answer["weights"])
    assert "turns by" in plain(page.locator("[data-ref=changedContext]"))
    assert "This page runs no model" in plain(page.locator("[data-ref=whatIfOutputs]"))


def test_a_weight_is_of_the_row_that_it_was_written_for(open_page, sequence_address):
    page = open_page(f"{sequence_address}#{CELL.replace('cell', 'head')}")
    click(page.get_by_role("button", name="Calculation"))
    field = page.get_by_label("Weight of f")
    field.fill("0.9")
    page.evaluate("location.hash = location.hash.replace('i=8', 'i=7')")  # the field is left with what it has
    settled(page)
    assert "i=7" in page.url
    assert "ws=" not in page.url
    page.get_by_label("Weight of f").fill("0.9")
    page.go_back()
    page.go_back()  # no message of the console
    reach(page, re.compile("v=head"))
