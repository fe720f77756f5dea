"""The steps of a trace: the formula of each name, and the names of TransformerLens for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from regard._utils.errors import RegardError


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a computation.

    Parameters
    ----------
    name : str
        The dotted name, ``blocks.3.attn.weights``.
    formula : str
        How the value is computed from earlier steps; "" for an unknown name.
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
    """Return how the value called `name` is computed; terms in brackets apply if the layer has those parameters."""
    *scope, last = name.split(".")
    if last == "output":
        return _OUTPUTS.get(scope[-1] if scope else "", "the output of the block")
    if scope[-1:] == ["cross_attn"] and last in ("k", "v"):
        return _FORMULAS[last].replace("x", "(encoder output)", 1)
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
    "biased": "scores + bias, −∞ where masked",
    "weights": "softmax(scores), each row sums to 1",
    "dropped": "weights after dropout: some 0, the others × 1 / (1 − dropout)",
    "context": "weights · v",
    "attn_residual": "x + attn.output; in post-norm blocks norm of it",
    "cross_attn_residual": "x + cross_attn.output; in post-norm blocks norm of it",
    "gate": "x · W_gate (+ b_gate)",
    "up": "x · W_up (+ b_up)",
    "hidden": "activation(x · W_up (+ b_up)); with a gate, activation(gate) × up",
    "experts": "softmax of the largest scores of x · W_router + b_router",
    "final_norm": "norm(the output of the last block)",
}
_OUTPUTS = {
    "attn": "concatenated heads (· W_o (+ b_o))",
    "cross_attn": "concatenated heads (· W_o (+ b_o))",
    "mlp": "hidden · W_down (+ b_down)",
    "": "the output of the layer",
}


def canonical_name(name: str, recorded: Collection[str] | None = None) -> str:
    """Return regard's name of a step for a name of TransformerLens; any other name unchanged.

    ``q`` and ``k`` are those that enter the scores, so after a rotary embedding: ``rot_q`` and ``rot_k``. Arrays keep
    the axes of regard.

    Parameters
    ----------
    name : str
        ``blocks.3.attn.hook_pattern``, or a pattern, ``blocks.*.attn.pattern``.
    recorded : collection of str, optional
        The names of a trace, in which the residual stream before the first block has one of three names.

    Raises
    ------
    RegardError
        ``resid_pre`` in a pattern, where it is not one step.
    """
    scope, dot, last = name.rpartition(".")
    star = "*" if last.startswith("*") else ""
    last = last.removeprefix(star).removeprefix("hook_")
    if recorded is not None and name in recorded:
        return name
    if last == "resid_pre":
        return _before_block(name, scope, recorded)
    return f"{scope}{dot}{star}{_TRANSFORMER_LENS[last]}" if last in _TRANSFORMER_LENS else name


def _before_block(name: str, scope: str, recorded: Collection[str] | None) -> str:
    """Return the name of the residual stream that enters a block: the output of the block before it."""
    blocks, _, number = scope.rpartition(".")
    if blocks.rpartition(".")[2] != "blocks":
        return name
    if number.isdecimal() and int(number) > 0:
        return f"{blocks}.{int(number) - 1}.output"
    names = [f"{blocks.removesuffix('blocks')}{step}" for step in _EMBEDDINGS]
    if recorded is None:
        raise RegardError(f"{name} is not one step: name a block, or one of {', '.join(names)}")
    return next((step for step in names if step in recorded), name)


_EMBEDDINGS = ("normed_embeddings", "embeddings", "token_embeddings")  # of which the last computed enters block 0
_TRANSFORMER_LENS = {
    "embed": "token_embeddings",
    "pos_embed": "position_embeddings",
    "rot_q": "q",
    "rot_k": "k",
    "pattern": "weights",
    "z": "context",
    "attn_out": "attn.output",
    "resid_mid": "attn_residual",
    "post": "hidden",
    "mlp_out": "mlp.output",
    "resid_post": "output",
}
