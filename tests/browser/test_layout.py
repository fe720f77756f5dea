"""The layout: in a notebook, in a low window, in print, with forced colours."""

from __future__ import annotations

import numpy as np
import pytest
from acts import appear, press, reach, resize
from pages import notebook, settled, traced

from regard.explorer import Exploration
from sweeps import sweep_after

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
    for part in (
        ".rg-head-panel h2",
        ".rg-head-panel-header .rg-segmented",
        ".rg-readout",
        ".rg-legend",
        ".rg-text-panel",
    ):
        assert is_inside(box(page, part), frame), part
    page.evaluate("endWidget()")


def test_what_a_map_says_is_seen_in_a_low_window(open_page, address_of_two):
    page = open_page(f"{address_of_two}#{HEAD}&s=diff")
    for width, height in ((1440, 900), (1366, 625), (1280, 720), (1280, 600), (1250, 560)):
        resize(page, width, height)
        panel = box(page, ".rg-head-panel")
        for part in (".rg-readout", ".rg-legend", ".rg-mode-description"):
            assert is_inside(box(page, part), panel), part
        assert box(page, ".rg-stage")["height"] >= 200
        if height >= 600:  # nothing is below the window
            assert is_inside(panel, {"x": 0, "y": 0, "width": width, "height": height})
            assert page.locator(".rg-head-panel").evaluate("(node) => node.scrollHeight - node.clientHeight") <= 1


def test_heads_in_the_order_of_a_measure_are_as_wide_as_their_columns(open_page, address):
    for view in ("heads", "head"):
        page = open_page(f"{address}#v={view}&l=2&h=3&o=metric")
        assert box(page, ".rg-thumb")["width"] >= 76
        caption = page.locator(".rg-caption").first
        assert caption.evaluate("(node) => node.scrollWidth <= node.clientWidth")


def test_one_layer_of_many_heads_is_seen(open_page, serve):
    address = serve(Exploration(traced([f"w{i}" for i in range(20)], heads=144, causal=True)))
    page = open_page(f"{address}#v=heads")
    assert box(page, ".rg-thumb")["width"] >= 76


def test_a_long_text_leaves_room_for_what_a_word_looks_at(open_page, serve):
    address = serve(Exploration(traced([f"word{i}" for i in range(600)])))
    page = open_page(f"{address}#v=head&l=0&h=1&i=300")
    assert is_inside(box(page, ".rg-selected"), box(page, ".rg-text"))
    for width, height in ((1440, 900), (900, 1000)):
        resize(page, width, height)
        top = box(page, ".rg-top")
        assert top["y"] + top["height"] <= height


def test_formulas_of_the_steps_stand_in_line(open_page, address):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=output]")
    starts = page.eval_on_selector_all(".rg-formula", "(all) => all.map((node) => node.getBoundingClientRect().left)")
    assert len(starts) > 5
    assert max(starts) - min(starts) < 1


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (800, 600), (390, 844), (320, 640)])
def test_the_calculation_is_seen_beside_the_map_at_once(open_page, address, width, height):
    page = open_page(f"{address}#{HEAD}")
    resize(page, width, height)
    page.get_by_role("button", name="Calculation", exact=True).and_(page.locator(".rg-calculate")).click()
    appear(page, "[data-step=output]")
    window = {"x": 0, "y": 0, "width": width, "height": height}
    for part in (".rg-cell h3", "[data-step=embedding] h4"):
        assert is_inside(box(page, part), window), part
    sheet, stage = box(page, ".rg-cell"), box(page, ".rg-stage")
    if width <= 760:  # what is left of the map is above the sheet
        assert is_inside({**sheet, "height": 1}, window)
        assert min(sheet["y"], stage["y"] + stage["height"]) - max(0, stage["y"]) >= 160
    else:
        assert stage["x"] + stage["width"] <= sheet["x"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("way", ["Escape", "button", "swipe"])
def test_the_sheet_of_the_calculation_takes_the_focus_and_closes(open_page, address, way):
    page = open_page(f"{address}#{HEAD}", has_touch=True)
    resize(page, 390, 844)
    page.locator(".rg-stage").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-step=output]")
    assert page.evaluate("document.activeElement.className") == "rg-cell"
    page.keyboard.press("ArrowDown")  # the arrows still choose cells
    reach(page, "**i=9*")
    if way == "Escape":
        page.keyboard.press("Escape")
    elif way == "button":
        page.get_by_role("button", name="Close (Esc)").click()
    else:
        head = box(page, ".rg-cell-head")
        touch = page.context.new_cdp_session(page)
        for kind, y in (("touchStart", 12), ("touchMove", 60), ("touchMove", 120), ("touchEnd", None)):
            points = [] if y is None else [{"x": head["x"] + 60, "y": head["y"] + y}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.wait_for_url("**v=head&**")
    assert page.locator(".rg-cell").is_hidden()
    assert page.evaluate("document.activeElement.className") == "rg-stage"


def test_arcs_strike_through_no_word(open_page, one, address):
    page = open_page(f"{address}#{HEAD}&arcs=1")
    for width in (1440, 1024, 390):
        resize(page, width)
        struck = page.evaluate(
            """() => {
              const words = [...document.querySelectorAll(".rg-text-panel .rg-word")];
              const boxes = words.map((word) => word.getBoundingClientRect());
              const inside = (point) => boxes.some(({ left, right, top, bottom }) =>
                point.x > left + 1 && point.x < right - 1 && point.y > top + 2 && point.y < bottom - 2);
              const lines = document.querySelector(".rg-arcs").getBoundingClientRect();
              return [...document.querySelectorAll(".rg-arcs path")].map((path) => {
                const to = (n) => path.getPointAtLength(n).matrixTransform(path.getScreenCTM());
                const length = path.getTotalLength();
                return Array.from({ length: 200 }, (_, n) => to((n * length) / 199)).filter(
                  (point) => inside(point) || point.x < lines.left - 1 || point.x > lines.right + 1).length;
              });
            }"""
        )
        assert len(struck) >= 5
        assert sum(struck) == 0


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1920, 1080), (2560, 1440)])
def test_the_map_and_the_grid_take_the_room_of_the_window(open_page, address, width, height):
    page = open_page(f"{address}#v=head&l=2&h=3&to=12")
    resize(page, width, height)
    stage = box(page, ".rg-stage")
    ink = page.evaluate(
        """() => {
          const canvas = document.querySelector(".rg-map canvas");
          const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const isInk = (x, y) => data[4 * (y * width + x)] < 250;
          const columns = [...Array(width).keys()].filter((x) => [...Array(height).keys()].some((y) => isInk(x, y)));
          const rows = [...Array(height).keys()].filter((y) => [...Array(width).keys()].some((x) => isInk(x, y)));
          return [columns.at(-1) - columns[0], rows.at(-1) - rows[0]];
        }"""
    )
    assert max(ink[0] / stage["width"], ink[1] / stage["height"]) > 0.88
    press(page, "1")
    grid = box(page, ".rg-grid")
    room = page.locator(".rg-heads").evaluate("(node) => node.scrollHeight - node.clientHeight")
    assert room <= 1  # all heads are in the window
    last = box(page, ".rg-grid-row:last-child .rg-head:last-child")
    fills = (last["x"] + last["width"] - grid["x"]) / grid["width"], (last["y"] + last["height"]) / height
    assert max(fills) > 0.8


def test_the_last_row_of_a_map_is_in_a_small_window(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    resize(page, 1024, 768)
    stage = box(page, ".rg-stage")
    assert stage["y"] + stage["height"] <= 768
    assert stage["height"] > 400


@pytest.mark.parametrize(("view", "width", "height"), [("head", 1024, 768), ("cell", 1024, 768), ("head", 390, 844)])
def test_what_is_said_of_a_map_is_in_the_window_whatever_stands_above_it(
    open_page, address_of_two, view, width, height
):
    page = open_page(f"{address_of_two}#{HEAD.replace('head', view)}&s=diff")
    resize(page, width, height)
    window = {"x": 0, "y": 0, "width": width, "height": height}
    for part in (".rg-readout", *([".rg-legend"] if width > 760 else [])):
        assert is_inside(box(page, part), window), part
    page.locator(".rg-mode-description").scroll_into_view_if_needed()
    legend, said = box(page, ".rg-legend"), box(page, ".rg-mode-description")
    assert legend["y"] + legend["height"] <= said["y"]  # its place is below the map


def test_heads_in_the_order_of_a_measure_are_a_list_on_a_phone(open_page, address):
    page = open_page(f"{address}#v=heads&l=2&h=3&o=metric&m=sink")
    resize(page, 390, 844)
    assert box(page, ".rg-grid")["height"] <= 1.5 * 844  # of 72 heads
    captions = page.locator(".rg-caption")
    assert captions.evaluate_all("(all) => all.every((one) => one.scrollWidth <= one.clientWidth)")
    assert box(page, ".rg-head")["height"] >= 24
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_names_of_keys_and_of_panels_stand_in_line(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8")
    starts = page.evaluate(
        """() => [...document.querySelectorAll(".rg-side .rg-disclosure")].map((one) => {
          const text = document.createRange();
          text.selectNodeContents(one);
          return text.getBoundingClientRect().left;
        })"""
    )
    seen = [start for start in starts if start]  # others are not offered here
    assert len(seen) == 2
    assert seen[0] == seen[1]
    press(page, "?")
    heights = page.locator("kbd").evaluate_all("(all) => all.map((one) => one.offsetHeight).filter(Boolean)")
    assert len(heights) > 20
    assert max(heights) <= min(heights) + 1


def test_arcs_of_a_difference_have_the_sign_of_its_numbers(open_page, address_of_two, two):
    page = open_page(f"{address_of_two}#{HEAD}&s=diff&arcs=1")
    row = two.row(0, 2, 3, 8) - two.row(1, 2, 3, 8)
    others = [n for n in np.argsort(-np.abs(row))[:12] if n != 8 and abs(row[n]) >= 0.02 * np.abs(row).max()]
    kinds = page.eval_on_selector_all(".rg-arcs path", "(all) => all.map((arc) => arc.getAttribute('class'))")
    assert kinds == ["rg-up" if row[n] > 0 else "rg-down" for n in others]
    assert {"rg-up", "rg-down"} == set(kinds)
    widths = page.eval_on_selector_all(".rg-arcs path", "(all) => all.map((arc) => +arc.getAttribute('stroke-width'))")
    assert max(widths) <= 4.01


def test_forced_colours_keep_what_is_shaded_and_what_is_chosen(open_page, address):
    page = open_page(f"{address}#{HEAD}", forced_colors="active")
    ground = "getComputedStyle(node).backgroundColor"
    grounds = page.eval_on_selector_all(".rg-word", f"(all) => all.map((node) => {ground})")
    assert len(set(grounds)) > 5
    pressed = page.locator(".rg-tabs [aria-pressed=true]").first
    assert pressed.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
    bar = page.locator(".rg-top-bar span").first.evaluate(f"(node) => {ground}")
    assert bar not in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")


@pytest.mark.parametrize("scheme", sweep_after(1, ["dark", "light"]))
@pytest.mark.parametrize(
    ("view", "selector", "said"),
    [
        ("heads", ".rg-head", ["How widely a token spreads"]),
        ("head", ".rg-map", ["Layer 2 · Head 3", "attends most to", "weight"]),
        ("cell", "[data-step=output]", ["Layer 2 · Head 3", "Softmax", "Output of the head"]),
        ("movement", ".rg-plane[data-drawn]", ["after layer 5", "All stages share one plane"]),
        ("lines&lh=2.3_2.5", ".rg-lines path", ["Layer 2", "cat"]),
    ],
)
def test_each_view_prints_what_it_shows_on_white(open_page, address, view, selector, said, scheme):
    page = open_page(f"{address}#v={view}&l=2&h=3&i=8&j=2", selector=selector, color_scheme=scheme)
    page.emulate_media(media="print")
    settled(page)
    page.wait_for_selector(selector)
    shown = page.locator(".regard").inner_text()
    for words in said:
        assert words in shown
    for control in (".rg-tools", ".rg-tabs", ".rg-segmented", ".rg-primary", ".rg-slider", ".rg-zoom", ".rg-button"):
        assert not any(each.is_visible() for each in page.locator(control).all()), control
    assert page.evaluate("getComputedStyle(document.querySelector('.regard')).backgroundColor") == "rgb(255, 255, 255)"
    if view in ("head", "cell"):
        ground = "(canvas) => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data].join()"
        assert page.locator(".rg-map .rg-canvas").evaluate(ground) == "255,255,255,255"
        map_box, paper = box(page, ".rg-map .rg-canvas"), box(page, ".regard")
        assert map_box["width"] <= paper["width"]


def test_what_a_mask_hides_is_grey_though_words_that_cannot_be_joined_are_asked_for(open_page, serve):
    address = serve(Exploration(traced([f"w{i}" for i in range(1200)], causal=True)))
    page = open_page(f"{address}#v=head&l=0&h=1&words=1")
    grey = page.locator(".rg-map .rg-canvas").evaluate(
        "(canvas) => { const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        " let grey = 0; for (let n = 0; n < data.length; n += 4)"
        " grey += data[n] === 246 && data[n + 1] === 247 && data[n + 2] === 249; return grey / (data.length / 4); }"
    )
    assert grey > 0.1


def test_paper_has_where_numbers_come_from_and_no_panel_that_is_closed(open_page, address):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=output]")
    assert page.locator("[data-step=weight] .rg-derivation").is_hidden()
    page.emulate_media(media="print")
    assert page.locator("[data-step=weight] .rg-derivation").is_visible()
    page.emulate_media(media="screen")
    press(page, "2")
    closed = page.get_by_role("button", name="What mattered")
    assert closed.is_visible()
    page.emulate_media(media="print")
    assert closed.is_hidden()
