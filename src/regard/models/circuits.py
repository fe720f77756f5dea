"""The circuits of a decoder: what its heads do, read from the weights alone.

Elhage et al. (2021), "A mathematical framework for transformer circuits",
https://transformer-circuits.pub/2021/framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.factored import FactoredMatrix
from regard.nn import LayerNorm
from regard.nn.layers import Linear

Composition = Literal["q", "k", "v"]


@dataclass(frozen=True, eq=False)
class Circuits:
    """The weights of a decoder by layer and head, and the circuits that they form.

    Vectors are rows: a head reads with ``x W_Q`` and writes ``context W_O``. Rotary embeddings, biases and norms are no
    part of a circuit; `qk` of a model that rotates is that of equal positions.

    Parameters
    ----------
    model : Decoder
    fold_norms : bool
        Multiply the weight of each norm into the matrices that read its result, and, of a LayerNorm, take the mean over
        the inputs out of them, which it takes out of the vectors.

    Examples
    --------
    >>> import regard
    >>> circuits = regard.load("induction").circuits
    >>> circuits.W_Q.shape  # L H E D
    (2, 4, 128, 32)
    >>> circuits.ov(1, 0).shape, circuits.ov(1, 0).eigenvalues.shape
    ((64, 64), (32,))
    """

    model: Any
    fold_norms: bool = True

    def __post_init__(self) -> None:
        if any(getattr(block.attn, "o_proj", None) is None for block in self.model.blocks):
            raise RegardError(f"{self.model.name} has no circuits: a head without o_proj writes nothing of its own")

    # Matrices

    @cached_property
    def W_E(self) -> np.ndarray:
        """The embedding table, ``V E``."""
        return np.asarray(self.model.token_embedding.weight)

    @cached_property
    def W_U(self) -> np.ndarray:
        """From contextual vectors to logits, ``E V``."""
        head = self.model.lm_head
        return self._folded(np.asarray(head.weight) if head is not None else self.W_E.T, self.model.final_norm)

    @cached_property
    def W_Q(self) -> np.ndarray:
        """Queries, ``L H E D``."""
        return self._read("q_proj")

    @cached_property
    def W_K(self) -> np.ndarray:
        """Keys, ``L H E D``; query heads of a group have the same."""
        return self._read("k_proj")

    @cached_property
    def W_V(self) -> np.ndarray:
        """Values, ``L H E Dv``; query heads of a group have the same."""
        return self._read("v_proj")

    @cached_property
    def W_O(self) -> np.ndarray:
        """Outputs, ``L H Dv E``."""
        weights = [np.asarray(block.attn.o_proj.weight) for block in self.model.blocks]
        heads = self.model.blocks[0].attn.num_heads
        return np.stack([weight.reshape(heads, -1, weight.shape[1]) for weight in weights])

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
        between = (self.W_U.astype(np.float64) @ self.W_E.astype(np.float64))[None, None]  # E E: from logits to words
        inner = self.W_O.astype(np.float64) @ between @ self.W_V.astype(np.float64)
        eigenvalues = np.linalg.eigvals(inner)
        return np.asarray(eigenvalues.sum(-1).real / np.abs(eigenvalues).sum(-1))

    def composition(self, kind: Composition) -> np.ndarray:
        """Return how much of what a head (L₁ H₁) writes another of a later layer (L₂ H₂) reads, ``L H L H``.

        As its query, its key or its value: ‖W₁ W₂‖ / (‖W₁‖ ‖W₂‖) with W₁ = W_V W_O of the first, and W₂ = W_Q W_Kᵀ,
        its transpose, or W_V W_O of the second; 0 where the second is not later. Random matrices have 1 / √E, not 0.
        """
        if kind not in ("q", "k", "v"):
            raise RegardError(f"composition is by q, k or v, got {kind!r}")
        ov, qk = (self.W_V, self.W_O), (self.W_Q, self.W_K.mT)
        second = {"q": qk, "k": (qk[1].mT, qk[0].mT), "v": ov}[kind]
        left, out, into, right = (x.astype(np.float64) for x in (*ov, *second))
        left_gram, right_gram = left.mT @ left, right @ right.mT  # L H D D
        sizes = [FactoredMatrix(*pair).norm for pair in (ov, second)]
        found = np.zeros(2 * out.shape[:2])
        for i in range(len(out)):
            for j in range(i + 1, len(out)):
                between = np.einsum("hde,gef->hgdf", out[i], into[j], optimize=True)
                # ‖A M B‖² = Σ (AᵀA M) ∘ (M B Bᵀ)
                squared = ((left_gram[i, :, None] @ between) * (between @ right_gram[j, None])).sum((-1, -2))
                found[i, :, j] = np.sqrt(np.maximum(squared, 0)) / (sizes[0][i][:, None] * sizes[1][j])
        return found

    def _read(self, name: str) -> np.ndarray:
        found = []
        for block in self.model.blocks:
            linear: Linear = getattr(block.attn, name)
            heads = block.attn.num_heads if name == "q_proj" else block.attn.num_kv_heads
            weight = self._folded(np.asarray(linear.weight), block.attn_norm)
            found.append(np.moveaxis(weight.reshape(len(weight), heads, -1), 1, 0))
        each = np.stack(found)  # L G E D
        return np.repeat(each, self.model.blocks[0].attn.num_heads // each.shape[1], axis=1)

    def _folded(self, weight: np.ndarray, norm: Any) -> np.ndarray:
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
