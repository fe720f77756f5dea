"""Shape of the scores, positions of queries and keys, and indexing along both."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, device, integers, namespace, to_device

Index: TypeAlias = slice | Array
"""Rows or columns: a slice ``start:stop``, or an integer array."""

ALL = slice(None)
MAX_POSITION = 2**29  # so that sums of positions fit into 32 bits


@dataclass(frozen=True, eq=False)
class ScoreLayout:
    """Shape, library and positions of the scores ``... H T S``."""

    xp: Any  # array API namespace
    device: Any  # of the arrays
    shape: tuple[int, ...]  # ... H T S, or T S for a single head
    query_offset: int | Array | None = None  # ... ; query i is at position i + query_offset of the keys; None: S − T
    offsets: Array | None = None  # the same for a slice of another layout, broadcasting to ... H T S; takes precedence

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle library and device, of which neither can be, as an empty array."""
        return _restored, (self.xp.empty(0, device=self.device), self.shape, self.query_offset, self.offsets)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes before the heads."""
        return self.shape[:-3]

    @property
    def heads(self) -> int:
        """``H``."""
        return self.shape[-3] if len(self.shape) > 2 else 1

    @property
    def queries(self) -> int:
        """``T``."""
        return self.shape[-2]

    @property
    def keys(self) -> int:
        """``S``."""
        return self.shape[-1]

    @property
    def size(self) -> int:
        """The number of scores."""
        return math.prod(self.shape)

    def resolve_offset(self, query_offset: int | Array | None = None) -> int | Array:
        """Return what to add to a query index to get its position: an integer, or an array ``... 1 1 1``.

        `query_offset` takes precedence over the layout's own offset.
        """
        if query_offset is None and self.offsets is not None:
            return self.offsets
        offset = self.query_offset if query_offset is None else query_offset
        return self.keys - self.queries if offset is None else self.per_sequence(offset, "query_offset")

    def check_per_sequence(self, value: int | Array | None, name: str) -> None:
        """Validate a per-sequence offset; None is allowed."""
        if value is None:
            return
        self.per_sequence(value, name)
        bounds = bounds_of(as_array(value, name))  # before conversion: a narrower integer type would wrap
        if bounds is not None and max(-bounds[0], bounds[1]) > MAX_POSITION:
            raise RegardError(f"{name} {bounds} is out of range: positions are at most {MAX_POSITION}")

    def per_sequence(self, value: int | Array, name: str) -> int | Array:
        """Return `value` as an integer, or as an array ``... 1 1 1`` with one for each batch entry."""
        if not isinstance(value, bool | np.bool_):
            try:
                number = operator.index(value)
            except TypeError:
                pass
            else:
                if abs(number) > MAX_POSITION:
                    raise RegardError(f"{name} {number} is out of range: positions are at most {MAX_POSITION}")
                return number
        array = as_array(value, name)
        if not namespace(array).isdtype(array.dtype, "integral"):
            raise RegardError(f"{name} must be an integer or an array of integers, got {_kind(value)}")
        if not broadcasts(array.shape, self.batch_shape):
            raise RegardError(
                f"{name} {tuple(array.shape)} must have one entry for each of the leading axes {self.batch_shape}"
            )
        array = integers(to_device(self.xp, array, self.device))
        return self.xp.reshape(array, (*array.shape, 1, 1, 1) if len(self.shape) > 2 else (1, 1))

    def to_namespace(self, array: Array) -> Array:
        """Return a NumPy array in the library and on the device of the call, an array of that library unchanged."""
        if isinstance(array, np.ndarray):
            return self.xp.asarray(array, device=self.device)
        namespace(self.xp.empty(0, device=self.device), array)
        return array

    def query_indices(self, index: Index) -> Array:
        """Return the indices of `index` among the queries, ``R 1``."""
        return self._indices(index, self.queries)[:, None]

    def key_indices(self, index: Index) -> Array:
        """Return the indices of `index` among the keys, ``1 C``."""
        return self._indices(index, self.keys)[None, :]

    def _indices(self, index: Index, length: int) -> Array:
        if isinstance(index, slice):
            return self.xp.arange(*index.indices(length), device=self.device)
        return index


def _restored(array: Array, *fields: Any) -> ScoreLayout:
    return ScoreLayout(namespace(array), device(array), *fields)


def take(x: Array, index: Index, axis: int) -> Array:
    """Return `x` at `index` along `axis`, -2 or -1."""
    if isinstance(index, slice):
        return x[..., index, :] if axis == -2 else x[..., index]
    return namespace(x).take(x, index, axis=axis)


def take_broadcast(x: Array, rows: Index, cols: Index) -> Array:
    """Return `x`, which broadcasts to ``... T S``, at `rows` and `cols`, with at least two axes."""
    x = namespace(x).reshape(x, (1,) * (2 - x.ndim) + tuple(x.shape))
    x = take(x, rows, -2) if x.shape[-2] != 1 else x
    return take(x, cols, -1) if x.shape[-1] != 1 else x


def bounds_of(values: int | Array) -> tuple[int, int] | None:
    """Return the smallest and the largest of integers; None while a compiler traces, without values."""
    if isinstance(values, int):
        return values, values
    if type(values).__name__ == "FakeTensor":  # of a compiler of PyTorch, which would leave a number open
        return None
    xp = namespace(values)
    if 0 in values.shape:
        return 0, 0
    try:
        return int(xp.min(values)), int(xp.max(values))
    except (TypeError, RuntimeError):
        return None


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to exactly `target`."""
    pairs = zip(reversed(tuple(shape)), reversed(target), strict=False)
    return len(shape) <= len(target) and all(have in (1, want) for have, want in pairs)


def _kind(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if hasattr(value, "dtype") else repr(value)
