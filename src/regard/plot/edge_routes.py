"""Routes of edges between rows of boxes, around the boxes of the rows between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_LANE = 0.07  # inches from a lane to the next, a little more than the widest edge
_CLEAR = 0.05  # inches between a lane and a box
_CURVE = np.linspace(0, 1, 13)


class EdgeRoutes:
    """Routes of edges, each of which goes upwards from the top of a box to the bottom of another.

    In a row between, an edge takes a lane beside the boxes, and each lane of a row has one edge. Between rows it is
    a curve, upright at each lane.

    Parameters
    ----------
    boxes : sequence of list of float
        The x of the centers of the boxes in each row, the lowest row first.
    size : pair of float
        Width and height of a box.
    row : float
        From the center of a row to that of the next; the center of the lowest is as far above 0 as a box is high.
    """

    def __init__(self, boxes: Sequence[Sequence[float]], size: tuple[float, float], row: float) -> None:
        half = size[0] / 2 + _CLEAR
        self._free = [_free_intervals(np.sort(centers), half) for centers in boxes]
        self._taken: list[list[float]] = [[] for _ in boxes]
        self._height, self._row = size[1], row

    def add(self, start: tuple[int, float], end: tuple[int, float]) -> np.ndarray:
        """Return the points ``N 2`` of an edge from a row and an x to another."""
        (low, x), (high, to) = start, end
        points: list[Any] = [[[x, self._top(low)]]]
        for level in range(low + 1, high):
            straight = start[1] + (to - start[1]) * (level - low) / (high - low)
            lane = self._lane(level, straight, x)
            points += [_curve((x, self._top(level - 1)), (lane, self._bottom(level))), [[lane, self._top(level)]]]
            x = lane
        last = (to, self._bottom(high))
        points.append(_curve((x, self._top(high - 1)), last) if high - low > 1 else [last])
        return np.concatenate(points)

    def _lane(self, level: int, straight: float, before: float) -> float:
        """Take the free lane of a row nearest to the straight line and to the lane of the row before."""
        taken = np.array(self._taken[level])
        near = (min(straight, before) - 1, max(straight, before) + 1)
        lanes = np.empty(0)
        while not len(lanes):
            each = [_lanes(max(a, near[0]), min(b, near[1]), a, b) for a, b in self._free[level]]
            lanes = np.concatenate(each)
            lanes = lanes[(np.abs(lanes[:, None] - taken) > 0.9 * _LANE).all(1)]
            near = near[0] - 1, near[1] + 1
        lane = float(lanes[np.argmin(np.abs(lanes - straight) + np.abs(lanes - before))])
        self._taken[level].append(lane)
        return lane

    def _top(self, level: int) -> float:
        return level * self._row + 1.5 * self._height

    def _bottom(self, level: int) -> float:
        return level * self._row + 0.5 * self._height


def _free_intervals(centers: np.ndarray, half: float) -> list[tuple[float, float]]:
    """Return what boxes with these centers, and half of this width, leave of the line."""
    lows, highs = np.append(-np.inf, centers + half), np.append(centers - half, np.inf)
    return [(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True) if low <= high + 1e-9]


def _lanes(low: float, high: float, first: float, last: float) -> np.ndarray:
    """Return lanes from low to high, of those that begin at the first or, if it is infinite, end at the last."""
    origin = first if np.isfinite(first) else last if np.isfinite(last) else 0.0
    steps = np.arange(np.ceil((low - origin) / _LANE - 1e-6), np.floor((high - origin) / _LANE + 1e-6) + 1)
    return np.asarray(origin + steps * _LANE)


def _curve(start: tuple[float, float], end: tuple[float, float]) -> np.ndarray:
    """Return points of a curve that is upright at both ends and stays between their heights."""
    return np.stack(
        [start[0] + (end[0] - start[0]) * _CURVE**2 * (3 - 2 * _CURVE), start[1] + (end[1] - start[1]) * _CURVE], axis=1
    )
