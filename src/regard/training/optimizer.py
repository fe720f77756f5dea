"""AdamW on one flat array, in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional.native import ops

_BLOCK = 1 << 14  # numbers of each array that are updated together: they stay in the cache from step to step


class AdamW:
    """Adam with decoupled weight decay.

    The order of operations is that of PyTorch: decay, the two moments, and the step, by their bias-corrected ratio.

    Parameters
    ----------
    size : int
        How many numbers there are.
    decayed : int
        How many of them, the first, decay: matrices and tables, not biases and norms.
    dtype
    betas : pair of float
        How much of the moments a step keeps: at least 0, less than 1.
    eps : float
        Added to the root of the second moment; positive.
    weight_decay : float

    Raises
    ------
    RegardError
        `betas`, `eps` or `weight_decay` is invalid.

    References
    ----------
    Loshchilov and Hutter (2019), "Decoupled weight decay regularization", https://arxiv.org/abs/1711.05101.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([1.0, -2.0])
    >>> AdamW(2, 2, x.dtype, weight_decay=0.0).step(x, np.array([0.5, -3.0]), 0.1)  # the first step has the length 0.1
    >>> x.round(6)
    array([ 0.9, -1.9])
    """

    def __init__(
        self,
        size: int,
        decayed: int,
        dtype: np.dtype,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        self.betas, self.eps = check_betas(betas), finite_number("eps", eps, positive=True)
        self.weight_decay = finite_number("weight_decay", weight_decay)
        if self.weight_decay < 0:
            raise RegardError(f"weight_decay must be at least 0, got {weight_decay!r}")
        self.first, self.second = np.zeros(size, dtype), np.zeros(size, dtype)
        self.steps = 0
        self._decayed = decayed

    def step(self, x: np.ndarray, gradient: np.ndarray, learning_rate: float, *, scale: float = 1.0) -> None:
        """Update x in place by `scale` × its gradient; all are flat."""
        self.steps += 1
        beta1, beta2 = self.betas
        size = learning_rate / (1 - beta1**self.steps)
        root = math.sqrt(1 - beta2**self.steps)
        if ops.adamw(
            x, gradient, self.first, self.second, self._decayed, scale=scale,
            decay=1 - learning_rate * self.weight_decay, beta1=beta1, beta2=beta2, size_of_step=size, root=root,
            eps=self.eps,
        ):  # fmt: skip
            return
        scratch, change = np.empty(_BLOCK, x.dtype), np.empty(_BLOCK, x.dtype)
        for start, stop in _blocks(self._decayed, len(x)):
            p, g, m, v = x[start:stop], gradient[start:stop], self.first[start:stop], self.second[start:stop]
            t, d = scratch[: len(p)], change[: len(p)]
            if scale != 1:
                g = np.multiply(g, scale, out=d)
            if start < self._decayed:
                p *= 1 - learning_rate * self.weight_decay
            np.subtract(g, m, out=t)  # m ← m + (1 − β₁)(g − m)
            t *= 1 - beta1
            m += t
            v *= beta2  # v ← β₂ v + (1 − β₂) g²
            np.multiply(g, g, out=t)
            t *= 1 - beta2
            v += t
            np.sqrt(v, out=t)  # x ← x − size × m / (√v / root + ε)
            t /= root
            t += self.eps
            np.divide(m, t, out=t)
            t *= size
            p -= t


def check_betas(betas: Any) -> tuple[float, float]:
    """Return the two factors of the moments; an error unless they are numbers with 0 ≤ β < 1."""
    message = f"betas must be two numbers with 0 ≤ beta < 1, got {betas!r}"
    try:
        first, second = betas
    except (TypeError, ValueError) as error:
        raise RegardError(message) from error
    factors = finite_number("a beta", first), finite_number("a beta", second)
    if not all(0 <= beta < 1 for beta in factors):
        raise RegardError(message)
    return factors


def global_norm(gradient: np.ndarray) -> float:
    """Return the Euclidean norm of a flat array; the same number for any number of threads."""
    square_sum = ops.square_sum(gradient)
    if square_sum is not None:
        return math.sqrt(square_sum)
    total = 0.0
    for start, stop in _blocks(0, len(gradient)):
        block = gradient[start:stop]
        total += float(np.add.reduce(block * block, dtype=np.float64))
    return math.sqrt(total)


def clip_scale(norm: float, max_norm: float | None) -> float:
    """Return the factor that makes a gradient no longer than `max_norm`, as PyTorch's ``clip_grad_norm_`` has it."""
    return 1.0 if max_norm is None else min(1.0, max_norm / (norm + 1e-6))


def _blocks(boundary: int, size: int) -> list[tuple[int, int]]:
    """Return the ends of blocks of at most `_BLOCK` numbers, none of which goes over the boundary."""
    parts = [(0, boundary), (boundary, size)]
    return [(i, min(i + _BLOCK, stop)) for start, stop in parts for i in range(start, stop, _BLOCK)]
