"""An error shows until it is resolved, and stale data is marked as such."""

from __future__ import annotations

import re

from acts import click, press
from pages import TEXT, explored, hold, intercept, served, settled

REFUSED = "Failed to load resource"  # what a browser's console says of an answer that is an error


def refuse(page, question, status=400, text='{"error": "no such thing"}'):
    """Let a question be refused from now on."""
    intercept(page, f"**/api/{question}", lambda route: route.fulfill(status=status, body=text))


def problem(page):
    return page.locator(".rg-error-bar span").inner_text() if page.locator(".rg-error-bar").is_visible() else ""


STRETCHES = [
    ("-3", "5", (0, 5)),
    ("2.5", "5", (2, 5)),
    ("6", "3", (3, 6)),
    ("1", "9999", (1, None)),
    ("999", "999", (-1, None)),
]  # what is written, and what it becomes


def test_any_stretch_of_tokens_becomes_one_that_there_is(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3")
    end = one.runs[0].length - 1
    page.get_by_text("Display", exact=True).click()
    for first, last, (start, stop) in STRETCHES:
        page.evaluate("() => { location.hash = '#v=head&l=2&h=3'; }")
        settled(page)
        for name, value in (("First token", first), ("Last token", last)):
            page.get_by_label(name).fill(value)
            page.get_by_label(name).press("Tab")
            settled(page)
        start, stop = start % (end + 1), end if stop is None else stop
        said = [page.get_by_label(name).input_value() for name in ("First token", "Last token")]
        assert said == [str(start), str(stop)]
        assert page.locator(".rg-text-panel .rg-word").count() == stop - start + 1
        assert problem(page) == ""


def test_what_fails_is_said_though_other_things_succeed(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2", allow=REFUSED)
    refuse(page, "tile")
    page.keyboard.press("m")
    page.wait_for_selector(".rg-error-bar span:visible")
    press(page, "ArrowDown")
    assert problem(page) == "no such thing"
    assert float(page.locator(".rg-stage").evaluate("(node) => getComputedStyle(node).opacity")) < 0.5
    assert "…" in page.locator(".rg-readout").inner_text()
    page.unroute_all()
    click(page.get_by_role("button", name="Try again"))
    assert problem(page) == ""
    assert float(page.locator(".rg-stage").evaluate("(node) => getComputedStyle(node).opacity")) == 1
    assert "…" not in page.locator(".rg-readout").inner_text()


def test_steps_that_are_not_wanted_any_more_are_faint(open_page, address):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=output]")
    let_go = hold(page, "**/api/cell")
    page.keyboard.press("]")
    page.wait_for_selector(".rg-cell.rg-stale")
    let_go()
    page.wait_for_selector(".rg-cell:not(.rg-stale)")
    assert "head 4" in page.locator(".rg-cell h3").inner_text()


def test_pictures_of_heads_are_asked_for_again(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3", allow=REFUSED)
    refuse(page, "thumbnails")
    page.reload()
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    drawn = (
        "(all) => all.filter((x) => x.getContext('2d').getImageData(0, 0, x.width, x.height).data.some(Boolean)).length"
    )
    assert problem(page) == "no such thing"
    assert page.eval_on_selector_all(".rg-thumb", drawn) == 0
    page.unroute_all()
    press(page, "]")
    assert page.eval_on_selector_all(".rg-thumb", drawn) == 72
    assert problem(page) == ""


def test_queries_that_fail_are_asked_again_for_what_a_person_does_alone(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3", allow=REFUSED)
    asked = []

    def answer(route):  # so that a page that asks without end comes to rest
        asked.append(route.request.url)
        if len(asked) > 20:
            return route.continue_()
        return route.fulfill(status=400, body='{"error": "no such thing"}')

    intercept(page, re.compile("api/(heads|thumbnails|lens)"), answer)
    page.reload()
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    assert len(asked) == 2
    press(page, "t")
    assert len(asked) == 4
    assert problem(page) == "no such thing"


def test_a_server_that_is_gone_is_named_and_nothing_jumps(open_page, minilm):
    with served(explored(minilm, TEXT)) as address:
        page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2", allow=REFUSED)
        before = page.locator(".rg-stage").bounding_box()
    for _ in range(2):  # the map of the first is there
        page.keyboard.press("]")
    page.wait_for_selector(".rg-error-bar:visible")
    assert problem(page) == "The server does not respond: is regard explore still running?"
    page.locator("h2", has_text="Layer 2 · Head 5").first.wait_for()  # the note may be of the first key's map
    assert page.locator(".rg-top li").count() == 0
    assert page.locator(".rg-stage").bounding_box() == before
    settled(page)
    assert float(page.locator(".rg-stage").evaluate("(node) => getComputedStyle(node).opacity")) < 0.5
