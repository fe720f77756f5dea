"""Weights that stay in the blocks in which a file stores them."""

from __future__ import annotations

import functools
import mmap
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from regard import functional as F
from regard._utils.errors import RegardError
from regard.formats.quantized import BLOCKS, dequantize
from regard.functional.variable import Pullback, is_recorded, record_vjp

_CHUNK = 1 << 21  # weights dequantized at a time


class QuantizedWeight(NDArrayOperatorsMixin):
    """A matrix in the quantized blocks of a file: a read-only array of float32 that is computed when it is read.

    `Linear` multiplies by it without dequantizing the whole. Indexing, ``np.asarray`` and arithmetic give ordinary
    arrays.

    Parameters
    ----------
    blocks : uint8 array, ``rows bytes``
        The blocks of each row. Nothing may change them afterwards.
    kind : str
        Their type, as ggml calls it: ``"Q4_1"``, ``"BF16"``.
    transposed : bool
        Whether the rows of the matrix are the columns of the blocks.
    """

    ndim = 2
    dtype = np.dtype(np.float32)
    __hash__ = None  # type: ignore[assignment]  # as arrays

    def __init__(self, blocks: np.ndarray, kind: str, *, transposed: bool = False) -> None:
        numbers, size = BLOCKS.get(kind, (0, 0))
        if not size or blocks.ndim != 2 or blocks.dtype != np.uint8 or blocks.shape[1] % size:
            raise RegardError(
                f"a QuantizedWeight is made from rows of whole blocks, uint8, and their kind ({', '.join(BLOCKS)}), "
                f"got {blocks.dtype} {blocks.shape} and {kind!r}"
            )
        self.blocks, self.kind, self.transposed = (
            blocks if blocks.strides[1] == 1 else np.ascontiguousarray(blocks),
            kind,
            transposed,
        )
        shape = len(blocks), blocks.shape[1] // size * numbers
        self.shape: tuple[int, int] = shape[::-1] if transposed else shape

    @property
    def T(self) -> QuantizedWeight:
        """The transpose, with the same blocks."""
        return QuantizedWeight(self.blocks, self.kind, transposed=not self.transposed)

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """The bytes of the blocks."""
        return int(self.blocks.nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{self.kind}[{self.shape[0]} {self.shape[1]}]"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"reading {self!r} dequantizes it, which makes a copy")
        dense = dequantize(self.blocks, self.kind)
        return np.asarray(dense.T if self.transposed else dense, dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return what the same index of an array gives; of rows of the blocks, these alone are dequantized."""
        if self.transposed or not isinstance(index, int | np.integer | slice | np.ndarray):
            entries: np.ndarray = np.asarray(self)[index]
            return entries
        blocks = self.blocks[index]
        return dequantize(blocks.reshape(-1, self.blocks.shape[1]), self.kind).reshape(
            *blocks.shape[:-1], self.shape[1]
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        written = (*options.get("out", ()), *(inputs[:1] if method == "at" else ()))
        if any(isinstance(x, QuantizedWeight) for x in written):
            raise ValueError(f"{self!r} is read-only; np.asarray gives an ordinary array")
        dense = [np.asarray(x) if isinstance(x, QuantizedWeight) else x for x in inputs]
        if isinstance(options.get("where"), QuantizedWeight):
            options["where"] = np.asarray(options["where"])
        return getattr(ufunc, method)(*dense, **options)

    def linear(self, x: np.ndarray, bias: np.ndarray | None, activation: str | None) -> np.ndarray:
        """Return `regard.functional.linear` with this weight, ``E F``, of which a part is dequantized at a time."""
        if is_recorded(x, bias):
            product: np.ndarray = record_vjp(self._linear_vjp, x, bias)
            if activation is not None:
                product = F.activation(activation)(product)
            return product
        step = max(1, _CHUNK // max(1, self.shape[0 if self.transposed else 1]))
        starts = range(0, max(1, len(self.blocks)), step)
        rows = (dequantize(self.blocks[start : start + step], self.kind) for start in starts)
        if self.transposed:  # they are outputs
            biases = [None] * len(starts) if bias is None else np.split(bias, starts[1:])
            parts = [F.linear(x, part.T, some, activation=activation) for part, some in zip(rows, biases, strict=True)]
            return np.concatenate(parts, axis=-1)
        parts = [F.linear(some, part) for some, part in zip(np.split(x, starts[1:], axis=-1), rows, strict=True)]
        total: np.ndarray = functools.reduce(np.add, parts)
        total = total if bias is None else total + bias
        return total if activation is None else F.activation(activation)(total)

    def _linear_vjp(self, x: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, Pullback]:
        """Return `linear` and its vector-Jacobian product; the weight, which is read-only, has no gradient."""

        def pullback(d: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
            return self.T.linear(d, None, None), None if bias is None else d.reshape(-1, self.shape[1]).sum(0)

        return self.linear(x, bias, None), pullback

    def release_pages(self) -> None:
        """Let the system drop what it read of the file; it reads it again where it is needed."""
        base: Any = self.blocks
        while isinstance(base, np.ndarray | memoryview):
            base = base.base if isinstance(base, np.ndarray) else base.obj
        if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = self.blocks.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
        first, stop = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + self.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < stop:
            base.madvise(mmap.MADV_DONTNEED, first, stop - first)
