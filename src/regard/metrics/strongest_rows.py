"""In which texts of many a head attends most strongly: the largest weight of each row, ranked over all of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular
from regard._utils.validation import one_of, whole_number
from regard.metrics.layer_maps import WEIGHTS_PER_BLOCK, LayerMap, layers_of
from regard.models.base import TextModel
from regard.models.corpus import Progress
from regard.models.encoder_decoder import EncoderDecoder
from regard.text.encoding import Encoding
from regard.trace.notebook_html import page, table


@dataclass(frozen=True)
class StrongRow:
    """The largest weight of one row.

    Parameters
    ----------
    weight : float
    index : int
        The number of the text, from 0.
    row, col : int
        The positions of the query and the key.
    query, key : str
        What they are of the text.
    query_span, key_span : (int, int)
        Where: start and end in characters.
    text : str
        As far as it was read: with `truncate` without what was cut.
    """

    weight: float
    index: int
    row: int
    col: int
    query: str
    key: str
    query_span: tuple[int, int]
    key_span: tuple[int, int]
    text: str


@dataclass(frozen=True, repr=False)
class StrongRows(Tabular):
    """The strongest rows of a head over many texts, the strongest first: a sequence of `StrongRow`.

    Parameters
    ----------
    head : str
        ``"L3H1"``.
    pair : str
        The kind of pairs that counted.
    rows : tuple of StrongRow
    """

    head: str
    pair: str
    rows: tuple[StrongRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[StrongRow]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> StrongRow:
        return self.rows[number]

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each, of the fields of `StrongRow` but its spans."""
        names = (field.name for field in fields(StrongRow) if not field.name.endswith("_span"))
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in names}

    def __repr__(self) -> str:
        strongest = f", the strongest {self.rows[0].query!r} → {self.rows[0].key!r}" if self.rows else ""
        return f"<StrongRows of {self.head}, {self.pair}: {len(self)}{strongest}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the first rows."""
        cells = [(f"{row.weight:.3g}", row.query, row.key, row.text[:80]) for row in self.rows[:10]]
        return page(
            repr(self)[1:-1],
            table(("weight", "query", "key", "text"), cells),
            try_next=("rows[0].text", "rows.to_frame()"),
        )


@dataclass(frozen=True)
class PairKind:
    """A kind of pairs of a query and a key."""

    title: str
    pairs: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """From the ids of the tokens, ``S``, and positions of queries, ``R``, to which keys make such pairs, ``R S``."""


def _distance_before(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return how far each key is before its query, ``R S``."""
    return np.asarray(rows[:, None] - np.arange(len(ids)))


def _is_same(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(ids[rows, None] == ids)


def _follows_repeat(ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which keys follow an earlier occurrence of the query, ``R S``."""
    shifted = np.concatenate([[-1], ids[:-1]])  # the id before each key
    return np.asarray((ids[rows, None] == shifted) & (_distance_before(ids, rows) >= 0))


def _at_least(distance: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return what finds keys at a distance or farther, but for the first token, on which heads rest."""
    return lambda ids, rows: (abs(_distance_before(ids, rows)) >= distance) & (np.arange(len(ids)) > 0)


PAIR_KINDS: dict[str, PairKind] = {
    "any": PairKind("any two words", lambda ids, rows: np.ones((len(rows), len(ids)), bool)),
    "other": PairKind("a word and another, not the first", _at_least(1)),
    "far": PairKind("words 5 or more apart", _at_least(5)),
    "previous_token": PairKind("a word and the one before it", lambda ids, rows: _distance_before(ids, rows) == 1),
    "next_token": PairKind("a word and the one after it", lambda ids, rows: _distance_before(ids, rows) == -1),
    "repeated": PairKind(
        "a word and itself elsewhere", lambda ids, rows: _is_same(ids, rows) & (_distance_before(ids, rows) != 0)
    ),
    "induction": PairKind("a word and what followed it before", _follows_repeat),
}
"""The kinds of pairs that `strongest_rows` takes, by name. Pairs with special tokens are of none."""


def strongest_rows(
    model: Any,
    texts: Iterable[str | Encoding],
    layer: int,
    head: int,
    k: int = 20,
    *,
    pair: str = "any",
    batch_size: int = 32,
    truncate: bool = False,
    progress: Progress | None = None,
) -> StrongRows:
    """Return the rows of many texts in which a head attends most strongly, the strongest first.

    Each query of each text counts once, with the key of the largest weight among the pairs of the kind. Special tokens
    are neither: a head that rests on them would have no other rows. Memory does not grow with the number of texts.

    Parameters
    ----------
    model : Model
        An encoder or a decoder of texts.
    texts, batch_size, truncate, progress
        As `TextModel.iter_traces` takes them.
    layer, head : int
    k : int
        How many, at most.
    pair : str
        Which pairs count, a key of `PAIR_KINDS`.

    Raises
    ------
    RegardError
        There is no text, or one cannot be run; or no such layer, head or kind of pairs.

    Examples
    --------
    >>> import regard
    >>> model = regard.load("induction")
    >>> for found in strongest_rows(model, ["kzvb", "qzkfq"], 1, 0, pair="induction"):
    ...     print(found.text, found.query, found.key, round(found.weight, 2))
    qzkfq q z 1.0
    """
    if not isinstance(model, TextModel) or isinstance(model, EncoderDecoder):
        raise RegardError("rows are sought in texts: give an encoder or a decoder of texts")
    number_of_layers, heads = model.config.num_layers, model.config.num_heads
    layer, head = whole_number("layer", layer, 0), whole_number("head", head, 0)
    if layer >= number_of_layers or head >= heads:
        raise RegardError(f"{model.name} has {number_of_layers} layers of {heads} heads: no layer {layer} head {head}")
    one_of("pair", pair, PAIR_KINDS)
    k = whole_number("k", k, 1)
    only = f"*blocks.{layer}.attn.weights"
    strongest: list[StrongRow] = []
    has_text = False
    for index, trace in model.iter_traces(
        texts, batch_size=batch_size, only=only, truncate=truncate, progress=progress
    ):
        has_text = True
        (encoding,), (layer_map,) = trace.encodings, layers_of(trace, 0)
        rows = _largest_of_rows(layer_map, head, encoding, PAIR_KINDS[pair].pairs)
        strongest = heapq.nsmallest(k, [*strongest, *(_described(encoding, index, *row) for row in rows)], key=_rank)
    if not has_text:
        raise RegardError("there is no text; give at least one")
    return StrongRows(f"L{layer}H{head}", pair, tuple(strongest))


def _rank(row: StrongRow) -> tuple[float, int, int]:
    """Return what rows are sorted by: the largest weight first, then in the order of the texts."""
    return -row.weight, row.index, row.row


def _largest_of_rows(
    layer: LayerMap, head: int, encoding: Encoding, pairs: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Iterator[tuple[float, int, int]]:
    """Yield the largest weight of each row that has a pair of the kind, with the row and its column."""
    ids = np.array(encoding.ids)
    is_word = ~np.array(encoding.special_tokens_mask, bool)
    words = np.flatnonzero(is_word)
    height = max(1, WEIGHTS_PER_BLOCK // len(ids))
    for start in range(0, len(words), height):
        rows = words[start : start + height]
        weights = np.where(pairs(ids, rows) & is_word, layer.tile(head, rows, None), -1.0)  # R S
        cols = weights.argmax(axis=-1)
        for row, col, weight in zip(rows, cols, weights[np.arange(len(rows)), cols], strict=True):
            if weight > 0:  # not NaN
                yield float(weight), int(row), int(col)


def _described(encoding: Encoding, index: int, weight: float, row: int, col: int) -> StrongRow:
    spans = encoding.offsets[row], encoding.offsets[col]
    query, key = (encoding.text[slice(*span)] for span in spans)
    text = encoding.text[: max(end for _, end in encoding.offsets)]
    return StrongRow(weight, index, row, col, query, key, *spans, text)
