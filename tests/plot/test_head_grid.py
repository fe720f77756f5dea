"""The grid of heads: every head in its panel, on one scale, with the share of special tokens."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from fake_traces import encoding_of, recorded, softmaxed, trace_of
from figure_geometry import assert_apart_and_inside, pixels_of, texts_of
from regard import RegardError, Trace
from regard.models import load, toy
from regard.plot import head_grid, heatmap
from regard.plot.style import get_style
from regard.views import every_head
from sweeps import sweep_after


@pytest.mark.parametrize("size", sweep_after(3, [(1, 1), (30, 9), (2, 32), (6, 12), (12, 12)]))
def test_every_head_has_its_place_and_no_text_collides(rng, size):
    layers, heads = size
    trace = trace_of(rng, encoding_of([["the"], ["cat", "s"], ["sat"]]), layers=layers, heads=heads)
    figure = head_grid(trace)
    written = [text.get_text() for text in assert_apart_and_inside(figure)]
    assert len(figure.axes[0].images) == layers * heads
    assert written.count("0") >= 2
    assert {str(layers - 1), str(heads - 1)} <= set(written)


def test_panels_are_the_maps_of_the_heads_on_one_scale(trace):
    views = [view for row in every_head(trace) for view in row]
    images = head_grid(trace).axes[0].images
    for view, image in zip(views, images, strict=True):
        np.testing.assert_array_equal(image.get_array(), view.weights)
    assert {image.get_clim() for image in images} == {(0, max(view.weights.max() for view in views))}


def test_panels_stand_in_rows_of_layers_and_columns_of_heads(trace):
    extents = [image.get_extent() for image in head_grid(trace).axes[0].images]
    lefts = np.array([left for left, _, _, _ in extents]).reshape(3, 5)
    tops = np.array([top for _, _, _, top in extents]).reshape(3, 5)
    assert (np.diff(lefts, axis=1) > 0).all()
    assert (np.diff(tops, axis=0) > 0).all()
    assert np.ptp(lefts, axis=0).max() < 1e-9 > np.ptp(tops, axis=1).max()


def test_the_share_of_special_tokens_is_below_each_head(trace):
    shares = [f"{view.special_mass.mean():.0%}" for row in every_head(trace) for view in row]
    written = [text.get_text() for text in texts_of(head_grid(trace))]
    assert [text for text in written if text.endswith("%")] == shares
    assert any("Left out: [CLS] and [SEP]" in text for text in written)


def test_special_tokens_are_not_mentioned_if_all_are_shown(trace):
    written = " ".join(text.get_text() for text in texts_of(head_grid(trace, show_special_tokens=True)))
    assert "%" not in written
    assert "Left out" not in written


def test_a_bare_layer_and_weights_without_heads(rng):
    for shape, axes in (((4, 3, 3), "H T S"), ((3, 3), "T S")):
        trace = Trace()
        trace("weights", softmaxed(rng, shape), axes)
        figure = head_grid(trace)
        assert_apart_and_inside(figure)
        assert len(figure.axes[0].images) == (4 if len(shape) == 3 else 1)


def test_a_given_figure_is_used(trace):
    figure = Figure()
    assert head_grid(trace, figure=figure, theme="dark") is figure
    assert_apart_and_inside(figure)


@pytest.mark.parametrize("draw", [head_grid, heatmap])
def test_an_unknown_theme_is_an_error(trace, draw):
    with pytest.raises(RegardError, match="theme must be one of light, dark, got 'sepia'"):
        draw(trace, theme="sepia")


@pytest.mark.parametrize("tokens", [40, 100, 300])
def test_the_largest_weight_has_the_colour_of_the_end_of_the_scale_however_long_the_text(tmp_path, tokens):
    trace = Trace()
    trace("weights", np.broadcast_to(np.eye(tokens), (12, tokens, tokens)), "H T S")
    figure = head_grid(trace)
    pixels = pixels_of(figure, figure.axes[0], tmp_path / "a.png")
    np.testing.assert_allclose(
        pixels[pixels.sum(axis=1).argmin()], get_style("light").colormap()(1.0)[:3], atol=1 / 255
    )


@pytest.mark.parametrize(("tokens", "said"), [(40, ""), (300, "Each dot is the largest of 5×5 weights")])
def test_the_note_says_if_weights_are_pooled(tokens, said):
    trace = Trace()
    trace("weights", np.broadcast_to(np.eye(tokens), (12, tokens, tokens)), "H T S")
    written = " ".join(text.get_text() for text in texts_of(head_grid(trace)))
    assert said in written
    assert ("Each dot" in written) == bool(said)


def test_a_part_of_a_figure_is_refused():
    trace = recorded(toy("a b"), "a b")
    with pytest.raises(RegardError, match="give a Figure, not a SubFigure"):
        head_grid(trace, figure=Figure().subfigures(1, 2)[0])


def test_the_heading_quotes_the_text_and_not_its_pieces(write_bert):
    trace = recorded(load(write_bert()), "the cats sat")
    written = " ".join(text.get_text() for text in head_grid(trace).texts)
    assert "“the cats sat”" in " ".join(written.split())


def test_masked_cells_have_a_colour_of_their_own():
    trace = Trace()
    weights = np.tri(4) / np.arange(1, 5)[:, None]
    for layer in range(2):
        trace(f"blocks.{layer}.attn.weights", np.stack([weights] * 3), "H T S")
    figure = head_grid(trace)
    for image in figure.axes[0].images:
        np.testing.assert_array_equal(image.get_array().mask, np.triu(np.ones((4, 4), bool), 1))
    note = " ".join(" ".join(text.get_text() for text in texts_of(figure)).split())
    assert "Causal: each word attends to itself and to earlier words only. Grey cells are masked." in note


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 32), (6, 12)])
def test_the_scale_is_said_to_be_a_square_root(rng, layers, heads):
    trace = trace_of(rng, encoding_of([["the"], ["cat"]]), layers=layers, heads=heads)
    assert re.search(r"square-root scale|√ scale", " ".join(text.get_text() for text in texts_of(head_grid(trace))))
