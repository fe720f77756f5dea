"""An ablation stays at its head, names those that change most, applies to the visible text, and can be undone."""

from __future__ import annotations

import numpy as np
import pytest
from acts import ablate, appear, choose, click, go, press, reach
from pages import exact, hold, intercept, settled, traced, weight_text

from regard.explorer import Exploration

HEADS = [[(layer, head) for head in range(12)] for layer in range(6)]  # of MiniLM


def changed(exploration, layer, head, run=0):
    """Return the run without a head, where a weight changes most, layer and head, and by how much."""
    after = exploration.ablate([[layer, head]], run=run)["run"]
    by = np.array(
        [[np.abs(exploration.whole(run, *at) - exploration.whole(after, *at)).max() for at in row] for row in HEADS]
    )
    most, its = (int(n) for n in np.unravel_index(by.argmax(), by.shape))
    return after, most, its, by.max()


def test_the_view_and_the_address_stay_at_the_head_and_name_what_changed_most(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    ablate(page)
    page.wait_for_url("**x=2.3*")
    page.go_back()
    reach(page, lambda url: "x=" not in url)
    page.get_by_role("button", name="Undo", exact=True).click()  # going back is undone as any other change
    reach(page, "**x=2.3*")
    said = page.locator(".rg-readout").inner_text()
    page.reload()  # the address keeps what is switched off
    appear(page, ".rg-changes h3")
    assert page.locator(".rg-readout").inner_text() == said
    assert "Without layer 2 head 3" in page.locator(".rg-changes").inner_text()
    after, layer, head, by = changed(one, 2, 3)
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 3"
    most = page.locator(".rg-changes .rg-button").first
    assert most.inner_text() == f"Layer {layer} head {head}, by {weight_text(by)}"
    click(most)
    assert page.locator("h2").first.inner_text() == f"Layer {layer} · Head {head}"
    difference = (one.row(0, layer, head, 8) - one.row(after, layer, head, 8))[2]
    assert exact(page) == pytest.approx(difference, abs=2e-6)
    ends = page.locator(".rg-legend-ticks span").all_inner_texts()
    assert float(ends[-1].replace("−", "-")) == pytest.approx(by, rel=0.06)  # two digits
    assert page.locator(".rg-changes .rg-word").count() == one.runs[0].length
    choose(page.get_by_label("Layer", exact=True), "1")
    assert "they are equal" in page.locator(".rg-below-map .rg-legend").inner_text()
    page.get_by_role("button", name="Restore all heads").click()
    assert page.locator(".rg-changes").is_hidden()
    assert page.locator(".rg-head-panel .rg-side-switch").is_hidden()


def test_back_undoes_an_ablation_and_heads_that_are_off_are_marked(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    ablate(page)
    press(page, "]")
    page.get_by_role("button", name="Ablate this head").click()
    reach(page, "**x=2.3_2.4*")
    marked = page.locator('.rg-head[data-ablated="true"]')
    assert [name[: len("layer 2, head 3")] for name in names(marked)] == ["layer 2, head 3", "layer 2, head 4"]
    assert all(name.endswith(", ablated") for name in names(marked))
    for expected in (["layer 2, head 3"], ["layer 2, head 3"], []):  # the head chosen between has an entry too
        page.go_back()
        page.wait_for_function(
            "(n) => document.querySelectorAll('.rg-head[data-ablated=true]').length === n", arg=len(expected)
        )
        settled(page)
        assert [name[: len("layer 2, head 3")] for name in names(marked)] == expected
    assert page.locator(".rg-changes").is_hidden()
    assert page.get_by_role("button", name="Ablate this head").is_enabled()
    page.go_forward()
    page.wait_for_selector(".rg-changes h3")


def names(heads):
    return [head.get_attribute("aria-label") for head in heads.all()]


def test_the_grid_shows_what_an_ablation_changes_in_every_head(open_page, address, one):
    page = open_page(f"{address}#v=heads&l=2&h=3&x=2.3&s=diff")
    page.wait_for_selector(".rg-changes h3", state="attached")
    settled(page)
    run = one.ablate([[2, 3]])["run"]
    largest = np.array(one.differences([0, run])["largest"])
    shown = [float(text or 0) for text in page.locator(".rg-caption").all_inner_texts()]
    assert np.array(shown).reshape(6, 12) == pytest.approx(largest, abs=0.0051)
    assert largest[:3].max() == 0 < largest[3:].min()


def test_after_the_last_layer_nothing_changes_and_it_is_said(open_page, address):
    page = open_page(f"{address}#v=head&l=5&h=3&i=8&j=2")
    ablate(page)
    assert page.locator("h2").first.inner_text() == "Layer 5 · Head 3"
    assert "No shown weight changes" in page.locator(".rg-changes").inner_text()


def test_of_two_texts_the_one_that_is_seen_is_run_again(open_page, address_of_two, two):
    page = open_page(f"{address_of_two}#v=head&l=2&h=3&i=8&j=2&s=B")
    ablate(page)
    after, layer, head, _ = changed(two, 2, 3, run=1)
    click(page.locator(".rg-changes .rg-button").first)
    difference = (two.row(1, layer, head, 8) - two.row(after, layer, head, 8))[2]
    assert exact(page) == pytest.approx(difference, abs=2e-6)
    assert "A is text B and B is its ablation" in page.locator(".rg-changes").inner_text()
    click(page.get_by_role("button", name="Restore all heads"))
    assert page.locator(".rg-head-panel .rg-side-switch .rg-segment[aria-pressed=true]").inner_text() == "B"
    assert exact(page) == pytest.approx(float(two.row(1, layer, head, 8)[2]), abs=5e-7)


def test_a_head_that_is_off_says_so_in_its_steps_and_hands_nothing_over(open_page, address, one):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2&x=2.3&s=B", selector="[data-step=ablated]")
    assert "The output of this head is set to 0." in page.locator("[data-step=ablated]").inner_text()
    weight = float(page.locator("[data-value=weight]").inner_text())
    assert weight == pytest.approx(float(one.row(0, 2, 3, 8)[2]), rel=5e-3)
    assert page.locator("[data-step=weighted_value], [data-step=output]").count() == 0
    page.locator(".rg-head-panel .rg-side-switch").get_by_role("button", name="A", exact=True).click()
    page.wait_for_selector("[data-step=output]")
    assert page.locator("[data-step=ablated]").count() == 0
    go(page, f"{address}#v=head&l=2&h=3&i=8&j=2&x=2.3&s=diff&w=norms")
    assert exact(page) == pytest.approx(float(one.row(0, 2, 3, 8, mode="norms")[2]), abs=5e-7)
    assert "so are its weights × values" in page.locator(".rg-changes").inner_text()


def test_an_edit_outlives_those_of_other_pages(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    ablate(page)
    for head in range(9):
        one.ablate([[3, head]])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("]")
    page.keyboard.press("3")
    appear(page, "[data-step=output]")
    assert page.locator(".rg-error-bar").is_hidden()


def test_how_far_an_ablation_is_and_why_it_cannot_be_stand_beside_its_button(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    share = '{"ablate": {"share": 0.4, "seconds_left": 11.2}}'
    intercept(page, "**/api/progress*", lambda route: route.fulfill(body=share, content_type="application/json"))
    let_go = hold(page, "**/api/ablate*")
    page.get_by_role("button", name="Ablate this head").click()
    page.wait_for_selector("text=Running the model again")
    page.wait_for_selector("text=40 %, 12 s left")
    let_go()
    appear(page, ".rg-changes h3")
    assert page.locator(".rg-progress").all_inner_texts() == ["", "", ""]
    page = open_page(f"{address}#v=head&l=2&h=3", allow="Failed to load resource")
    intercept(page, "**/api/ablate*", lambda route: route.fulfill(status=400, body='{"error": "no model"}'))
    page.get_by_role("button", name="Ablate this head").click()
    page.wait_for_selector("text=no model")
    page.wait_for_url(lambda url: "x=" not in url)
    assert page.get_by_role("button", name="Ablate this head").is_enabled()


def test_after_an_ablation_that_fails_an_earlier_one_does_not_come_back(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3", allow="Failed to load resource")
    ablate(page)
    click(page.get_by_role("button", name="Restore all heads"))
    press(page, "]")
    intercept(page, "**/api/ablate*", lambda route: route.fulfill(status=400, body='{"error": "no model"}'))
    page.get_by_role("button", name="Ablate this head").click()
    page.wait_for_selector("text=no model")
    settled(page)
    assert "x=" not in page.url


def test_pictures_of_a_long_text_come_before_its_measures(open_page, serve):
    asked = []
    address = serve(Exploration(traced([f"w{i}" for i in range(2100)], causal=True)))
    page = open_page(f"{address}#v=heads")
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    appear(page, ".rg-head")
    asked = [name for url in asked for name in ("thumbnails", "heads") if f"/api/{name}" in url]
    assert asked == ["thumbnails", "heads"]


def test_an_ablation_is_undone_and_done_again_by_buttons_and_keys(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    undo, redo = (page.get_by_role("button", name=name, exact=True) for name in ("Undo", "Redo"))
    assert not undo.is_visible()
    ablate(page)
    press(page, "]")
    page.get_by_role("button", name="Ablate this head").click()
    reach(page, "**x=2.3_2.4*")
    undo.click()
    reach(page, lambda url: url.endswith("x=2.3") or "x=2.3&" in url)
    press(page, "u")
    assert "x=" not in page.url
    assert page.locator('.rg-head[data-ablated="true"]').count() == 0
    assert not undo.is_visible()
    page.keyboard.press("r")
    reach(page, lambda url: url.endswith("x=2.3") or "x=2.3&" in url)
    redo.click()
    reach(page, "**x=2.3_2.4*")
    assert not redo.is_visible()
    click(page.get_by_role("button", name="Restore all heads"))
    undo.click()
    page.wait_for_url("**x=2.3_2.4*")


def test_an_ablation_is_done_again_in_its_own_text(open_page, address_of_two):
    page = open_page(f"{address_of_two}#v=head&l=2&h=3&i=8&j=2")
    ablate(page)
    page.get_by_role("button", name="Restore all heads").click()
    page.wait_for_url(lambda url: "x=" not in url)
    page.locator(".rg-head-panel .rg-side-switch").get_by_role("button", name="B", exact=True).click()
    page.wait_for_url("**s=B*")
    page.get_by_role("button", name="Undo", exact=True).click()
    page.wait_for_url("**x=2.3*")
    page.wait_for_selector(".rg-changes h3")
    assert "A is text A and B is its ablation" in page.locator(".rg-changes").inner_text()
