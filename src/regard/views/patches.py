"""What one token attends to, over the patches of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.views.axis import rows_of_word
from regard.views.selection import AttentionView, select
from regard.views.trace_access import resolve_index


@dataclass(frozen=True, eq=False)
class PatchView:
    """One number for each patch of a picture.

    Parameters
    ----------
    values : array of float64, rows × columns
        The weights of one query on the patches; or any numbers of at least 0.
    query : str or None
        The token that attends; None for other numbers.
    place : (int, int) or None
        The row and column of the query, if it is a patch.
    rest : float
        The weight of the query on tokens that are not patches.
    others : tuple of str
        Those tokens.
    describe : str
        The layer and head in words; "" for other numbers.
    model : str
    picture : array of uint8, ``Y X 3``, or None
        What the model saw, if the trace has it.
    """

    values: np.ndarray
    query: str | None
    place: tuple[int, int] | None
    rest: float
    others: tuple[str, ...]
    describe: str
    model: str
    picture: np.ndarray | None

    __repr__ = fields_repr

    def as_map(self) -> AttentionView:
        """Return the numbers as a map with a row for each row of patches."""
        rows, columns = self.values.shape
        labels = tuple(f"r{i}" for i in range(rows))
        return AttentionView(
            weights=self.values,
            queries=labels,
            keys=tuple(f"c{i}" for i in range(columns)),
            words=labels,
            masked=np.zeros(self.values.shape, bool),
            is_causal=False,
            positions=tuple(range(rows)),
            special_mass=np.zeros(rows),
            special_tokens=(),
            layer=None,
            layers=(),
            head=None,
            heads=0,
            model=self.model,
        )


def select_patches(
    trace: Trace,
    values: Any = None,
    *,
    query: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    batch: int = 0,
) -> PatchView:
    """Select what one token of a picture attends to.

    Parameters
    ----------
    trace : Trace
        For a run on a picture.
    values : array, ``T``, or rows × columns, optional
        Other numbers of its tokens or patches, of at least 0, such as a row of `regard.metrics.rollout`.
    query : str, optional
        The token that attends: the token of the whole picture, ``[CLS]``, by default, or a patch, ``r2c5``.
    layer, head, batch
        As in `select`: by default the last layer and the mean over heads.

    Raises
    ------
    RegardError
        The trace is not of a picture or has no such weights, token, layer or head; or `values` do not fit.
    """
    encoding, grid = _of_picture(trace, batch)
    first = len(encoding) - grid[0] * grid[1]
    seen = trace["picture"][batch] if "picture" in trace else None
    if values is not None:
        if (query, layer, head) != (None, None, None):
            raise RegardError("values are of no layer, head or query: leave those out")
        return PatchView(_fitted(values, len(encoding), grid), None, None, 0.0, (), "", trace.model, seen)
    view = select(trace, layer=layer, head=head, batch=batch, show_special_tokens=True)
    row = 0 if query is None else _row_of(query, encoding)
    place = (row - first) // grid[1], (row - first) % grid[1]
    return PatchView(
        values=view.weights[row, first:].reshape(grid),
        query=encoding.tokens[row],
        place=place if row >= first else None,
        rest=float(view.weights[row, :first].sum()),
        others=encoding.tokens[:first],
        describe=view.describe,
        model=trace.model,
        picture=seen,
    )


def _of_picture(trace: Trace, batch: int) -> tuple[Encoding, tuple[int, int]]:
    """Return one picture of a trace as tokens, with its rows and columns."""
    if not isinstance(trace, Trace):
        raise RegardError(f"patches are those of a trace of a picture, got {type(trace).__name__}")
    encodings = trace.encodings
    encoding = encodings[resolve_index("batch entry", batch, range(len(encodings)))] if encodings else None
    if encoding is None or encoding.grid is None:
        raise RegardError("the trace is not of a picture: run a model of pictures, such as a ViT")
    return encoding, encoding.grid


def _row_of(query: str, encoding: Encoding) -> int:
    try:
        return rows_of_word(encoding.tokens, encoding.tokens, query)[0]
    except RegardError:
        grid = encoding.grid or (1, 1)
        raise RegardError(
            f"the picture has no patch {query!r}: give {encoding.tokens[0]}, or a row and a column from r0c0 to "
            f"{encoding.tokens[-1]} ({grid[0]} × {grid[1]} patches)"
        ) from None


def _fitted(values: Any, length: int, grid: tuple[int, int]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    count = grid[0] * grid[1]
    if array.shape == (length,):
        array = array[length - count :]
    if array.shape not in ((count,), grid) or not np.isfinite(array).all() or (array < 0).any():
        raise RegardError(
            f"values must be numbers of at least 0, one for each of {length} tokens or {grid[0]} × {grid[1]} patches, "
            f"got shape {array.shape}"
        )
    return array.reshape(grid)
