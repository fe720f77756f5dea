"""The page shows the numbers of the API, and every part of it can be reached."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import ablate, appear, choose, click, go, press, reach
from pages import (
    CAUSAL,
    HOSTILE,
    SINKS,
    dots_of,
    exact,
    explored,
    hostile,
    intercept,
    number,
    plain,
    readout,
    saved,
    settled,
    traced,
    weight_text,
)

import regard
from regard.explorer import Exploration, write_page


def weight(exploration, layer, head, row, col, mode="raw", run=0):
    return float(exploration.row(run, layer, head, row, mode=mode)[col])


def test_from_the_grid_to_a_head_to_a_cell(open_page, address, one):
    page = open_page(f"{address}#v=heads&l=2&h=3")
    assert page.locator(".rg-head").count() == 72
    page.get_by_role("gridcell", name=re.compile("layer 4, head 7")).dblclick()
    settled(page)
    assert page.locator("h2").first.inner_text() == "Layer 4 · Head 7"
    page.locator(".rg-stage").focus()
    page.keyboard.press("ArrowRight")  # enters the map at its first cell
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    settled(page)
    assert exact(page) == pytest.approx(weight(one, 4, 7, 8, 2), abs=5e-7)
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-step=output]")
    cell = one.cell(0, 4, 7, 8, 2)
    shown = page.locator("[data-value=weight]").inner_text()
    assert shown == weight_text(cell["weight"])
    score = page.locator("[data-value=score]").inner_text().replace("−", "-")
    assert float(score) == pytest.approx(np.dot(cell["q"], cell["k"]), rel=1e-3)
    assert page.locator("[data-step=score] rect").count() == 32
    formulas = [page.locator(f"[data-step={name}] .rg-formula").inner_text() for name in ("embedding", "qk")]
    assert [formulas[0], formulas[1][:6]] == ["ei", "qi = x"]  # in higher layers these are two vectors


def test_heads_are_ordered_filtered_and_folded(open_page, address, one):
    page = open_page(f"{address}#v=heads&l=2&h=3")
    page.get_by_role("button", name="By metric").click()
    choose(page.get_by_label("Metric of heads"), "previous_token")
    values = np.array(one.heads(0)["metrics"]["previous_token"], dtype=float)
    layer, head = np.unravel_index(values.argmax(), values.shape)
    assert page.locator(".rg-caption").first.inner_text().startswith(f"L{layer} H{head} ·")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Threshold of the metric").fill("0.5")
    least = values.min() + 0.5 * (values.max() - values.min())
    assert page.locator(".rg-dimmed").count() == int((values < least).sum())
    page.get_by_role("button", name="Mean of layers").click()
    assert page.locator(".rg-head").count() == 6
    page.get_by_role("button", name="Mean of columns").click()
    assert page.locator(".rg-head").count() == 12
    page.get_by_role("button", name="Each head").click()
    page.get_by_role("button", name="Collapse layer 3").click()
    assert page.locator(".rg-head").count() == 72 - 12 + 1
    assert page.get_by_text(f"{int((values >= least).sum())} of 72 heads").count() == 1


def test_a_word_shades_those_it_looks_at_pins_are_summed_and_words_are_found(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3")
    words = page.locator(".rg-text-panel .rg-word")
    click(words.nth(8))
    row = one.row(0, 2, 3, 8)
    assert page.locator(".rg-top .rg-number").first.inner_text() == weight_text(row.max())
    click(words.nth(3), modifiers=["Shift"])
    both = row + one.row(0, 2, 3, 3)
    assert page.locator(".rg-top .rg-number").first.inner_text() == weight_text(both.max())
    assert page.locator(".rg-pinned").count() == 2
    page.get_by_role("button", name="Unpin all").click()
    page.get_by_role("button", name="Attended by").click()
    click(words.nth(5))
    column = one.column(0, 2, 3, 5)
    assert page.locator(".rg-top .rg-number").first.inner_text() == weight_text(column.max())
    page.get_by_label("Arcs").check()
    assert page.locator(".rg-arcs path").count() > 0
    for query, tokens in (("unbelievably", 5), ("The MAT", 2), ("it", 2), ("[sep]", 1)):
        page.get_by_label("Find a word").fill(query)
        settled(page)
        assert page.locator(".rg-match-count").inner_text() == f"{2 if query == 'it' else 1} found"
        assert page.locator(".rg-match").count() == tokens, query


def test_pieces_join_to_words_with_what_is_pinned_and_part_again(open_page, address, one):
    tokens = one.manifest()["runs"][0]["tokens"]
    piece = next(n for n, token in enumerate(tokens) if token["text"].startswith("##"))
    page = open_page(f"{address}#v=head&l=2&h=3&i={piece}&j=2")
    assert page.locator(".rg-text-panel .rg-word").count() == len(tokens)
    press(page, "w")
    words = len({token["word"] for token in tokens if token["word"] is not None}) + 2
    assert words < len(tokens)
    assert page.locator(".rg-text-panel .rg-word").count() == words
    assert "unbelievably" in page.locator(".rg-text-panel .rg-words").first.inner_text()
    press(page, "w")
    assert page.locator(".rg-text-panel .rg-word").count() == len(tokens)
    for unpin in (lambda: page.locator(".rg-pinned").click(modifiers=["Alt"]), lambda: page.keyboard.press("p")):
        press(page, "p", "w")
        assert page.locator(".rg-pinned").count() == 1
        unpin()
        settled(page)
        assert page.locator(".rg-pinned").count() == 0
        press(page, "w")
        assert page.locator(".rg-pinned").count() == 0


def test_each_way_of_display_keeps_the_numbers_and_says_what_they_mean(open_page, address, one):
    cell = f"{address}#v=head&l=2&h=3&i=8&j=2"
    page = open_page(cell)
    entries = {entry["key"]: entry for entry in one.manifest()["modes"]}
    for way in ("raw", "rollout", "norms"):
        go(page, f"{cell}&w={way}")
        assert exact(page) == pytest.approx(weight(one, 2, 3, 8, 2, way), abs=5e-7)
        said = page.locator(".rg-mode-description").inner_text()
        assert said == f"{entries[way]['description']} {entries[way]['caveat']}"
    go(page, cell)
    page.get_by_text("Display", exact=True).click()
    page.get_by_label("Special tokens").uncheck()
    settled(page)
    row = one.row(0, 2, 3, 8)
    assert f"{row[0] + row[-1]:.3f} of this row is hidden" in readout(page)
    go(page, f"{cell}&special=0&w=norms")
    lengths = one.row(0, 2, 3, 8, mode="norms")
    hidden = (lengths[0] + lengths[-1]) / lengths.sum()
    assert f"{hidden:.3f} of the lengths in this row is hidden" in readout(page)
    go(page, f"{cell}&byrow=1")  # rows by themselves
    assert exact(page) == pytest.approx(weight(one, 2, 3, 8, 2), abs=5e-7)
    saved_row = next(line for line in saved(page, "CSV").decode().splitlines()[1:] if line.startswith("it:1,"))
    assert [float(x) for x in saved_row.split(",")[1:]] == pytest.approx(list(row), abs=5e-7)
    map_of = "document.querySelector('.rg-canvas').toDataURL()"
    coloured = page.evaluate(map_of)
    press(page, "n")
    assert page.evaluate(map_of) != coloured
    go(page, f"{address}#v=head&l=2&h=3&from=3&to=6&log=1")  # a window of tokens
    lines = saved(page, "CSV").decode().splitlines()
    shown = np.array([[float(x) for x in line.split(",")[1:]] for line in lines[1:]])
    assert shown == pytest.approx(one.whole(0, 2, 3)[3:6, 3:6], abs=5e-7)
    assert "in powers of ten" in page.locator(".rg-below-map .rg-legend").inner_text()


def test_two_texts_as_a_b_and_their_difference(open_page, address_of_two, two):
    page = open_page(f"{address_of_two}#v=head&l=2&h=3&i=8&j=2")
    numbers = []
    for side in ("A", "B", "A − B"):
        click(page.get_by_role("button", name=side, exact=True))
        numbers.append(exact(page))
    one, other = (weight(two, 2, 3, 8, 2, run=run) for run in (0, 1))
    assert numbers == pytest.approx([one, other, one - other], abs=2e-6)
    go(page, f"{address_of_two}#v=head&l=2&h=3&i=8&j=2&w=rollout&s=diff")
    heading = page.locator(".rg-text-panel h3")
    assert heading.inner_text() == "it:1 consists of, A − B"
    page.get_by_role("button", name="A", exact=True).click()
    click(page.get_by_role("button", name="Attended by"))
    assert heading.inner_text() == "cat contributes most to"
    go(page, f"{address_of_two}#v=cell&l=2&h=3&i=8&j=2&s=diff")
    both = [column.split() for column in page.locator(".rg-step-columns > div").all_inner_texts()]
    assert [column[0] for column in both] == ["A:", "B:"]
    press(page, "c")
    assert page.locator("[data-ref=steps]").inner_text().split() == both[0][both[0].index("Embedding") :]
    press(page, "c")
    assert "These are the steps of B" in page.locator(".rg-cell").inner_text()
    assert page.locator("[data-ref=steps]").inner_text().split() == both[1][both[1].index("Embedding") :]


def test_a_layer_that_was_recorded_alone_keeps_its_number(open_page, serve):
    model, trace = regard.load(CAUSAL), regard.Trace(maps=True, only=["blocks.1.attn.weights", "blocks.1.attn.v"])
    model("some text that is not short", trace=trace)
    exploration = Exploration(trace, models=[model], layer=1, head=0)
    address = serve(exploration)
    page = open_page(f"{address}#v=heads&l=0&h=0")
    assert page.locator("h2").first.inner_text() == "Layer 1 · Head 0"
    assert page.get_by_role("gridcell", name=re.compile("layer 1, head 3")).count() == 1
    assert page.get_by_label("Collapse layer 1").count() == 1
    page.goto(f"{address}#v=head&l=0&h=1&i=4&j=2")
    assert page.get_by_label("Layer", exact=True).locator("option").all_inner_texts() == ["1"]
    ablate(page)
    assert page.locator(".rg-changes h3").inner_text() == "Without layer 1 head 1"
    page.locator(".rg-head-panel").get_by_role("button", name="A − B").click()
    assert page.locator(".rg-head-panel .rg-side-name").inner_text() == "original − without layer 1 head 1"
    choose(page.get_by_label("Head", exact=True), "2")
    assert exact(page) == 0


def test_movement_stands_where_the_api_says_and_an_edit_on_its_plane(open_page, address, one):
    page = open_page(f"{address}#v=movement&l=0&h=3", selector=".rg-plane[data-drawn]")
    points, length = np.array(one.movement([0])["points"][0]), one.runs[0].length
    for stage in (0, 3, len(points) - 1):
        page.get_by_label("Stage").fill(str(stage))
        shown, known = np.array(dots_of(page)), points[stage]
        scale = np.ptp(shown[:, 0]) / np.ptp(known[:, 0])
        assert np.abs((shown - shown.mean(0)) / scale - (known - known.mean(0))).max() < 0.005 * np.ptp(known)
    assert "share one plane" in page.locator(".rg-movement > .rg-description").inner_text()
    press(page, "2")
    ablate(page)
    page.keyboard.press("4")
    page.wait_for_selector(".rg-runs .rg-run-b")
    page.get_by_label("Stage").fill("0")
    dots = dots_of(page)
    assert len(dots) == 2 * length
    assert dots[:length] == dots[length:]  # no head has done anything yet


def test_the_address_brings_a_view_back_and_the_way_to_it(open_page, address):
    page = open_page(f"{address}#v=head&l=4&h=7&i=8&j=2&w=rollout&special=0&log=1&d=in&arcs=1")
    first, url = page.locator(".rg-readout").inner_text(), page.url
    again = open_page(url)
    assert again.locator(".rg-readout").inner_text() == first
    assert again.url == url
    go(page, f"{address}#v=heads&l=2&h=3")
    page.get_by_role("gridcell", name=re.compile("layer 4, head 7")).dblclick()
    press(page, "]")
    press(page, "4")
    for view, head in (("head", "l=4&h=8"), ("head", "l=4&h=7"), ("heads", "l=4&h=7"), ("heads", "l=2&h=3")):
        page.go_back()
        settled(page)
        assert page.locator("main").get_attribute("data-view") == view
        assert head in page.url


def test_what_is_clicked_has_an_entry_of_the_history_each_and_keys_one_for_all(open_page, address):
    page = open_page(f"{address}#v=head&l=4&h=7&i=8&j=2")
    before = page.evaluate("history.length")
    for head in (5, 6):
        page.locator(".rg-heads .rg-head").nth(4 * 12 + head).click()
    click(page.locator(".rg-text-panel .rg-word").nth(3))
    press(page, "]", "]", "[", "ArrowDown")
    click(page.locator(".rg-head").nth(12 * 4))
    chosen = [page.url]
    for _ in range(5):
        page.go_back()
        settled(page)
        chosen.append(page.url)
    at = [re.search("l=4&h=([0-9]+)&i=([0-9]+)", url).groups() for url in chosen]
    assert at == [("0", "4"), ("7", "4"), ("6", "3"), ("6", "8"), ("5", "8"), ("7", "8")]
    assert page.evaluate("history.length") == before + 5


def test_a_head_that_is_chosen_after_back_leaves_the_way_forward(open_page, address):
    page = open_page(f"{address}#v=head&l=4&h=7")
    for key in ("1", "3"):
        press(page, key)
    page.go_back()
    settled(page)
    press(page, "]")
    page.go_forward()
    settled(page)
    assert page.locator("main").get_attribute("data-view") == "cell"
    page.go_back()
    settled(page)
    assert page.locator("main").get_attribute("data-view") == "heads"
    assert "l=4&h=8" in page.url


def test_what_an_address_says_wrongly_is_not_taken(open_page, address):
    page = open_page(f"{address}#v=nothing&l=999&h=-1&i=1e9&z=a_b_c&w=<script>&ps=1")
    said = page.get_by_role("alert")
    assert plain(said).startswith("Left out, since it means nothing in an address: v=nothing, h=-1, i=1e9, z=a_b_c …")
    assert not said.get_by_role("button").is_visible()
    press(page, "]")
    assert not said.is_visible()
    press(page, "[")
    assert page.locator("h2").first.inner_text() == "Layer 5 · Head 3"
    go(page, f"{address}#v=heads&n=0&sl=20.21.22.23.24.25&sh=0.0.0.0.0.0.0.0.0.0.0.0")
    page.get_by_text("More", exact=True).click()
    assert page.get_by_role("button", name="Each head").get_attribute("aria-pressed") == "true"
    assert page.locator(".rg-head").count() == 72 + 1  # the first column has its mean too


def test_light_and_dark(open_page, address):
    page = open_page(f"{address}#v=head&l=2&h=3", color_scheme="dark")
    ground = "getComputedStyle(document.querySelector('.regard')).backgroundColor"
    assert page.evaluate(ground) == "rgb(21, 23, 29)"
    page.keyboard.press("d")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert "theme=light" in page.url
    page.keyboard.press("d")  # what the system has is its own choice again
    settled(page)
    assert "theme" not in page.url
    page.emulate_media(color_scheme="light")
    settled(page)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_a_file_without_a_network_shows_the_same(open_page, file_address, one):
    page = open_page(f"{file_address}#v=head&l=2&h=3&i=8&j=2", offline=True)
    assert exact(page) == pytest.approx(weight(one, 2, 3, 8, 2), abs=0.5e-4)
    assert page.locator(".rg-head").count() == 72
    choose(page.get_by_label("Head", exact=True), "mean")
    mean = float(np.mean([weight(one, 2, head, 8, 2) for head in range(12)]))
    assert exact(page) == pytest.approx(mean, abs=1e-4)
    page.goto(f"{file_address}#v=cell&l=2&h=3&i=8&j=2")
    page.wait_for_selector("[data-step=output]")
    assert float(page.locator("[data-value=weight]").inner_text()) == pytest.approx(weight(one, 2, 3, 8, 2), rel=5e-3)
    assert page.locator("[data-step=embedding]").count() == 0
    assert "which holds no embeddings" in page.locator(".rg-cell").inner_text()
    page.keyboard.press("4")
    page.wait_for_selector(".rg-plane[data-drawn]")


@pytest.mark.parametrize("where", ["server", "file"])
def test_hostile_tokens_are_inert_and_readable(open_page, serve, tmp_path, where):
    exploration = hostile()
    if where == "file":
        write_page(exploration, tmp_path / "page.html")
        check_hostile(open_page((tmp_path / "page.html").as_uri()))
    else:
        check_hostile(open_page(serve(exploration)))


def check_hostile(page):
    words = page.locator(".rg-text-panel .rg-word")
    assert words.count() == len(HOSTILE)
    assert words.nth(0).inner_text().startswith("<script>")
    assert page.locator("img, .rg-words script").count() == 0
    assert "⟨U+202E⟩" in words.nth(2).inner_text()
    assert "…" in words.nth(3).inner_text()
    assert len(words.nth(3).inner_text()) < 40
    assert words.nth(4).inner_text() == "a␀b"
    assert words.nth(6).inner_text() == "مرحبا"
    assert words.nth(8).inner_text() == "⟨U+FFFE⟩␛"
    click(words.nth(1))
    assert "⟨U+202E⟩" in page.title()
    start = page.url.split("#")[0]
    for view, there in (("heads", ".rg-head"), ("movement", ".rg-plane[data-drawn]")):
        page.goto(f"{start}#v={view}&i=2&j=3")
        page.wait_for_selector(there, state="attached")
        check_inert(page)
    for token in range(len(HOSTILE)):
        page.goto(f"{start}#v=cell&i={token}&j={token}")
        appear(page, "[data-step=output]")
        check_inert(page)
        names = page.locator(".rg-cell bdi").all_inner_texts()
        assert names == [words.nth(token).inner_text()] * 6
        assert page.locator(".rg-cell").bounding_box()["height"] < 2000


def check_inert(page):
    settled(page)
    everything = page.locator("body").evaluate("(body) => body.outerHTML.replace(/<script.*?<\\/script>/gs, '')")
    assert not re.search("[\\x00-\\x08\\x0b-\\x1f\\u202e\\ufffe]", everything)
    assert page.locator("img, main script").count() == 0


@pytest.mark.parametrize("text", ["שלום עולם", "مرحبا يا عالم"])
def test_a_text_that_runs_from_right_to_left_does(open_page, serve, minilm, text):
    exploration = explored(minilm, text)
    last = exploration.runs[0].length - 1
    page = open_page(serve(exploration))
    words = page.locator(".rg-text-panel .rg-word")
    assert [words.nth(n).inner_text() for n in (0, last)] == ["[CLS]", "[SEP]"]
    places = [words.nth(n).bounding_box()["x"] for n in range(3)]
    assert places == sorted(places, reverse=True)
    ablate(page)
    assert page.locator(".rg-changes .rg-words").get_attribute("dir") == "rtl"


def test_a_causal_model_masks_and_its_ablation_changes_what_comes_next(open_page, serve):
    exploration = explored(regard.load(CAUSAL), "some text that is not short", layer=0, head=1)
    address = serve(exploration)
    last = exploration.manifest()["runs"][0]["layers"][0]["rows"] - 1
    page = open_page(f"{address}#v=cell&l=0&h=1&i=1&j={last}", selector="text=The masked score is −∞")
    assert page.locator("[data-value=weight]").inner_text() == "0"
    press(page, "2")
    ablate(page)
    assert page.locator(".rg-changes tbody tr").count() > 0


def test_the_share_of_a_sink_is_a_step_of_a_file(open_page, tmp_path):
    exploration = explored(regard.load(SINKS), "some text that is not short", layer=1, head=2)
    sums = [exploration.row(0, 1, head, 4).sum() for head in range(6)]
    head = int(np.argmin(sums))
    cell = exploration.cell(0, 1, head, 4, 1)
    assert 0.1 < cell["row_sum"] < 0.9
    write_page(exploration, tmp_path / "page.html")
    address = (tmp_path / "page.html").as_uri()
    page = open_page(f"{address}#v=cell&l=1&h={head}&i=4&j=1", selector="[data-step=output]")
    sink = float(page.locator("[data-value=sink]").inner_text())
    assert sink == pytest.approx(1 - cell["row_sum"], rel=2e-3)
    said = page.locator("[data-step=weight] p").inner_text()
    assert "over the row and the sink" in said
    assert number(said.split("The row sums to ")[1]) == pytest.approx(cell["row_sum"], rel=1e-3)


def test_a_long_text_from_the_whole_to_single_cells(open_page, serve):
    tokens = [f"w{i}" for i in range(4096)]
    exploration = Exploration(traced(tokens, causal=True))
    page = open_page(f"{serve(exploration)}#v=head&l=0&h=1&i=3000&j=2990")
    assert exact(page) == pytest.approx(weight(exploration, 0, 1, 3000, 2990), abs=5e-7)
    press(page, "z")
    lines = saved(page, "CSV").decode().splitlines()
    rows = [int(line.split(",")[0][1:]) for line in lines[1:]]
    cols = [int(name[1:]) for name in lines[0].split(",")[1:]]
    assert 3000 in rows
    assert 2990 in cols
    shown = np.array([[float(x) for x in line.split(",")[1:]] for line in lines[1:]])
    known = np.stack([exploration.row(0, 0, 1, row)[cols] for row in rows])
    assert shown == pytest.approx(known, abs=5e-7)
    press(page, "0")
    assert "z=" not in page.url


def test_single_cells_of_a_long_text_are_coloured_by_weights_though_means_are_seen_from_afar(open_page, serve):
    exploration = Exploration(traced([f"w{i}" for i in range(3000)], causal=True))
    page = open_page(f"{serve(exploration)}#v=head&l=0&h=0&pool=mean&i=6&j=2&log=0")
    ends = page.locator(".rg-legend-ticks span").last
    most_of_means = float(ends.inner_text())
    assert most_of_means < 0.2
    assert re.search(
        r"the mean of \d+ × \d+, the end of the scale includes larger values",
        page.locator(".rg-below-map .rg-legend").inner_text(),
    )
    page.keyboard.press("z")
    reach(page, re.compile("&z="))
    assert float(ends.inner_text()) == pytest.approx(1, abs=0.01)
    assert "mean" not in page.locator(".rg-below-map .rg-legend").inner_text()


def test_it_opens_with_a_word_and_what_it_attends_to(open_page, address, one):
    initial = one.manifest()["runs"][0]["initial"]
    page = open_page(address)
    settled(page)
    assert f"i={initial['row']}&j={initial['col']}" in page.url
    i, j = (one.runs[0].encoding.tokens[initial[axis]] for axis in ("row", "col"))
    assert f"{i} attends to {j}" in readout(page)
    assert page.locator("h3").filter(has_text=f"{i} attends most to").count() == 1
    page = open_page(f"{address}#l=2&h=3")  # of another head nothing is known
    assert "&i=" not in page.url


@pytest.mark.parametrize(("key", "layer", "head"), [("]", 2, 4), ("[", 2, 2), ("}", 3, 3), ("{", 1, 3)])
def test_the_map_of_a_key_is_there_before_it(open_page, address, one, key, layer, head):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    intercept(page, "**/api/tile", lambda route: None)  # from now on no map comes
    page.keyboard.press(key)
    page.wait_for_function(
        "(title) => document.querySelector('h2').innerText === title && !document.querySelector('.rg-map .rg-stale')",
        arg=f"Layer {layer} · Head {head}",
    )
    assert exact(page) == pytest.approx(weight(one, layer, head, 8, 2), abs=5e-7)


@pytest.mark.parametrize("means", ["Mean of layers", "Mean of columns"])
def test_means_are_labelled_within_the_grid(open_page, address, means):
    page = open_page(f"{address}#v=head&l=2&h=3")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name=means).click()
    settled(page)
    assert page.locator(".rg-grid-heads").count() == (0 if means == "Mean of layers" else 1)
    grid = page.locator(".rg-grid").bounding_box()
    for label in page.locator(".rg-grid .rg-heading").all():
        assert label.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
        assert label.bounding_box()["x"] >= grid["x"] - 1


def test_one_weight_reads_the_same_everywhere(open_page, address, one):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=output]")
    value = weight(one, 2, 3, 8, 2)
    short = weight_text(value)
    assert readout(page) == f"it:1 attends to cat: {short}"
    assert exact(page) == pytest.approx(value, abs=5e-7)
    assert page.locator("[data-value=weight]").inner_text() == short
    in_full = number(page.locator("[data-step=weight] p").inner_text())
    assert in_full == pytest.approx(value, abs=1e-9)
    press(page, "2")
    row = one.row(0, 2, 3, 8)
    assert page.locator(".rg-top .rg-number").all_inner_texts() == [weight_text(x) for x in sorted(row)[::-1][:6]]
    word = page.locator(".rg-text-panel .rg-word").nth(2)
    assert word.get_attribute("aria-label") == f"cat {short}"
    assert word.get_attribute("title") == f"cat: {short}"


def test_a_long_text_opens_on_a_log_scale_and_the_address_says_when_it_does_not(open_page, serve):
    address = serve(Exploration(traced([f"w{i}" for i in range(1100)], causal=True)))
    page = open_page(f"{address}#v=head&l=0&h=0")
    legend = page.locator(".rg-below-map .rg-legend")
    assert "in powers of ten" in legend.inner_text()
    assert "log=" not in page.url
    page.keyboard.press("l")
    page.wait_for_url("**log=0*")
    page.reload()
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    assert "in powers of ten" not in legend.inner_text()


def numbers_of(locator):
    return [number(text) if "." in text else float(text.replace("−", "-")) for text in locator.all_inner_texts()]


@pytest.mark.parametrize("where", ["server", "file"])
def test_the_row_of_scores_becomes_the_row_of_weights(open_page, address, file_address, one, where):
    start = address if where == "server" else file_address
    page = open_page(f"{start}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=row]")
    settled(page)
    scores = np.array(one.cell(0, 2, 3, 8, 2)["row"]["scores"])
    weights = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    order = np.argsort(-weights)[:8]
    rows = page.locator("[data-step=row] tbody tr")
    assert rows.count() == len(order)
    for n, column in enumerate(order):
        cells = numbers_of(rows.nth(n).locator("td"))
        wanted = [scores[column], scores[column] - scores.max(), np.exp(scores[column] - scores.max()), weights[column]]
        assert cells == pytest.approx(wanted, rel=6e-3, abs=1e-6)
    assert page.locator("[data-step=row] rect").count() == 2 * len(scores)
    said = page.locator("[data-step=row] p").inner_text()
    assert number(said.split("= ")[3]) == pytest.approx(np.exp(scores - scores.max()).sum(), rel=1e-3)
    rows.nth(1).get_by_role("button").click()  # another key of the row
    settled(page)
    assert f"&j={order[1]}" in page.url
    chosen = weight_text(weights[order[1]])
    page.wait_for_function("text => document.querySelector('[data-value=weight]').innerText === text", arg=chosen)
