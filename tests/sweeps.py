"""Which cases of a long product run: a few always, of the others a share (`--sweep`), chosen by a seed (`--seed`)."""

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest


def pairwise_cover(cases: Sequence[Mapping[str, object]]) -> set[int]:
    """Return the numbers of a few cases in which every pair of values of two parameters occurs.

    A case maps the name of each parameter to its value; values are told apart by identity. Greedy: the next case is
    the one with the most new pairs.
    """
    values = [sorted((name, id(value)) for name, value in case.items()) for case in cases]
    pairs = [set(itertools.combinations(case, 2)) for case in values]
    missing, cover = set().union(*pairs), set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(pairs[number] & missing))
        cover.add(best)
        missing -= pairs[best]
    return cover


def sweep_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Return parameters of which all after the first `count` are marked `sweep`."""
    return [pytest.param(x, marks=pytest.mark.sweep) if i >= count else x for i, x in enumerate(values)]


def sweep_except(kept: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters of which all but those `kept` are marked `sweep`."""
    kept = list(kept)
    return [x if x in kept else pytest.param(x, marks=pytest.mark.sweep) for x in values]


def mark_pairwise(items: Sequence[pytest.Item]) -> None:
    """Of a product of parameters marked `pairwise`, mark as `sweep` the cases that add no pair of values."""
    products = defaultdict(list)
    for item in items:
        if item.get_closest_marker("pairwise") and not item.get_closest_marker("sweep"):
            products[item.nodeid.partition("[")[0]].append(item)
    for cases in products.values():
        cover = pairwise_cover([case.callspec.params for case in cases])
        for number, case in enumerate(cases):
            if number not in cover:
                case.add_marker("sweep")


def is_drawn(nodeid: str, share: float, seed: int) -> bool:
    """Return whether a case of the sweep is in the sample: each with the probability `share`, the same everywhere."""
    return zlib.crc32(f"{seed} {nodeid}".encode()) < share * 2**32
