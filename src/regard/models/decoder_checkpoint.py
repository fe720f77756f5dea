"""The configuration fields that decoders share, and the loading of their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSource, load_layers
from regard.models.rope import MAX_HEAD_DIM, MAX_POSITIONS, Rope

_TASK_HEADS = ("score.", "classifier.", "qa_outputs.")
_QUESTION_PREFIX = "transformer"  # of all names, in models of some families that answer questions
# Of the part that reads texts, in models that look or hear too: as published, and as transformers 5 has them.
_TEXT_PREFIXES = ("language_model.model", "model.language_model", "language_model")
_FURTHER = ("mtp.",)  # layers that predict further tokens, beside the model
_PICTURES = (
    *("vision_tower.", "vision_model.", "multi_modal_projector."),
    *("embed_vision.", "audio_tower.", "embed_audio."),
)
_OF_PICTURES = ("vision_config", "mm_tokens_per_image", *(f"{x}_token_index" for x in ("boi", "eoi", "image")))


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(ModelConfig):
    """The sizes of a decoder with rotary positions.

    They are ``V``, ``E``, ``L``, ``H``, ``G``, ``D``, the feed-forward width and the positions; `windows` has for each
    layer the number of tokens it attends to, the query included; None is all. `rotated` says of each layer whether it
    rotates queries and keys; None: all do.
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
    rotated: tuple[bool, ...] | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """``H D`` and ``G D``, the features of the queries, and of the keys or values, of all heads."""
        return self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim


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
        "num_layers": reader.num_layers("num_hidden_layers"),
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
    own_dim = reader.optional_count("head_dim", head_dim) if with_head_dim else None
    reader.require(
        own_dim is not None or embed_dim % heads == 0,
        f"hidden_size {embed_dim} does not split into {heads} attention heads, and head_dim is not given",
    )
    sizes["head_dim"] = dim = own_dim or embed_dim // heads
    reader.require(heads % kv_heads == 0, f"{heads} attention heads do not share {kv_heads} key/value heads evenly")
    reader.require(
        dim % 2 == 0 and 0 < dim <= MAX_HEAD_DIM,
        f"head_dim {dim} is not an even number up to {MAX_HEAD_DIM}, as rotary positions need",
    )
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


def text_part(
    reader: ConfigReader,
    model_type: str,
    defaults: Mapping[str, Any],
    *,
    tied: bool | None = True,
    others: Sequence[str] = _OF_PICTURES,
) -> ConfigReader:
    """Return the reader of the part that reads texts of a model that looks at pictures too, of type `model_type`.

    `defaults` are those of sizes that its configuration may leave out, `tied` that of ``tie_word_embeddings`` of the
    whole; with None that of the part counts; `others` are fields of parts that are not run. Another reader is returned
    as it is.
    """
    if reader.peek("model_type") != model_type and reader.peek("text_config") is None:
        return reader
    reader.only(model_type=model_type, is_encoder_decoder=False)
    reader.leave_out(*others)
    fields, of_whole = reader.take("text_config"), reader.flag("tie_word_embeddings", bool(tied))
    reader.require(isinstance(fields, dict), f"text_config must be an object, got {fields!r}")
    fields = fields if isinstance(fields, dict) else {}
    tying = {} if tied is None else {"tie_word_embeddings": of_whole}
    part = reader.nested("text_config", {"model_type": f"{model_type}_text", **defaults, **fields, **tying})
    reader.finish()
    return part


def check_unsupported_flags(reader: ConfigReader) -> None:
    """Read the fields of every configuration for which one value is supported."""
    reader.flag("is_decoder", False)  # no effect here
    reader.only(is_encoder_decoder=False, add_cross_attention=False, cross_attention_hidden_size=None)
    reader.only(chunk_size_feed_forward=0, pruned_heads={})


def load_decoder_layers(
    checkpoint: Checkpoint,
    config: Any,
    build: Callable[[TensorSource], dict[str, Any]],
    *,
    prefix: str,
    embedding: str,
    head: str,
    unused: tuple[str, ...],
    dtype: Any,
) -> dict[str, Any]:
    """Return the layers of a decoder by their fields, with its head, `lm_head`, if it has one of its own.

    Parameters
    ----------
    build : function
        From a `TensorSource` to its layers except the head.
    prefix, embedding : str
        What all names begin with in a model that was saved with its head, and the name of its embedding table after it.
    head : str
        The name of its head.
    unused : tuple of str
        Prefixes, after `prefix`, of tensors that may be present too.
    """
    shapes = checkpoint.tensors().shapes
    table = f"{embedding}.weight"
    others = ("", _QUESTION_PREFIX, *_TEXT_PREFIXES)
    prefix = next((each for each in others if (f"{each}.{table}" if each else table) in shapes), prefix)
    at = f"{prefix}." if prefix else ""
    head = f"language_model.{head}" if prefix == _TEXT_PREFIXES[0] else head
    weight = f"{head}.weight"
    # A model saved without its head has names without its prefix, or the head of another task.
    is_base = prefix in ("", _TEXT_PREFIXES[-1])
    is_headless = config.tied or is_base or any(name.startswith(_TASK_HEADS) for name in shapes)
    has_head = not is_headless or weight in shapes

    pictures = [f"{outer}{name}" for outer in ("", "model.") for name in _PICTURES if prefix in _TEXT_PREFIXES]

    def with_head(source: TensorSource) -> dict[str, Any]:
        layers = build(source.at(prefix))
        lm_head = linear(source, head, config.embed_dim, config.vocab_size, bias=False) if has_head else None
        return {**layers, "lm_head": lm_head}

    layers = load_layers(
        checkpoint,
        with_head,
        num_layers=config.num_layers,
        unused=(*_TASK_HEADS, *_FURTHER, *(at + name for name in unused), *pictures),
        shared={at + table: weight} if config.tied else {},
        dtype=dtype,
    )
    # A tied head may be stored too; one that differs from the embeddings is used, and the configuration is wrong.
    has_tied_copy = config.tied and layers["lm_head"] is not None
    if has_tied_copy and np.array_equal(layers["lm_head"].weight.T, layers["token_embedding"].weight):
        layers["lm_head"] = None
    return layers
