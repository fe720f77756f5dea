"""Random calls of attention over all its arguments, and their meaning, query by key, as plain arrays.

A case has the options as a user gives them, and the same as arrays of the shape of the scores: `attends`, which query
attends to which key, and `added`, the bias. An oracle needs only those, so it shares no code with regard.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.functional import (
    ALiBi,
    Causal,
    DenseMask,
    DistanceBias,
    KeyLengths,
    KeyRangeMask,
    PrefixLM,
    RelativePositionBias,
    SegmentMask,
    SlidingWindow,
    native,
)

# Every way in which attention can be computed here. tests/functional/native tests that the kernel is there.
PATHS = ["reference", "blockwise", *(["native"] if native.kernel() else [])]


@dataclass
class Case:
    """Arrays, the options of a call, and their meaning.

    `attends` and `added` have the shape of the scores; `parts` are differentiable inputs beside q, k, v, by name.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    options: dict[str, Any]
    attends: np.ndarray
    added: np.ndarray
    scale: float
    softcap: float | None
    sinks: np.ndarray | None

    def cast(self, dtype: Any) -> Case:
        """Return the case with q, k and v in another dtype."""
        q, k, v = (x.astype(dtype) for x in (self.q, self.k, self.v))
        return Case(q, k, v, self.options, self.attends, self.added, self.scale, self.softcap, self.sinks)


class Sizes(NamedTuple):
    """Of a call: leading axes, key/value heads, query heads for each, T, S, D and Dv."""

    lead: tuple[int, ...]
    groups: int
    repeats: int
    queries: int
    keys: int
    dim: int
    width: int


def small_sizes(rng: np.random.Generator, lengths: list[int] | None = None) -> Sizes:
    """Draw sizes of a few of everything; texts are of one of `lengths`, or short."""
    groups, repeats = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    queries, keys = (int(rng.integers(1, 10) if lengths is None else rng.choice(lengths)) for _ in range(2))
    dim, width = (int(rng.integers(1, 8)) for _ in range(2))
    lead = [(), (int(rng.integers(1, 4)),), (2, int(rng.integers(1, 3)))][int(rng.integers(0, 3))]
    return Sizes(lead, groups, repeats, queries, keys, dim, width)


def random_case(
    seed: int | np.random.Generator,
    *,
    spread: float | None = None,
    hide_some: bool = True,
    lengths: list[int] | None = None,
    sizes: Sizes | None = None,
) -> Case:
    """Draw any combination of arguments, for given sizes or small ones with texts of `lengths`."""
    rng = np.random.default_rng(seed)
    lead, groups, repeats, queries, keys, dim, width = sizes or small_sizes(rng, lengths)
    heads = groups * repeats
    spread = float(rng.choice([0.1, 1.0, 5.0])) if spread is None else spread
    shape = (*lead, heads, queries, keys)
    q = rng.standard_normal((*lead, heads, queries, dim)) * spread
    k = rng.standard_normal((*lead, groups, keys, dim))
    v = rng.standard_normal((*lead, groups, keys, width))

    options: dict[str, Any] = {}
    attends, added = np.ones(shape, bool), np.zeros(shape)
    offset: Any = keys - queries
    if chance(rng, 0.3):
        offset = int(rng.integers(-3, 6))
        options["query_offset"] = offset
        if lead and chance(rng, 0.5):
            offset = rng.integers(-3, 6, lead)
            options["query_offset"] = offset
            offset = offset[..., None, None, None]
    position, key = np.arange(queries)[:, None] + offset, np.arange(keys)
    positional = False

    if hide_some and chance(rng, 0.4):
        options["causal"], positional = True, True
        attends = attends & (key <= position)
    if hide_some and chance(rng, 0.3):
        left, right = (None if chance(rng, 0.3) else int(rng.integers(0, max(5, keys // 2))) for _ in range(2))
        options["window"], positional = (left, right), True
        if left is not None:
            attends = attends & (position - key <= left)
        if right is not None:
            attends = attends & (key - position <= right)
    if hide_some and chance(rng, 0.3):
        lengths = rng.integers(0, keys + 1, lead)
        options["key_lengths"] = lengths if lead else int(lengths)
        attends = attends & (key < np.asarray(lengths)[..., None, None, None])
    if hide_some and chance(rng, 0.5):
        rule, allowed, uses_positions = random_mask(rng, lead, heads, queries, keys, position, key)
        options["mask"], positional = rule, positional or uses_positions
        attends = attends & allowed
    if chance(rng, 0.5):
        rule, numbers, uses_positions = random_bias(rng, lead, heads, queries, keys, position, key, hide_some)
        options["bias"], positional = rule, positional or uses_positions
        added = added + numbers
    scale = 1 / np.sqrt(dim or 1)
    if chance(rng, 0.3):
        options["scale"] = scale = float(rng.uniform(0.1, 2))
    softcap = None
    if chance(rng, 0.3):
        options["softcap"] = softcap = float(rng.uniform(0.5, 10))
    sinks = None
    if chance(rng, 0.3):
        options["sinks"] = sinks = rng.standard_normal(heads) * 2
    if not positional:
        options.pop("query_offset", None)
    attends = attends & (added > -np.inf)
    if len(shape) == 3 and heads == 1 and chance(rng, 0.5):  # a plain T D is one head
        q, k, v = q[0], k[0], v[0]
        if getattr(options.get("bias"), "ndim", 0) == 3:
            options["bias"] = options["bias"][0]
        if getattr(options.get("mask"), "ndim", 0) == 3:
            options["mask"] = options["mask"][0]
        attends, added = attends[0], added[0]
    return Case(q, k, v, options, attends, added, scale, softcap, sinks)


def random_mask(rng, lead, heads, queries, keys, position, key):
    """Return a mask as an array or as rules, the pairs that it allows, and whether it depends on positions."""
    kind = int(rng.integers(0, 7))
    if kind == 0:
        array = rng.random((*lead, int(rng.choice([1, heads])), queries, keys)) < rng.choice([0.3, 0.9])
        return array, array, False
    if kind == 1:
        array = rng.random((int(rng.choice([1, queries])), keys)) < 0.6
        return DenseMask(array), array, False
    if kind == 2:
        queries_of, keys_of = np.sort(rng.integers(0, 3, queries)), np.sort(rng.integers(0, 3, (*lead, keys)), -1)
        same = queries_of[:, None] == keys_of[..., None, None, :]
        return SegmentMask(queries_of, keys_of), same, False
    if kind == 3:
        prefix = int(rng.integers(0, keys + 1))
        return Causal() | PrefixLM(prefix), (key <= position) | (key < prefix), True
    if kind == 4:
        length, own = int(rng.integers(0, keys + 1)), int(rng.integers(-2, 4))
        rule = KeyLengths(length) & (SlidingWindow(2, None, query_offset=own) | (rng.random(keys) < 0))
        return rule, (key < length) & (key >= np.arange(queries)[:, None] + own - 2), False
    if kind == 5:
        several = (*lead, int(rng.choice([1, heads]))) if lead else ()
        first, last = np.sort(rng.integers(0, keys + 1, (2, *several, queries)), axis=0)
        return KeyRangeMask(first, last), (key >= first[..., None]) & (key < last[..., None]), False
    array = rng.random(keys) < 0.5
    return array & (Causal(1) | DenseMask(~array)), array & ((key <= np.arange(queries)[:, None] + 1) | ~array), False


def random_bias(rng, lead, heads, queries, keys, position, key, hide_some):
    """Return a bias as an array or as a rule, its number for each cell, and whether it depends on positions."""
    kind = int(rng.integers(0, 4))
    if kind == 0:
        shape = (int(rng.choice([1, heads])), int(rng.choice([1, queries])), int(rng.choice([1, keys])))
        array = rng.standard_normal((*lead, *shape) if chance(rng, 0.5) else shape)
        if hide_some and chance(rng, 0.3):
            array = np.where(rng.random(array.shape) < 0.3, -np.inf, array)
        return array, array, False
    if kind == 1:
        slopes = rng.random(heads)
        return ALiBi(slopes), -slopes[:, None, None] * np.abs(key - position), True
    distance = np.broadcast_to(
        key - position, (*np.shape(position)[:-2], queries, keys)
    )  # ... 1 T S where entries differ
    if kind == 2:
        nearest, farthest = (int(distance.min()) - 1, int(distance.max()) + 1) if distance.size else (-20, 20)
        numbers = rng.standard_normal((heads, farthest - nearest + 1))
        cells = np.moveaxis(numbers[:, distance - nearest], 0, -3)
        return DistanceBias(numbers, nearest), cells[..., 0, :, :, :] if distance.ndim > 2 else cells, True
    table = rng.standard_normal((8, heads))
    both_ways = chance(rng, 0.5)
    numbers = np.empty((*np.broadcast_shapes(np.shape(position), (queries, keys)),))
    distances, where = np.unique(np.broadcast_to(key - position, numbers.shape), return_inverse=True)
    buckets = np.array([t5_bucket(int(d), both_ways, 8, 16) for d in distances], int)[where].reshape(numbers.shape)
    if buckets.ndim > 2:
        buckets = buckets[..., 0, :, :]
    numbers = np.moveaxis(table[buckets], -1, -3)
    return RelativePositionBias(table, bidirectional=both_ways, max_distance=16), numbers, True


def t5_bucket(distance: int, bidirectional: bool, buckets: int, longest: int) -> int:
    """Return the bucket of one distance, in integers: the powers are compared, no logarithm is rounded."""
    start = 0
    if bidirectional:
        buckets //= 2
        start = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return start + distance
    steps = buckets - exact
    # log(d / exact) / log(longest / exact) * steps >= n  <=>  (d / exact)^steps >= (longest / exact)^n
    n = sum(distance**steps * exact**i >= exact**steps * longest**i for i in range(1, steps + 1))
    return start + min(exact + n, buckets - 1)


def reference(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return context, weights and log-sum-exp by the textbook formula in float64, with n² arrays."""
    q, k, v = (x.astype(np.float64) for x in (case.q, case.k, case.v))
    heads = q.shape[-3] if q.ndim > 2 else 1
    if k.ndim > 2:
        k, v = (np.repeat(x, heads // x.shape[-3], -3) for x in (k, v))
    scores = np.einsum("...td,...sd->...ts", q, k) * case.scale
    if case.softcap is not None:
        scores = case.softcap * np.tanh(scores / case.softcap)
    scores = np.where(case.attends, scores + np.where(case.attends, case.added, 0), -np.inf)
    sinks = np.full((heads, 1, 1), -np.inf) if case.sinks is None else case.sinks[:, None, None]
    sinks = sinks[0] if scores.ndim == 2 else sinks
    highest = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sinks)
    highest = np.where(highest == -np.inf, 0, highest)
    exponentials = np.exp(scores - highest)
    total = exponentials.sum(-1, keepdims=True) + np.exp(sinks - highest)
    weights = exponentials / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (highest + np.log(total))[..., 0]
    return weights @ v, weights, lse


def paged(x: np.ndarray, starts: np.ndarray, page_size: int, spare: float = np.nan) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of sequences, from `starts`, in pages in a random order, beside `spare`, and the block table."""
    counts = np.diff(starts)
    per_sequence = -(-counts // page_size)
    free = iter(np.random.default_rng(1).permutation(per_sequence.sum() + 2))
    table = np.full((len(counts), per_sequence.max(initial=0) + 1), -1, np.int32)
    pages = np.full((per_sequence.sum() + 2, page_size, *x.shape[1:]), spare).astype(x.dtype)
    for n, start in enumerate(starts[:-1]):
        for i in range(per_sequence[n]):
            table[n, i] = next(free)
            rows = x[start + i * page_size : start + min((i + 1) * page_size, counts[n])]
            pages[table[n, i], : len(rows)] = rows
    return pages, table


def cut_into_blocks(monkeypatch, rows: int, cols: int) -> None:
    """Let every path that goes block by block take blocks of this size, so that small cases have many."""
    for name, module in list(sys.modules.items()):
        if name.startswith("regard.") and hasattr(module, "block_sizes"):
            monkeypatch.setattr(module, "block_sizes", lambda p: (rows, cols))


def chance(rng: np.random.Generator, share: float) -> bool:
    return bool(rng.random() < share)


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def one_head(seed: int, queries: int = 6, keys: int = 7, dim: int = 4) -> tuple[Any, ...]:
    """Return a generator, and q, k and v of one head drawn from it."""
    rng = np.random.default_rng(seed)
    return rng, *(rng.standard_normal((n, dim)) for n in (queries, keys, keys))
