"""The map over a picture: what is drawn where, and that no text covers another."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from tiny_images import picture as make_picture

import golden
import regard
from fake_traces import recorded
from figure_geometry import assert_apart_and_inside
from regard import RegardError, Trace
from regard.plot import picture, save
from regard.views import select_patches


def traced(case):
    return recorded(regard.load(golden.FOLDER / case), make_picture(30, 50))


@pytest.fixture(scope="module")
def oblong():
    """The trace of a picture of 9 × 14 pixels and 3 × 3 patches of 3 × 4."""
    return traced("vit/oblong")


def test_the_map_lies_over_what_the_model_sees(oblong):
    ax = picture(oblong, layer=0, head=1)
    below, over = ax.images
    np.testing.assert_array_equal(over.get_array(), select_patches(oblong, layer=0, head=1).values)
    assert below.get_array().shape == (9, 14, 3)
    assert list(below.get_extent()) == list(over.get_extent()) == [-0.5, 2.5, 2.5, -0.5]
    height, width = (ax.get_window_extent().height, ax.get_window_extent().width)
    assert height / width == pytest.approx(9 / 14, rel=0.01)


def test_the_patch_that_attends_has_a_frame(oblong):
    frames = [p for p in picture(oblong, query="r2c1").patches if isinstance(p, Rectangle)]
    assert [frame.get_bbox().extents.tolist() for frame in frames] == [[0.5, 1.5, 1.5, 2.5]]
    assert not picture(oblong).patches


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_larger_weight_is_farther_from_the_background_wherever_it_lies(oblong, theme):
    """In lightness, over the darkest and the lightest picture."""
    ax = picture(oblong, theme=theme)
    below, over = ax.images
    colors = over.get_cmap()(np.linspace(0, 1, 50))
    grays = np.array([below.get_array().min(), below.get_array().max()])
    for gray in grays:
        drawn = colors[:, :3] * colors[:, 3:] + gray * (1 - colors[:, 3:])
        lightness = drawn @ np.array([0.2126, 0.7152, 0.0722])
        steps = np.diff(lightness) * (-1 if theme == "light" else 1)
        assert steps[10:].min() > 0


@pytest.mark.parametrize("case", ["vit/plain", "vit/oblong", "clip_vision_model/long"])
@pytest.mark.parametrize("query", [None, "r1c2"])
def test_no_text_covers_another(case, query):
    ax = picture(traced(case), query=query)
    assert_apart_and_inside(ax.figure)


def test_on_existing_axes_it_stays_inside(oblong):
    figure = Figure(figsize=(9, 3))
    for head, ax in enumerate(figure.subplots(1, 3)):
        assert picture(oblong, head=head, ax=ax) is ax
    assert_apart_and_inside(figure)


def test_large_axes_have_a_colour_bar_and_a_note(oblong):
    large, small = Figure(figsize=(7, 7)), Figure(figsize=(2, 2))
    bars = [len(picture(oblong, ax=figure.subplots()).child_axes) for figure in (large, small)]
    assert bars == [1, 0]
    titles = [" ".join(text.get_text() for text in assert_apart_and_inside(figure)) for figure in (large, small)]
    assert ["Left out: [CLS]" in title for title in titles] == [True, False]


def test_the_scale_ends_where_it_is_told(oblong):
    assert picture(oblong, vmax=0.5).images[1].get_clim() == (0, 0.5)
    with pytest.raises(RegardError, match="vmax"):
        picture(oblong, vmax=0)


def test_other_numbers_are_drawn_too(oblong, tmp_path):
    ax = picture(oblong, np.arange(9))
    np.testing.assert_array_equal(ax.images[1].get_array(), np.arange(9).reshape(3, 3))
    save(ax.figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_without_the_picture_the_trace_says_how_to_give_it():
    trace, model = Trace(only="*.weights"), regard.load(golden.FOLDER / "vit/plain")
    model(make_picture(), trace=trace)
    with pytest.raises(RegardError, match=r"the trace has no step picture, .*image=model\.see\(picture\)\[0\]"):
        picture(trace)
    assert picture(trace, image=model.see(make_picture())[0]).images
    with pytest.raises(RegardError, match="a view is one map over a picture"):
        picture(select_patches(trace), head=1)
