"""Three places, Text, Heads and Model: what each offers, and that every address of a view leads into its place."""

from __future__ import annotations

import pytest
from acts import click, go, press, resize
from pages import check_access, expect, intercept, plain

HEAD = "l=1&h=0&i=8&j=3"
WHERE = {  # of each view in the address: its place, its choice, and what is seen
    "heads": ("Heads", "All heads", ".rg-heads"),
    "head": ("Heads", "One head", ".rg-map"),
    "cell": ("Heads", "One head", ".rg-cell"),
    "lines": ("Heads", "One head", ".rg-lines"),
    "text": ("Text", "Words", ".rg-text-panel"),
    "paths": ("Text", "Paths", ".rg-paths-view"),
    "model": ("Model", "Whole model", ".rg-model-view"),
    "movement": ("Model", "Representations by layer", ".rg-plane"),
    "patching": ("Model", "Patching", ".rg-patching"),
}


def pressed(page):
    """Return the place and the choice within it that are pressed."""
    return page.locator(".rg-tabs [aria-pressed=true]").all_inner_texts()


def choices(page):
    return page.get_by_label("View", exact=True).locator("button:visible").all_inner_texts()


def place(page, name):
    click(page.get_by_label("Place").get_by_text(name, exact=True))


@pytest.fixture
def pair_address(serve, induction):
    from pages import SEQUENCE, explored

    return serve(explored(induction, SEQUENCE, "qzxfbdqzx", layer=1, head=0))


def test_each_view_has_one_place_and_its_number(open_page, pair_address):
    page = open_page(f"{pair_address}#v=head&{HEAD}")
    for view, (where, choice, seen) in WHERE.items():
        go(page, f"{pair_address}#v={view}&{HEAD}")
        assert pressed(page) == [where, choice], view
        assert page.locator(seen).is_visible()
    for key, view in enumerate(("heads", "head", "cell", "movement", "model", "lines", "paths", "patching", "text"), 1):
        press(page, str(key))
        assert f"v={view}&" in page.url
    place(page, "Model")
    assert pressed(page) == ["Model", "Patching"]  # where it was left
    click(page.get_by_role("button", name="Whole model"))
    place(page, "Heads")
    assert "v=lines&" in page.url
    click(page.get_by_label("Drawing").get_by_text("Map"))
    assert f"v=head&{HEAD}" in page.url
    place(page, "Model")
    assert "v=model&" in page.url


def test_what_has_nothing_to_show_is_not_offered(open_page, file_address, pair_address):
    page = open_page(f"{file_address}#v=head&l=2&h=3&i=8&j=2")
    assert choices(page) == ["All heads", "One head"]
    for name, view in (("Model", "movement"), ("Text", "text")):
        place(page, name)
        assert f"v={view}&" in page.url
        assert choices(page) == []  # one view is no choice
    for key in "578":
        press(page, key)
        assert "v=text&" in page.url
    page = open_page(f"{pair_address}#v=text&{HEAD}")
    assert choices(page) == ["Words", "Paths"]
    place(page, "Model")
    assert choices(page) == ["Whole model", "Representations by layer", "Patching"]


def test_narrow_windows_have_choices_tools_words_and_formulas_on_few_lines(open_page, pair_address):
    page = open_page(f"{pair_address}#v=movement&{HEAD}")
    resize(page, 390, 844)
    for box, count in ((page.get_by_label("Place"), 3), (page.get_by_label("View", exact=True), 3)):
        tops = [each.bounding_box()["y"] for each in box.locator("button:visible").all()]
        assert (len(tops), len(set(tops))) == (count, 1)
    resize(page, 1024, 640)
    boxes = [page.locator(part).bounding_box() for part in (".rg-tabs", ".rg-tools")]
    assert boxes[1]["y"] < boxes[0]["y"] + boxes[0]["height"]
    go(page, f"{pair_address}#v=cell&{HEAD}&s=diff")
    heights = [each.bounding_box()["height"] for each in page.locator(".rg-formula:visible").all()]
    assert max(heights) < 60
    go(page, f"{pair_address}#v=cell&{HEAD}")
    resize(page, 390, 844)
    words, head = (page.locator(part).bounding_box() for part in (".rg-word-bar", ".rg-head-panel"))
    assert words["y"] + words["height"] <= head["y"]


def test_the_whole_model_is_of_a_or_b(open_page, pair_address):
    page = open_page(f"{pair_address}#v=model&{HEAD}&s=diff")
    heading, side = page.locator("[data-ref=modelHeading]"), page.locator("[data-ref=modelSides]")
    assert plain(side.locator(".rg-side-name")) == "qzkfbdqzk"
    assert heading.inner_text().startswith("At k:2")
    click(side.get_by_role("button", name="B"))
    assert plain(side.locator(".rg-side-name")) == "qzxfbdqzx"
    assert heading.inner_text().startswith("At x:2")


def test_text_is_accessible_at_every_width(open_page, pair_address):
    page = open_page(f"{pair_address}#v=text&{HEAD}&nt=1")
    check_access(page, 1440, 390, 320, themes=("dark", "forced"))


@pytest.mark.parametrize(("width", "height"), [(1440, 620), (1024, 600), (800, 700)])
def test_a_low_window_has_the_texts_of_a_comparison(open_page, pair_address, width, height):
    page = open_page(f"{pair_address}#v=head&{HEAD}")
    resize(page, width, height)
    for part in (page.get_by_label("Text of B"), page.locator(".rg-aligned mark").last, page.locator(".rg-map")):
        box = part.bounding_box()
        assert box["y"] >= 0
        assert min(box["height"], 200) + box["y"] <= height
    fields = [page.get_by_role("textbox", name=name, exact=True).bounding_box()["y"] for name in ("Text", "Text of B")]
    assert fields[0] == fields[1]  # beside each other


def test_steps_of_b_that_do_not_come_say_why_in_their_place(open_page, pair_address):
    def refuse(route):
        if route.request.post_data_json["run"] == 1:
            route.fulfill(status=400, json={"error": "no steps of this layer"})
        else:
            route.continue_()

    page = open_page(f"{pair_address}#v=head&{HEAD}&s=diff", allow="Failed to load resource")
    intercept(page, "**/api/cell", refuse)
    press(page, "3")
    b = page.locator("[data-ref=columnB]")
    expect(b).to_be_visible()
    assert plain(b).split() == "B No steps of this layer.".split()
    assert page.locator("[data-ref=steps] .rg-step").count() > 5
