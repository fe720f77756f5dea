"""Cross-entropy of the softmax of logits: the loss of a language model."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional.arrays import Array, compute_dtype
from regard.functional.native import ops
from regard.functional.variable import Pullback, is_recorded, record_vjp

Reduction: TypeAlias = Literal["mean", "sum", "none"]


def cross_entropy(
    logits: Array,
    targets: np.ndarray,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Array:
    """Return −log softmax(logits)[target], in nats: how surprised a model is by each target.

    Parameters
    ----------
    logits : array, ``... V``
    targets : integer array, ``...``
    ignore_index : int
        A target that does not count.
    label_smoothing : float
        ε: the target has the probability 1 − ε, and ε is spread evenly over all V.
    reduction : {"mean", "sum", "none"}
        Over the targets that count; or one number for each, 0 where it does not count.

    Returns
    -------
    number, or array ``...``
        In the dtype of the logits, as PyTorch's function of this name.

    Raises
    ------
    RegardError
        The shapes do not fit, a target is outside the vocabulary, or no target counts in a mean.

    References
    ----------
    Szegedy et al. (2016), "Rethinking the Inception architecture", https://arxiv.org/abs/1512.00567, for the smoothing.

    Examples
    --------
    >>> import numpy as np
    >>> float(cross_entropy(np.log([[0.5, 0.25, 0.25]]), np.array([0])).round(6))  # log 2
    0.693147
    """
    if is_recorded(logits):
        return record_vjp(
            cross_entropy_vjp, logits, targets, ignore_index=ignore_index, label_smoothing=label_smoothing,
            reduction=reduction,
        )  # fmt: skip
    return cross_entropy_vjp(
        logits, targets, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )[0]


def cross_entropy_vjp(
    logits: np.ndarray,
    targets: np.ndarray,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> tuple[np.ndarray, Pullback]:
    """Return `cross_entropy` and its vector-Jacobian product: d_logits = d × (softmax(logits) − target probabilities).

    The pullback returns the gradient of the logits and None for the targets.
    """
    logits, targets = np.asarray(logits), np.asarray(targets)
    size = logits.shape[-1] if logits.ndim else 0
    if targets.shape != logits.shape[:-1] or not size or targets.dtype.kind not in "iu":
        raise RegardError(
            f"targets {targets.dtype} {targets.shape} must be integers, one for each row of logits {logits.shape}"
        )
    counted = targets != ignore_index
    wrong = targets[counted & ((targets < 0) | (targets >= size))]
    if wrong.size:
        raise RegardError(f"target {wrong[0]} is outside the vocabulary, which has ids 0 to {size - 1}")
    if reduction not in get_args(Reduction):
        raise RegardError(f"reduction must be one of {', '.join(get_args(Reduction))}, got {reduction!r}")
    smoothing = finite_number("label_smoothing", label_smoothing)
    if not 0 <= smoothing <= 1:
        raise RegardError(f"label_smoothing must be from 0 to 1, got {label_smoothing}")
    count = int(counted.sum())
    if reduction == "mean" and not count:
        raise RegardError("no target counts: the mean of their cross-entropy does not exist")
    places = np.where(counted, targets, 0)[..., None]

    lse = _log_sum_exp(logits)
    losses = (lse - np.take_along_axis(logits, places, -1))[..., 0]
    if smoothing:
        losses = (1 - smoothing) * losses + smoothing * (lse[..., 0] - logits.mean(-1))
    losses = np.where(counted, losses, losses.dtype.type(0)).astype(logits.dtype, copy=False)

    def pullback(d: np.ndarray) -> tuple[np.ndarray, None]:
        scale = np.asarray((d / count if reduction == "mean" else d) * counted)[..., None].astype(lse.dtype)
        d_logits = _scaled_softmax(logits, lse, scale)
        if smoothing:
            d_logits -= (smoothing / size * scale).astype(d_logits.dtype)
        d_targets = np.take_along_axis(d_logits, places, -1) - (1 - smoothing) * scale
        np.put_along_axis(d_logits, places, d_targets.astype(d_logits.dtype), -1)
        return d_logits, None

    if reduction == "none":
        return losses, pullback
    return losses.sum() / (count if reduction == "mean" else 1), pullback


def _log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Return log Σ exp(x) of each row, ``... 1``, in the compute dtype."""
    lse = ops.log_sum_exp(x)
    if lse is None:
        x = x.astype(compute_dtype(np, x.dtype), copy=False)
        row_max = x.max(-1, keepdims=True)
        lse = row_max + np.log(np.exp(x - row_max).sum(-1, keepdims=True))
    return lse


def _scaled_softmax(x: np.ndarray, lse: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return scale × softmax(x), whose log-sum-exp is known."""
    scaled = ops.scaled_softmax(x, lse, scale)
    return (scale * np.exp(x - lse)).astype(x.dtype, copy=False) if scaled is None else scaled
