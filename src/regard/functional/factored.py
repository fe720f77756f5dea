"""Products of two matrices that are never multiplied out: what is asked of them is computed from their factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import as_array

_MAX_SIZE = 1 << 28  # of a product that is multiplied out


@dataclass(frozen=True, eq=False)
class FactoredMatrix:
    """The product left · right of a tall and a wide matrix, of rank D at most.

    Eigenvalues, singular values and norms are computed from matrices of the inner size, in O((N + M) D²): what
    attention and its neighbours do to V words has V² numbers, and the rank of one head.

    Parameters
    ----------
    left : array, ``... N D``
    right : array, ``... D M``

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> product = FactoredMatrix(rng.standard_normal((1000, 2)), rng.standard_normal((2, 1000)))
    >>> product.shape, product.eigenvalues.shape
    ((1000, 1000), (2,))
    """

    left: np.ndarray
    right: np.ndarray

    __array_ufunc__ = None  # array @ product is __rmatmul__

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray) or not hasattr(value, "ndim"):
                object.__setattr__(self, name, as_array(value, name))
        if self.left.ndim < 2 or self.right.ndim < 2 or self.left.shape[-1] != self.right.shape[-2]:
            raise RegardError(f"{self.left.shape} · {self.right.shape} is not a product of matrices")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product, ``... N M``."""
        lead = np.broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2])
        return (*lead, self.left.shape[-2], self.right.shape[-1])

    @property
    def T(self) -> FactoredMatrix:
        """The transpose."""
        return FactoredMatrix(self.right.mT, self.left.mT)

    def __matmul__(self, other: FactoredMatrix | np.ndarray) -> FactoredMatrix | np.ndarray:
        """Return the product with a matrix or another product, of the smaller inner size; with a vector, a vector."""
        if not isinstance(other, FactoredMatrix):
            inner: np.ndarray = self.right @ other
            is_vector = np.ndim(other) == 1
            return (self.left @ inner[..., None])[..., 0] if is_vector else FactoredMatrix(self.left, inner)
        inner = self.right @ other.left
        if inner.shape[-2] <= inner.shape[-1]:
            return FactoredMatrix(self.left, inner @ other.right)
        return FactoredMatrix(self.left @ inner, other.right)

    def __rmatmul__(self, other: np.ndarray) -> FactoredMatrix | np.ndarray:
        inner: np.ndarray = other @ self.left
        is_vector = np.ndim(other) == 1
        return (inner[..., None, :] @ self.right)[..., 0, :] if is_vector else FactoredMatrix(inner, self.right)

    def __getitem__(self, index: Any) -> FactoredMatrix | np.ndarray:
        """Return products at an index of the leading axes, and of these some rows and columns.

        One row or column, or one number, is an array: ``ov[token]`` is what a token does to all logits.
        """
        index, lead = index if isinstance(index, tuple) else (index,), self.shape[:-2]
        if len(index) > len(self.shape) or any(at is Ellipsis or at is None for at in index):
            raise IndexError(f"a FactoredMatrix of {len(self.shape)} axes has no index {index!r}")
        rows, columns = (*index[len(lead) :], slice(None), slice(None))[:2]
        one_row, one_column = (isinstance(at, int | np.integer) for at in (rows, columns))
        left = np.broadcast_to(self.left, lead + self.left.shape[-2:])[index[: len(lead)]]
        right = np.broadcast_to(self.right, lead + self.right.shape[-2:])[index[: len(lead)]]
        left, right = left[..., [rows] if one_row else rows, :], right[..., [columns] if one_column else columns]
        if not one_row and not one_column:
            return FactoredMatrix(left, right)
        product: np.ndarray = left @ right
        product = product[..., 0, :] if one_row else product
        return product[..., 0] if one_column else product

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the product, multiplied out."""
        if copy is False:
            raise ValueError("the product is computed: it cannot be had without a copy")
        if math.prod(self.shape) > _MAX_SIZE:
            raise RegardError(f"{self!r} has {math.prod(self.shape):,} numbers: take rows of it, x[row]")
        return np.asarray(self.left @ self.right, dtype)

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """The D eigenvalues that may differ from 0 of square products, complex ``... D``, from that of largest size."""
        if self.shape[-2] != self.shape[-1]:
            raise RegardError(f"a matrix of shape {self.shape[-2:]} has no eigenvalues: it is not square")
        eigenvalues = np.linalg.eigvals(_wide(self.right) @ _wide(self.left))  # those of right · left
        eigenvalues = np.take_along_axis(eigenvalues, np.argsort(-np.abs(eigenvalues), axis=-1, kind="stable"), axis=-1)
        return np.asarray(eigenvalues, np.result_type(eigenvalues, np.complex64))

    @cached_property
    def svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Left singular vectors ``... N R``, singular values ``... R`` from the largest, right ones ``... R M``.

        R is the least of N, D and M.
        """
        left_basis, left = np.linalg.qr(_wide(self.left))
        right_basis, right = np.linalg.qr(_wide(self.right).mT)
        u, values, vt = np.linalg.svd(left @ right.mT, full_matrices=False)
        return left_basis @ u, values, vt @ right_basis.mT

    @property
    def singular_values(self) -> np.ndarray:
        """From the largest, ``... R``."""
        return self.svd[1]

    @cached_property
    def norm(self) -> np.ndarray:
        """The Frobenius norm, ``...``."""
        left, right = _wide(self.left), _wide(self.right)
        squared = ((left.mT @ left) * (right @ right.mT)).sum((-1, -2))  # tr (L R Rᵀ Lᵀ)
        norm: np.ndarray = np.sqrt(np.maximum(squared, 0))
        return norm

    def __repr__(self) -> str:
        return f"FactoredMatrix({' '.join(map(str, self.shape))}, inner {self.left.shape[-1]})"


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64, copy=False)
