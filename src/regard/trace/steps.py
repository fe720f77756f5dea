"""What each recorded value is, as a formula: the table of steps that a trace can be read as."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a computation.

    Parameters
    ----------
    name : str
        The dotted name, ``blocks.3.attn.weights``.
    formula : str
        How the value comes from those before it; "" for a name that is not of the vocabulary.
    axes : str
        One letter for each axis, ``B H T S``.
    values : array
    """

    name: str
    formula: str
    axes: str
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The size along each of the axes."""
        return self.values.shape


def formula(name: str) -> str:
    """Return how the value that is called `name` is computed, in the letters of the vocabulary.

    What stands in brackets is there where the layer has such parameters.
    """
    *scope, last = name.split(".")
    if last == "output":
        return _OUTPUTS.get(scope[-1] if scope else "", "what leaves the block")
    if scope[-1:] == ["cross_attn"] and last in ("k", "v"):
        return _FORMULAS[last].replace("x", "what the encoder returned", 1)
    return _FORMULAS.get(last, "")


_FORMULAS = {
    "token_embeddings": "the row of each token in the embedding table",
    "position_embeddings": "the row of each position",
    "type_embeddings": "the row of the segment",
    "embeddings": "sum of the embeddings above",
    "normed_embeddings": "norm(embeddings)",
    "q": "x · W_q (+ b_q), split into heads",
    "k": "x · W_k (+ b_k), split into heads",
    "v": "x · W_v (+ b_v), split into heads",
    "scores": "q · kᵀ × scale",
    "capped": "softcap · tanh(scores / softcap)",
    "biased": "scores + bias, and −∞ where hidden",
    "weights": "softmax(scores), each row sums to 1",
    "dropped": "weights, some of them 0 and the others larger",
    "context": "weights · v",
    "attn_residual": "x + attn.output, normed where the norm stands behind",
    "cross_attn_residual": "x + cross_attn.output, normed where the norm stands behind",
    "gate": "x · W_gate (+ b_gate)",
    "up": "x · W_up (+ b_up)",
    "hidden": "activation(x · W_up (+ b_up)); where there is a gate, activation(gate) × up",
    "experts": "softmax of the largest scores of x · W_router + b_router",
    "final_norm": "norm(what leaves the last block)",
}
_OUTPUTS = {
    "attn": "heads side by side (· W_o (+ b_o))",
    "cross_attn": "heads side by side (· W_o (+ b_o))",
    "mlp": "hidden · W_down (+ b_down)",
    "": "what leaves the layer",
}
