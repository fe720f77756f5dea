"""Principal components: several clouds of vectors on one plane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array

SINK_LENGTH = 10.0
"""The vector of a sink is more than so many times as long as the median of its stage."""

_MIN_FITTED = 3  # tokens; fewer span no plane


def find_sinks(clouds: Sequence[np.ndarray]) -> np.ndarray:
    """Return which tokens are sinks, ``N``: in one of the clouds, ``N E`` each, their vector is far longer than most.

    In a language model the first token usually gets a vector a hundred times as long as the others, in a few
    dimensions, and heads with nothing to attend to attend to it: an attention sink.

    References
    ----------
    Sun et al. (2024), "Massive Activations in Large Language Models", https://arxiv.org/abs/2402.17762.
    """
    is_sink = np.zeros(len(clouds[0]), dtype=bool)
    for cloud in clouds:
        lengths = np.linalg.norm(cloud, axis=1)
        if (median := np.median(lengths)) > 0:
            is_sink |= lengths > SINK_LENGTH * median
    return is_sink


def tokens_to_fit(special: np.ndarray, sinks: np.ndarray) -> np.ndarray:
    """Return the tokens that a plane is fitted to, ``N``: neither special nor sinks; all, if fewer than 3 are left."""
    fitted = ~(special | sinks)
    return fitted if fitted.sum() >= _MIN_FITTED else np.ones_like(fitted)


def project(
    original: Array, contextual: Array, fitted: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    fitted : array of bool, ``T``, optional
        The words to which the means, the scales and the plane are fitted; all words are projected. Default: all.

    Returns
    -------
    original, contextual : array of float64, ``T 2``
    explained_variance_ratio : array of float64, 2
        The fraction of the variance of the standardized fitted vectors along each axis; zeros if nothing varies.

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
    fitted = np.ones(len(clouds[0]), dtype=bool) if fitted is None else fitted
    if not is_degenerate(*(cloud[fitted] for cloud in clouds)):
        clouds = [standardize(cloud, fitted) for cloud in clouds]
    (before, after), ratio = principal_plane(clouds, fitted)
    return before, after, ratio


def principal_plane(clouds: Sequence[np.ndarray], fitted: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Project clouds of vectors onto the first two principal components of the fitted ones of all clouds together.

    Parameters
    ----------
    clouds : sequence of array, ``N E``
    fitted : array of bool, ``N``

    Returns
    -------
    points : list of array of float64, ``N 2``
        The largest loading of each component is positive, so that equal vectors give equal points.
    explained_variance_ratio : array of float64, 2
        Of the fitted vectors.

    References
    ----------
    Pearson (1901), "On lines and planes of closest fit to systems of points in space".
    """
    width = clouds[0].shape[1]
    mean = sum(cloud[fitted].mean(axis=0) for cloud in clouds) / len(clouds)
    kept = [cloud[fitted] - mean for cloud in clouds]
    if len(kept) * len(kept[0]) > width:  # E E is smaller than N E
        values, vectors = np.linalg.eigh(sum(cloud.T @ cloud for cloud in kept))
        variance, components = values[::-1].clip(0), vectors.T[::-1]
    else:
        _, singular, components = np.linalg.svd(np.concatenate(kept), full_matrices=False)
        variance = singular**2
    components = components[:2]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    axes, ratio = np.zeros((2, width)), np.zeros(2)
    axes[: len(components)] = np.where(largest < 0, -components, components)
    if (total := variance.sum()) > 0:
        ratio[: len(components)] = variance[:2] / total
    return [(cloud - mean) @ axes.T for cloud in clouds], ratio


def standardize(cloud: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return a cloud, ``N E``, whose fitted vectors have mean 0 and a root mean square length of 1, or are all 0."""
    centred = _centre(cloud, fitted)
    return centred / (_spread(centred[fitted]) or 1)


def is_degenerate(original: np.ndarray, contextual: np.ndarray) -> bool:
    """Return whether all vectors are equal in each cloud: one word, however often it occurs."""
    everything = np.ones(len(original), dtype=bool)
    return not any(_centre(cloud, everything).any() for cloud in (original, contextual))


def _centre(cloud: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the cloud minus the mean of its fitted vectors; zeros if these are equal but for float32 rounding."""
    centred = cloud - cloud[fitted].mean(axis=0)
    rounding = np.finfo(np.float32).eps * np.abs(cloud[fitted]).max()
    return centred if _spread(centred[fitted]) > rounding else np.zeros_like(cloud)


def _spread(centred: np.ndarray) -> float:
    return float(np.sqrt((centred**2).sum(axis=1).mean()))


def describe_sinks(sinks: Sequence[str], left_out: str) -> str:
    """Return which tokens are left out of something, in these words, and why."""
    are, its, is_sink = ("is", "its vector is", "an attention sink")
    if len(sinks) > 1:
        are, its, is_sink = ("are", "their vectors are", "attention sinks")
    names = enumerate_names([f"“{sink}”" for sink in sinks])
    return f"{names} {are} {left_out}: {its} more than {SINK_LENGTH:.0f} times as long as the median ({is_sink})."


def enumerate_names(names: Sequence[str]) -> str:
    """Return three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
