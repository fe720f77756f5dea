"""Themes: even steps of lightness, contrast, and no change of matplotlib's settings."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from figure_geometry import contrast
from regard import plot
from regard.plot import heatmap, movement
from regard.plot.style import get_style

THEMES = ["light", "dark"]
ROOT = Path(__file__).parents[2]
PLOT = sorted({*(ROOT / "src/regard/plot").glob("[!_]*.py")} - {ROOT / "src/regard/plot/style.py"})
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def oklab(colours):
    """Return lightness and the two colour axes of sRGB colours (Ottosson 2020)."""
    rgb = np.asarray(colours)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lms = linear @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.cbrt(lms) @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )


# Linear maps of linear RGB that show a colour as eyes without one kind of cone see it (Machado et al. 2009).
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def seen(colour, kind):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("theme", THEMES)
def test_weights_begin_at_the_background_and_leave_it_in_even_steps(theme):
    style = get_style(theme)
    colours = style.colormap()(np.arange(256))[:, :3]
    np.testing.assert_allclose(colours[0], to_rgb(style.background), atol=1 / 255)
    steps = np.diff(oklab(colours)[:, 0]) * (1 if theme == "dark" else -1)
    assert (steps > 0).all()
    assert steps.max() < 1.25 * steps.min()  # the eight-bit colours between which it blends are not exact


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", BLINDNESS)
def test_original_and_contextual_differ_for_every_kind_of_colour_vision(theme, kind):
    style = get_style(theme)
    one, other = oklab(np.array([seen(style.original, kind), seen(style.contextual, kind)]))
    assert np.linalg.norm(one - other) > 0.1


@pytest.mark.parametrize("theme", THEMES)
def test_text_and_marks_can_be_seen(theme):
    style = get_style(theme)
    assert contrast(style.foreground, style.background) >= 7
    assert contrast(style.muted, style.background) >= 4.5
    assert min(contrast(c, style.background) for c in (style.original, style.contextual, *style.texts)) >= 3


def settings():
    """Return all settings but the backend, which is chosen when it is first asked for."""
    return {name: value for name, value in matplotlib.rcParams.items() if name != "backend"}


@pytest.mark.parametrize("theme", THEMES)
def test_drawing_changes_no_setting_outside(theme):
    before = settings()
    with get_style(theme).rc_context():
        assert matplotlib.rcParams["text.color"] == get_style(theme).foreground
    assert settings() == before


def heatmap_on(ax, theme):
    heatmap(np.eye(3), ["the", "cat", "sat"], ax=ax, theme=theme)


def movement_on(ax, theme):
    rng = np.random.default_rng(2)
    movement(rng.standard_normal((3, 5)), rng.standard_normal((3, 5)), ["the", "cat", "sat"], ax=ax, theme=theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("background", ["white", "#101014", "none"])
@pytest.mark.parametrize("draw", [heatmap_on, movement_on])
def test_decorations_of_existing_axes_are_readable_on_their_figure(theme, background, draw):
    """The figure is the caller's: the theme colours what is inside of the axes."""
    figure = Figure(figsize=(7, 7), facecolor=background)
    ax = figure.subplots()
    draw(ax, theme)
    ground = get_style(theme).background if background == "none" else background
    texts = [ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title, *ax.get_xticklabels(), *ax.get_yticklabels()]
    legend = ax.get_legend()
    texts += legend.get_texts() if legend else []
    for child in ax.child_axes:
        texts += [child.xaxis.label, *child.get_xticklabels()]
    written = [text for text in texts if text.get_text()]
    assert len(written) >= 5
    for text in written:
        assert contrast(text.get_color(), ground) >= 4.5, text.get_text()


@pytest.mark.parametrize("path", PLOT, ids=lambda path: path.stem)
def test_colours_and_sizes_of_type_are_those_of_the_style(path):
    code = path.read_text(encoding="utf-8")  # text is measured at 100 points
    assert re.findall(r"#[0-9a-fA-F]{6}|\bsize=(?!100\b)[\d.]+|fontsize|labelsize|figsize", code) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_draw_in_the_style(path):
    """A block that makes a figure draws in the style, or lets `regard.plot` draw on its axes."""
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if "Figure(" in block:
            assert "style.rc_context()" in block or re.search(r"plot\.(heatmap|movement|picture)\(.*ax=ax", block)
        assert not re.findall(r"#[0-9a-fA-F]{6}|cmap=\"", block)


@pytest.mark.parametrize("theme", THEMES)
def test_figures_of_a_user_can_have_the_style(theme):
    style = get_style(theme)
    with style.rc_context():
        figure = Figure()
        ax = figure.subplots()
        (line,) = ax.plot([0, 1])
        title = ax.set_title("$x$")
    assert to_rgb(figure.get_facecolor()) == to_rgb(style.background)
    assert (title.get_color(), title.get_fontfamily(), title.get_parse_math()) == (
        style.foreground,
        ["DejaVu Sans"],
        False,
    )
    assert line.get_color() == style.texts[0]


def test_every_figure_is_measured():
    """A text that covers another, or leaves the page, is seen by `assert_apart_and_inside`."""
    tests = [
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)
    ]
    measured = " ".join(text for text in tests if "assert_apart_and_inside(" in text)
    figures = set(plot.__all__) - {"save", "get_style"}
    assert {name for name in figures if not re.search(rf"\b{name}\(", measured)} == set()
