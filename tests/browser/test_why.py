"""Why a token attends to another: pairs as sentences, which lead to the heads that wrote them; held against Python."""

from __future__ import annotations

import re

import pytest
from acts import choose, click, go, press, reach
from pages import GOLDEN, SEQUENCE, check_access, expect, explored, intercept, plain, saved

import regard
from regard.explorer import Exploration, write_page
from regard.explorer.launch import exploration_of
from regard.explorer.opening import strongest_cell

CELL = "v=cell&l=1&h=0&i=8&j=3"
WHY = ".rg-why"


def amount(value, digits=3):
    """Return a number as the page writes it, with its sign."""
    text = f"{abs(value):#.{digits}g}".rstrip(".")
    return ("−" if value < 0 else "+") + text


def sentences(page):
    return [plain(each) for each in page.locator(f"{WHY} li").all()]


def expected(exploration, run, layer, head, i, j, **options):
    """Return the sentences of a cell of the sequence, whose tokens are letters."""
    answer = exploration.why(run, layer, head, i, j, **options)
    names = [letter + (f":{SEQUENCE[: n + 1].count(letter)}" if SEQUENCE.count(letter) > 1 else "") for n, letter in
             enumerate(SEQUENCE)]  # fmt: skip

    def written(writer, token, versus=None):
        of = "of" if "embedding" in writer["label"] else "at"
        less = f" less that {of} {names[versus]}" if versus is not None else ""
        what = f"the {writer['label']}" if of == "of" else f"{writer['label']}’s output"
        return f"{what} {of} {names[token]}{less}"

    def sentence(pair):
        key = written(pair["key"], j, answer["versus"])
        text = f"{written(pair['query'], i)} (query) meets {key} (key): {amount(pair['value'])} of {score}"
        return text[0].upper() + text[1:]

    score = amount(answer["score"]).replace("+", "")
    return [sentence(pair) for pair in answer["pairs"]]


def test_pairs_are_sentences_that_lead_to_the_heads_that_wrote_them(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#{CELL}", selector="[data-step=weight]")
    assert sentences(page) == []
    why = page.get_by_role("button", name="Why")
    click(why)
    assert sentences(page) == expected(sequence, 0, 1, 0, 8, 3)
    assert "L0H1’s output at f (key): +7.43 of 17.2" in sentences(page)[0]
    assert "is held at its value in this run" in page.locator(WHY).inner_text()
    answer = sequence.why(0, 1, 0, 8, 3)
    assert plain(page.locator("[data-ref=whySum]")) == (
        f"The score, 17.2, is the sum of these pairs and of {answer['num_others']} others, which add "
        f"{amount(answer['others'])} together."
    )
    press(page, "ArrowUp")
    assert sentences(page) == expected(sequence, 0, 1, 0, 7, 3)
    press(page, "ArrowDown")
    click(page.get_by_label("Rather than the strongest other word"))
    assert sentences(page) == expected(sequence, 0, 1, 0, 8, 3, contrast=True)
    assert plain(page.locator("[data-ref=whySum]")).startswith("The score of f less that of ")
    page.get_by_role("button", name="L0H1").first.click()
    reach(page, re.compile("v=head&l=0&h=1&i=3&"))
    assert page.locator("h2").first.inner_text() == "Layer 0 · Head 1"
    assert page.locator("[data-ref=topHeading]").inner_text() == "f attends most to"
    page.go_back()
    reach(page, re.compile("v=cell&l=1&h=0&i=8&j=3"))
    assert sentences(page) == expected(sequence, 0, 1, 0, 8, 3, contrast=True)
    assert any("less that at" in line for line in sentences(page))
    picture = saved(page, "SVG").decode()
    assert "L0H1" in picture
    assert "(query) meets" in picture


def test_what_has_no_pairs_says_so(open_page, serve, induction):
    exploration = explored(induction, SEQUENCE, layer=1, head=0)
    page = open_page(f"{serve(exploration)}#{CELL}&y=1", selector="[data-step=weight]", allow="400")
    assert len(sentences(page)) == 10
    choose(page.get_by_label("Head", exact=True), "mean")
    said = page.locator("[data-ref=whySum]")
    assert said.inner_text() == "A score is of one head, not of the mean of heads: choose a head."
    assert sentences(page) == []
    go(page, page.url.replace("h=mean", "h=0").replace("j=3", "").replace("i=8", "i=2") + "&j=5")
    assert "'k' does not attend to 'd': a mask hides it" in said.inner_text()
    go(page, page.url.replace("j=5", ""))
    assert not page.locator(WHY).is_visible()
    trace = exploration.runs[0].trace
    without = open_page(f"{serve(Exploration(trace))}#{CELL}&y=1", selector="[data-step=weight]", allow="400")
    assert "needs a model" in without.locator("[data-ref=whySum]").inner_text()


def test_after_an_error_the_pairs_come_with_the_next_action(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#{CELL}", selector="[data-step=weight]", allow="400")
    error = '{"error": "no such thing"}'
    intercept(page, "**/api/why", lambda route: route.fulfill(status=400, body=error))
    click(page.get_by_role("button", name="Why"))
    said = page.locator("[data-ref=whySum]")
    assert (said.inner_text(), sentences(page)) == ("No such thing.", [])
    page.unroute_all()
    press(page, "t")
    assert said.inner_text().startswith("The score, 17.2, is the sum of these pairs")
    assert sentences(page) == expected(sequence, 0, 1, 0, 8, 3)


def test_after_an_ablation_b_has_its_own(open_page, serve, induction):
    exploration = explored(induction, SEQUENCE, layer=1, head=0)
    page = open_page(f"{serve(exploration)}#{CELL}&y=1&x=0.1&s=B", selector="[data-step=weight]")
    expect(page.locator("[data-ref=cellSide]")).to_have_text("These are the steps of B.")
    after = expected(exploration, 1, 1, 0, 8, 3)
    assert sentences(page) == after != expected(exploration, 0, 1, 0, 8, 3)
    press(page, "c")
    press(page, "c")
    assert sentences(page) == expected(exploration, 0, 1, 0, 8, 3)


def test_a_file_has_the_opening_cell_and_the_strongest_of_each_head(open_page, sequence_file, sequence):
    opening = sequence.manifest()["runs"][0]["initial"]
    page = open_page(f"{sequence_file}#v=cell&l=1&h=0&i={opening['row']}&j={opening['col']}", selector=".rg-step")
    click(page.get_by_role("button", name="Why"))
    assert sentences(page) == expected(sequence, 0, 1, 0, opening["row"], opening["col"])
    assert not page.get_by_label("Rather than the strongest other word").is_visible()
    for layer, head in ((0, 3), (1, 2)):
        row, col = strongest_cell(sequence.runs[0], layer, head)
        go(page, f"{sequence_file}#v=cell&l={layer}&h={head}&i={row}&j={col}&y=1")
        assert sentences(page) == expected(sequence, 0, layer, head, row, col)
    go(page, f"{sequence_file}#v=cell&l=1&h=2&i=1&j=0&y=1")
    assert sentences(page) == []
    cells = plain(page.locator("[data-ref=whySum]"))
    assert re.fullmatch(
        r"For this head, this file holds only the pairs of \S+ → \S+; regard explore without -o has every cell\.", cells
    )


def test_a_file_has_the_pairs_though_the_address_asks_for_a_difference(open_page, sequence_file, sequence):
    opening = sequence.manifest()["runs"][0]["initial"]
    row, col = opening["row"], opening["col"]
    page = open_page(f"{sequence_file}#v=cell&l=1&h=0&i={row}&j={col}&y=1&yc=1", selector=".rg-step")
    assert sentences(page) == expected(sequence, 0, 1, 0, row, col)


def test_a_file_of_a_run_without_a_model_says_so(open_page, sequence, tmp_path):
    write_page(Exploration(sequence.runs[0].trace), tmp_path / "page.html")
    page = open_page(f"{(tmp_path / 'page.html').as_uri()}#{CELL}&y=1", selector=".rg-step")
    said = "This file holds no pairs; regard explore without -o shows them."
    assert page.locator("[data-ref=whySum]").inner_text() == said


@pytest.mark.parametrize("case", ["bart/tied", "gemma2/capped"])
def test_other_models_name_their_parts(open_page, serve, case):
    model = regard.load(f"{GOLDEN}/{case}")
    is_pair = case.startswith("bart")
    exploration = exploration_of(["w5 w6 w7 w8 → w8 w6 w9"] if is_pair else ["some text that is not short"], model)
    run = exploration.runs[0]
    layer = len(run.layers) - 1
    row, col = strongest_cell(run, layer, 1)
    page = open_page(f"{serve(exploration)}#v=cell&l={layer}&h=1&i={row}&j={col}&y=1", selector=".rg-step")
    assert len(sentences(page)) == 10
    if is_pair:
        assert "encoder" in "".join(sentences(page))
        page.locator(f"{WHY} li button").first.click()
        reach(page, re.compile("v=head"))
    else:
        value = exploration.why(0, layer, 1, row, col)["terms"]["softcap"]
        said = f" The soft cap then adds {amount(value)}."
        assert said in plain(page.locator("[data-ref=whySum]"))


def test_it_is_accessible(open_page, sequence_address):
    page = open_page(f"{sequence_address}#{CELL}&y=1&yc=1", selector="[data-step=weight]")
    check_access(page, 1280, 390, themes=("dark", "forced"))
