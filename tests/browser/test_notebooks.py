"""The explorer in a real JupyterLab and a real marimo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebooks import jupyterlab, marimo
from pages import CAUSAL, expect, explored, weight_text

import regard

TEXT = "some text that is not short at all, so that its cells are small"
RECORDED = f"""import regard
model = regard.load({str(CAUSAL)!r})
trace = regard.Trace(maps=True, only="*")
model({TEXT!r}, trace=trace);"""


@pytest.fixture(scope="module")
def known():
    """Return what the notebooks show, worked out here."""
    return explored(regard.load(CAUSAL), TEXT, layer=0, head=1)


def check_weight(view, known, word):
    """Wait until the largest weight of the chosen word is told."""
    told = view.locator(".rg-top .rg-number").first
    expect(told).to_have_text(weight_text(known.row(0, 0, 1, word).max()))


def in_lab(page, code):
    """Run JavaScript that knows JupyterLab's `app`, and the notebook's `panel` and `kernel`."""
    return page.evaluate(
        "async (code) => { const app = window.jupyterapp; await app.restored; const panel = app.shell.currentWidget;"
        "await panel.context.ready; await panel.sessionContext.ready; const { kernel } = panel.sessionContext.session;"
        "await kernel.info; const Run = (async () => {}).constructor;"
        "await new Run('app', 'panel', 'kernel', code)(app, panel, kernel); }",
        code,
    )


def run_all(page, views):
    in_lab(page, "await app.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(f"document.querySelectorAll('.rg-map[data-drawn]').length === {views}")


def test_jupyterlab(open_page, known, tmp_path):
    cells = [RECORDED, "widget = trace.explore(model=model, layer=0, head=1); widget", "widget"]
    with jupyterlab(tmp_path, cells) as (origin, address):
        page = open_page(address, selector=".jp-Notebook .jp-Cell", origin=origin)
        run_all(page, views=2)
        views = page.locator(".rg-frame")

        # Each of two views of one widget gets its own answers, both asking at once.
        words = [4, 2]
        expect(page.locator(".rg-text-panel .rg-words[role=group] > :nth-child(5)")).to_have_count(2)
        page.evaluate(
            "(words) => document.querySelectorAll('.rg-text-panel .rg-words[role=group]').forEach((text, n) => "
            "text.children[words[n]].click())",
            words,
        )
        for view, word in zip(views.all(), words, strict=True):
            check_weight(view, known, word)

        # The wheel scrolls the notebook, and with Ctrl zooms the map.
        stage = views.first.locator(".rg-stage")
        stage.click(position={"x": 120, "y": 160})
        touch = "(stage) => stage.style.touchAction"
        stage.hover()
        page.mouse.wheel(0, -120)
        views.first.get_by_text("Ctrl + wheel zooms").first.wait_for()
        assert stage.evaluate(touch) == ""
        page.keyboard.down("Control")
        page.mouse.wheel(0, -120)
        expect(stage).to_have_css("touch-action", "none")
        page.keyboard.up("Control")
        page.keyboard.press("0")

        # Keys are the page's, and none is taken as JupyterLab's: there b makes a cell, and x takes one away.
        count = page.locator(".jp-Cell").count()
        for key in ("b", "b", "x", "]", "ArrowDown"):  # large type, and back
            page.keyboard.press(key)
        assert page.locator(".jp-Cell").count() == count
        assert views.first.locator("h2").first.inner_text() == "Layer 0 · Head 2"

        # It looks like the notebook, at once.
        assert page.locator(".regard[data-theme=light]").count() == 2
        in_lab(page, "await app.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
        page.wait_for_function("document.querySelectorAll('.regard[data-theme=dark]').length === 2")

        # It goes by the room that it has, not by the window's.
        columns = (
            "(n) => getComputedStyle(document.querySelector('.rg-main')).gridTemplateColumns.split(' ').length === n"
        )
        for width, count in ((1900, 3), (1440, 2), (700, 1)):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(columns, arg=count)
            room, head = views.first.bounding_box(), views.first.locator(".rg-map").bounding_box()
            assert room["x"] <= head["x"] < head["x"] + head["width"] <= room["x"] + room["width"]
            assert head["width"] >= 240

        # What was shown by a kernel that is gone says so, and is there again when its cell is run.
        in_lab(page, "await kernel.restart()")
        views.first.locator(".rg-text-panel .rg-word").nth(2).click()
        page.locator("[data-ref=errorText]", has_text="The kernel of this view is gone: run the cell again.").wait_for()
        run_all(page, views=2)
        views.first.locator(".rg-text-panel .rg-word").nth(3).click()
        check_weight(views.first, known, 3)

        # A saved notebook says what to do where there is no kernel; a closed widget is gone.
        in_lab(page, "await panel.context.save()")
        assert "run this cell" in (tmp_path / "one.ipynb").read_text(encoding="utf-8")
        in_lab(page, "await kernel.requestExecute({ code: 'widget.close()' }).done")
        page.wait_for_function("document.querySelectorAll('.rg-frame').length === 0")
        page.close()


def test_marimo(open_page, known, tmp_path):
    shown = "trace.explore(model=model, layer=0, head=1)"
    with marimo(tmp_path, [f"import marimo as mo\n{RECORDED}", shown, f"mo.ui.anywidget({shown})"], "dark") as (
        origin,
        address,
    ):
        page = open_page(address, selector="marimo-anywidget", origin=origin)
        views = page.locator(".rg-frame")
        for view in (views.nth(0), views.nth(1)):
            view.locator(".rg-map[data-drawn]").wait_for()
            assert view.locator(".regard").get_attribute("data-theme") == "dark"
            view.locator(".rg-text-panel .rg-word").nth(4).click()
            check_weight(view, known, 4)

        # It stands in a shadow, where a press comes from and what has the focus is not known outside.
        view = views.first
        view.get_by_text("Save", exact=True).click()
        with page.expect_download() as download:
            view.get_by_role("button", name="As CSV").click()
        assert Path(download.value.path()).read_text(encoding="utf-8").startswith("weight,")
        view.get_by_role("button", name="All heads").click()
        view.get_by_role("gridcell", name=re.compile("layer 0, head 0")).click()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert view.locator("h2").first.inner_text() == "Layer 0 · Head 1"
        view.get_by_role("button", name="Keys and gestures (?)").click()
        box = view.get_by_role("dialog").bounding_box()
        assert box["x"] + box["width"] / 2 == pytest.approx(page.viewport_size["width"] / 2, abs=12)
        page.close()
