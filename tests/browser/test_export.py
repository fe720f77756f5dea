"""An export has what the view shows: pictures with title, legend and messages, tables with names."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from acts import ablate, appear, choose, click, go, press
from pages import CAUSAL, HOSTILE, hostile, saved, traced

import regard
from regard.explorer import Exploration
from sweeps import sweep_after

HEAD = "v=head&l=2&h=3&i=8&j=2"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(page):
    return ElementTree.fromstring(saved(page, "SVG").decode())


def texts(picture):
    return ["".join(node.itertext()).replace("\u2068", "").replace("\u2069", "") for node in picture.iter(f"{SVG}text")]


def numbers(colours):
    """Return one number for each colour of three, 0 to 255 each."""
    return colours @ (65536, 256, 1)


def table(page):
    return list(csv.reader(io.StringIO(saved(page, "CSV").decode())))


@pytest.mark.parametrize("scheme", sweep_after(1, ["light", "dark"]))
@pytest.mark.parametrize(
    ("view", "selector", "said"),
    [
        ("v=heads&l=2&h=3", ".rg-head", ["All heads: a row for each layer, below each head its entropy", "11", "5"]),
        ("v=heads&l=2&h=3&o=metric&m=sink", ".rg-head", ["All heads by sink"]),
        (HEAD, ".rg-map", ["Layer 2 · Head 3 · weights", "it:1 attends to cat: 0.00345", "weight", "un"]),
        ("v=cell&l=2&h=3&i=8&j=2", "[data-step=output]", ["Softmax", "Output of the head", "0.00345", "Score"]),
        ("v=movement&l=2&h=3", ".rg-plane[data-drawn]", ["Representations by layer", "after layer 5", "un"]),
        ("v=text&l=2&h=3&i=8&j=2", ".rg-top li", ["Layer 2 · Head 3 · weights", "tired", "0.295"]),
    ],
)
def test_a_picture_says_what_it_shows(open_page, address, view, selector, said, scheme):
    page = open_page(f"{address}#{view}", selector=selector, color_scheme=scheme)
    picture = drawn(page)
    shown = texts(picture)
    for words in said:
        assert words in shown, words
    assert any(line.endswith("…") or line.endswith("it.") for line in shown if "The cat sat on the mat" in line)
    assert not {"Weights", "Rollout", "Save", "Ablate this head", "By layer", "Play"} & set(shown)
    pixels = matplotlib.image.imread(io.BytesIO(saved(page, "PNG")))
    size = [float(picture.get(name)) for name in ("height", "width")]
    assert pixels.shape[:2] == pytest.approx([2 * n for n in size], abs=2)
    ground = 255 if scheme == "light" else (21, 23, 29)
    assert np.round(255 * pixels[2, 2, :3]) == pytest.approx(ground)
    fills = {rect.get("fill") for rect in picture.iter(f"{SVG}rect")} - {None, "none"}
    colours = [tuple(map(int, re.findall(r"\d+", fill))) for fill in fills if fill.startswith("rgb(")]
    there = numbers(np.round(255 * pixels[..., :3]).astype(int))
    found = np.isin(numbers(np.array(colours, int).reshape(-1, 3)), there)
    assert found.sum() >= 0.8 * len(colours)  # small ones may have no whole pixel


def test_a_map_is_saved_cell_by_cell(open_page, address, one):
    page = open_page(f"{address}#{HEAD}&special=0")
    length = len(one.manifest()["runs"][0]["tokens"]) - 2
    picture = drawn(page)
    cells = [
        rect
        for inner in picture.iter(f"{SVG}svg")
        if inner.get("viewBox", "").startswith("0.00 0.00")
        for rect in inner
    ]
    row = one.row(0, 2, 3, 8)[1:-1]
    assert len(cells) > length**2 / 2
    shown = texts(picture)
    assert "hidden" in shown
    table_of = table(page)
    assert len(table_of) == length + 1
    assert table_of[0][0] == "weight"
    assert [float(x) for x in table_of[8][1:]] == pytest.approx(list(row), abs=5e-7)


def test_a_picture_of_heads_carries_the_filter_and_what_is_chosen(open_page, address):
    page = open_page(f"{address}#v=heads&l=2&h=3&n=0.5")
    faint = page.locator(".rg-dimmed").count()
    picture = drawn(page)
    assert sum(group.get("opacity") == "0.16" for group in picture.iter(f"{SVG}g")) == faint > 0
    assert f"{72 - faint} of 72 heads" in texts(picture)
    assert sum(rect.get("stroke") == "#c2410c" for rect in picture.iter(f"{SVG}rect")) == 1


def test_steps_are_saved_as_bars_and_as_numbers_with_names(open_page, address, one):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2", selector="[data-step=output]")
    cell = one.cell(0, 2, 3, 8, 2)
    bars = [inner for inner in drawn(page).iter(f"{SVG}svg") if "rg-bars" in inner.get("class", "")]
    assert len(bars) == 17
    numbers = 10 * 32 + 2 * len(cell["row"]["columns"]) + len(cell["embedding"]) + 4 * cell["projected"]["width"]
    assert sum(len(list(inner.iter(f"{SVG}rect"))) for inner in bars) == numbers
    lines = {line[0]: line[1:] for line in table(page)}
    assert [lines[name][0] for name in ("layer", "head", "query", "key")] == ["2", "3", "it:1", "cat"]
    assert [float(x) for x in lines["products"]] == pytest.approx(np.multiply(cell["q"], cell["k"]))
    choose(page.get_by_label("Head", exact=True), "mean")
    assert table(page)[0][0] == "weight"  # no steps: what the map shows, not the cell of before


def test_an_overview_is_saved_as_what_it_shows(open_page, serve):
    exploration = Exploration(traced([f"w{i}" for i in range(2999)], causal=True))
    page = open_page(f"{serve(exploration)}#v=head&l=0&h=1")
    lines = table(page)
    by = int(re.fullmatch(r"weight, the largest of (\d+) × \1", lines[0][0])[1])
    numbers = np.array([[float(x) for x in line[1:]] for line in lines[1:]])
    starts = np.arange(0, 2999, by)
    weights = exploration.runs[0].layers[0].tile(1, None, None)
    pooled = np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=0), starts, axis=1)
    assert numbers == pytest.approx(pooled, abs=6e-7)
    assert lines[3][0] == f"{2 * by} w{2 * by} … {3 * by - 1} w{3 * by - 1}"
    assert lines[-1][0] == f"{starts[-1]} w{starts[-1]} … 2998 w2998"


def test_a_difference_from_afar_is_of_the_largest_of_each_side_and_says_so(open_page, serve):
    tokens = [f"w{i}" for i in range(1150)]
    exploration = Exploration(*(traced(tokens, causal=True, seed=seed) for seed in (1, 2)))
    page = open_page(f"{serve(exploration)}#v=head&l=0&h=1&s=diff")
    lines = table(page)
    said = r"weight, the largest of (\d+) × \1, in A minus the largest in B: blue where A is larger"
    by = int(re.match(said, lines[0][0])[1])
    assert re.search(said, page.locator(".rg-below-map .rg-legend").inner_text())
    starts = np.arange(0, 1150, by)
    one, other = (
        np.maximum.reduceat(np.maximum.reduceat(run.layers[0].tile(1, None, None), starts, axis=0), starts, axis=1)
        for run in exploration.runs
    )
    numbers = np.array([[float(x) for x in line[1:]] for line in lines[1:]])
    assert numbers == pytest.approx(one - other, abs=2e-6)


def test_a_file_names_a_layer_as_the_model_does(open_page, serve):
    trace = regard.Trace(maps=True, only=["blocks.1.attn.weights", "blocks.1.attn.v"])
    regard.load(CAUSAL)("some text that is not short", trace=trace)
    page = open_page(f"{serve(Exploration(trace))}#v=cell&l=0&h=1&i=2&j=1", selector="[data-step=weight]")
    assert "Layer 1 · Head 1 · weights" in texts(drawn(page))
    assert dict(line[:2] for line in table(page))["layer"] == "1"
    press(page, "1")
    assert table(page)[1][0] == "layer 1"


def test_files_of_two_heads_of_a_long_text_have_two_names(open_page, serve):
    page = open_page(serve(Exploration(traced([f"word{i} " for i in range(40)]))))
    names = set()
    for head in ("0", "1"):
        choose(page.get_by_label("Head", exact=True), head)
        page.get_by_text("Save", exact=True).click()
        with page.expect_download() as download:
            page.get_by_role("button", name="As CSV").click()
        names.add(download.value.suggested_filename)
    assert len(names) == 2


DRAWN = {
    "head": ".rg-map",
    "movement": ".rg-plane[data-drawn]",
    "cell": "[data-step=output]",
    "heads": ".rg-head",
}


@pytest.mark.parametrize("view", sweep_after(2, DRAWN))
def test_hostile_tokens_are_saved_as_what_they_are(open_page, serve, view):
    address = serve(hostile())
    page = open_page(f"{address}#v={view}&i=2&j=4", selector=DRAWN[view])
    for token in range(len(HOSTILE)) if view == "cell" else [2]:
        go(page, f"{address}#v={view}&i={token}&j={(token + 4) % len(HOSTILE)}")
        picture = drawn(page)
        assert not re.search("[\\x00-\\x08\\u202e\\ufffe]", "".join(picture.itertext()))
        assert not {node.tag for node in picture.iter()} & {f"{SVG}{tag}" for tag in ("script", "img", "foreignObject")}
        assert max(map(len, texts(picture))) < 300
    assert saved(page, "PNG").startswith(b"\x89PNG")
    assert len(table(page)) > 1


def test_a_picture_that_cannot_be_made_is_said_to_be_none(open_page, address):
    page = open_page(f"{address}#{HEAD}")
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = (take) => take(null); }")
    page.get_by_text("Save", exact=True).click()
    page.get_by_role("button", name="As PNG").click()
    page.wait_for_selector("text=The browser cannot create this PNG: save the picture as SVG.")
    page.get_by_role("button", name="As SVG").click()
    page.wait_for_selector("text=The browser cannot create this PNG", state="hidden")


def test_movement_of_an_edit_of_b_names_its_sides(open_page, address_of_two):
    page = open_page(f"{address_of_two}#v=head&l=2&h=3&s=B")
    ablate(page)
    page.keyboard.press("4")
    appear(page, ".rg-plane[data-drawn]")
    lines = table(page)
    assert [line[0] for line in lines[1 :: (len(lines) - 1) // 2]] == ["A", "B"]
    assert {line[0] for line in lines[1:]} == {"A", "B"}


def test_lines_are_saved_as_wide_as_they_are_seen(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=lines&l=1&h=0", selector=".rg-lines path")
    seen = page.locator(".rg-lines svg").bounding_box()
    widths = {float(path.get_attribute("stroke-width")) for path in page.locator(".rg-lines path").all()}
    (drawing,) = [node for node in drawn(page).iter(f"{SVG}svg") if node.find(f"{SVG}path") is not None]
    box = [float(x) for x in drawing.get("viewBox").split()]
    assert box == pytest.approx([0, 0, seen["width"], seen["height"]], abs=0.5)  # a unit is a pixel
    assert {float(path.get("stroke-width").removesuffix("px")) for path in drawing.iter(f"{SVG}path")} == widths
    ends = np.array([[float(x) for x in path.get("d").split()[-2:]] for path in drawing.iter(f"{SVG}path")])
    assert ends[:, 0] == pytest.approx(box[2], abs=0.5)
    assert (ends[:, 1] > 0).all()
    assert (ends[:, 1] < box[3]).all()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_whole_model_is_saved_with_its_bars_heads_and_logit(open_page, sequence_address, sequence, scheme):
    page = open_page(f"{sequence_address}#v=model&l=1&h=0&i=8&j=3", selector=".rg-stream-head", color_scheme=scheme)
    stream = sequence.residual_stream(0, position=8)
    picture = drawn(page)
    shown = texts(picture)
    assert [shown.count(head) for head in "23"] == [2, 2]  # of 4 heads in each of 2 layers
    for words in ("Embedding", "Logit of", f"{stream['logit']:.4g}", "k:2"):
        assert any(words in line for line in shown), words
    bars = page.locator(".rg-stream .rg-bar-fill")
    pixels = (255 * matplotlib.image.imread(io.BytesIO(saved(page, "PNG")))[..., :3]).round()
    origin = page.locator(".rg-stream").bounding_box()
    rects = np.array(
        [[float(node.get(x)) for x in ("x", "y", "width")] for node in picture.iter(f"{SVG}rect") if node.get("x")]
    )
    for bar in bars.all():
        box = bar.bounding_box()
        place = [box["x"] - origin["x"], box["y"] - origin["y"], box["width"]]
        assert box["width"] == 0 or (np.abs(rects - place).max(axis=-1) < 0.1).any(), place
        colour = [
            float(x) for x in re.findall(r"[\d.]+", bar.evaluate("(node) => getComputedStyle(node).backgroundColor"))
        ]
        assert (np.abs(pixels - colour).max(axis=-1) <= 1).any()
    rows = table(page)
    assert rows[0] == ["layer", "part, at k:2", "length", "adds to the logit of f"]
    adds = [float(row[3]) for row in rows[1:] if row[1].startswith("head")]
    assert adds == [x for layer in stream["layers"] for x in layer["adds"]["heads"]]
    total = sum(float(row[3]) for row in rows[1:] if row[1] in ("embedding", "attention", "MLP", "bias"))
    assert total == pytest.approx(float(rows[-1][3]), rel=1e-4)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("paths&i=8&pc=qz", "the same number of tokens"),
        ("patching", "Patching needs a text B"),
        ("movement", "This trace has no token vectors"),
        ("model", "The whole model needs a model"),
        ("lines", "Lines are drawn between 128 words at most"),
    ],
)
def test_nothing_is_saved_where_a_sentence_stands_in_place_of_a_drawing(open_page, serve, sequence_address, view, says):
    bare = serve(Exploration(traced([f"w{i}" for i in range(130)]))) if view in ("movement", "model", "lines") else None
    page = open_page(f"{bare or sequence_address}#v={view}", allow="400")
    assert says in page.locator("main").inner_text()
    click(page.get_by_text("Save", exact=True))
    assert page.locator("[data-ref=saveStatus]").inner_text() == "There is nothing to save: the view says why."
    assert all(button.is_disabled() for button in page.locator("[data-save]").all())
    press(page, "2")
    assert saved(page, "SVG").count(b"<rect") > 2  # the map is saved as ever


@pytest.mark.parametrize("view", ["head", "lines", "movement"])
def test_words_that_repeat_are_numbered_wherever_they_stand_alone(open_page, address, view):
    page = open_page(f"{address}#v={view}&l=2&h=3&i=8")
    shown = texts(drawn(page))
    for name in ("the:1", "the:2", "the:3", "it:2"):
        assert shown.count(name) == 2 or view == "movement", name  # which has no room for all
    assert {"the:1", "the:2", "the:3"} & set(shown)
    assert "the" not in shown


def test_what_is_offered_to_be_saved_is_of_what_is_shown(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8")
    for key in ("7", "2"):
        click(page.get_by_text("Save", exact=True))
        assert page.get_by_text("Figure for print").is_visible() == (key == "7")
        press(page, key)
        assert not page.get_by_text("Figure for print").is_visible()
    assert "v=head" in page.url
    click(page.get_by_text("Save", exact=True))
    page.locator("[data-save=svg]").focus()
    press(page, "]")
    assert page.evaluate("document.activeElement.innerText") == "Save"  # and not nowhere


@pytest.mark.parametrize("view", ["cell", "movement", "model", "lines"])
def test_figures_for_print_are_offered_of_what_they_draw(open_page, address, view):
    page = open_page(f"{address}#{HEAD}")
    click(page.get_by_text("Save", exact=True))
    assert page.get_by_text("Figure for print").is_visible()
    page = open_page(f"{address}#{HEAD.replace('v=head', f'v={view}')}")
    click(page.get_by_text("Save", exact=True))
    assert not page.get_by_text("Figure for print").is_visible()
    assert "of one head or of all heads" in page.locator("[data-ref=figureNote]").inner_text()
