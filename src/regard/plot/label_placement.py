"""Placing labels beside their points, inside the page, without overlap of labels or points."""

from __future__ import annotations

import numpy as np

_DISTANCES = np.array([0.06, 0.09, 0.16, 0.26, 0.4, 0.55, 0.75, 1.0, 1.35, 1.8, 2.4])
_ANGLES = np.deg2rad([0, 180, 90, 270, 45, 135, 225, 315, 22, 67, 112, 157, 202, 247, 292, 337])
_POINT = 0.05  # half the side of the free square around a point
_CROSSING_COST = 0.12  # of a line that crosses a label, as a distance
_AMBIGUITY_COST = 0.5  # of another point that is nearer to a label than its own


def place_labels(
    points: np.ndarray,
    sizes: np.ndarray,
    page: tuple[float, float],
    *,
    obstacles: np.ndarray,
    segments: np.ndarray,
) -> list[tuple[float, float] | None]:
    """Return the centre of each label, or None if no place is free.

    Labels are placed greedily, each at the free place nearest to its point; a place crossed by lines, or nearer to
    another point, counts as farther.

    Parameters
    ----------
    points : array, ``N 2``
        The points of the labels, in order of priority.
    sizes : array, ``N 2``
        Width and height of each label.
    page : float, float
        Width and height of the page, whose lower left corner is 0, 0. All lengths in inches.
    obstacles : array, ``M 2``
        Points that labels must not cover.
    segments : array, ``K 2 2``
        Lines that labels should not cover.
    """
    free_of = np.concatenate([obstacles - _POINT, obstacles + _POINT], axis=1)
    labels = np.zeros((0, 4))
    centres: list[tuple[float, float] | None] = []
    for point, size in zip(points, sizes, strict=True):
        candidates, distances = _candidates(point, size / 2)
        boxes = np.concatenate([candidates - size / 2, candidates + size / 2], axis=1)
        inside = (boxes[:, :2] >= 0).all(axis=1) & (boxes[:, 2:] <= page).all(axis=1)
        allowed = inside & ~_overlap(boxes, free_of).any(axis=1) & ~_overlap(boxes, labels).any(axis=1)
        if not allowed.any():
            centres.append(None)
            continue
        leaders = np.stack([np.broadcast_to(point, candidates.shape), candidates], axis=1)
        crossings = _cross(boxes, segments).sum(axis=1) + _cross(labels, leaders).sum(axis=0)
        nearest = gaps(candidates[:, None], size, obstacles).min(axis=1, initial=np.inf)
        ambiguous = nearest < gaps(candidates, size, point) - 1e-9
        cost = distances + _CROSSING_COST * crossings + _AMBIGUITY_COST * ambiguous
        best = int(np.where(allowed, cost, np.inf).argmin())
        centres.append((float(candidates[best, 0]), float(candidates[best, 1])))
        labels = np.concatenate([labels, boxes[best : best + 1]])
        segments = np.concatenate([segments, leaders[best : best + 1]])
    return centres


def gaps(centres: np.ndarray, size: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distances of labels with these centres, ``... 2``, from points, ``... 2``; 0 inside."""
    return np.asarray(np.linalg.norm(np.maximum(np.abs(centres - points) - size / 2, 0), axis=-1))


def _candidates(point: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return candidate centres of a label around a point, and the distance of its edge from the point."""
    directions = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
    to_edge = half * directions / np.abs(directions).max(axis=1, keepdims=True)
    centres = point + to_edge + _DISTANCES[:, None, None] * directions
    return centres.reshape(-1, 2), np.repeat(_DISTANCES, len(_ANGLES))


def _overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which of ``N`` boxes (left, bottom, right, top) overlap which of ``M`` others, ``N M``."""
    a, b = boxes[:, None], others[None]
    return np.asarray(((a[..., :2] < b[..., 2:]) & (b[..., :2] < a[..., 2:])).all(axis=-1))


def _cross(boxes: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Return which of ``N`` boxes are crossed by which of ``K`` line segments, ``N K`` (Liang and Barsky 1984)."""
    start = segments[None, :, 0]
    along = segments[None, :, 1] - start
    along = np.where(along == 0, 1e-12, along)
    at_low = (boxes[:, None, :2] - start) / along
    at_high = (boxes[:, None, 2:] - start) / along
    enters = np.minimum(at_low, at_high).max(axis=-1)
    leaves = np.maximum(at_low, at_high).min(axis=-1)
    return np.asarray(np.maximum(enters, 0) <= np.minimum(leaves, 1))
