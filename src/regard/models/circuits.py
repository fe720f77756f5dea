"""The circuits of a decoder: what its heads do, read from the weights alone.

Elhage et al. (2021), "A mathematical framework for transformer circuits",
https://transformer-circuits.pub/2021/framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.factored import FactoredMatrix
from regard.nn import DecoderBlock, LayerNorm
from regard.nn.decoder import require_maps, require_sums

Composition = Literal["q", "k", "v"]


class HeadWeights(NDArrayOperatorsMixin):
    """The matrices of all heads, a read-only array ``L H E D`` of which each is computed when it is read.

    ``weights[layer, head]`` computes one of them, ``weights[layer]`` those of a layer; ``np.asarray(weights)`` and
    arithmetic copy all. Heads that share keys and values read the one matrix that is stored, a view of it where no norm
    is folded; an array ``L H E D`` of all cannot be such a view, since no stride along H says that several heads in a
    row are the same, and so those of a layer repeat it.

    Parameters
    ----------
    read : function
        From a layer and a slice of stored heads to their matrices, ``G E D``. There may be fewer of these than heads:
        each is then that of several consecutive ones.
    shape : tuple of int
        ``L H E D``.
    stored : int
        How many heads are stored.
    dtype : dtype
    """

    ndim = 4
    __hash__ = None  # type: ignore[assignment]  # as arrays

    def __init__(
        self, read: Callable[[int, slice], np.ndarray], shape: tuple[int, ...], stored: int, dtype: np.dtype[Any]
    ) -> None:
        self._read, self.shape, self.dtype = read, shape, dtype
        self._per_stored = shape[1] // stored

    @property
    def mT(self) -> np.ndarray:
        """All matrices transposed, ``L H D E``, computed."""
        return np.asarray(self).mT

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._layer(layer) for layer in range(len(self)))

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return what the same index of an array gives."""
        index = index if isinstance(index, tuple) else (index,)
        is_whole = [isinstance(at, int | np.integer) and not isinstance(at, bool) for at in index]
        if not is_whole or not all(whole or isinstance(at, slice) for whole, at in zip(is_whole, index, strict=True)):
            return np.asarray(np.asarray(self)[index])
        if not is_whole[0]:
            layers = [self._layer(layer)[index[1:]] for layer in range(len(self))[index[0]]]
            return np.stack(layers) if layers else np.empty((0, *self._layer(0)[index[1:]].shape), self.dtype)
        layer = self._checked("layer", index[0], len(self))
        if is_whole[1:2] != [True]:
            return np.asarray(self._layer(layer)[index[1:]])
        at = self._checked("head", index[1], self.shape[1]) // self._per_stored
        return np.asarray(self._read(layer, slice(at, at + 1))[0][index[2:]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"reading {self!r} computes it, which makes a copy")
        return np.asarray(np.stack(list(self)), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(x, HeadWeights) for x in options.get("out", ())):
            raise ValueError(f"{self!r} is read-only; np.asarray gives an ordinary array")
        dense = [np.asarray(x) if isinstance(x, HeadWeights) else x for x in inputs]
        return getattr(ufunc, method)(*dense, **options)

    def __repr__(self) -> str:
        return f"HeadWeights({' '.join(map(str, self.shape))}, {self.dtype})"

    def _layer(self, layer: int) -> np.ndarray:
        return np.repeat(self._read(layer, slice(None)), self._per_stored, axis=0)

    def _checked(self, what: str, index: int, count: int) -> int:
        if not -count <= index < count:
            raise IndexError(f"there is no {what} {index}: there are {count}")
        return int(index) % count


class Circuits:
    """The weights of a decoder by layer and head, and the circuits that they form.

    Vectors are rows: a head reads with ``x W_Q`` and writes ``context W_O``. Rotary embeddings, biases, sinks and soft
    caps are not part of a circuit, nor is the size by which a norm divides, which depends on the text; `qk` of a model
    that rotates is that of equal positions.

    Parameters
    ----------
    model : Decoder
    fold_norms : bool
        Multiply the weight of each norm into the matrix before or after it: those that read its result; of a norm after
        attention, the one that writes; of a norm of queries or keys, the one that makes them. A LayerNorm takes the
        mean over the inputs out of the vectors: it is taken out of the matrices.

    Examples
    --------
    >>> import regard
    >>> circuits = regard.load("induction").circuits
    >>> circuits.W_Q.shape  # L H E D
    (2, 4, 128, 32)
    >>> circuits.ov(1, 0).shape, circuits.ov(1, 0).eigenvalues.shape
    ((64, 64), (32,))
    """

    def __init__(self, model: Any, *, fold_norms: bool = True) -> None:
        blocks = getattr(model, "blocks", ())
        if not blocks or not all(isinstance(block, DecoderBlock) for block in blocks):
            raise RegardError(f"{getattr(model, 'name', model)!r} has no circuits: they are those of a decoder")
        require_maps(model, "reading circuits")
        require_sums(model, "reading circuits")
        if any(block.attn.o_proj is None for block in blocks):
            raise RegardError(f"{model.name} has no circuits: a head without o_proj writes nothing of its own")
        if any(block.attn.k_proj.weight.shape[0] != block.attn.o_proj.weight.shape[1] for block in blocks):
            raise RegardError(
                f"{model.name} has no circuits: its heads read latents, with a norm between, not the stream"
            )
        self.name, self.fold_norms = model.name, fold_norms
        # Not the model itself, which may hold these circuits.
        self._blocks, self._embedding, self._scale = blocks, model.token_embedding, model.embedding_scale
        self._lm_head, self._final_norm, self._logit_scale = model.lm_head, model.final_norm, model.logit_scale

    def __repr__(self) -> str:
        layers, heads = self.W_Q.shape[:2]
        folded = "folded" if self.fold_norms else "left out"
        return (
            f"<Circuits of {self.name}: {layers} layers of {heads} heads, norms {folded}; ov(layer, head), "
            "qk(layer, head), copying_score, composition(kind)>"
        )

    # Matrices

    @cached_property
    def W_E(self) -> np.ndarray:
        """The embedding table, ``V E``, with the factor by which some models scale it; read-only."""
        table = np.asarray(self._embedding.weight)
        return _read_only(table if self._scale == 1 else table * table.dtype.type(self._scale))

    @cached_property
    def W_U(self) -> np.ndarray:
        """From contextual vectors to logits, ``E V``, before a soft cap; read-only."""
        head = np.asarray(self._embedding.weight).T if self._lm_head is None else np.asarray(self._lm_head.weight)
        read = self._reading(head, self._final_norm)
        return _read_only(read if self._logit_scale == 1 else read * read.dtype.type(self._logit_scale))

    @property
    def W_Q(self) -> HeadWeights:
        """Queries, ``L H E D``."""
        return self._inputs("q_proj", "q_norm")

    @property
    def W_K(self) -> HeadWeights:
        """Keys, ``L H E D``; query heads of a group have the same."""
        return self._inputs("k_proj", "k_norm")

    @property
    def W_V(self) -> HeadWeights:
        """Values, ``L H E Dv``; query heads of a group have the same."""
        return self._inputs("v_proj", None)

    @property
    def W_O(self) -> HeadWeights:
        """Outputs, ``L H Dv E``."""
        attn = self._blocks[0].attn
        rows, outputs = attn.o_proj.weight.shape
        heads = attn.num_heads

        def read(layer: int, heads_read: slice) -> np.ndarray:
            block = self._blocks[layer]
            each: np.ndarray = np.asarray(block.attn.o_proj.weight).reshape(heads, -1, outputs)[heads_read]
            norm, factor = block.before_residual("attn")
            each = each if norm is None or not self.fold_norms else each * norm.weight
            return each if np.all(factor == 1) else each * np.asarray(factor, each.dtype)

        shape = (len(self._blocks), heads, rows // heads, outputs)
        return HeadWeights(read, shape, heads, np.dtype(attn.o_proj.weight.dtype))

    # Circuits

    def ov(self, layer: int, head: int) -> FactoredMatrix:
        """Return W_E W_V W_O W_U, ``V V``: how much attending to a token (row) raises the logit of another."""
        at = self._head(layer, head)
        return FactoredMatrix(self.W_E @ self.W_V[at], self.W_O[at] @ self.W_U)

    def qk(self, layer: int, head: int) -> FactoredMatrix:
        """Return W_E W_Q (W_E W_K)ᵀ, ``V V``: the score, before the scale, of a query token (row) for a key token."""
        at = self._head(layer, head)
        return FactoredMatrix(self.W_E @ self.W_Q[at], (self.W_E @ self.W_K[at]).T)

    @cached_property
    def copying_score(self) -> np.ndarray:
        """Σ λ / Σ |λ| of the eigenvalues of each `ov`, ``L H``: 1 where attending to a token raises its own logit."""
        between = _wide(self.W_U) @ _wide(self.W_E)  # E E: from logits to words
        inner = np.stack([_wide(out) @ between @ _wide(value) for out, value in zip(self.W_O, self.W_V, strict=True)])
        eigenvalues = np.linalg.eigvals(inner)
        return np.asarray(eigenvalues.sum(-1).real / np.abs(eigenvalues).sum(-1))

    def composition(self, kind: Composition) -> np.ndarray:
        """Return how much of what a head (L₁ H₁) writes another of a later layer (L₂ H₂) reads, ``L H L H``.

        As its query, its key or its value: ‖W₁ W₂‖ / (‖W₁‖ ‖W₂‖) with W₁ = W_V W_O of the first, and W₂ = W_Q W_Kᵀ,
        its transpose, or W_V W_O of the second; 0 where the second is not later. Random matrices have 1 / √E, not 0.
        """
        if not isinstance(kind, str) or kind not in ("q", "k", "v"):
            raise RegardError(f"composition is by q, k or v, got {kind!r}")
        layers, heads = self.W_O.shape[:2]
        strengths = np.zeros((layers, heads, layers, heads))
        grams: list[tuple[np.ndarray, np.ndarray]] = []  # of the layers before: Aᵀ A, and ‖W₁‖
        for j in range(layers):
            into, right = map(_wide, self._reader(kind, j))
            right_gram, right_size = right @ right.mT, FactoredMatrix(into, right).norm
            for i, (left_gram, left_size) in enumerate(grams):
                between = np.einsum("hde,gef->hgdf", _wide(self.W_O[i]), into, optimize=True)
                # ‖A M B‖² = Σ (AᵀA M) ∘ (M B Bᵀ)
                squared = ((left_gram[:, None] @ between) * (between @ right_gram)).sum((-1, -2))
                strengths[i, :, j] = np.sqrt(np.maximum(squared, 0)) / (left_size[:, None] * right_size)
            left, out = _wide(self.W_V[j]), _wide(self.W_O[j])
            grams.append((left.mT @ left, FactoredMatrix(left, out).norm))
        return strengths

    def _reader(self, kind: Composition, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return both factors of what the heads of a layer read with."""
        if kind == "v":
            return self.W_V[layer], self.W_O[layer]
        query, key = self.W_Q[layer], self.W_K[layer]
        return (query, key.mT) if kind == "q" else (key, query.mT)

    def _inputs(self, name: str, head_norm: str | None) -> HeadWeights:
        attn = self._blocks[0].attn
        heads = attn.num_heads if name == "q_proj" else attn.num_kv_heads
        inputs, columns = getattr(attn, name).weight.shape
        width = columns // heads

        def read(layer: int, heads_read: slice) -> np.ndarray:
            block = self._blocks[layer]
            first, last, _ = heads_read.indices(heads)
            part = slice(first * width, last * width)
            weight = self._reading(np.asarray(getattr(block.attn, name).weight[:, part]), block.attn_norm)
            norm = None if head_norm is None or not self.fold_norms else getattr(block.attn, head_norm)
            if norm is not None:  # of the features of each head, or of all heads
                if isinstance(norm, LayerNorm):
                    heads_of = weight.reshape(inputs, -1, width)
                    weight = (heads_of - heads_of.mean(-1, keepdims=True)).reshape(weight.shape)
                weight = weight * np.resize(norm.weight, columns)[part]
            return np.moveaxis(weight.reshape(inputs, last - first, width), 1, 0)

        shape = (len(self._blocks), attn.num_heads, inputs, width)
        return HeadWeights(read, shape, heads, np.dtype(getattr(attn, name).weight.dtype))

    def _reading(self, weight: np.ndarray, norm: Any) -> np.ndarray:
        """Return the weight of a map with the norm before it folded in."""
        if not self.fold_norms or norm is None:
            return weight
        folded: np.ndarray = weight * norm.weight[:, None]
        return folded - folded.mean(0) if isinstance(norm, LayerNorm) else folded

    def _head(self, layer: int, head: int) -> tuple[int, int]:
        layers, heads = self.W_Q.shape[:2]
        layer, head = whole_number("layer", layer, -layers), whole_number("head", head, 0)
        if layer >= layers or head >= heads:
            raise RegardError(f"there is no layer {layer}, head {head}: the model has {layers} layers of {heads} heads")
        return layer, head


def _read_only(x: np.ndarray) -> np.ndarray:
    view = x.view()
    view.flags.writeable = False
    return view


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64, copy=False)
