"""One plane for two clouds of vectors: what words were and what they became."""

from __future__ import annotations

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array


def project(original: Array, contextual: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Project both clouds onto the plane that shows most of them together.

    A model moves all words a long way in the same direction and makes all of them longer (in MiniLM the vectors
    grow eightfold and the shift is as long as the differences between words). A plane for the raw vectors shows
    mostly this, and the small cloud as a dot. So each cloud is first centred on its own mean and scaled to a root mean
    square distance of 1 from it: what is drawn is where a word stands *among the words of its text*, before and
    after, and an arrow is how that changed. The plane is spanned by the first two principal components of both
    clouds together; neither is favoured.

    A single word has no others to stand among, nor has one that comes twice with the same vectors. For these the
    shift itself is drawn, which is all there is: see `stands_alone`.

    Parameters
    ----------
    original, contextual : array, ``T E``
        Row i of both belongs to the same word.

    Returns
    -------
    original, contextual : array of float64, ``T 2``
    explained : array of float64, 2
        The share of the variance of what is drawn (the centred and scaled vectors) along each axis; zeros where
        nothing varies.

    Raises
    ------
    RegardError
        The shapes differ, or there is no word, or a number is not finite.

    Notes
    -----
    Principal components by singular value decomposition (Pearson 1901). The largest loading of each component is
    made positive, so the same vectors always give the same picture.
    """
    clouds = [np.asarray(vectors, dtype=np.float64) for vectors in (original, contextual)]
    shapes = [cloud.shape for cloud in clouds]
    if shapes[0] != shapes[1] or clouds[0].ndim != 2 or 0 in shapes[0]:
        raise RegardError(f"original and contextual vectors need one shape T E, got {shapes[0]} and {shapes[1]}")
    if not all(np.isfinite(cloud).all() for cloud in clouds):
        raise RegardError("the vectors are not all finite: there is nothing to project")
    words = len(clouds[0])
    stacked = np.concatenate(clouds if stands_alone(*clouds) else [_standardised(cloud) for cloud in clouds])
    stacked = _centred(stacked)
    _, singular, components = np.linalg.svd(stacked, full_matrices=False)  # components: min(2T, E) E
    components = components[:2]
    largest = np.abs(components).argmax(axis=1)
    signs = np.where(np.take_along_axis(components, largest[:, None], axis=1) < 0, -1.0, 1.0)
    axes, explained = np.zeros((2, stacked.shape[1])), np.zeros(2)
    axes[: len(components)] = components * signs
    variance = singular**2
    if variance.sum() > 0:
        explained[: len(components)] = variance[:2] / variance.sum()
    placed = stacked @ axes.T
    return placed[:words], placed[words:], explained


def stands_alone(original: np.ndarray, contextual: np.ndarray) -> bool:
    """Tell whether no word differs from another, before or after: they are one word, however often it comes."""
    return not (_centred(original).any() or _centred(contextual).any())


def _standardised(cloud: np.ndarray) -> np.ndarray:
    """Return the cloud centred and scaled to a root mean square distance of 1; equal vectors become zeros."""
    centred = _centred(cloud)
    return centred / (_spread(centred) or 1)


def _centred(cloud: np.ndarray) -> np.ndarray:
    """Return the cloud centred on its mean; vectors that are equal, but for float32 rounding, become zeros."""
    centred = cloud - cloud.mean(axis=0)
    rounding = np.finfo(np.float32).eps * np.abs(cloud).max()
    return centred if _spread(centred) > rounding else np.zeros_like(cloud)


def _spread(centred: np.ndarray) -> float:
    return float(np.sqrt((centred**2).sum(axis=1).mean()))
