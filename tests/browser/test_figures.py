"""The panel of figures for print: a file in three formats, the Python that writes the same, and where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from acts import choose, resize
from pages import check_access, expect, notebook

from sweeps import sweep_except

BEGINNINGS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


def opened(page):
    """Open the menu, and return the Python that it shows."""
    page.get_by_text("Save", exact=True).click()
    code = page.get_by_label("The Python that draws it again")
    expect(code).to_have_value(re.compile(r"drawn = figure\("))
    return code


def downloaded(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def written_by(script, folder, format):
    """Return the file that the shown Python writes."""
    file = folder / f"again.{format}"
    exec(compile(script.replace('"attention.pdf"', repr(str(file))), "script", "exec"), {})
    return file.read_bytes()


VIEWS = {
    "v=head&l=2&h=3": ("column", "layer=2, head=3, show_special_tokens=True, width='column')"),
    "v=head&l=2&h=3&s=diff&special=0": ("page", "figure(a, b, layer=2, head=3, width='page', caption=True)"),
    "v=heads&l=2&h=3&s=B": ("page", "figure(trace, head='all', show_special_tokens=True, width='page'"),
}
HEAD, DIFFERENCE, HEADS = VIEWS
CASES = [(view, format) for view in VIEWS for format in BEGINNINGS]
KEPT = [*((HEAD, format) for format in BEGINNINGS), (DIFFERENCE, "pdf"), (HEADS, "svg")]


@pytest.mark.parametrize("case", sweep_except(KEPT, CASES), ids="-".join)
def test_a_figure_is_downloaded_and_drawn_again(open_page, address_of_two, tmp_path, case):
    (view, format), (width, said) = case, VIEWS[case[0]]
    page = open_page(f"{address_of_two}#{view}")
    code = opened(page)
    page.get_by_label("Format").select_option(format)
    page.get_by_label("Width").select_option(width)
    if width == "page":
        page.get_by_label("Caption").check()
    expect(code).to_have_value(re.compile(re.escape(said)))
    name, file = downloaded(page)
    assert name.endswith(f"figure.{format}")
    assert ("layer-2-head-3" in name) == (view != HEADS)
    assert file.startswith(BEGINNINGS[format])
    assert file == written_by(code.input_value(), tmp_path, format)


def test_the_python_is_selected_by_a_click_and_other_display_modes_have_no_figure(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    code = opened(page)
    code.click()
    assert page.evaluate("() => getSelection().toString()") == code.input_value()
    assert code.input_value().startswith("import regard\n")
    page.get_by_text("Save", exact=True).click()
    for mode, has_figure in (("rollout", False), ("raw", True)):
        choose(page.get_by_label("Map mode"), mode)
        page.get_by_text("Save", exact=True).click()
        expect(page.get_by_text("Figures for print are of weights")).to_be_visible(visible=not has_figure)
        expect(page.get_by_role("button", name="Download")).to_be_visible(visible=has_figure)
        page.get_by_text("Save", exact=True).click()


def test_a_file_says_that_figures_need_the_live_page(open_page, file_address):
    page = open_page(f"{file_address}#v=head&l=2&h=3")
    page.get_by_text("Save", exact=True).click()
    page.get_by_text("on a page that regard explore serves").wait_for()
    assert not page.get_by_role("button", name="Download").is_visible()
    assert page.get_by_role("button", name="As SVG").is_visible()


def test_what_cannot_be_drawn_is_said(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3", allow="400")
    opened(page)
    page.evaluate("document.querySelector('.rg-figure option').value = 'exe'")
    page.get_by_role("button", name="Download").click()
    page.get_by_text("format is one of pdf, svg, png, py").wait_for()


def test_a_notebook_draws_the_same_figure(open_page, one, tmp_path):
    page = notebook(open_page, one, tmp_path)
    code = opened(page)
    name, file = downloaded(page)
    assert name.endswith(".pdf")
    assert file == written_by(code.input_value(), tmp_path, "pdf")


def test_axe_finds_nothing_serious_in_the_panel(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3")
    for width, height in ((1440, 900), (375, 760), (320, 760)):
        resize(page, width, height)
        opened(page)
        check_access(page, width, height=height)
        page.keyboard.press("Escape")
