"""The configuration fields and tensors that decoders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSpec, fused_tensors, linear_tensors, load_tensors
from regard.models.language import language_fields
from regard.models.rope import MAX_HEAD_DIM, MAX_POSITIONS, Rope
from regard.nn import Embedding

MAX_LAYERS = 10_000


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(ModelConfig):
    """The sizes of a decoder with rotary positions.

    They are ``V``, ``E``, ``L``, ``H``, ``G``, ``D``, the feed-forward width and the positions; `windows` has for each
    layer the number of tokens it attends to, the query included; None is all.
    """

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    max_positions: int
    norm_eps: float
    rope: Rope
    tied: bool
    windows: tuple[int | None, ...]


def read_sizes(
    reader: ConfigReader,
    *,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    norm_eps: float = 1e-6,
    norm_eps_name: str = "rms_norm_eps",
    with_kv_heads: bool = True,
    with_head_dim: bool = True,
) -> dict[str, Any]:
    """Read the sizes, whose names are the same in all these families.

    `head_dim`, `num_kv_heads` and `norm_eps` are the defaults of the family, else ``E / H``, ``H`` and 1e-6. Without
    `with_kv_heads` or `with_head_dim` it has no field for them.
    """
    sizes: dict[str, Any] = {
        "vocab_size": reader.count("vocab_size"),
        "embed_dim": reader.count("hidden_size"),
        "num_layers": reader.count("num_hidden_layers"),
        "num_heads": reader.count("num_attention_heads"),
        "hidden_dim": reader.width("intermediate_size"),
        "max_positions": reader.count("max_position_embeddings"),
        "norm_eps": reader.positive(norm_eps_name, norm_eps),
    }
    heads, embed_dim, positions = sizes["num_heads"], sizes["embed_dim"], sizes["max_positions"]
    reader.require(
        positions <= MAX_POSITIONS, f"max_position_embeddings {positions} is more than the maximum of {MAX_POSITIONS}"
    )
    kv_heads = reader.optional_count("num_key_value_heads", num_kv_heads) if with_kv_heads else None
    sizes["num_kv_heads"] = kv_heads = kv_heads or heads
    given = reader.optional_count("head_dim", head_dim) if with_head_dim else None
    reader.require(
        given is not None or embed_dim % heads == 0,
        f"hidden_size {embed_dim} does not split into {heads} attention heads, and head_dim is not given",
    )
    sizes["head_dim"] = dim = given or embed_dim // heads
    reader.require(heads % kv_heads == 0, f"{heads} attention heads do not share {kv_heads} key/value heads evenly")
    reader.require(
        dim % 2 == 0 and 0 < dim <= MAX_HEAD_DIM,
        f"head_dim {dim} is not an even number up to {MAX_HEAD_DIM}, as rotary positions need",
    )
    if sizes["num_layers"] > MAX_LAYERS:
        reader.require(False, f"num_hidden_layers {sizes['num_layers']} is more than the maximum of {MAX_LAYERS}")
        sizes["num_layers"] = 1
    return sizes


def read_windows(
    reader: ConfigReader, num_layers: int, sliding_window: int | None, default: Sequence[bool]
) -> tuple[int | None, ...]:
    """Read ``layer_types``: for each layer the number of tokens it attends to, the query included; None is all.

    `default` says for each layer whether it has a sliding window if the file does not.
    """
    names = {False: "full_attention", True: "sliding_attention"}
    types = reader.take("layer_types") or [names[slides] for slides in default]
    fits = isinstance(types, list) and len(types) == num_layers and all(kind in names.values() for kind in types)
    reader.require(
        fits,
        f"layer_types must name full_attention or sliding_attention for each of {num_layers} layers, got {types!r}",
    )
    if not fits:
        return (None,) * num_layers
    reader.require(
        sliding_window is not None or names[True] not in types,
        "layer_types has sliding_attention without a sliding_window",
    )
    return tuple(sliding_window if kind == names[True] else None for kind in types)


def check_unsupported_flags(reader: ConfigReader) -> None:
    """Read the fields of every configuration for which one value is supported."""
    reader.flag("is_decoder", False)  # no effect here
    reader.only(is_encoder_decoder=False, add_cross_attention=False, cross_attention_hidden_size=None)
    reader.only(chunk_size_feed_forward=0, pruned_heads={})


def load_decoder_tensors(
    checkpoint: Checkpoint,
    config: Any,
    specs: Callable[[Any, str], Iterator[TensorSpec]],
    *,
    prefix: str = "model.",
    embedding: str = "embed_tokens.weight",
    head: str = "lm_head",
    head_inputs: int | None = None,
    unused: Callable[[str], tuple[str, ...]] = lambda _: (),
    dtype: Any,
) -> dict[str, np.ndarray]:
    """Return the tensors of a decoder, with its head if it has one of its own.

    Parameters
    ----------
    specs : function
        Its tensors except the head, for a configuration and the prefix of the checkpoint's names.
    prefix, embedding : str
        The prefix of all names in a model that was saved with its head, and the name of its embedding table after it.
    head : str
        The name of its head.
    head_inputs : int, optional
        The features that the head takes; ``E`` by default.
    unused : function
        Prefixes of tensors that may be present too, for the prefix of the checkpoint's names.
    """
    shapes = checkpoint.tensors().shapes
    prefix = "" if embedding in shapes else prefix
    # A model saved without its head has names without prefix, or the head of a classifier.
    is_headless = config.tied or not prefix or any(name.startswith("score.") for name in shapes)
    head_tensors = linear_tensors("lm_head", head, head_inputs or config.embed_dim, config.vocab_size, bias=False)
    weights = load_tensors(
        checkpoint,
        chain(specs(config, prefix), () if is_headless and f"{head}.weight" not in shapes else head_tensors),
        num_layers=config.num_layers,
        unused=("score.", *unused(prefix)),
        shared={f"{prefix}{embedding}": f"{head}.weight"} if config.tied else {},
        dtype=dtype,
    )
    # A tied head may be stored too; one that differs from the embeddings is used, and the configuration is wrong.
    has_tied_copy = config.tied and "lm_head.weight" in weights
    if has_tied_copy and np.array_equal(weights["lm_head.weight"].T, weights["token_embedding.weight"]):
        del weights["lm_head.weight"]
    return weights


def common_fields(
    checkpoint: Checkpoint, config: Any, weights: Mapping[str, np.ndarray], *, name: str
) -> dict[str, Any]:
    """Return the fields of a `Decoder` that every family builds in the same way."""
    return {
        **language_fields(checkpoint, config, name=name),
        "token_embedding": Embedding(weights["token_embedding.weight"]),
        "lm_head": linear(weights, "lm_head") if "lm_head.weight" in weights else None,
    }


def decoder_tensors(
    config: DecoderConfig,
    prefix: str,
    block_tensors: Callable[[str, str], Iterator[TensorSpec]],
    *,
    qkv_bias: bool,
    output_bias: bool,
    attn_norm: bool = True,
    fused: str | None = None,
) -> Iterator[TensorSpec]:
    """Yield the embeddings, the norms and for each block the attention and its norm, then its `block_tensors`.

    `block_tensors` takes the name of a block here and in the checkpoint; `attn_norm` says whether there is a norm
    before attention, and `fused` is the name of queries, keys and values that are one tensor.
    """
    E, q_width, kv_width = config.embed_dim, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield TensorSpec("token_embedding.weight", f"{prefix}embed_tokens.weight", (config.vocab_size, E), table=True)
    for i in range(config.num_layers):
        name, hf_name = f"blocks.{i}", f"{prefix}layers.{i}"
        attn, hf_attn = f"{name}.attn", f"{hf_name}.self_attn"
        if attn_norm:
            yield TensorSpec(f"{name}.attn_norm.weight", f"{hf_name}.input_layernorm.weight", (E,))
        widths = {"q_proj": q_width, "k_proj": kv_width, "v_proj": kv_width}
        if fused is not None:
            names = {f"{attn}.{part}": width for part, width in widths.items()}
            yield from fused_tensors(names, f"{hf_attn}.{fused}", E, bias=qkv_bias)
        else:
            for part, width in widths.items():
                yield from linear_tensors(f"{attn}.{part}", f"{hf_attn}.{part}", E, width, bias=qkv_bias)
        yield from linear_tensors(f"{attn}.o_proj", f"{hf_attn}.o_proj", q_width, E, bias=output_bias)
        yield from block_tensors(name, hf_name)
    yield TensorSpec("final_norm.weight", f"{prefix}norm.weight", (E,))


def gated_tensors(
    name: str,
    hf_name: str,
    config: DecoderConfig,
    *,
    bias: bool,
    hidden_dim: int | None = None,
    hf_parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Iterator[TensorSpec]:
    """Yield the tensors of a gated feed-forward layer, of `config.hidden_dim` hidden features by default."""
    E, F = config.embed_dim, hidden_dim or config.hidden_dim
    parts = ("gate_proj", E, F), ("up_proj", E, F), ("down_proj", F, E)
    for (part, inputs, outputs), hf_part in zip(parts, hf_parts, strict=True):
        yield from linear_tensors(f"{name}.{part}", f"{hf_name}.{hf_part}", inputs, outputs, bias=bias)
