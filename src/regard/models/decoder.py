"""What decoders share: full-sequence and cached runs, positions under padding, and the output head.

A family adds `layers`, which builds its layers, and `forward_with_cache`, its forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np

from regard import functional as F
from regard._utils import hooks
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.batch import OneText
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSource
from regard.models.circuits import Circuits
from regard.models.decoder_checkpoint import load_decoder_layers
from regard.models.generation.decoding_state import DecodingState
from regard.models.language import LanguageModel, language_fields
from regard.nn import DecoderBlock, Embedding, LayerNorm, Linear, RMSNorm
from regard.nn.attention import CosSin
from regard.nn.decoder_step import decode_step
from regard.nn.fast_paths import instance_cache
from regard.nn.kv_cache import KVCache
from regard.nn.linear_state import LinearState
from regard.nn.quantized import QuantizedWeight

Caches: TypeAlias = Sequence[KVCache | LinearState | None]
"""The keys and values, or the state, of the tokens before, for each block; None: there are none, and none are kept."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Decoder(LanguageModel):
    """A decoder with its tokenizer.

    Parameters
    ----------
    lm_head : Linear, optional
        From contextual vectors to logits. Without it, a model with ``config.tied`` uses the embedding table; any other
        was saved without its head and has no logits.
    """

    token_embedding: Embedding
    blocks: tuple[DecoderBlock, ...]
    final_norm: LayerNorm | RMSNorm
    lm_head: Linear | None = None

    config_type: ClassVar[Any]
    prefix: ClassVar[str] = "model"  # of all names, in a checkpoint of a model with its head
    embedding: ClassVar[str] = "embed_tokens"  # the name of the table after it
    head_name: ClassVar[str] = "lm_head"

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        layers = load_decoder_layers(
            checkpoint,
            config,
            lambda source: cls.layers(source, config),
            prefix=cls.prefix,
            embedding=cls.embedding,
            head=cls.head_name,
            unused=cls.unused(config),
            dtype=dtype,
        )
        return cls(**language_fields(checkpoint, config, name=name), **layers)

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields of the model that are layers, except the head."""
        raise NotImplementedError

    @classmethod
    def unused(cls, config: Any) -> tuple[str, ...]:  # noqa: ARG003
        """Return the beginnings of names, after the prefix, of tensors that may be present too."""
        return ()

    @property
    def max_length(self) -> int:
        """The most tokens of a sequence: those of training, or those that rope scaling extends them to."""
        return int(self.config.rope.max_context(self.config.max_positions))

    @property
    def circuits(self) -> Circuits:
        """Its weights by layer and head, with the norms folded in, and the circuits that they form.

        Made once: after writing into the arrays of a model, make ``regard.models.Circuits(model)`` anew.
        """
        return instance_cache(self, "_circuits", lambda: Circuits(self))

    @property
    def embedding_scale(self) -> float:
        """The factor of the embeddings of tokens."""
        return 1.0

    @property
    def logit_scale(self) -> float:
        """The factor of the logits."""
        return 1.0

    def forward_with_cache(
        self, ids: np.ndarray, positions: np.ndarray, caches: Caches, *, mask: np.ndarray | None, trace: Recorder
    ) -> tuple[np.ndarray, Caches]:
        """Return the contextual vectors, ``B T E``, of ids ``B T``, and the caches with their keys and values appended.

        Parameters
        ----------
        ids : integer array, ``B T``
        positions : integer array, ``T`` or ``B T``
        caches : sequence of KVCache, LinearState or None, one for each block
        mask : boolean array, ``B 1 1 S``, optional
            True where a key is text, False at padding.
        """
        raise NotImplementedError

    def run_blocks(
        self,
        x: np.ndarray,
        caches: Caches,
        *,
        rotation: CosSin | list[CosSin | None] | None = None,
        mask: np.ndarray | None = None,
        trace: Recorder = NULL_RECORDER,
        **options: Any,
    ) -> tuple[np.ndarray, Caches]:
        """Return the output of all blocks, ``B T E``, for x ``B T E``, and the caches; arguments of a `DecoderBlock`.

        `rotation` is that of all blocks, or a list of those of each block, with None for a block without positions;
        `options` are those of `run_block`.
        The new tokens of each text are computed in one call of the kernel where no recorder wants a step.
        """
        rotations = rotation if isinstance(rotation, list) else [rotation] * len(self.blocks)
        if trace is NULL_RECORDER and mask is None and isinstance(rotation, tuple):
            stepped = decode_step(self, self.blocks, x, cast("Sequence[KVCache | None]", caches), rotation)
            if stepped is not None:
                return stepped
        caches = list(caches)
        first, x = trace.resume(x)
        if first > len(self.blocks):
            raise RegardError(f"start= names blocks.{first - 1}, but {self.name} has {len(self.blocks)} blocks")
        if first > self.last_start:
            raise RegardError(
                f"start= names blocks.{first - 1}, but later blocks of {self.name} read keys of "
                f"blocks.{self.last_start}"
            )
        for i in range(first, len(self.blocks)):
            with trace.scope(f"blocks.{i}"):
                x, caches[i] = self.run_block(i, x, caches, rotation=rotations[i], mask=mask, trace=trace, **options)
        return x, caches

    def run_block(self, i: int, x: np.ndarray, caches: Caches, **options: Any) -> tuple[np.ndarray, Any]:
        """Return the output of a block, ``B T E``, and its cache; the options are those of the block."""
        return self.blocks[i](x, cache=caches[i], **options)

    @property
    def last_start(self) -> int:
        """The last block from whose input a run can start."""
        return len(self.blocks)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Taps ``token_embeddings``, ``position_embeddings`` if there are any, ``embeddings``,
        for each block ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and ``blocks.i.output``, and
        ``final_norm``, the result.
        """
        positions = self.positions(ids.shape[1], mask)
        return self.forward_with_cache(ids, positions, (None,) * len(self.blocks), mask=mask, trace=trace)[0]

    def positions(self, length: int, mask: np.ndarray | None) -> np.ndarray:
        """Return the positions of a whole text, ``T``, or ``B T`` with a mask; padding before it counts."""
        positions = np.arange(length)
        if mask is None:
            return positions
        ends: np.ndarray = length - mask[:, 0, 0, ::-1].argmax(-1, keepdims=True)
        of_texts: np.ndarray = np.minimum(positions, ends - 1)
        return of_texts

    def prefill(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Run the prompts, ``B T``; their padding is moved to the left, so that all end together."""
        self.require_head()
        length = ids.shape[1]
        state = DecodingState(tuple(block.new_cache() for block in self.blocks), prompt_end=length)
        if mask is not None:
            padding = length - mask[:, 0, 0].sum(-1)
            ids = np.stack([np.roll(row, shift) for row, shift in zip(ids, padding, strict=True)])
            state = replace(state, padding=padding)
        return self.decode_step(ids, state, trace=trace)

    def decode_step(
        self, ids: np.ndarray, state: DecodingState, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the contextual vectors, ``B T E``, of tokens ``B T`` after those of `state`, and the next state."""
        positions, mask = np.arange(state.end, state.end + ids.shape[1]), None
        if state.padding is not None:
            mask = (np.arange(state.end + ids.shape[1]) >= state.padding[:, None])[:, None, None, :]  # B 1 1 S
            positions = np.maximum(positions - state.padding[:, None], 0)  # B T
        if trace is not NULL_RECORDER:
            trace.set_layout(state.layout(len(ids)))
        hidden, caches = self.forward_with_cache(ids, positions, state.caches, mask=mask, trace=trace)
        return hidden, replace(state, caches=tuple(caches))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, of contextual vectors ``... E``.

        Raises
        ------
        RegardError
            The model was saved without its head.
        """
        self.require_head()
        if self.logit_scale != 1:
            hidden = hidden * hidden.dtype.type(self.logit_scale)
        if self.lm_head is not None:
            return self.lm_head(hidden)
        if (tied := self.tied_head) is not None:
            return tied(hidden)
        logits: np.ndarray = F.linear(hidden, self.token_embedding.weight.T)
        return logits

    @property
    def tied_head(self) -> Linear | None:
        """The table of embeddings as the head, where it is that and is stored in blocks, so that it can be packed."""
        weight = self.token_embedding.weight
        if self.lm_head is not None or not self.config.tied or not isinstance(weight, QuantizedWeight):
            return None
        return instance_cache(self, "_tied_head", lambda: Linear(weight.T))

    def paths(self, text: OneText, to: Any, versus: Any = None, **options: Any) -> Any:
        """Return the paths through which a prediction comes from the tokens, as a small graph.

        The same as `regard.metrics.paths`, which has the arguments: ``corrupted``, ``baseline``, ``edges``.
        """
        return hooks.metrics().paths(self, text, to, versus, **options)

    def require_head(self) -> None:
        """Raise RegardError if the model was saved without its head."""
        if self.lm_head is None and not self.config.tied:
            raise RegardError(
                f"{self.name} has no logits: it was saved without its head; use its contextual vectors (.hidden)"
            )
