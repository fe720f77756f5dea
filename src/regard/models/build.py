"""Build layers, each from the names and shapes of its tensors in the checkpoint, which stand nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from regard import nn
from regard.models.checkpoint.tensors import Rows, TensorSource

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The usual names of the linear maps of attention."""
GATED = ("gate_proj", "up_proj", "down_proj")
"""The usual names of the linear maps of a gated feed-forward layer."""


def linear(
    source: TensorSource,
    name: str,
    inputs: int,
    outputs: int,
    *,
    bias: bool = True,
    rows: Rows | None = None,
    stored: int | None = None,
) -> nn.Linear:
    """Return the linear map `name` from `inputs` to `outputs` features; `rows` of one with `stored` outputs."""
    stored = outputs if stored is None else stored
    weight = source.array(f"{name}.weight", (stored, inputs), (inputs, outputs), transposed=True, rows=rows)
    return nn.Linear(weight, source.array(f"{name}.bias", (stored,), (outputs,), rows=rows) if bias else None)


def fused_linears(
    source: TensorSource,
    name: str,
    inputs: int,
    outputs: Sequence[int],
    *,
    bias: bool = True,
    interleaved: int | None = None,
) -> Iterator[nn.Linear]:
    """Yield linear maps of the same x that the checkpoint stores as one, `name`; `outputs` has those of each map.

    Its rows follow each other, or alternate in groups of `interleaved` rows: those of the first head of each map, then
    those of the second.
    """
    total, start = sum(outputs), 0
    for i, size in enumerate(outputs):
        rows: Rows = slice(start, start + size)
        if interleaved is not None:
            rows = partial(_interleaved_rows, total, len(outputs), interleaved, i)
        yield linear(source, name, inputs, size, bias=bias, rows=rows, stored=total)
        start += size


def _interleaved_rows(total: int, parts: int, group: int, part: int) -> np.ndarray:
    return np.arange(total).reshape(-1, parts, group)[:, part].ravel()


def layer_norm(source: TensorSource, name: str, features: int, eps: float, *, bias: bool = True) -> nn.LayerNorm:
    """Return the layer norm `name`."""
    weight = source.array(f"{name}.weight", (features,))
    return nn.LayerNorm(weight, source.array(f"{name}.bias", (features,)) if bias else None, eps)


def rms_norm(source: TensorSource, name: str, features: int, eps: float, *, offset: float = 0.0) -> nn.RMSNorm:
    """Return the RMS norm `name`, whose weight is stored minus `offset`."""
    return nn.RMSNorm(source.array(f"{name}.weight", (features,), offset=offset), eps)


def embedding(source: TensorSource, name: str, size: int, features: int, *, in_blocks: bool = False) -> nn.Embedding:
    """Return the table `name` of `size` rows; with `in_blocks` it stays in the blocks in which it is stored."""
    return nn.Embedding(source.array(f"{name}.weight", (size, features), table=in_blocks))


def projections(
    source: TensorSource,
    names: Sequence[str],
    embed_dim: int,
    widths: tuple[int, int],
    *,
    bias: bool = True,
    output_bias: bool = True,
) -> list[nn.Linear]:
    """Return the linear maps of queries, keys, values and output, by their `names`.

    `widths` are the features of the queries and of the keys or values of all heads.
    """
    q_width, kv_width = widths
    *qkv, o = names
    maps = zip(qkv, (q_width, kv_width, kv_width), strict=True)
    return [
        *(linear(source, name, embed_dim, width, bias=bias) for name, width in maps),
        linear(source, o, q_width, embed_dim, bias=output_bias),
    ]


def causal_attention(
    maps: Sequence[nn.Linear], *, num_heads: int, window: int | None = None, **options: Any
) -> nn.CausalAttention:
    """Return attention of four linear maps; `window` is the number of tokens each attends to, itself included."""
    return nn.CausalAttention(*maps, num_heads=num_heads, window=None if window is None else (window - 1, 0), **options)


def feed_forward(
    source: TensorSource,
    names: tuple[str, str],
    embed_dim: int,
    hidden_dim: int,
    activation: str,
    *,
    bias: bool = True,
) -> nn.FeedForward:
    """Return a feed-forward layer; `names` are those of its linear maps up and down."""
    up, down = names
    return nn.FeedForward(
        linear(source, up, embed_dim, hidden_dim, bias=bias),
        linear(source, down, hidden_dim, embed_dim, bias=bias),
        activation=activation,
    )


def gated_feed_forward(
    source: TensorSource,
    names: tuple[str, str, str],
    embed_dim: int,
    hidden_dim: int,
    activation: str,
    *,
    bias: bool = False,
) -> nn.GatedFeedForward:
    """Return a gated feed-forward layer; `names` are those of its linear maps gate, up and down."""
    gate, up, down = names
    return nn.GatedFeedForward(
        linear(source, gate, embed_dim, hidden_dim, bias=bias),
        linear(source, up, embed_dim, hidden_dim, bias=bias),
        linear(source, down, hidden_dim, embed_dim, bias=bias),
        activation=activation,
    )


def encoder_block(
    source: TensorSource,
    names: Mapping[str, str],
    config: Any,
    norm_eps: float,
    *,
    attention: Callable[..., nn.SelfAttention] = nn.SelfAttention,
    norm_first: bool = False,
    qkv_bias: bool = True,
) -> nn.EncoderBlock:
    """Return a block of an encoder of the Transformer paper, with a norm after each residual sum, or before each.

    `names` has the name in the checkpoint of each part, ``attn.q_proj`` to ``mlp_norm``.
    """
    E, F = config.embed_dim, config.hidden_dim
    sizes = {"mlp.up_proj": (E, F), "mlp.down_proj": (F, E)}
    parts: dict[str, Any] = {}
    for part, name in names.items():
        if part.endswith("_norm"):
            parts[part] = layer_norm(source, name, E, norm_eps)
        else:
            bias = qkv_bias or part not in ("attn.q_proj", "attn.k_proj", "attn.v_proj")
            parts[part] = linear(source, name, *sizes.get(part, (E, E)), bias=bias)
    return nn.EncoderBlock(
        attention(*(parts[f"attn.{name}"] for name in PROJECTIONS), num_heads=config.num_heads),
        parts["attn_norm"],
        nn.FeedForward(parts["mlp.up_proj"], parts["mlp.down_proj"], activation=config.activation),
        parts["mlp_norm"],
        norm_first=norm_first,
    )
