"""The first minute: what the page shows, why it opens with this head, what to try, and the next token in every view."""

from __future__ import annotations

import pytest
from acts import click, press
from pages import check_access, expect, explored, plain, readout, settled, weight_text

ANIMAL = "The animal did not cross the street because it was too tired"


@pytest.fixture(scope="module")
def animal(minilm):
    return explored(minilm, ANIMAL, layer=None, head=None)


def intro(page):
    return page.locator(".rg-intro")


def test_the_page_says_why_this_head_and_what_to_try(open_page, serve, animal):
    (first, other, *_) = animal.manifest()["runs"][0]["distinctive"]
    tokens = [token["text"] for token in animal.manifest()["runs"][0]["tokens"]]
    page = open_page(serve(animal))
    said = plain(intro(page).locator("p").first)
    assert "of 72 heads" in said
    assert f"layer {first['layer']}, head {first['head']}" in said
    assert f"{tokens[first['row']]} → {tokens[first['col']]} {weight_text(first['weight'])}" in said
    cell, rests, step = intro(page).locator(".rg-bar button").all()
    click(cell)
    words = f"{tokens[other['row']]} attends to {tokens[other['col']]}: {weight_text(other['weight'])}"
    assert readout(page) == words
    click(rests)
    assert not intro(page).is_visible()  # the grid has the room
    assert {"v=heads", "m=sink"} <= set(page.url.partition("#")[2].split("&"))
    press(page, "2")
    click(step)
    assert page.locator(".rg-cell [data-step=row]").is_visible()
    press(page, "2")
    check_access(page, 1280, 390)
    click(intro(page).get_by_role("button", name="Hide"))
    assert not intro(page).is_visible()
    page.reload()
    settled(page)
    assert not intro(page).is_visible()
    page.get_by_text("Display", exact=True).click()
    click(page.get_by_text("What to try", exact=True))
    assert intro(page).is_visible()


def test_the_words_of_the_page_are_explained_where_they_first_stand(open_page, address, sequence_address):
    told = plain(intro(open_page(address)).locator("p").nth(1))
    assert intro(open_page(address)).locator("em").all_inner_texts() == ["layer", "heads", "sink"]
    assert "[CLS] and [SEP] are marks that the model adds." in told
    assert "mark" not in plain(intro(open_page(sequence_address)))  # a model that adds none


def test_a_file_says_it_too_and_a_head_that_is_asked_for_changes_no_claim(open_page, animal, tmp_path):
    from regard.explorer import write_page

    write_page(animal, tmp_path / "page.html")
    page = open_page(f"{(tmp_path / 'page.html').as_uri()}#v=head&l=2&h=3")
    assert "layer 3, head 1" in plain(intro(page))
    assert page.locator("h2").first.inner_text() == "Layer 2 · Head 3"


@pytest.mark.parametrize("where", ["server", "file"])
def test_a_decoder_says_in_every_view_what_comes_next(open_page, sequence_address, sequence_file, sequence, where):
    page = open_page(f"{sequence_address if where == 'server' else sequence_file}#v=head&l=1&h=0&i=8")
    line = page.locator(".rg-next-line")
    likeliest = sequence.next_tokens(0, position=8)["tokens"][0]["text"]
    for key in "12346":
        press(page, key)
        expect(line.locator("button").first).to_contain_text(likeliest)
    press(page, "2")
    page.locator(".rg-stage").focus()
    press(page, "ArrowUp", "ArrowUp")  # the first chooses a cell
    assert plain(line).startswith("Next after z:2")
    check_access(page, 390)
