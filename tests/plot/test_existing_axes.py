"""Plots on existing axes stay inside the space of the axes, with every layout engine."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from fake_traces import softmaxed
from figure_geometry import assert_apart_and_inside, texts_of
from regard.plot import heatmap, movement
from regard.plot.existing_axes import MIN_SHARE
from sweeps import sweep_after

WORDS = "the animal did not cross the street because it was too tired".split()


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def assert_kept_in_place(figure, grid, caplog):
    """No text collides or leaves the page, and nothing of a picture lies over another."""
    assert_apart_and_inside(figure)
    boxes = [ax.get_tightbbox() for ax in grid.flat]
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            shared = np.minimum(one.max, other.max) - np.maximum(one.min, other.min)
            assert shared.min() < 0.5, "a picture lies over another"
    for ax in grid.flat:
        assert (ax.get_position().size >= 0.99 * MIN_SHARE * ax.get_position(original=True).size).all()
    assert not caplog.records


@pytest.mark.pairwise
@pytest.mark.parametrize("layout", ["constrained", "tight", None])
@pytest.mark.parametrize("size", [(3.5, 3.5), (1.6, 1.6)])  # inches of a picture
@pytest.mark.parametrize("view", [heatmap, movement])
@pytest.mark.parametrize("shape", sweep_after(1, [(1, 2), (2, 3), (3, 4)]))
def test_pictures_of_one_figure_keep_apart(text_trace, caplog, layout, size, view, shape):
    trace = text_trace(WORDS)
    trace.set_metadata("a-model-with-a-long-name", list(trace.encodings))
    figure = Figure(figsize=(shape[1] * size[0], shape[0] * size[1]), layout=layout)
    grid = figure.subplots(*shape)
    for ax in grid.flat:
        assert view(trace, ax=ax) is ax
    assert_kept_in_place(figure, grid, caplog)
    titles = {ax.get_title(loc="left") for ax in grid.flat}
    assert len(titles) == 1
    assert "\n" not in titles.pop() or size == (3.5, 3.5)


@pytest.mark.parametrize("view", [heatmap, movement])
@pytest.mark.parametrize("size", [(0.5, 0.5), (1.5, 0.8), (3, 9), (9, 2)])
def test_decorations_that_do_not_fit_are_left_out(text_trace, caplog, view, size):
    figure = Figure(figsize=size)
    ax = view(text_trace(WORDS), ax=figure.add_axes((0.05, 0.05, 0.9, 0.9)))
    assert_kept_in_place(figure, np.array([ax]), caplog)


@pytest.mark.parametrize("layout", ["constrained", None])
def test_labels_are_thinned_only_where_there_is_no_room(rng, layout):
    figure = Figure(figsize=(10.5, 7), layout=layout)
    for ax in figure.subplots(2, 3).flat:
        heatmap(softmaxed(rng, (6, 6)), WORDS[:6], ax=ax)
        assert labels_of(ax.xaxis) == labels_of(ax.yaxis) == WORDS[:6]


@pytest.mark.parametrize("view", [heatmap, movement])
def test_a_figure_may_change_its_size_and_its_axes_be_used_again(text_trace, caplog, view):
    figure = Figure(figsize=(9, 5), layout="constrained")
    grid = figure.subplots(1, 2)
    for ax in (*grid, *grid):
        ax.clear()
        view(text_trace(WORDS), ax=ax)
    assert_kept_in_place(figure, grid, caplog)
    figure.set_size_inches(12, 9)
    assert_kept_in_place(figure, grid, caplog)


@pytest.mark.parametrize("view", [heatmap, movement])
def test_parts_of_a_figure_are_used(text_trace, caplog, view):
    figure = Figure(figsize=(12, 5), layout="constrained")
    grid = np.array([part.subplots() for part in figure.subfigures(1, 2)])
    for ax in grid:
        view(text_trace(WORDS), ax=ax)
    assert_kept_in_place(figure, grid, caplog)


def test_the_title_names_the_map_even_if_nothing_else_fits(text_trace):
    figure = Figure(figsize=(6.4, 4.8))
    ax = heatmap(text_trace(WORDS), layer=1, head=2, ax=figure.subplots(3, 4)[1, 1])
    assert "layer 1, head 2" in [text.get_text() for text in texts_of(figure)]
    assert ax.get_title(loc="left") == "layer 1, head 2"
