"""What stands on the page is seen: in a notebook, in a low window, on paper, with colours forced."""

from __future__ import annotations

import pytest
from pages import notebook, settled

HEAD = "v=head&l=2&h=3&i=8&j=2"


def box(page, selector):
    return page.locator(selector).first.bounding_box()


def is_inside(inner, outer):
    return all(
        outer[at] <= inner[at] + 1 and inner[at] + inner[size] <= outer[at] + outer[size] + 1
        for at, size in (("x", "width"), ("y", "height"))
    )


@pytest.mark.parametrize("width", [600, 800, 1100, 1300])
def test_a_notebook_shows_a_map_that_can_be_read_whatever_its_width(open_page, one, tmp_path, width):
    page = notebook(open_page, one, tmp_path, f"{width}px")
    stage, frame = box(page, ".rg-stage"), box(page, "#out")
    assert min(stage["width"], stage["height"]) >= 330
    for part in (".rg-one h2", ".rg-one-head .rg-segmented", ".rg-readout", ".rg-legend", ".rg-reading"):
        assert is_inside(box(page, part), frame), part
    page.evaluate("endWidget()")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1366, 625), (1280, 720), (1280, 600), (1250, 560)])
def test_what_a_map_says_is_seen_in_a_low_window(open_page, address_of_two, width, height):
    page = open_page(f"{address_of_two}#{HEAD}&s=diff")
    page.set_viewport_size({"width": width, "height": height})
    settled(page)
    panel = box(page, ".rg-one")
    for part in (".rg-readout", ".rg-legend", ".rg-way"):
        assert is_inside(box(page, part), panel), part
    assert box(page, ".rg-stage")["height"] >= 200
    if height >= 600:  # nothing is below the window
        assert is_inside(panel, {"x": 0, "y": 0, "width": width, "height": height})
        assert page.evaluate("(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.querySelector('.rg-one'))") <= 1
