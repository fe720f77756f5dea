"""What a drawn figure shows: the rectangles that texts take, rotated ones included, and the colours of a part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.plot import save

WORDS = "the quick brown foxes jumped over a lazy dog because it was tired . internationalisation ,".split()
STRANGE = (
    "$x_1^2$", "$\\frac{$",  # half a formula, which is an error of matplotlib where it reads formulas
    "a\x1b[31mred", "\u202etfel", "\n", "\x00", "\ud800", "שלום", "مرحبا", "猫は", "🍕", "W" * 90, "é",
    "e" + "\u0301" * 9,
)  # fmt: skip


def texts_of(figure: Figure) -> list[Text]:
    """Return every text that is drawn, once the figure knows where everything stands."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr(image.AxesImage, "make_image", lambda *_, **__: (None, 0, 0, None))  # nobody sees the pixels
        figure.draw_without_rendering()
    axes = figure.findobj(Axes)
    # matplotlib keeps labels of ticks beyond the end of a scale, and of a frame that is off, which it does not draw.
    beyond = {
        label
        for ax in axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in {*axis.get_major_ticks(), *axis.get_minor_ticks()} - set(axis._update_ticks() if ax.axison else ())
        for label in (tick.label1, tick.label2)
    }
    return [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in beyond]


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours as the Web Content Accessibility Guidelines define it."""
    rgb = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


def corners(text: Text) -> np.ndarray:
    """Return the corners of the rectangle around a text, ``4 2`` in pixels, along its own direction."""
    angle = text.get_rotation()
    if angle == 0:
        return text.get_window_extent().corners()[[0, 1, 3, 2]]
    # A rotated text turns around its anchor: measure it upright, then turn the rectangle.
    anchor = text.get_transform().transform(text.get_position())
    text.set_rotation(0)
    upright = text.get_window_extent().corners()[[0, 1, 3, 2]]
    text.set_rotation(angle)
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return anchor + (upright - anchor) @ rotation.T


def overlap(one: np.ndarray, other: np.ndarray, slack: float = 0.5) -> bool:
    """Tell whether two rectangles overlap by more than `slack` pixels (separating axes)."""
    for rectangle in (one, other):
        for side in (rectangle[1] - rectangle[0], rectangle[3] - rectangle[0]):
            along = side / np.linalg.norm(side)
            a, b = one @ along, other @ along
            if a.max() <= b.min() + slack or b.max() <= a.min() + slack:
                return False
    return True


def assert_apart_and_inside(figure: Figure) -> list[Text]:
    """No text covers another, and none leaves the figure. Return the texts."""
    shapes = [(text, corners(text)) for text in texts_of(figure)]
    page = figure.bbox
    for text, shape in shapes:
        assert shape.min() >= -0.5, f"{text} leaves the page"
        assert (shape.max(axis=0) <= [page.width + 0.5, page.height + 0.5]).all(), f"{text} leaves the page"
    low, high = (np.array([function(shape, axis=0) for _, shape in shapes]) for function in (np.min, np.max))
    near = (low[:, None] < high[None]).all(axis=-1) & (low[None] < high[:, None]).all(axis=-1)
    for i, j in np.argwhere(np.triu(near, 1)):
        assert not overlap(shapes[i][1], shapes[j][1]), f"{shapes[i][0]} covers {shapes[j][0]}"
    return [text for text, _ in shapes]


def pixels_of(figure: Figure, ax: Axes, path: Path) -> np.ndarray:
    """Return the colours that a saved figure has where `ax` stands, ``N 3`` from 0 to 1."""
    save(figure, path)
    picture = image.imread(path)[..., :3]
    height, width = picture.shape[:2]
    left, bottom, right, top = ax.get_position().extents
    inside = picture[
        round((1 - top) * height) : round((1 - bottom) * height), round(left * width) : round(right * width)
    ]
    return inside.reshape(-1, 3)
