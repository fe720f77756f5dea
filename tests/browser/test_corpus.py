"""The sentences of a file in which a head attends most strongly: ranked, opened, given up; held against Python."""

from __future__ import annotations

import re

import pytest
from acts import appear, reach
from pages import TEXT, check_access, expect, explored, number, readout, served

from regard.explorer.queries.corpus import Corpus
from regard.metrics import strongest_rows

LINES = (
    "The animal did not cross the street because it was too tired.",
    "The nurse told the doctor that she was late because of the rain.",
    "A dog and a cat slept while the cat dreamt of a mouse.",
    "The trophy does not fit into the suitcase because it is too big.",
)


@pytest.fixture(scope="module")
def corpus_address(minilm, tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "lines.txt"
    file.write_text("\n".join(LINES), encoding="utf-8")
    exploration = explored(minilm, TEXT)
    exploration.corpus = Corpus(file)
    with served(exploration) as address:
        yield address


def rows_of(page):
    appear(page, ".rg-strong-row")
    return page.locator(".rg-strong-row").all()


def test_the_rows_are_ranked_and_one_opens_its_sentence_with_its_cell(open_page, corpus_address, minilm):
    page = open_page(f"{corpus_address}#v=head&l=2&h=3&i=8&j=2")
    page.get_by_role("button", name="In other sentences").click()
    found = rows_of(page)
    expected = strongest_rows(minilm, LINES, 2, 3, 20)
    assert [number(row.locator(".rg-number").inner_text()) for row in found] == pytest.approx(
        [row.weight for row in expected], rel=6e-3
    )
    assert [row.locator(".rg-query").inner_text() for row in found] == [row.query for row in expected]
    assert [row.locator(".rg-key").inner_text() for row in found] == [row.key for row in expected]
    nth = next(n for n, row in enumerate(expected) if row.text != LINES[0] and row.row > 8)
    found[nth].click()
    reach(page, re.compile(f"i={expected[nth].row}&j={expected[nth].col}"))
    assert page.get_by_role("textbox", name="Text").input_value() == expected[nth].text
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 3"
    assert number(readout(page)) == pytest.approx(expected[nth].weight, rel=6e-3)


def test_pairs_and_head_are_chosen_and_what_cannot_be_sought_is_said(open_page, corpus_address, minilm):
    page = open_page(f"{corpus_address}#v=head&l=2&h=3&cp=1", allow="400")
    page.get_by_label("Pairs of words").select_option("repeated")
    reach(page, re.compile("pair=repeated"))
    keys = [(row.query, row.key) for row in strongest_rows(minilm, LINES, 2, 3, 20, pair="repeated")]
    found = [(row.locator(".rg-query").inner_text(), row.locator(".rg-key").inner_text()) for row in rows_of(page)]
    assert found == keys
    page.keyboard.press("]")
    reach(page, re.compile("h=4"))
    weights = [row.weight for row in strongest_rows(minilm, LINES, 2, 4, 20, pair="repeated")]
    assert [number(row.locator(".rg-number").inner_text()) for row in rows_of(page)] == pytest.approx(weights, rel=6e-3)
    page.keyboard.press("m")
    expect(page.locator("[data-ref=rowsStatus]")).to_contain_text("choose one head")
    assert page.locator(".rg-strong-row").count() == 0  # not those of the head before


def test_a_search_shows_how_far_it_is_and_is_given_up(open_page, serve, minilm, tmp_path):
    file = tmp_path / "many.txt"
    file.write_text("\n".join(f"{line} {n}" for n in range(3000) for line in LINES), encoding="utf-8")
    exploration = explored(minilm, TEXT)
    exploration.corpus = Corpus(file)
    page = open_page(f"{serve(exploration)}#v=head&l=2&h=3", allow="aborted")
    page.get_by_role("button", name="In other sentences").click()
    expect(page.locator("[data-progress=strongest_rows]")).to_contain_text("%")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector(":root:not(:has(.regard[aria-busy]))", state="attached")
    assert exploration.progress().get("strongest_rows") is None or page.wait_for_function(
        "async () => !('strongest_rows' in await (await fetch('api/progress', { method: 'POST', body: '{}' })).json())"
    )
    expect(page.get_by_role("button", name="In other sentences")).to_have_attribute("aria-expanded", "false")


def test_without_a_corpus_there_is_no_panel(open_page, address, file_address):
    for one in (address, file_address):
        page = open_page(f"{one}#v=head&l=2&h=3")
        assert not page.get_by_role("button", name="In other sentences").is_visible()


def test_it_is_accessible(open_page, corpus_address):
    page = open_page(f"{corpus_address}#v=head&l=2&h=3&cp=1")
    rows_of(page)
    check_access(page, 1440, 375, 320, themes=("dark", "forced"))
