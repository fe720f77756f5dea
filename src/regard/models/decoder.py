"""What decoders have in common: blocks one after the other, positions that turn, and how their files say so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.generation_config import end_ids, forced_ids
from regard.models.checkpoint.load import Checkpoint, take, tokenizer_for
from regard.models.checkpoint.tensors import Tensor, linear_tensors
from regard.models.generation.decoding_state import DecodingState
from regard.models.generation.options import ForcedTokens
from regard.models.language import LanguageModel
from regard.nn import CosSin, DecoderBlock, Embedding, LayerNorm, Linear, RMSNorm
from regard.nn.kv_cache import KVCache
from regard.text import SubwordTokenizer

MOST_LAYERS = 10_000
_LARGEST_HEAD = 2**16
_MOST_POSITIONS = 2**29


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Decoder(LanguageModel):
    """A decoder with its tokenizer.

    Parameters
    ----------
    end_ids : tuple of int
        The tokens that end a text.
    lm_head : Linear, optional
        From contextual vectors to scores. Without it a model whose configuration is tied holds the vectors against
        the rows of the embeddings' table; any other was saved without its head and scores nothing.
    forced : ForcedTokens
        The token that its files want at the end.
    """

    name: str
    config: Any
    tokenizer: SubwordTokenizer
    end_ids: tuple[int, ...]
    token_embedding: Embedding
    blocks: tuple[DecoderBlock, ...]
    final_norm: LayerNorm | RMSNorm
    lm_head: Linear | None = None
    forced: ForcedTokens = field(default=ForcedTokens(), repr=False)

    @property
    def max_length(self) -> int:
        """The most tokens that it looks at at once: what it was trained for, and what its rotation is stretched to."""
        rope: Rope = self.config.rope
        return rope.max_context(self.config.max_positions)

    def embed_tokens(self, ids: np.ndarray, positions: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:  # noqa: ARG002
        """Return what enters the first block, ``B T E``; taps ``token_embeddings`` and ``embeddings``."""
        tokens = trace("token_embeddings", self.token_embedding(ids), "B T E")
        embeddings: np.ndarray = trace("embeddings", tokens, "B T E")
        return embeddings

    def rotation(self, positions: np.ndarray) -> CosSin | None:
        """Return how queries and keys turn at positions, ``T`` or ``B T``."""
        rope: Rope = self.config.rope
        return rope(positions, self.token_embedding.weight.dtype)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Padding is at the right. Taps ``token_embeddings``, ``position_embeddings`` where there are any,
        ``embeddings``, for each block ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and
        ``blocks.i.output``, and ``final_norm``, what is returned.
        """
        positions = np.arange(ids.shape[1])
        if mask is not None:
            positions = np.minimum(positions, mask[:, 0, 0].sum(-1, keepdims=True) - 1)  # B T
        return self._forward(ids, positions, mask, (None,) * len(self.blocks), trace)[0]

    def prefill(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Run the prompts, ``B T``, shorter ones padded at the left now so that all end together."""
        self._require_head()
        state = DecodingState((KVCache(),) * len(self.blocks))
        if mask is not None:
            padding = ids.shape[1] - mask[:, 0, 0].sum(-1)
            ids = np.stack([np.roll(row, shift) for row, shift in zip(ids, padding, strict=True)])
            state = replace(state, padding=padding)
        return self.decode_step(ids, state, trace=trace)

    def decode_step(
        self, ids: np.ndarray, state: DecodingState, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the contextual vectors, ``B T E``, of the tokens ``B T`` after those of `state`, and the next state."""
        positions = np.arange(state.end, state.end + ids.shape[1])
        mask = None
        if state.padding is not None:
            mask = (np.arange(state.end + ids.shape[1]) >= state.padding[:, None])[:, None, None, :]  # B 1 1 S
            positions = np.maximum(positions - state.padding[:, None], 0)  # B T
        hidden, caches = self._forward(ids, positions, mask, state.caches, trace)
        return hidden, replace(state, caches=caches)  # type: ignore[arg-type]

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return a score for each entry of the vocabulary, ``... V``, of contextual vectors ``... E``.

        Raises
        ------
        RegardError
            The model was saved without its head.
        """
        self._require_head()
        if self.lm_head is not None:
            return self.lm_head(hidden)
        logits: np.ndarray = F.linear(hidden, self.token_embedding.weight.T)
        return logits

    def _require_head(self) -> None:
        if self.lm_head is None and not self.config.tied:
            raise RegardError(
                f"{self.name} was saved without its head, lm_head.weight, so that it scores no token: it returns "
                f"contextual vectors, .hidden, alone"
            )

    def _forward(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        mask: np.ndarray | None,
        caches: Sequence[KVCache | None],
        trace: Recorder,
    ) -> tuple[np.ndarray, tuple[KVCache | None, ...]]:
        x = self.embed_tokens(ids, positions, trace=trace)
        rotation = self.rotation(positions)
        after = []
        for index, (block, cache) in enumerate(zip(self.blocks, caches, strict=True)):
            with trace.scope(f"blocks.{index}"):
                x, cache = block(x, rotation=rotation, cache=cache, mask=mask, trace=trace)
            after.append(cache)
        x = trace("final_norm", self.final_norm(x), "B T E")
        return x, tuple(after)


@dataclass(frozen=True)
class Rope:
    """How queries and keys turn with their position.

    Parameters
    ----------
    dim : int
        The features of a query, which turn in pairs.
    base : float
    scaling : mapping, optional
        As `regard.functional.rotary_frequencies` takes it.
    """

    dim: int
    base: float
    scaling: Mapping[str, Any] | None = None

    def __call__(self, positions: np.ndarray, dtype: Any) -> CosSin:
        """Return cosine and sine for positions ``T`` or ``B T``, shaped to go with ``B H T D``."""
        frequencies, magnitude = self._plain
        if self._kind == "dynamic":  # they depend on the length of each text
            lengths = positions.max(-1, keepdims=True) + 1
            frequencies = np.stack([self._of_length(int(length))[0] for length in lengths.flat])
            frequencies = frequencies[0] if positions.ndim == 1 else frequencies[:, None]
        angles = positions[..., None] * frequencies  # T D/2 or B T D/2
        cos, sin = ((f(angles) * magnitude).astype(dtype) for f in (np.cos, np.sin))
        return (cos, sin) if positions.ndim == 1 else (cos[:, None], sin[:, None])

    def max_context(self, max_positions: int) -> int:
        """Return how many positions there are: `max_positions`, or what the scaling stretches the original ones to.

        Files of Llama 3 give all that there are, which are fewer than its factor would make of the original ones.
        """
        scaling = self.scaling or {}
        if self._kind == "llama3":
            return max_positions
        original = scaling.get("original_max_position_embeddings", max_positions)
        return max(max_positions, int(min(original * scaling.get("factor", 1), _MOST_POSITIONS)))

    @property
    def _kind(self) -> Any:
        return None if self.scaling is None else self.scaling["rope_type"]

    @functools.cached_property
    def _plain(self) -> tuple[np.ndarray, float]:
        return self._of_length(1)

    def _of_length(self, length: int) -> tuple[np.ndarray, float]:
        return F.rotary_frequencies(self.dim, base=self.base, scaling=self.scaling, length=length)


def read_sizes(
    reader: ConfigReader, *, head_dim: int | None = None, num_kv_heads: int | None = None, norm_eps: float = 1e-6
) -> dict[str, Any]:
    """Take the sizes that all decoders with grouped heads name alike.

    `head_dim`, `num_kv_heads` and `norm_eps` are a family's own defaults; ``E / H``, ``H`` and 1e-6 otherwise.
    """
    sizes: dict[str, Any] = {
        "vocab_size": reader.count("vocab_size"),
        "embed_dim": reader.count("hidden_size"),
        "num_layers": reader.count("num_hidden_layers"),
        "num_heads": reader.count("num_attention_heads"),
        "hidden_dim": reader.count("intermediate_size"),
        "max_positions": reader.count("max_position_embeddings"),
        "norm_eps": reader.positive("rms_norm_eps", norm_eps),
    }
    heads, embed_dim, positions = sizes["num_heads"], sizes["embed_dim"], sizes["max_positions"]
    reader.require(positions <= _MOST_POSITIONS, f"max_position_embeddings {positions} is more than can be counted")
    sizes["num_kv_heads"] = kv_heads = reader.optional_count("num_key_value_heads", num_kv_heads) or heads
    given = reader.optional_count("head_dim", head_dim)
    reader.require(
        given is not None or embed_dim % heads == 0,
        f"hidden_size {embed_dim} does not split into {heads} attention heads, and head_dim is not given",
    )
    sizes["head_dim"] = dim = given or embed_dim // heads
    reader.require(heads % kv_heads == 0, f"{heads} attention heads do not share {kv_heads} key/value heads")
    reader.require(
        dim % 2 == 0 and 0 < dim <= _LARGEST_HEAD, f"heads of {dim} features do not turn in pairs by their position"
    )
    if sizes["num_layers"] > MOST_LAYERS:
        reader.require(False, f"num_hidden_layers {sizes['num_layers']} is more than any model has")
        sizes["num_layers"] = 1
    return sizes


def read_rope(
    reader: ConfigReader,
    sizes: Mapping[str, Any],
    *,
    base: float = 10_000.0,
    scaling: Mapping[str, Any] | None = None,
) -> Rope:
    """Take how positions turn: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` of older files.

    `base` and `scaling` are a family's own defaults.
    """
    base = reader.positive("rope_theta", base)
    newer, older = reader.take("rope_parameters"), reader.take("rope_scaling")
    reader.require(not newer or not older, "rope_parameters and rope_scaling are both there: leave one out")
    found = newer or older or scaling
    if found is None:
        return Rope(sizes["head_dim"], base)
    if not isinstance(found, dict):
        reader.require(False, f"rope_parameters must be an object, not {found!r}")
        return Rope(sizes["head_dim"], base)
    apart = ("rope_type", "type", "rope_theta")
    numbers = {name: value for name, value in found.items() if name not in apart and value is not None}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind in ("yarn", "llama3"):
        numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
    elif kind == "dynamic":
        original = numbers.setdefault("original_max_position_embeddings", sizes["max_positions"])
        reader.require(
            original == sizes["max_positions"],
            f"dynamic rope scaling begins at max_position_embeddings {sizes['max_positions']}, not at {original!r}",
        )
    rope = Rope(sizes["head_dim"], found.get("rope_theta", base), {"rope_type": kind, **numbers})
    try:
        with np.errstate(all="ignore"):
            frequencies, _ = F.rotary_frequencies(
                min(rope.dim + rope.dim % 2, _LARGEST_HEAD), base=rope.base, scaling=rope.scaling, length=1
            )
        reader.require(bool(np.isfinite(frequencies).all()), f"rope_parameters={found!r} turn by no finite angle")
    except (RegardError, ArithmeticError, ValueError) as error:
        reader.require(False, f"rope_parameters={found!r}: {error}")
    return rope


def read_windows(
    reader: ConfigReader, num_layers: int, sliding_window: int | None, default: Sequence[bool]
) -> tuple[int | None, ...]:
    """Take ``layer_types``: for each layer how many tokens it looks at, itself included; None is all.

    `default` tells for each layer whether it slides, where the file does not say.
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
    """Take what stands in every configuration and must be as it is to be run here."""
    reader.flag("is_decoder", False)  # which it is either way
    for name, only in (("is_encoder_decoder", False), ("add_cross_attention", False), ("chunk_size_feed_forward", 0)):
        reader.choice(name, only, [only])
    reader.choice("pruned_heads", {}, [{}])
    reader.choice("cross_attention_hidden_size", None, [None])


def load_decoder_tensors(
    checkpoint: Checkpoint,
    config: Any,
    tensors: Callable[[Any, str], Iterator[Tensor]],
    *,
    first: tuple[str, str] = ("model.", "embed_tokens.weight"),
    unused: Callable[[str], tuple[str, ...]] = lambda _: (),
    dtype: Any,
) -> dict[str, np.ndarray]:
    """Return the tensors of a decoder by our names, its head among them where it has one of its own.

    Parameters
    ----------
    tensors : function
        What it is made of besides the head, for its configuration and what the checkpoint's names begin with.
    first : pair of str
        What names begin with in a model that was saved with its head, and the table of the embeddings behind that.
    unused : function
        What may be there besides, for what the names begin with.
    """
    shapes = checkpoint.tensors().shapes
    prefix = "" if first[1] in shapes else first[0]
    # A model saved without its head has bare names, or the head of a classifier.
    is_without = config.tied or not prefix or any(name.startswith("score.") for name in shapes)
    head = linear_tensors("lm_head", "lm_head", config.embed_dim, config.vocab_size, bias=False)
    weights = take(
        checkpoint,
        chain(tensors(config, prefix), () if is_without and "lm_head.weight" not in shapes else head),
        num_layers=config.num_layers,
        unused=("score.", *unused(prefix)),
        dtype=dtype,
    )
    is_told_twice = config.tied and "lm_head.weight" in weights  # unless they differ, for the configuration is wrong
    if is_told_twice and np.array_equal(weights["lm_head.weight"].T, weights["token_embedding.weight"]):
        del weights["lm_head.weight"]
    return weights


def common_fields(
    checkpoint: Checkpoint, config: Any, weights: Mapping[str, np.ndarray], *, name: str
) -> dict[str, Any]:
    """Return the fields of a `Decoder` that are the same in every family."""
    return {
        "name": name,
        "config": config,
        "tokenizer": tokenizer_for(checkpoint, config.vocab_size),
        "end_ids": end_ids(checkpoint),
        "forced": forced_ids(checkpoint),
        "token_embedding": Embedding(weights["token_embedding.weight"]),
        "lm_head": linear(weights, "lm_head") if "lm_head.weight" in weights else None,
    }


def decoder_tensors(
    config: Any, prefix: str, of_block: Callable[[str, str], Iterator[Tensor]], *, qkv_bias: bool, output_bias: bool
) -> Iterator[Tensor]:
    """Yield the tensors that all decoders with grouped heads have, under our name and the checkpoint's.

    `of_block` yields those that a block has besides its attention, for our name of the block and the checkpoint's.
    """
    E, q_width, kv_width = config.embed_dim, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield Tensor("token_embedding.weight", f"{prefix}embed_tokens.weight", (config.vocab_size, E))
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}", f"{prefix}layers.{i}"
        yield Tensor(f"{ours}.attn_norm.weight", f"{theirs}.input_layernorm.weight", (E,))
        for part, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
            stored = f"{theirs}.self_attn.{part}_proj"
            yield from linear_tensors(f"{ours}.attn.{part}_proj", stored, E, width, bias=qkv_bias)
        yield from linear_tensors(f"{ours}.attn.o_proj", f"{theirs}.self_attn.o_proj", q_width, E, bias=output_bias)
        yield from of_block(ours, theirs)
    yield Tensor("final_norm.weight", f"{prefix}norm.weight", (E,))


def gated_tensors(ours: str, theirs: str, config: Any, *, bias: bool) -> Iterator[Tensor]:
    """Yield the tensors of a gated feed-forward layer."""
    E, F = config.embed_dim, config.hidden_dim
    for part, inputs, outputs in (("gate", E, F), ("up", E, F), ("down", F, E)):
        yield from linear_tensors(f"{ours}.{part}_proj", f"{theirs}.{part}_proj", inputs, outputs, bias=bias)
