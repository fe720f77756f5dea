"""Writers of a residual stream, and a value as the sum of what each of them contributed to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

_NAMES = {
    "token_embeddings": "token embedding",
    "position_embeddings": "position embedding",
    "type_embeddings": "segment embedding",
    "class_embedding": "class embedding",
    "patch_embeddings": "patch embedding",
    "mlp": "MLP",
    "linear_attn": "linear attention",
    "layer_input": "input of the layer",
    "shared_expert": "shared expert",
}


@dataclass(frozen=True)
class Writer:
    """A part of a model that writes into its residual stream.

    Parameters
    ----------
    kind : str
        ``"token_embeddings"``, ``"position_embeddings"``, ``"type_embeddings"``, of a picture ``"class_embedding"`` and
        ``"patch_embeddings"``; ``"head"``; ``"mlp"`` or the name of another sublayer, a closed box; ``"expert"`` of a
        mixture, and ``"shared_expert"``; ``"bias"``, of a linear map or a norm; ``"edit"`` of the run.
    layer, index : int
        The layer; the head or the expert; −1 where it has none.
    token : int
        The position of the token that a head reads, where its output is split by source token; −1 otherwise.
    detail : str
        Of a bias and an edit the name of the step; of a head of cross-attention, and in an encoder–decoder, where it
        is.
    read : str
        The token at `token`, as text.
    """

    kind: str
    layer: int = -1
    index: int = -1
    token: int = -1
    detail: str = ""
    read: str = ""

    @property
    def is_node(self) -> bool:
        """Whether what it writes depends on the text: it is not a bias, a position or an edit."""
        return self.kind not in ("bias", "edit", "position_embeddings", "type_embeddings")

    @property
    def label(self) -> str:
        """Its name in tables: ``L3H2``, ``L3 MLP``, ``token embedding``, ``L3H2 reading 'Mary'``."""
        layer = f"L{self.layer} " if self.layer >= 0 else ""
        if self.kind == "head":
            return f"{layer[:-1]}H{self.index}{self.detail}" + (f" reading {self.read!r}" if self.token >= 0 else "")
        if self.kind == "expert":
            return f"{layer}expert {self.index}"
        if self.kind == "bias":
            return f"{layer}{self.detail} bias"
        if self.kind == "edit":
            return f"edit of {self.detail}"
        return f"{layer}{_NAMES.get(self.kind, self.kind)}{self.detail}"


Values = tuple[tuple[Writer, ...], np.ndarray]
"""Writers, and what each contributes at some positions, float64 ``N P E``."""


class Parts:
    """A value at some positions, ``P E``, as the sum of what each writer contributed to it.

    It goes through the code of a block in place of an array: it is added, and multiplied by constants. Nothing is
    computed before it is read.

    Parameters
    ----------
    read : function
        Returns the `Values`.
    dtype : dtype
        That of the run.

    Attributes
    ----------
    before_norm : (Parts, norm) or None
        Where it is what a norm makes of other parts: these, and the norm, whose scale is held only here.
    is_changed : bool
        False if it is known to be that of another run.
    """

    __array_ufunc__ = None  # array + parts is __radd__
    ndim = 3

    def __init__(self, read: Callable[[], Values], dtype: Any) -> None:
        self._read, self.dtype = read, np.dtype(dtype)
        self._terms: tuple[Parts, ...] = ()
        self.before_norm: tuple[Parts, Any] | None = None
        self.is_changed = True

    @classmethod
    def sum_of(cls, terms: Sequence[Parts]) -> Parts:
        """Return the sum of some values."""
        flat = [leaf for term in terms for leaf in term.leaves]

        def read() -> Values:
            each = [leaf._values for leaf in flat]
            return tuple(writer for writers, _ in each for writer in writers), np.concatenate([x for _, x in each])

        parts = cls(read, terms[0].dtype)
        parts._terms = tuple(flat)
        return parts

    @property
    def leaves(self) -> tuple[Parts, ...]:
        """The values of which it is the sum: itself, if it is no sum."""
        return self._terms or (self,)

    @cached_property
    def _values(self) -> Values:
        return self._read()

    @property
    def writers(self) -> tuple[Writer, ...]:
        """The writers, in the order in which they wrote."""
        return self._values[0]

    @property
    def values(self) -> np.ndarray:
        """What each contributed, float64 ``N P E``."""
        return self._values[1]

    @cached_property
    def total(self) -> np.ndarray:
        """Their sum, ``P E``: the value itself."""
        if not self._terms:
            return np.asarray(self.values.sum(0))
        total = self._terms[0].total
        for term in self._terms[1:]:
            total = total + term.total
        return total

    @property
    def shape(self) -> tuple[int, ...]:
        """``1 P E``, as of a batch of one."""
        return (1, *self.total.shape)

    def map(self, function: Callable[[np.ndarray, np.ndarray], np.ndarray], bias: tuple[Writer, Any] | None) -> Parts:
        """Return a linear function of `values` and `total`, applied to each part, and a bias with its writer."""

        def read() -> Values:
            mapped = function(self.values, self.total)
            if bias is None:
                return self.writers, mapped
            row = np.broadcast_to(np.asarray(bias[1], np.float64), mapped.shape[1:])
            return (*self.writers, bias[0]), np.concatenate([mapped, row[None]])

        parts = Parts(read, self.dtype)
        parts.is_changed = any(leaf.is_changed for leaf in self.leaves)
        return parts

    def __add__(self, other: Parts) -> Parts:
        return Parts.sum_of((self, other)) if isinstance(other, Parts) else NotImplemented

    def __mul__(self, factor: Any) -> Parts:
        return self.map(lambda values, _: values * np.asarray(factor, np.float64), None)

    __rmul__ = __mul__

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Take part in ``np.where(is_text, x, 0)`` alone, which leaves the vectors of a text as they are."""
        if function is np.where and len(args) == 3 and isinstance(args[1], Parts):
            return args[1]
        return NotImplemented
