"""The page by keyboard alone: what each key does, what is reachable, and where the focus goes."""

from __future__ import annotations

import re

import pytest
from acts import click, go, press, reach, resize
from pages import plane_of, readout, settled

HEAD = "v=head&l=2&h=3&i=8&j=2"


def focused(page):
    return page.evaluate("(({ ariaLabel, textContent }) => ariaLabel ?? textContent)(document.activeElement)")


WHAT_KEYS_DO = [
        ("]", "h=4"), ("[", "h=2"), ("}", "l=3"), ("{", "l=1"), ("m", "h=mean"), ("M", "h=mean"),
        ("1", "v=heads"), ("3", "v=cell"), ("4", "v=movement"), ("Enter", "v=cell"), ("+", "z="), ("t", "d=in"),
        ("p", "pins=8"), ("a", "arcs=1"), ("v", "w=rollout"), ("s", "special=0"), ("w", "words=1"), ("l", "log=1"),
        ("n", "byrow=1"), ("d", "theme=dark"), ("ArrowDown", "i=9"), ("ArrowUp", "i=7"),
        ("ArrowRight", "j=3"), ("ArrowLeft", "j=1"),
]  # fmt: skip


def test_each_key_does_what_the_list_says(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    for key, part in WHAT_KEYS_DO:
        go(page, f"{address}#{HEAD}")
        press(page, key)
        assert any(one.startswith(part) for one in page.url.split("#")[1].split("&")), (key, page.url)


def test_every_view_has_the_words_and_arrows_choose_one(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=3")
    for key in "13456":
        go(page, f"{sequence_address}#v=head&l=1&h=0&i=8&j=3")
        press(page, key)
        bar = page.locator(".rg-word-bar")
        assert bar.locator(".rg-word").all_inner_texts() == list("qzkfbdqzk")
        assert bar.locator("[aria-pressed=true]").get_attribute("aria-label") == "k:2"
        press(page, "ArrowUp" if key == "3" else "ArrowLeft")
        assert "i=7" in page.url
        click(bar.locator(".rg-word").nth(4))
        assert "i=4" in page.url
        assert bar.locator("[aria-pressed=true]").all_inner_texts() == ["b"]


def test_keys_of_one_character_can_be_switched_off(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    press(page, "?")
    click(page.get_by_label("Letters, digits and signs act as keys"))
    press(page, "Escape", "]", "m", "4", "ArrowDown")
    assert "l=2&h=3&i=9" in page.url
    page.reload()
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    press(page, "]")
    assert "h=3" in page.url
    click(page.get_by_role("button", name="Keys and gestures (?)"))
    click(page.get_by_label("Letters, digits and signs act as keys"))
    press(page, "Escape", "]")
    assert "h=4" in page.url


def test_g_brings_what_mattered_into_the_window(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    resize(page, 1024, 600)
    press(page, "g")
    box = page.get_by_label("Method", exact=True).bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 600


def test_what_is_looked_for_is_found_and_left_in_every_view(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.keyboard.press("/")
    page.keyboard.type("cat")
    press(page, "Enter")
    assert "i=2" in page.url
    assert page.locator(".rg-match").count() == 1
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "rg-stage"
    for view in ("1", "4"):
        press(page, view)
        page.keyboard.press("/")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_tab_reaches_every_part(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(focused(page))
    parts = ["All heads", "Find a word in the text", "Display", "Save", "Layer", "Head", "Map mode", "Zoom in (+)"]
    parts += ["Attention map", "Metric of heads", "Attends to", "Ablate this head", "Compare with another head"]
    for part in parts:
        assert any(part in name for name in reached), part


def test_focus_stays_where_it_was_or_goes_on_where_its_place_went_with_the_view(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    page.get_by_text("Display", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    assert focused(page) == "Display"
    page.get_by_text("Save", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    with page.expect_download():
        page.keyboard.press("Enter")
    assert focused(page) == "Save"
    page.locator(".rg-word").nth(8).focus()
    press(page, "]")
    assert focused(page).startswith("it:1 ")
    press(page, "Enter")
    assert focused(page).startswith("it:1 ")
    go(page, f"{address}#{HEAD}")
    page.locator(".rg-stage").focus()
    press(page, "4")
    assert focused(page) == "Representations by layer"
    page.locator(".rg-plane-stage button[tabindex='0']").focus()
    press(page, "2")
    assert focused(page).startswith("Attention map")


def test_arrows_reach_what_folds_rows_and_columns(open_page, address):
    page = open_page(f"{address}#v=heads&l=0&h=0")
    page.locator(".rg-head[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "Collapse layer 0"
    press(page, "Enter")
    assert "sl=0" in page.url
    assert focused(page) == "Collapse layer 0"
    press(page, "Enter")
    page.keyboard.press("ArrowUp")
    assert focused(page) == "Collapse column 0"
    press(page, "ArrowDown", "ArrowDown", "ArrowRight")
    assert re.search("l=[01]&h=[01]", page.url)
    assert "v=heads" in page.url
    press(page, "Enter")
    assert "v=head&" in page.url


def test_keys_in_the_grid_of_heads_move_no_cell_and_zoom_nothing_and_act_beside_a_slider(open_page, address):
    page = open_page(f"{address}#v=heads&l=2&h=3&i=8&j=2")
    live = page.locator("#rg-live").inner_text()
    page.evaluate("document.activeElement.blur()")
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowLeft", "+", "z"):
        page.keyboard.press(key)
    settled(page)
    assert "i=8&j=2" in page.url
    assert "z=" not in page.url
    assert page.locator("#rg-live").inner_text() == live
    page.get_by_text("More", exact=True).click()
    slider = page.get_by_label("Threshold of the metric")
    slider.focus()
    press(page, "ArrowRight", "]")
    assert slider.input_value() == "0.01"
    assert "l=2&h=4" in page.url
    press(page, "2")
    assert "v=head&" in page.url


def test_tokens_that_move_are_reached_and_chosen_and_can_be_read_on_a_phone(open_page, address):
    page = open_page(f"{address}#v=movement&l=2&h=3", selector=".rg-plane[data-drawn]")
    page.get_by_label("Stage").focus()
    page.keyboard.press("Tab")
    first = focused(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    second = focused(page)
    assert second != first
    press(page, "Enter")
    assert "i=2" in page.url
    assert focused(page) == second
    assert page.locator(".rg-plane-stage [aria-pressed=true]").count() == 1
    resize(page, 375, 760)
    labels = plane_of(page)[1]
    assert len(labels) > 6
    for n, (x, y, size, text) in enumerate(labels):
        assert size >= 13
        for x2, y2, _, text2 in labels[:n]:  # half an em is the width of a letter at least
            assert abs(y - y2) >= 13 or x + 0.4 * size * len(text) <= x2 or x2 + 0.4 * size * len(text2) <= x


def test_without_motion_play_begins_at_the_embeddings(open_page, address):
    page = open_page(f"{address}#v=movement&l=2&h=3", selector=".rg-plane[data-drawn]", reduced_motion="reduce")
    page.evaluate(
        """() => {
          window.told = [];
          const name = document.querySelector(".rg-stage-name");
          new MutationObserver(() => told.push(name.textContent)).observe(name, { childList: true });
        }"""
    )
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => new Set(told).size > 1")
    stages = page.evaluate("[...new Set(told)]")
    assert stages[:2] == ["embeddings", "after layer 0"]


def test_a_tap_chooses_a_head_and_another_opens_it(open_page, address):
    page = open_page(f"{address}#v=heads&l=2&h=3", has_touch=True)
    head = page.get_by_role("gridcell", name=re.compile("layer 4, head 7"))
    head.tap()
    settled(page)
    assert "v=heads&l=4&h=7" in page.url
    head.tap()
    settled(page)
    assert "v=head&l=4&h=7" in page.url


@pytest.mark.parametrize("zoomed", [False, True])
def test_the_wheel_scrolls_the_page_and_with_ctrl_it_zooms(open_page, address, zoomed):
    page = open_page(f"{address}#{HEAD}{'&z=2_2_60' if zoomed else ''}")
    resize(page, 900, 600)
    start = page.url
    page.evaluate(
        """() => {
          const hint = document.querySelector(".rg-map .rg-wheel-hint");
          const onHint = () => !hint.hidden && (window.hinted = hint.innerText);
          new MutationObserver(onHint).observe(hint, { attributes: true });
        }"""
    )
    page.locator(".rg-stage").hover()
    settled(page)
    for distance in (100, -50):
        before = page.evaluate("scrollY")
        page.evaluate("() => document.addEventListener('scrollend', () => (window.scrolled = true), { once: true })")
        page.mouse.wheel(0, distance)
        page.wait_for_function("() => window.scrolled")
        page.evaluate("() => (window.scrolled = false)")
        assert page.evaluate("scrollY") - before == distance
    assert page.evaluate("hinted") == "Ctrl + wheel zooms"
    settled(page)
    assert page.url == start
    page.locator(".rg-stage").hover()
    top = page.evaluate("scrollY")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.wait_for_url(lambda url: "&z=" in url and url != start)
    page.keyboard.up("Control")
    assert page.evaluate("scrollY") == top
    assert page.locator(".rg-map .rg-wheel-hint").count() == 0  # who zooms so knows it
    assert readout(page).startswith("it:1 attends to cat")


@pytest.mark.parametrize("zoom", ["", "&z=0_0_20"])
def test_a_click_chooses_a_cell_and_another_on_it_opens_its_calculation(open_page, address, zoom):
    page = open_page(f"{address}#v=head&l=2&h=3{zoom}")
    box = page.locator(".rg-stage").bounding_box()
    middle = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.click(*middle)
    page.wait_for_url(re.compile(r"v=head&.*i=\d+&j=\d+"))
    page.mouse.click(*middle)
    page.wait_for_url(re.compile("v=cell"))
    page.go_back()
    reach(page, re.compile("v=head"))
    page.mouse.dblclick(middle[0] + 30, middle[1] + 30)
    page.wait_for_url(re.compile("v=cell"))


def test_the_list_of_keys_opens_and_closes_and_names_gestures_of_what_points(open_page, address):
    for touch, shown, hidden in ((False, "Ctrl + wheel", "Pinch"), (True, "Pinch", "Ctrl + wheel")):
        page = open_page(f"{address}#{HEAD}", has_touch=touch, is_mobile=touch)
        page.get_by_role("button", name="Keys and gestures (?)").click()
        assert page.locator("dialog kbd", has_text=shown).is_visible()
        assert page.locator("dialog kbd", has_text=hidden).is_hidden()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("?")
    assert page.locator("dialog[open] dt").count() == page.locator("dialog[open] dd").count() > 15
