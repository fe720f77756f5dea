"""Lines between words, of several heads and of all layers: held against the weights that Python computes."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest
from acts import reach
from pages import CAUSAL, OTHER, check_access, expect, explored, hold, notebook, number, plain, saved, settled

import regard

CHOSEN = "v=lines&l=2&h=3&lh=2.3_2.5"
WIDTH = 100


def drawn(page, layer=0):
    """Return the lines of a drawing: by the colour of a head and the cell, their opacity in tenths."""
    found = defaultdict(dict)
    for path in page.locator(".rg-lines svg").nth(layer).locator("path").all():
        color, opacity = path.get_attribute("class"), round(10 * float(path.get_attribute("opacity")))
        for key, query in re.findall(rf"M0 ([\d.]+)C[^M]* {WIDTH} ([\d.]+)", path.get_attribute("d")):
            found[color][int(float(query)), int(float(key))] = opacity
    return dict(found)


def expected(*maps, rows=None, cols=None, largest=None):
    """Return what `drawn` returns of some heads on one scale, of some rows and columns."""
    largest = largest or max(one.max() for one in maps)
    found = {}
    for n, one in enumerate(maps):
        tenths = np.floor(10 * np.float64(one) / largest + 0.5).astype(int)
        cells = {
            (int(i), int(j)): int(tenths[i, j])
            for i, j in np.argwhere(tenths > 0)
            if (rows is None or i in rows) and (cols is None or j in cols)
        }
        if cells:
            found[f"rg-line-{n}"] = cells
    return found


def word(page, column, index):
    return page.locator(f".rg-line-word[data-place='{column}.{index}']")


def leave(page):
    """Point at no word."""
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement.blur()")


def test_each_chosen_head_is_drawn_in_its_colour(open_page, address, weights):
    page = open_page(f"{address}#{CHOSEN}")
    assert drawn(page) == expected(weights[2, 3], weights[2, 5])
    strokes = [
        page.locator(f".rg-lines path.rg-line-{n}").first.evaluate("node => getComputedStyle(node).stroke")
        for n in range(2)
    ]
    assert len(set(strokes)) == 2
    shown = page.get_by_role("group", name="Heads of Layer 2").locator("[aria-pressed=true]")
    assert shown.all_inner_texts() == ["3", "5"]
    assert number(page.locator("[data-ref=linesNote]").inner_text()) == pytest.approx(
        weights[2, [3, 5]].max(), rel=6e-3
    )


def test_heads_are_pressed_and_released_and_the_address_has_them(open_page, address, weights):
    page = open_page(f"{address}#v=lines&l=2&h=3")
    assert drawn(page) == expected(weights[2, 3])  # the shown head without a choice
    heads = page.get_by_role("group", name="Heads of Layer 2")
    heads.get_by_role("button", name="mean, Layer 2").click()
    reach(page, re.compile(r"lh=2\.3_2\.mean"))
    assert drawn(page) == expected(weights[2, 3], weights[2].mean(axis=0))
    heads.get_by_role("button", name=re.compile("^3, ")).click()
    reach(page, re.compile(r"lh=2\.mean(&|$)"))
    assert drawn(page) == expected(weights[2].mean(axis=0))
    for head in range(7):
        heads.get_by_role("button", name=re.compile(f"^{head}, ")).click()
    settled(page)
    expect(heads.get_by_role("button", name=re.compile("^11, "))).to_be_disabled()  # there are eight colours
    page.get_by_label("Layer", exact=True).select_option("4")
    reach(page, re.compile("l=4"))
    assert drawn(page) == expected(weights[4, 3])


def test_a_word_that_is_pointed_at_shows_its_lines_alone(open_page, address, weights):
    page = open_page(f"{address}#{CHOSEN}")
    word(page, 1, 8).hover()
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], rows={8})
    said = plain(page.locator("[data-ref=linesReadout]"))
    tokens = page.locator(".rg-line-words").first.locator("button").all_inner_texts()
    for head in (3, 5):
        best = np.argsort(-weights[2, head, 8], kind="stable")[:3]
        told = re.search(rf"head {head}: ([^·]*)", said)[1].strip().split(", ")
        assert [each.rsplit(" ", 1)[0] for each in told] == [tokens[j] for j in best]
        values = [float(each.rsplit(" ", 1)[1]) for each in told]
        assert values == pytest.approx(list(weights[2, head, 8, best]), rel=6e-3)
    word(page, 0, 2).hover()
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], cols={2})
    assert "is attended to by" in page.locator("[data-ref=linesReadout]").inner_text()
    leave(page)
    assert drawn(page) == expected(weights[2, 3], weights[2, 5])


def test_a_pressed_word_keeps_its_lines_and_keys_reach_all_words(open_page, address, weights):
    page = open_page(f"{address}#{CHOSEN}")
    word(page, 0, 0).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.place") == "1.2"
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], rows={2})
    page.keyboard.press("Enter")
    reach(page, re.compile("pins=2"))
    assert page.evaluate("document.activeElement.dataset.place") == "1.2"
    leave(page)
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], rows={2})
    assert word(page, 1, 2).get_attribute("aria-pressed") == "true"
    word(page, 1, 5).click()
    page.wait_for_url(re.compile(r"pins=2\.5"))
    leave(page)
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], rows={2, 5})
    word(page, 0, 4).click()
    page.wait_for_url(re.compile("pins=4&d=in"))
    leave(page)
    assert drawn(page) == expected(weights[2, 3], weights[2, 5], cols={4})


def test_all_layers_are_chained(open_page, address, weights):
    page = open_page(f"{address}#v=lines&l=2&h=3&ch=1")
    maps = [weights[n].mean(axis=0) if n != 2 else weights[2, 3] for n in range(6)]
    largest = max(one.max() for one in maps)
    for n, one in enumerate(maps):
        assert drawn(page, n) == expected(one, largest=largest)
    assert page.locator(".rg-line-words").count() == 7
    word(page, 3, 8).hover()  # the word after layer 2: what it attends to there, and what attends to it in layer 3
    parts = [{}, {}, expected(maps[2], rows={8}, largest=largest), expected(maps[3], cols={8}, largest=largest), {}, {}]
    assert [drawn(page, n) for n in range(6)] == parts
    page.get_by_role("button", name="No heads").click()
    reach(page, re.compile("lh="))
    assert page.locator(".rg-lines path").count() == 0
    page.get_by_role("group", name="Heads of Layer 1").get_by_role("button", name=re.compile("^5, ")).click()
    reach(page, re.compile(r"lh=1\.5"))
    leave(page)
    assert drawn(page, 1) == expected(weights[1, 5])


def test_words_and_special_tokens_are_as_on_the_map(open_page, address, one):
    page = open_page(f"{address}#{CHOSEN}&special=0&words=1")
    groups = {}
    for i, token in enumerate(one.manifest()["runs"][0]["tokens"]):
        if not token["special"]:
            groups.setdefault(token["word"], []).append(i)
    members = list(groups.values())
    whole = one.whole(0, 2, 3)
    merged = np.array([[whole[np.ix_(a, b)].sum(axis=1).mean() for b in members] for a in members])
    other = one.whole(0, 2, 5)
    merged_other = np.array([[other[np.ix_(a, b)].sum(axis=1).mean() for b in members] for a in members])
    assert drawn(page) == expected(merged, merged_other)


def test_a_long_text_is_refused_in_a_sentence(open_page, serve, minilm):
    address = serve(explored(minilm, " ".join(["word"] * 140)))
    page = open_page(f"{address}#v=lines&l=2&h=3")
    said = page.locator("[data-ref=linesNote]")
    expect(said).to_contain_text("between 128 words at most, and here are 142")
    assert page.locator(".rg-lines svg").count() == 0
    page.goto(f"{address}#v=lines&l=2&h=3&from=1&to=100")
    page.wait_for_selector(".rg-lines svg")
    assert page.locator(".rg-line-words").first.locator("button").count() == 99
    hold(page, "**/api/tile")
    page.evaluate("location.hash = '#v=lines&l=3&h=4&from=1&to=100'")
    page.wait_for_selector(".rg-lines.rg-stale")
    page.evaluate("location.hash = '#v=lines&l=3&h=4'")  # nothing is waited for any more
    expect(said).to_contain_text("between 128 words at most")
    assert not re.search("rg-stale", said.get_attribute("class"))


def test_it_is_the_same_in_a_file_and_in_a_notebook(open_page, file_address, one, tmp_path, weights):
    page = open_page(f"{file_address}#v=lines&l=2&h=3&lh=2.3_2.mean")
    for cell, tenth in expected(weights[2, 3], weights[2].mean(axis=0))["rg-line-0"].items():
        assert drawn(page)["rg-line-0"].get(cell, 0) == pytest.approx(tenth, abs=1)  # of rounded weights
        break
    assert set(drawn(page)) == {"rg-line-0", "rg-line-1"}
    inside = notebook(open_page, one, tmp_path)
    inside.get_by_role("button", name="Lines").click()
    inside.wait_for_selector(".rg-lines path")
    settled(inside)
    layer, head = one.initial_head
    assert drawn(inside) == expected(one.whole(0, layer, head))


def test_of_two_texts_each_is_shown(open_page, address_of_two, minilm):
    page = open_page(f"{address_of_two}#{CHOSEN}")
    page.locator(".rg-lines-view").get_by_role("button", name="B", exact=True).click()
    reach(page, re.compile("s=B"))
    trace = regard.Trace()
    minilm(OTHER, trace=trace)
    found = np.asarray(trace["blocks.2.attn.weights"])[0]
    assert drawn(page) == expected(found[3], found[5])


def test_a_causal_map_has_no_line_to_what_follows(open_page, serve):
    model = regard.load(CAUSAL)
    address = serve(explored(model, "some text that is long", layer=1, head=0))
    page = open_page(f"{address}#v=lines&ch=1")
    cells = [cell for n in range(2) for cell in drawn(page, n)["rg-line-0"]]
    assert all(key <= query for query, key in cells)


def test_it_is_saved_as_a_picture_and_as_numbers(open_page, address, weights):
    page = open_page(f"{address}#{CHOSEN}")
    drawing = saved(page, "SVG").decode()
    assert drawing.count("<path") == page.locator(".rg-lines path").count()
    assert ">animal<" not in drawing
    assert ">cat<" in drawing
    rows = saved(page, "CSV").decode().splitlines()
    assert rows[0] == "layer,head,query,key,weight"
    values = [float(row.rsplit(",", 1)[1]) for row in rows[1:]]
    np.testing.assert_allclose(values, weights[2, [3, 5]].ravel(), atol=1e-6)


@pytest.mark.parametrize("view", [CHOSEN, "v=lines&l=2&h=3&ch=1&pins=8"])
def test_it_is_accessible_at_every_width(open_page, address, view):
    check_access(open_page(f"{address}#{view}"), 1440, 375, 320, themes=("dark", "forced"))
