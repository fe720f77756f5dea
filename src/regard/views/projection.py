"""Principal components: several clouds of vectors on one plane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array


def project(original: Array, contextual: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Project the original and the contextual vectors of words onto one plane.

    A model moves all words a long way in one direction and lengthens all vectors (in MiniLM eightfold, with a shift as
    long as the differences between words). The principal components of the raw vectors would show mostly this. So each
    cloud is standardized first, see `standardize`: a point is the place of a word *among the words of its text*, and an
    arrow is the change of that place. The plane is spanned by the first two principal components of both clouds
    together.

    A single word, or one word that occurs several times with equal vectors, has no such place. For these the raw
    vectors are projected, which shows the shift itself: see `is_degenerate`.

    Parameters
    ----------
    original, contextual : array, ``T E``
        Row i of both belongs to the same word.

    Returns
    -------
    original, contextual : array of float64, ``T 2``
    explained_variance_ratio : array of float64, 2
        The fraction of the variance of the standardized vectors along each axis; zeros if nothing varies.

    Raises
    ------
    RegardError
        The shapes differ, there are no words, or a number is not finite.
    """
    clouds = [np.asarray(vectors, dtype=np.float64) for vectors in (original, contextual)]
    shapes = [cloud.shape for cloud in clouds]
    if shapes[0] != shapes[1] or clouds[0].ndim != 2 or 0 in shapes[0]:
        raise RegardError(f"original and contextual vectors need one shape T E, got {shapes[0]} and {shapes[1]}")
    if not all(np.isfinite(cloud).all() for cloud in clouds):
        raise RegardError("the vectors must be finite, got NaN or infinity")
    (before, after), ratio = principal_plane(clouds if is_degenerate(*clouds) else [standardize(c) for c in clouds])
    return before, after, ratio


def principal_plane(clouds: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Project clouds of vectors onto the first two principal components of all of them together.

    Parameters
    ----------
    clouds : sequence of array, ``N E``
        N may differ.

    Returns
    -------
    points : list of array of float64, ``N 2``
        The largest loading of each component is positive, so that equal vectors give equal points.
    explained_variance_ratio : array of float64, 2

    References
    ----------
    Pearson (1901), "On lines and planes of closest fit to systems of points in space".
    """
    count, width = sum(map(len, clouds)), clouds[0].shape[1]
    mean = sum(cloud.sum(axis=0) for cloud in clouds) / count
    clouds = [cloud - mean for cloud in clouds]
    if count > width:  # E E is smaller than N E
        values, vectors = np.linalg.eigh(sum(cloud.T @ cloud for cloud in clouds))
        variance, components = values[::-1].clip(0), vectors.T[::-1]
    else:
        _, singular, components = np.linalg.svd(np.concatenate(clouds), full_matrices=False)
        variance = singular**2
    components = components[:2]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    axes, ratio = np.zeros((2, width)), np.zeros(2)
    axes[: len(components)] = np.where(largest < 0, -components, components)
    if (total := variance.sum()) > 0:
        ratio[: len(components)] = variance[:2] / total
    return [cloud @ axes.T for cloud in clouds], ratio


def standardize(cloud: np.ndarray) -> np.ndarray:
    """Return a cloud, ``N E``, with mean 0 and a root mean square distance of 1 from it; equal vectors become zeros."""
    centred = _centre(cloud)
    return centred / (_spread(centred) or 1)


def is_degenerate(original: np.ndarray, contextual: np.ndarray) -> bool:
    """Return whether all vectors are equal in each cloud: one word, however often it occurs."""
    return not (_centre(original).any() or _centre(contextual).any())


def _centre(cloud: np.ndarray) -> np.ndarray:
    """Return the cloud minus its mean; vectors that are equal but for float32 rounding become zeros."""
    centred = cloud - cloud.mean(axis=0)
    rounding = np.finfo(np.float32).eps * np.abs(cloud).max()
    return centred if _spread(centred) > rounding else np.zeros_like(cloud)


def _spread(centred: np.ndarray) -> float:
    return float(np.sqrt((centred**2).sum(axis=1).mean()))
