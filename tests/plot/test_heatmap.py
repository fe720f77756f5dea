"""The heat map: the position of every part, without overlap or clipping."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from fake_traces import softmaxed
from figure_geometry import STRANGE, WORDS, assert_apart_and_inside, contrast, pixels_of, texts_of
from regard import RegardError
from regard.plot import heatmap
from regard.plot.style import get_style
from regard.views import select
from sweeps import sweep_except

LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk"


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize(
    "size", sweep_except((1, 2, 3, 5, 8, 13, 16, 24, 33, 45, 60, 61, 75, 200), [*range(1, 62), 75, 200])
)
def test_no_text_collides_or_is_cut_off(rng, size):
    words = [WORDS[i % len(WORDS)] for i in range(size)]
    ax = heatmap(softmaxed(rng, (size, size)), words, annotate=False)
    assert_apart_and_inside(ax.figure)


@pytest.mark.parametrize("shape", [(1, 30), (30, 1), (3, 7), (40, 12)])
def test_no_text_collides_when_rows_and_columns_differ(rng, shape):
    rows, columns = ([WORDS[i % len(WORDS)] for i in range(n)] for n in shape)
    assert_apart_and_inside(heatmap(softmaxed(rng, shape), rows, columns).figure)


@pytest.mark.parametrize("size", [1, 2, 9, 33])
@pytest.mark.parametrize("words", [[LONG], STRANGE, ["W" * 500]], ids=["long", "strange", "endless"])
def test_long_and_strange_words_fit(rng, size, words):
    ax = heatmap(softmaxed(rng, (size, size)), [words[i % len(words)] for i in range(size)])
    assert_apart_and_inside(ax.figure)


@pytest.mark.parametrize("size", [1, 2, 6, 25, 60])
def test_bars_of_special_tokens_fit(text_trace, size):
    trace = text_trace([WORDS[i % len(WORDS)] for i in range(size)])
    assert_apart_and_inside(heatmap(trace).figure)


def test_every_label_is_shown_up_to_60_tokens_and_every_fifth_of_200(rng):
    words = [f"w{i}" for i in range(60)]
    ax = heatmap(softmaxed(rng, (60, 60)), words)
    assert labels_of(ax.xaxis) == labels_of(ax.yaxis) == words
    ax = heatmap(softmaxed(rng, (200, 200)))
    assert labels_of(ax.yaxis) == [str(i) for i in range(0, 200, 5)]


def test_the_picture_is_the_selected_map(trace):
    view = select(trace, layer=1, head=2)
    ax = heatmap(trace, layer=1, head=2)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), view.weights)
    assert image.get_clim() == (0, view.weights.max())
    assert labels_of(ax.yaxis) == list(view.queries)
    assert labels_of(ax.xaxis) == list(view.keys)


def test_the_title_names_the_map_and_the_note_the_special_tokens(trace):
    view = select(trace, layer=1, head=2)
    written = " ".join(text.get_text() for text in texts_of(heatmap(trace, layer=1, head=2).figure))
    assert "Attention in made-up: layer 1 of 0–2, head 2 of 0–4" in written
    assert f"[CLS] and [SEP], with {view.special_mass.mean():.0%} of the attention" in written.replace("\n", " ")
    assert "weight: share of a word's attention" in written


def test_bars_are_as_long_as_the_special_mass(trace):
    view = select(trace)
    (strip, _) = heatmap(trace).child_axes
    bars = [patch.get_width() for patch in strip.patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(bars, view.special_mass)
    assert strip.get_xlim() == (0, 1)


def test_without_special_tokens_there_are_no_bars(trace):
    assert len(heatmap(trace, show_special_tokens=True).child_axes) == 1


def test_numbers_are_the_weights_where_they_fit(rng):
    weights = softmaxed(rng, (3, 3))
    numbers = [text.get_text() for text in heatmap(weights).texts if text.get_text()[0].isdigit()]
    assert numbers == [f"{w:.2f}" if w >= 0.005 else "0" for w in weights.ravel()]


@pytest.mark.parametrize(("size", "annotate", "shown"), [(3, False, 0), (30, None, 0), (30, True, 900)])
def test_numbers_can_be_asked_for_and_left_out(rng, size, annotate, shown):
    ax = heatmap(softmaxed(rng, (size, size)), annotate=annotate)
    assert sum(text.get_text()[0].isdigit() for text in ax.texts) == shown
    if shown:
        assert_apart_and_inside(ax.figure)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_can_be_read_on_every_cell(rng, theme):
    ax = heatmap(softmaxed(rng, (6, 6)), theme=theme)
    (image,) = ax.images
    for text in ax.texts:
        if text.get_text()[0].isdigit():
            column, row = text.get_position()
            cell = image.to_rgba(image.get_array()[int(row), int(column)])
            assert contrast(cell, text.get_color()) >= 4.5


def test_a_map_of_zeros_is_drawn(rng):
    (image,) = heatmap(np.zeros((2, 2))).images
    assert image.get_clim() == (0, 1)


@pytest.mark.parametrize("tokens", [100, 1500])
def test_the_largest_weight_has_the_colour_of_the_end_of_the_scale_however_long_the_text(tmp_path, tokens):
    ax = heatmap(np.eye(tokens))
    pixels = pixels_of(ax.figure, ax, tmp_path / "a.png")
    np.testing.assert_allclose(
        pixels[pixels.sum(axis=1).argmin()], get_style("light").colormap()(1.0)[:3], atol=1 / 255
    )
    written = " ".join(text.get_text() for text in texts_of(ax.figure))
    assert ("Each dot is the largest of 2×2 weights" in written) == (tokens == 1500)


def test_maps_that_are_to_be_compared_can_share_one_scale(rng):
    images = [heatmap(weights, vmax=0.9).images[0] for weights in softmaxed(rng, (2, 5, 5))]
    assert [image.get_clim() for image in images] == [(0, 0.9)] * 2


@pytest.mark.parametrize("vmax", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_scale_without_an_end_is_an_error(vmax):
    with pytest.raises(RegardError, match="vmax must be a finite positive number"):
        heatmap(np.eye(2), vmax=vmax)


@pytest.mark.parametrize(("vmax", "end"), [(None, "0.637"), (1, "1"), (0.5, "≥ 0.5")])
def test_the_end_of_the_scale_can_be_read(vmax, end):
    bar = heatmap(np.array([[0.637, 0.363]]), ["a"], ["b", "c"], vmax=vmax).child_axes[-1]
    bar.figure.draw_without_rendering()
    assert labels_of(bar.xaxis)[-1] == end


@pytest.mark.parametrize(("tokens", "step"), [(60, 1), (70, 2), (200, 5)])
def test_the_note_says_if_labels_are_left_out(rng, tokens, step):
    written = " ".join(text.get_text() for text in texts_of(heatmap(softmaxed(rng, (tokens, tokens))).figure))
    assert ("One label of" in written) == (step > 1)
    assert step == 1 or f"One label of {step} is shown" in written


@pytest.mark.parametrize(("length", "theme"), [(4, "light"), (4, "dark"), (1500, "dark")])
def test_masked_cells_have_a_colour_of_their_own(length, theme):
    ax = heatmap(np.tri(length) / np.arange(1, length + 1)[:, None], theme=theme)
    (image,) = ax.images
    drawn = image.get_array()
    assert np.array_equal(drawn.mask, np.triu(np.ones(drawn.shape, bool), 1))
    colors = image.cmap(image.norm(drawn))
    assert (colors[drawn.mask] == to_rgba(get_style(theme).masked)).all()
    assert not (colors[~drawn.mask] == to_rgba(get_style(theme).masked)).all(axis=-1).any()
    assert len(ax.texts) == (1 + 10 if length == 4 else 1)  # with the corner
    note = " ".join(" ".join(text.get_text() for text in ax.figure.texts).split())
    assert "Causal: each word attends to itself and to earlier words only. Grey cells are masked." in note


def test_a_view_is_drawn_like_the_map_that_it_was_selected_from(rng):
    weights, words = softmaxed(rng, (3, 4, 4)), WORDS[:4]
    view = select(weights, words, head=1)
    one, other = heatmap(view).images[0], heatmap(weights, words, head=1).images[0]
    assert np.array_equal(one.get_array(), other.get_array())
    with pytest.raises(RegardError, match="give heatmap no other selection"):
        heatmap(view, head=1)
