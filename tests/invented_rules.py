"""A mask and a bias that no part of the package knows: what they declare is all that the rest has of them."""

from typing import Annotated

import numpy as np

from regard.functional import Bias, Mask
from regard.functional.arrays import Array
from regard.functional.biases.base import sum_to_shape
from regard.functional.rules import Axes, rule
from regard.functional.scores.layout import take, take_broadcast


@rule
class DilatedMask(Mask):
    """Each head attends to every so many keys, counted from the position of the query, but not to some keys."""

    strides: Annotated[Array, Axes("... H")]
    hidden: Annotated[Array, Axes("... S")]
    also_self: bool = False
    uses_positions = True
    shift_invariant = True

    def allows(self, layout, rows, cols):
        xp = layout.xp
        strides = xp.asarray(self.strides, device=layout.device)[..., None, None]
        distance = layout.query_indices(rows) + layout.resolve_offset() - layout.key_indices(cols)
        hidden = take(xp.asarray(self.hidden, device=layout.device), cols, -1)[..., None, None, :]
        allowed = xp.logical_and(distance % strides == 0, ~hidden)
        return xp.logical_or(allowed, distance == 0) if self.also_self else allowed


@rule
class KindBias(Bias):
    """A value for each head and each kind of key."""

    parameter: Annotated[Array, Axes("... H N")]
    kinds: Annotated[Array, Axes("S")]
    shift_invariant = True
    can_mask = False

    def values(self, layout, rows, cols):
        return layout.xp.take(self.parameter, take(self.kinds, cols, -1), axis=-1)[..., None, :]

    def gradient(self, layout, rows, cols, d_values):
        kinds, xp = take(self.kinds, cols, -1), layout.xp
        sums = [xp.sum(xp.where(kinds == n, d_values, 0.0), axis=(-2, -1)) for n in range(self.parameter.shape[-1])]
        return sum_to_shape(xp.stack(sums, axis=-1), tuple(self.parameter.shape))


@rule
class EveryOther(Mask):
    """What another mask allows, of every so many keys and in every other head: it depends on indices themselves."""

    inner: Mask
    among: Annotated[Array, Axes("... H T S")]
    step: int = 2

    def allows(self, layout, rows, cols):
        xp = layout.xp
        heads = xp.arange(layout.heads, device=layout.device)[:, None, None]
        every = (layout.key_indices(cols) + heads) % self.step == 0
        among = take_broadcast(xp.asarray(self.among, device=layout.device), rows, cols)
        return xp.logical_and(xp.logical_and(self.inner.allows(layout, rows, cols), every), among)


@rule
class TwiceBias(Bias):
    """A factor for each head of another bias: two parameters."""

    parameter: Annotated[Array, Axes("... H")]
    inner: Bias

    def values(self, layout, rows, cols):
        return self.parameter[..., None, None] * self.inner.values(layout, rows, cols)


BATCH, HEADS, QUERIES, KEYS, KINDS = 2, 4, 33, 50, 3


def invented_case(dtype=np.float64):
    """Return q, k, v, the options with the two rules, and those with arrays that mean the same."""
    rng = np.random.default_rng(4)
    q = rng.standard_normal((BATCH, HEADS, QUERIES, 8)).astype(dtype)
    k, v = (rng.standard_normal((BATCH, 2, KEYS, 8)).astype(dtype) for _ in range(2))
    strides, hidden = np.array([[1, 2, 3, 4], [2, 2, 5, 1]]), rng.random((BATCH, KEYS)) < 0.2
    table, kinds = rng.standard_normal((HEADS, KINDS)).astype(dtype), rng.integers(0, KINDS, KEYS)
    distance = np.arange(QUERIES)[:, None] + KEYS - QUERIES - np.arange(KEYS)
    allowed = ((distance % strides[:, :, None, None] == 0) & ~hidden[:, None, None]) | (distance == 0)
    rules = {"mask": DilatedMask(strides, hidden, also_self=True), "bias": KindBias(table, kinds)}
    return (q, k, v), rules, {"mask": allowed, "bias": table[:, kinds][:, None]}
