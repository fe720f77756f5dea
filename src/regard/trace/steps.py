"""The steps of a trace as a table, with the formula of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard._utils.reprs import fields_repr


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

    __repr__ = fields_repr

    @property
    def shape(self) -> tuple[int, ...]:
        """The size along each of the axes."""
        return self.values.shape


def formula(name: str) -> str:
    """Return how the value called `name` is computed; terms in brackets apply if the layer has those parameters."""
    *scope, last = name.split(".")
    if last == "output":
        return _OUTPUTS.get(scope[-1] if scope else "", "the output of the block")
    return _FORMULAS.get(".".join([*scope[-1:], last]), _FORMULAS.get(last, ""))


_FORMULAS = {
    "picture": "what the model sees: the picture resized and cropped, 0 to 255",
    "pixel_values": "(picture × rescale_factor − mean) / std, channel by channel",
    "token_embeddings": "the row of each token in the embedding table",
    "position_embeddings": "the row of each position",
    "type_embeddings": "the row of the segment",
    "embeddings": "sum of the embeddings above",
    "normed_embeddings": "norm(embeddings)",
    "projected_embeddings": "normed_embeddings · W + b, as wide as the blocks",
    "attn_norm": "norm(x): what attention reads; in post-norm blocks norm(x + attn.output)",
    "cross_norm": "norm(attn_residual); in post-norm blocks norm(attn_residual + cross_attn.output)",
    "mlp_norm": "norm of the stream: what the feed-forward layer reads; in post-norm blocks norm(… + mlp.output)",
    "attn_post_norm": "norm(attn.output)",
    "mlp_post_norm": "norm(mlp.output)",
    "layer_input_post_norm": "norm(layer_input.output)",
    "attn_scaled": "attn.output × attn_scale, feature by feature",
    "mlp_scaled": "mlp.output × mlp_scale, feature by feature",
    "scale": "√(mean of x² + eps), of centred x in a LayerNorm: what the norm divides by",
    "normalized": "x / scale, of centred x in a LayerNorm",
    "projected_q": "x · W_q (+ b_q), split into heads; norm and rotation make q of it",
    "projected_k": "x · W_k (+ b_k), split into heads; norm and rotation make k of it",
    "kv_latent": "norm(x · W (+ b)), from which the keys and values of all heads are read",
    "q": "x · W_q (+ b_q), split into heads",
    "k": "x · W_k (+ b_k), split into heads",
    "v": "x · W_v (+ b_v), split into heads",
    "scores": "q · kᵀ × scale",
    "capped": "softcap · tanh(scores / softcap)",
    "biased": "scores + bias, −∞ where masked",
    "weights": "softmax(scores), each row sums to 1",
    "dropped": "weights after dropout: some 0, the others × 1 / (1 − dropout)",
    "context": "weights · v",
    "cross_attn.k": "(encoder output) · W_k (+ b_k), split into heads",
    "cross_attn.v": "(encoder output) · W_v (+ b_v), split into heads",
    "linear_attn.q": "x · W_q mixed over the last tokens, split into heads, of length 1",
    "linear_attn.k": "x · W_k mixed over the last tokens, split into heads, of length 1",
    "linear_attn.v": "x · W_v mixed over the last tokens, split into heads",
    "linear_attn.context": "norm of what q reads of the state, × SiLU(x · W_gate)",
    "output_gate": "sigmoid(x · W_gate), by which the context is multiplied before W_o",
    "gated_context": "context × output_gate: what each head adds, before W_o",
    "decay": "−exp(log_rate) · softplus(x · W + b): the logarithm of what the state keeps",
    "beta": "sigmoid(x · W): how much of what the state has for a key is replaced by the value",
    "head_outputs": "context of each head · its rows of W_o",
    "attn_residual": "x + attn.output, scaled or normed in some models; in post-norm blocks norm of it",
    "cross_attn_residual": "x + cross_attn.output; in post-norm blocks norm of it",
    "mlp_residual": "attn_residual + mlp.output, normed in some models",
    "inputs": "(norm(embedding · W / √E) + the row of the token × √P) / √2",
    "gate": "x · W_gate (+ b_gate)",
    "up": "x · W_up (+ b_up)",
    "hidden": "activation(x · W_up (+ b_up)); with a gate, activation(gate) × up",
    "experts": "of the experts with the largest scores x · W_router (+ b_router), softmax or sigmoid of them",
    "final_norm": "norm(the output of the last block)",
}
_OUTPUTS = {
    "attn": "concatenated heads (· W_o (+ b_o))",
    "cross_attn": "concatenated heads (· W_o (+ b_o))",
    "linear_attn": "concatenated heads · W_o",
    "layer_input": "(activation(gate) × inputs) · W",
    "mlp": "hidden · W_down (+ b_down)",
    "": "the output of the layer",
}
