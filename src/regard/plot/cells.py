"""The cells of maps: pooled where they are more than dots, in a frame, masked ones in a colour of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.plot.style import Look, Medium

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.image import AxesImage


def cells_per_dot(cell: float, medium: Medium) -> int:
    """Return how many cells of `cell` inches, down and across, are one dot."""
    return max(1, math.ceil(1 / (cell * medium.cells) - 1e-9))


def pool(values: np.ndarray, masked: np.ndarray, k: int) -> np.ndarray:
    """Return a map, ``T S``, with a dot for each `k` × `k` cells: the value farthest from 0, masked if all of them are.

    Their mean would be a weight that does not occur, and a sample would omit weights.
    """
    if k > 1:
        negative = values.min() < 0
        values, lowest = _reduce(np.maximum, values, k), _reduce(np.minimum, values, k) if negative else values
        values = np.where(values >= -lowest, values, lowest) if negative else values
        masked = _reduce(np.logical_and, masked, k)
    return np.ma.masked_array(values, mask=masked) if masked.any() else values


def _reduce(function: np.ufunc, values: np.ndarray, k: int) -> np.ndarray:
    for axis, length in enumerate(values.shape):
        dots = math.ceil(length / k)
        values = function.reduceat(values, np.arange(dots) * length // dots, axis=axis)
    return values


def draw_cells(
    ax: Axes,
    values: np.ndarray,
    colors: Colormap,
    scale: Normalize,
    extent: tuple[float, float, float, float] | None = None,
    aspect: Any = "auto",
) -> AxesImage:
    """Draw a map that `pool` returned, by default with the cell ``i, j`` of it at ``x = j, y = i``."""
    return ax.imshow(values, cmap=colors, norm=scale, extent=extent, aspect=aspect, interpolation="nearest")


def extent_of(shape: tuple[int, ...]) -> tuple[float, float, float, float]:
    """Return the extent of a map of this shape, ``T S``, with the cell ``i, j`` at ``x = j, y = i``."""
    return -0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5


def draw_frame(ax: Axes, look: Look) -> None:
    """Draw a line on all sides of a plot, and its background."""
    ax.set_facecolor(look.style.background)
    ax.spines[:].set(color=look.frame, linewidth=look.medium.line)


def draw_lines(ax: Axes, shape: tuple[int, ...], look: Look) -> None:
    """Draw lines between the cells of a map, ``T S``."""
    height, width = shape
    line: dict[str, Any] = {"color": look.style.background, "linewidth": look.medium.line}
    ax.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, **line)
    ax.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, **line)
