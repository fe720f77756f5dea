"""Figures for print: their size in millimetres, fonts in the file, colours of weights, and words that stay words."""

import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from matplotlib import font_manager, image
from matplotlib.figure import Figure

from fake_traces import SENTENCE, encoding_of, softmaxed, trace_of
from figure_geometry import assert_apart_and_inside, texts_of
from regard import RegardError, Trace
from regard.plot import figure, save
from regard.plot.save import encode
from regard.plot.style import get_style
from regard.views import every_head, select
from sweeps import sweep_after, sweep_except

WIDTHS = {"column": 85.0, "page": 170.0, 120: 120.0}
HOSTILE = [
    "<script>alert(1)</script>",
    "--><x/>",
    "a\x00b",
    "\x1b[31m",
    "\ud800",
    "$x$",
    "$\\frac{$",
    "x" * 1000,
    "\u202e",
]
COLORMAP = Path(__file__).parents[2] / "src" / "regard" / "explorer" / "frontend" / "render" / "colormap.js"


@pytest.fixture
def pair(rng):
    return trace_of(rng, encoding_of(SENTENCE)), trace_of(rng, encoding_of([["a"], *SENTENCE[1:]]))


def written(drawn):
    return [text.get_text() for text in texts_of(drawn)]


def caption_of(drawn):
    return " ".join(" ".join(text.get_text() for text in drawn.texts).split())


def pixels(drawn):
    """Return what a PNG of the figure shows, ``Y X 3`` of bytes."""
    return np.round(255 * image.imread(io.BytesIO(encode(drawn, "png")))[..., :3]).astype(int)


def colours_of_cells(picture, ax):
    """Return the colours that a picture (`pixels`) has at the centres of the cells of a map, ``T S 3``."""
    height, width = picture.shape[:2]
    (s0, s1), (t1, t0) = ax.get_xlim(), ax.get_ylim()
    left, bottom, right, top = ax.get_position().extents
    columns, rows = (np.arange(round(end - start)) + 0.5 for start, end in ((s0, s1), (t0, t1)))
    x = (left + (right - left) * columns / (s1 - s0)) * width
    y = (1 - top + (top - bottom) * rows / (t1 - t0)) * height
    return picture[np.ix_(y.astype(int), x.astype(int))]


def expected(colormap, positions):
    return np.round(255 * colormap(positions)[..., :3]).astype(int)


def size_in_file(drawn, kind):
    """Return the width and the height of a figure, in millimetres, as its file has them."""
    if kind == "png":
        rows, columns, _ = pixels(drawn).shape
        return columns * 25.4 / 300, rows * 25.4 / 300
    if kind == "pdf":
        points = re.search(rb"/MediaBox \[ ([\d. ]+) \]", encode(drawn, "pdf"))[1].split()[2:]
    else:
        root = ElementTree.fromstring(encode(drawn, "svg"))
        points = [root.get(name).removesuffix("pt") for name in ("width", "height")]
    return tuple(float(length) * 25.4 / 72 for length in points)


@pytest.mark.pairwise
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("caption", [True, False])
@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
@pytest.mark.parametrize("drawn_of", ["one head", "two heads", "all heads"])
def test_a_file_is_as_wide_as_asked(pair, width, caption, kind, drawn_of):
    sources = pair if drawn_of == "two heads" else pair[:1]
    drawn = figure(*sources, width=width, caption=caption, head="all" if drawn_of == "all heads" else 2)
    across, down = size_in_file(drawn, kind)
    assert across == pytest.approx(WIDTHS[width], abs=25.4 / 300 if kind == "png" else 0.01)
    assert down <= 230.01


def test_the_fonts_are_in_the_file(pair):
    drawn = figure(*pair, caption=True)
    pdf = encode(drawn, "pdf")
    assert b"/Type3" not in pdf
    assert pdf.count(b"/FontDescriptor ") > 0
    assert len(re.findall(rb"/Type /FontDescriptor", pdf)) == len(re.findall(rb"/FontFile2 \d+ 0 R", pdf)) > 0
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(encode(drawn, "svg")).iter()}
    assert "text" not in tags
    assert "use" in tags  # outlines


def test_a_font_with_postscript_outlines_is_embedded_as_type_3(tmp_path):
    builder = FontBuilder(1000, isTTF=False)
    pen = T2CharStringPen(600, None)
    pen.moveTo((0, 0))
    pen.lineTo((500, 0))
    pen.lineTo((250, 700))
    pen.closePath()
    shape = pen.getCharString()
    builder.setupGlyphOrder([".notdef", "A"])
    builder.setupCharacterMap({65: "A"})
    builder.setupCFF("Outlined", {}, {".notdef": shape, "A": shape}, {})
    builder.setupHorizontalMetrics({".notdef": (600, 0), "A": (600, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Outlined", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(tmp_path / "outlined.otf")
    font_manager.fontManager.addfont(tmp_path / "outlined.otf")
    try:
        drawn = Figure()
        drawn.text(0.5, 0.5, "A", family=["Outlined"])
        assert b"/Type3" in encode(drawn, "pdf")
    finally:
        font_manager.fontManager.ttflist[:] = [x for x in font_manager.fontManager.ttflist if x.name != "Outlined"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colour_of_a_cell_is_its_weight(trace, theme):
    view = select(trace, layer=1, head=2)
    drawn = figure(trace, layer=1, head=2, width=60, theme=theme)
    wanted = expected(get_style(theme).colormap(), view.weights / view.weights.max())
    np.testing.assert_allclose(colours_of_cells(pixels(drawn), drawn.axes[0]), wanted, atol=2)


@pytest.mark.parametrize("width", ["column", "page"])
def test_a_and_b_share_a_scale_and_their_difference_is_centred_at_0(pair, width):
    a, b = (select(trace, layer=1, head=2) for trace in pair)
    drawn = figure(*pair, layer=1, head=2, width=width)
    maps = [ax for ax in drawn.axes if ax.images]
    picture, style, end = pixels(drawn), get_style("light"), max(a.weights.max(), b.weights.max())
    for ax, view in zip(maps, (a, b), strict=False):
        np.testing.assert_allclose(
            colours_of_cells(picture, ax), expected(style.colormap(), view.weights / end), atol=2
        )
    difference = a.weights - b.weights
    positions = 0.5 + difference / np.abs(difference).max() / 2
    wanted = expected(style.diverging_colormap(), positions)
    np.testing.assert_allclose(colours_of_cells(picture, maps[2]), wanted, atol=3)
    assert [ax.images[0].get_clim() for ax in maps] == [(0, end)] * 2 + [
        tuple(np.array([-1, 1]) * abs(difference).max())
    ]
    assert {"A", "B", "A − B", "query", "key"} <= set(written(drawn))
    # Side by side on a page, one below the other in a column.
    places = np.array([ax.get_position().p0 for ax in maps])
    assert np.ptp(places[:, 0 if width == "column" else 1]) < 1e-6
    if width == "page":
        assert len({text.get_position()[1] for text in drawn.texts if text.get_text() == "key"}) == 1


def test_no_difference_is_the_background(trace):
    drawn = figure(trace, trace, layer=1, head=2)
    assert (colours_of_cells(pixels(drawn), [ax for ax in drawn.axes if ax.images][2]) == 255).all()


def test_two_heads_of_one_trace(trace):
    drawn = figure(trace, trace, layer=(0, 2), head=(1, None))
    a, b = select(trace, layer=0, head=1), select(trace, layer=2)
    shown = [np.asarray(ax.images[0].get_array()) for ax in drawn.axes if ax.images]
    for array, weights in zip(shown, (a.weights, b.weights, a.weights - b.weights), strict=True):
        np.testing.assert_array_equal(array, weights)


def test_the_colours_are_those_of_the_page():
    negative = COLORMAP.read_text(encoding="utf-8").partition("const NEGATIVE = {")[2]
    for theme in ("light", "dark"):
        colors = re.search(rf"{theme}: \[(.*?)\]", negative)[1].replace('"', "").split(", ")
        assert get_style(theme).negative == tuple(colors)


@pytest.mark.pairwise
@pytest.mark.parametrize("tokens", sweep_except([1, 5, 24, 500], [1, 2, 5, 12, 24, 40, 130, 500]))
@pytest.mark.parametrize("width", [40, "column", "page"])
@pytest.mark.parametrize("number", [1, 2])
def test_labels_fit_or_are_positions(rng, tokens, width, number):
    words = [f"unfriendly{i}" for i in range(tokens)]
    drawn = figure(*(select(softmaxed(rng, (tokens, tokens)), words) for _ in range(number)), width=width)
    texts = assert_apart_and_inside(drawn)
    shown = [text.get_text() for text in texts]
    labels = [text for text in shown if text.startswith("unfriendly")]
    titles = {text for text in shown if text.startswith(("query", "key"))}
    if labels:
        assert titles <= {"query", "key"}  # a map of one token is lower than "query"
        assert len(labels) % tokens == 0
    else:
        assert titles & {"key (position)", "key"}
    assert all(5 <= text.get_fontsize() <= 8.5 for text in texts)


@pytest.mark.parametrize(("width", "tokens"), [("column", 26), ("page", 44)])  # as small as labels of one mark may be
def test_marks_above_a_letter_do_not_reach_the_next_label(rng, width, tokens):
    words = ["e" + "\u0301" * (9 if i % 2 else 1) for i in range(tokens)]
    assert_apart_and_inside(figure(select(softmaxed(rng, (tokens, tokens)), words), width=width))


@pytest.mark.pairwise
@pytest.mark.parametrize("size", sweep_after(3, [(1, 1), (30, 9), (2, 32), (6, 12), (12, 12)]))
@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_grid_has_every_head_on_one_scale(rng, size, width, number):
    layers, heads = size
    traces = [trace_of(rng, encoding_of(SENTENCE), layers=layers, heads=heads) for _ in range(number)]
    a, *b = ([[view.weights for view in row] for row in every_head(trace)] for trace in traces)
    drawn = figure(*traces, head="all", width=width, caption=True)
    texts = assert_apart_and_inside(drawn)
    images = drawn.axes[0].images
    wanted = np.array(a) - np.array(b[0]) if b else np.array(a)
    for shown, map_of_head in zip(images, wanted.reshape(-1, *wanted.shape[2:]), strict=True):
        np.testing.assert_array_equal(shown.get_array(), map_of_head)
    end = np.abs(wanted).max()
    assert {shown.get_clim() for shown in images} == {(0 if number == 1 else -end, end)}
    assert images[0].norm(0) == (0 if number == 1 else 0.5)
    assert {"head", "0"} <= {text.get_text() for text in texts}


def test_a_dot_of_a_difference_is_the_farthest_from_0(rng):
    weights = softmaxed(rng, (2, 600, 600))
    drawn = figure(select(weights[0]), select(weights[1]), width=60, caption=True)
    shown = np.asarray([ax for ax in drawn.axes if ax.images][2].images[0].get_array())
    k = int(re.search(r"the largest of (\d+)×", caption_of(drawn))[1])
    starts = np.arange(shown.shape[0]) * 600 // shown.shape[0]
    assert k > 1
    assert shown.shape[0] == -(-600 // k)
    difference = weights[0] - weights[1]
    for i, j in rng.integers(0, shown.shape[0] - 1, (50, 2)):
        block = difference[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
        assert shown[i, j] == block.flat[np.abs(block).argmax()]


def test_hostile_tokens_are_inert(tmp_path):
    n = len(HOSTILE)
    drawn = figure(select(np.eye(n), HOSTILE), caption="an own $caption$ of <x/>\nand \u202e more")
    assert_apart_and_inside(drawn)
    for kind in ("pdf", "png", "svg"):
        save(drawn, tmp_path / f"a.{kind}")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(tmp_path / "a.svg").iter()}
    assert not tags & {"script", "x", "a", "text"}
    assert "$x$" in written(drawn)
    assert "an own $caption$ of <x/>" in [text.get_text() for text in drawn.texts]


def test_a_caption_says_what_is_shown(pair, text_trace):
    one = caption_of(figure(pair[0], layer=1, head=2, caption=True))
    share = f"{select(pair[0], layer=1, head=2).special_mass.mean():.0%}"
    assert "Attention weights of made-up, layer 1 of 0–2, head 2 of 0–4: “the cats unbelievably sat”" in one
    assert f"Left out: [CLS] and [SEP], with {share} of the attention." in one
    two = caption_of(figure(*pair, layer=1, head=2, caption=True, notes=("", "edited")))
    assert "A: made-up, layer 1 of 0–2, head 2 of 0–4: “the cats unbelievably sat”." in two
    assert "B: made-up, layer 1 of 0–2, head 2 of 0–4, edited: “a cats unbelievably sat”." in two
    assert "A − B is blue where A is larger and brown where B is." in two
    assert "Attention weights of made-up, every head" in caption_of(figure(pair[0], head="all", caption=True))
    ended = figure(text_trace(["no", "more."]), pair[0], head=2, span=(1, 3), caption=True)
    assert "“no more.” B: " in caption_of(ended)
    assert "Colours are on a square-root scale." in caption_of(figure(pair[0], head="all", caption=True))
    bare = written(figure(pair[0], layer=1, head=2))
    assert not any("Attention" in text for text in bare)


def test_masked_cells_are_grey_and_said_to_be(rng):
    weights = np.tri(4) / np.arange(1, 5)[:, None]
    drawn = figure(select(weights, list("abcd")), caption=True)
    grey = expected(lambda _: np.array([0xE9, 0xEA, 0xEE]) / 255, 0)
    assert (colours_of_cells(pixels(drawn), drawn.axes[0])[np.triu_indices(4, 1)] == grey).all()
    assert "Grey cells are masked" in caption_of(drawn)


def test_a_span_is_a_part_of_the_map(trace):
    whole, part = select(trace, layer=1, head=2), select(trace, layer=1, head=2, span=(2, 5))
    np.testing.assert_array_equal(part.weights, whole.weights[1:4, 1:4])
    assert part.queries == part.keys == whole.queries[1:4]
    np.testing.assert_array_equal(part.special_mass, whole.special_mass[1:4])
    words = select(trace, layer=1, head=2, span=(2, 5), merge_subwords=True)
    assert words.queries == select(trace, merge_subwords=True).queries[1:3]  # that begin there
    drawn = figure(trace, layer=1, head=2, span=(2, 5), caption=True)
    assert "Only tokens 2 to 4 are shown." in caption_of(drawn)
    with pytest.raises(RegardError, match="no token is shown from 90 to before 95: there are 9"):
        figure(trace, span=(90, 95))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": "wide"}, "width is 'column' or 'page', or millimetres, got 'wide'"),
        ({"width": 10}, "width is from 40 to 500 mm, got 10"),
        ({"width": float("nan")}, "width"),
        ({"head": "most"}, "head is a number, or 'all'"),
        ({"head": "all", "layer": 1}, "head is a number, or 'all' without layer"),
        ({"head": (1, 2)}, "head is a number, or one for each of 1 sources"),
        ({"theme": "sepia"}, "theme must be one of"),
        ({"layer": 9}, "there is no layer 9"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(trace, options, said):
    with pytest.raises(RegardError, match=re.escape(said)):
        figure(trace, **options)


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda trace, other: figure(), "one or two sources"),
        (lambda trace, other: figure(np.eye(3)), "one or two sources"),
        (lambda trace, other: figure(trace, other(2)), "A has 7 queries and 7 keys, B has 2 and 2: they have no diff"),
        (lambda trace, other: figure(trace, other(7, layers=2), head="all"), "different layers and heads"),
        (lambda trace, other: figure(select(trace), layer=1), "give figure no other selection"),
        (lambda trace, other: figure(select(trace), head="all"), "of all heads is of traces"),
    ],
)
def test_sources_that_do_not_go_together_are_errors(trace, text_trace, draw, said):
    with pytest.raises(RegardError, match=said):
        draw(trace, lambda count, **sizes: text_trace(list("abcdefg")[:count], **sizes))


def test_a_trace_without_layers_or_text(rng):
    trace = Trace()
    trace("weights", softmaxed(rng, (4, 3, 3)), "H T S")
    assert "Attention weights of head 1 of 0–3;" in caption_of(figure(trace, head=1, caption=True))
    assert len(figure(trace, head="all").axes[0].images) == 4
