"""The choice of edges of a graph: whole paths from the tokens to the logits, the strongest first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

_FIRST, _FACTOR = 8, 1.25  # edges before the first measurement, and how many times as many before each later one
_LOGITS = -1

Edges = set[tuple[int, int]]
"""Each as the indices of its reader and its writer."""


class PathSearch:
    """A graph that grows by paths.

    A path is as strong as its weakest edge. All edges of a path raise the number, or all lower it.

    Parameters
    ----------
    scores : array, ``R N``
        How much each edge, from a writer to a reader, changes the number; 0 where there is none.
    nodes : integer array, ``R``
        The writer of which each reader is an input; −1 for the logits.
    sources : set of int
        The writers at which paths begin: the token embeddings.
    """

    def __init__(self, scores: np.ndarray, nodes: np.ndarray, sources: set[int]) -> None:
        self.edges: Edges = set()
        self._measured = 0.0
        self._inputs = {int(node): np.flatnonzero(nodes == node).tolist() for node in np.unique(nodes)}
        self._sources, self._reached = sources, {_LOGITS}
        self._sides = {sign: _Side(np.maximum(sign * scores, 0), self._inputs, sources) for sign in (1, -1)}
        self._offer(_LOGITS)

    def grow(self, count: int, share: Callable[[Edges], float]) -> float:
        """Add edges until there are `count`; return what `share` measures with them.

        Parameters
        ----------
        count : int
        share : function
            From edges to the share of the number that remains if all others are cut. Below 1 paths are added that raise
            it, above 1 those that lower it.
        """
        while len(self.edges) < count:
            before = len(self.edges)
            size = min(count, max(_FIRST, math.ceil(before * _FACTOR)))
            sign = 1 if self._measured < 1 else -1
            if not self._add(sign, size, count) and not self._add(-sign, size, count):
                break
            self._measured = share(self.edges)
        return self._measured

    def _add(self, sign: int, size: int, most: int) -> bool:
        """Add the strongest paths of a sign until there are `size` edges, at most `most`; tell if there was one."""
        side, before = self._sides[sign], len(self.edges)
        while side.heap and len(self.edges) < size:
            _, reader, writer = heapq.heappop(side.heap)
            path, passed = [(reader, writer)], []
            while writer not in self._sources and writer not in self._reached:
                passed.append(writer)
                path.append(side.best[writer])
                writer = path[-1][1]
            new = set(path) - self.edges
            if len(self.edges) + len(new) <= most:  # else a shorter one may fit
                self.edges |= new
                for node in passed:
                    self._reached.add(node)
                    self._offer(node)
        return len(self.edges) > before

    def _offer(self, node: int) -> None:
        """Take the edges into a node of the graph among those that may be added."""
        for side in self._sides.values():
            side.offer(self._inputs.get(node, []))


class _Side:
    """The paths of edges that all raise the number, or all lower it.

    Parameters
    ----------
    strengths : array, ``R N``
        0 for edges that do not.
    inputs : dict of int to list of int
        The readers of each writer.
    sources : set of int
    """

    def __init__(self, strengths: np.ndarray, inputs: dict[int, list[int]], sources: set[int]) -> None:
        self.heap: list[tuple[float, int, int]] = []
        self.best: dict[int, tuple[int, int]] = {}  # the first edge of the strongest path to each writer, backwards
        self._strengths = strengths
        self._reach = np.zeros(strengths.shape[1])  # the strength of that path
        for writer in range(strengths.shape[1]):
            if writer in sources:
                self._reach[writer] = np.inf
            for reader in inputs.get(writer, []):
                each = np.minimum(strengths[reader], self._reach)
                strongest = int(each.argmax())
                if each[strongest] > self._reach[writer]:
                    self._reach[writer] = each[strongest]
                    self.best[writer] = reader, strongest

    def offer(self, readers: list[int]) -> None:
        """Put the edges into some readers on the heap."""
        for reader in readers:
            each = np.minimum(self._strengths[reader], self._reach)
            for writer in np.flatnonzero(each).tolist():
                heapq.heappush(self.heap, (-float(each[writer]), reader, writer))
