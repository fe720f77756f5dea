"""The figure of a patching grid: cells of what is recovered, and text that fits."""

import numpy as np
import pytest

from figure_geometry import STRANGE, assert_apart_and_inside, texts_of
from regard.metrics import PatchGrid
from regard.plot import patching


def words_of(figure):
    return {text.get_text() for text in texts_of(figure)}


def grid_of(values, labels, axes="L T", clean=3.0):
    layers, count = values.shape
    steps = tuple(f"blocks.{layer}.output" for layer in range(layers))
    return PatchGrid(
        "logit of ' Mary' minus that of ' John'", values, clean, 1.0, steps, labels, axes,
        tuple(range(layers)), tuple(range(count)), labels,
    )  # fmt: skip


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("shape", [(1, 1), (6, 8), (30, 64), (48, 3)], ids=str)
def test_text_fits_whatever_the_size(rng, shape, width):
    labels = tuple(STRANGE[i % len(STRANGE)] for i in range(shape[1]))
    figure = patching(grid_of(rng.standard_normal(shape), labels), width=width, caption=True)
    assert_apart_and_inside(figure)
    assert {"layer", "position"} <= words_of(figure)


def test_cells_are_what_is_recovered_on_a_scale_around_the_corrupted_run():
    values = np.array([[1.0, 2.0], [3.0, 0.5]])
    figure = patching(grid_of(values, ("0", "1"), "L H"))
    image = figure.axes[0].images[0]
    np.testing.assert_allclose(np.ma.getdata(image.get_array()), [[0, 0.5], [1, -0.25]])
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)
    assert "head" in words_of(figure)


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_runs_with_the_same_number_recover_nothing(value):
    figure = patching(grid_of(np.full((2, 3), value), ("a", "b", "c"), clean=1.0))
    assert_apart_and_inside(figure)
    assert not figure.axes[0].images[0].get_array().any()
