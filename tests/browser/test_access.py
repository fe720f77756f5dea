"""Accessibility: axe-core finds nothing serious, values are announced, and the layout is stable."""

from __future__ import annotations

import pytest
from acts import go, press, resize
from pages import BY_COLORS, CAUSAL, check_access, explored, serious, settled, show_in

import regard
from sweeps import sweep_after

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


@pytest.mark.parametrize("view", sweep_after(3, VIEWS))
def test_axe_finds_nothing_serious(open_page, address, view):
    page = open_page(f"{address}#{view}")
    page.get_by_text("Display", exact=True).click()
    assert serious(page) == []
    show_in(page, "dark")
    assert serious(page, BY_COLORS) == []
    page.keyboard.press("Escape")
    show_in(page, "forced")
    assert serious(page, BY_COLORS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    resize(page, 320, 760)
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_axe_finds_nothing_serious_in_the_list_of_keys(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.keyboard.press("?")
    check_access(page, 1440)


def test_axe_finds_nothing_serious_in_the_steps_of_a_model_that_rotates(open_page, serve):
    address = serve(explored(regard.load(CAUSAL), "some text that is not short", layer=1, head=1))
    page = open_page(f"{address}#l=1&h=1&i=4&j=2&v=cell", selector=".rg-step")
    for view in ("v=cell", "v=cell&h=mean", "v=cell&w=rollout"):
        go(page, f"{address}#l=1&h=1&i=4&j=2&{view}")
        for number in page.locator("button.rg-value").all():
            number.click()
        assert serious(page) == [], view


@pytest.mark.parametrize(
    "view", sweep_after(2, ("v=head", "v=cell", "v=heads&s=diff", "v=head&x=2.3", "v=movement", "v=model"))
)
def test_axe_finds_nothing_serious_on_a_phone(open_page, address_of_two, view):
    check_access(open_page(f"{address_of_two}#l=2&h=3&i=8&j=2&{view}"), 375, 320, height=760)


def test_what_is_pointed_at_is_also_said(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.locator(".rg-stage").focus()
    press(page, "ArrowDown")
    live = page.locator("#rg-live")
    assert live.get_attribute("aria-live") == "polite"
    assert "attends to" in live.inner_text()


def test_nothing_jumps_while_it_loads(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    page.evaluate(
        """() => {
          window.shift = 0;
          const add = (list) => list.getEntries().forEach(({ value }) => (shift += value));
          new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
        }"""
    )
    settled(page)
    assert page.evaluate("shift") < 0.1
