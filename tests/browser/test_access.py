"""Accessibility: axe-core finds nothing serious, values are announced, and the layout is stable."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import CAUSAL, explored, served, settled

import regard

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = (
    "v=heads&l=2&h=3",
    "v=heads&l=2&h=3&o=metric",
    "v=head&l=2&h=3&i=8&j=2&pins=3.8&special=0",
    "v=cell&l=2&h=3&i=8&j=2",
    "v=cell&l=2&h=3&i=8&j=2&w=rollout",
    "v=cell&l=2&h=mean&i=8&j=2",
    "v=model&i=8",
    "v=movement&l=2&h=3&i=8",
)


def serious(page):
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(({ violations }) => violations)")
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(open_page, address, view, scheme):
    page = open_page(f"{address}#{view}", color_scheme=scheme)
    page.wait_for_timeout(300)
    page.get_by_text("Display", exact=True).click()
    assert serious(page) == []


@pytest.mark.parametrize("width", [1440, 320])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious_in_forced_colours(open_page, address, view, width):
    page = open_page(f"{address}#{view}", forced_colors="active")
    page.set_viewport_size({"width": width, "height": 760})
    settled(page)
    page.wait_for_timeout(250)  # a sheet rises
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("view", ["v=cell", "v=cell&h=mean", "v=cell&w=rollout"])
def test_axe_finds_nothing_serious_in_the_steps_of_a_model_that_rotates(open_page, view):
    with served(explored(regard.load(CAUSAL), "some text that is not short", layer=1, head=1)) as address:
        page = open_page(f"{address}#l=1&h=1&i=4&j=2&{view}", selector=".rg-step")
        for number in page.locator("button.rg-value").all():
            number.click()
        assert serious(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["v=head", "v=cell", "v=heads&s=diff", "v=head&x=2.3", "v=movement", "v=model"])
def test_axe_finds_nothing_serious_on_a_phone(open_page, address_of_two, view, scheme):
    page = open_page(f"{address_of_two}#l=2&h=3&i=8&j=2&{view}", color_scheme=scheme)
    for width in (375, 320):
        page.set_viewport_size({"width": width, "height": 760})
        settled(page)
        page.wait_for_timeout(250)  # a sheet rises
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_finds_nothing_serious_in_the_list_of_keys_and_gestures(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.keyboard.press("?")
    assert serious(page) == []


def test_what_is_pointed_at_is_also_said(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.locator(".rg-stage").focus()
    page.keyboard.press("ArrowDown")
    settled(page)
    live = page.locator("#rg-live")
    assert live.get_attribute("aria-live") == "polite"
    assert "attends to" in live.inner_text()


def test_nothing_jumps_while_it_loads(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver((list) => {"
        " for (const entry of list.getEntries()) window.shift += entry.value;"
        "}).observe({ type: 'layout-shift', buffered: true });"
    )
    page.goto(f"{address}#v=head&l=2&h=3&i=8&j=2")
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    shift = page.evaluate("window.shift")
    context.close()
    assert shift < 0.1
