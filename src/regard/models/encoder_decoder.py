"""What encoder-decoders share: the encoder reads a text, the decoder reads or generates a target.

A family adds `encode` and `decode`, the two halves of its forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.batch import Batch, Text, make_batch
from regard.models.checkpoint.tensors import TensorSource
from regard.models.generation.decoding_state import DecodingState
from regard.models.generation.loop import Generated, GenerationState
from regard.models.generation.options import GenerationOptions
from regard.models.gradients import Metric, ModelGradients, gradients_of_run
from regard.models.language import LanguageModel
from regard.models.memory import check_memory
from regard.models.output import Output, until_stop, with_edits
from regard.nn import CrossAttention
from regard.nn.kv_cache import KVCache
from regard.text.encoding import Encoding
from regard.trace import Edit
from regard.trace.text_layout import TextLayout


@dataclass(frozen=True, eq=False)
class EncoderDecoderOutput(Output):
    """The result of an encoder-decoder; ``hidden`` and ``encodings`` are those of the target.

    Parameters
    ----------
    memory : array, ``B S E``
        The encoder's contextual vectors, to which the decoder attends.
    memory_encodings : tuple of Encoding
        The encoder's texts as tokens.
    """

    memory: np.ndarray = field(kw_only=True)
    memory_encodings: tuple[Encoding, ...] = field(kw_only=True)

    __repr__ = Output.__repr__


class _Block(Protocol):
    @property
    def cross_attn(self) -> CrossAttention:
        """The attention to the encoder's vectors."""


class _Decoder(Protocol):
    @property
    def blocks(self) -> Sequence[_Block]:
        """The blocks, in order."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EncoderDecoder(LanguageModel):
    """A model with an encoder, and a decoder that attends to the encoder's vectors.

    A family has, besides these fields, ``start_id`` in its configuration.

    Parameters
    ----------
    has_start : bool
        Whether the model's files name a token to generate from.
    """

    decoder: _Decoder
    has_start: bool = field(default=True, repr=False)

    left_padded_prompts: ClassVar[bool] = False  # positions of the encoder begin with the padding in transformers

    @property
    def start_id(self) -> int:
        """The first token of every target."""
        return int(self.config.start_id)

    def encode(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the encoder's contextual vectors, ``B S E``, of ids ``B S``; `mask`, ``B 1 1 S``, is True at text."""
        raise NotImplementedError

    def decode(
        self, ids: np.ndarray, state: DecodingState, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the decoder's contextual vectors, ``B T E``, of tokens after those of `state`, and the next state.

        `mask`, ``B 1 1 T``, is True where there is text; give it with an empty state only.
        """
        raise NotImplementedError

    def init_cross_attention_cache(
        self, memory: np.ndarray, mask: np.ndarray | None, *, trace: Recorder = NULL_RECORDER
    ) -> DecodingState:
        """Return the state of a decoder before its first token, with the keys and values of the memory, ``B S E``.

        Taps ``decoder.blocks.i.cross_attn.k`` and ``v``, which are computed once for all tokens of a target.
        """
        caches = []
        for index, block in enumerate(self.decoder.blocks):
            with trace.scope(f"decoder.blocks.{index}.cross_attn"):
                caches.append(KVCache().append(*block.cross_attn.project_kv(memory, trace=trace)))
        return DecodingState((KVCache(),) * len(caches), memory=tuple(caches), memory_mask=mask, prompt_end=1)

    def prefill(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Encode the texts, ``B S``, and run the start token; return its vectors, ``B 1 E``, and the caches."""
        trace.set_layout(TextLayout.from_shape(ids.shape, None if mask is None else mask[:, 0, 0]))
        state = self.init_cross_attention_cache(self.encode(ids, mask=mask, trace=trace), mask, trace=trace)
        return self.decode_step(np.full((len(ids), 1), self.start_id), state, trace=trace)

    def decode_step(
        self, ids: np.ndarray, state: DecodingState, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the contextual vectors, ``B T E``, of tokens ``B T`` after those of `state`, and the next state."""
        trace.set_layout(state.layout(len(ids)))
        return self.decode(ids, state, trace=trace)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the decoder's vectors, ``B 1 E``, of the start token, for texts ``B S``."""
        return self.prefill(ids, mask=mask, trace=trace)[0]

    def __call__(
        self,
        text: Text,
        target: Text | None = None,
        *,
        trace: Recorder = NULL_RECORDER,
        edit: Mapping[str, Edit] | None = None,
    ) -> EncoderDecoderOutput:
        """Return the contextual vectors of the target given the text, for one pair or a batch.

        Parameters
        ----------
        text
            The input of the encoder.
        target
            The input of the decoder; by default the start token alone. A string is prepared as in training: the start
            token before it, its final special tokens removed, so that the logits of each token are those of the next.
            Encodings and ids are used as they are.
        trace : Recorder
            Records the steps of the encoder as ``encoder.blocks.i.attn.*`` and so on, those of the decoder as
            ``decoder.blocks.i.attn.*``, ``decoder.blocks.i.cross_attn.*`` and so on.
        edit : mapping of str to function, optional
            As `regard.Trace` takes it, in place of a trace.

        Raises
        ------
        RegardError
            A text or target has no tokens or too many; their numbers differ; or both `trace` and `edit` are given.
        """
        batch = make_batch(text, self.tokenizer, max_length=self.max_length, name=self.name)
        targets = self._targets(target, len(batch.ids))
        return self._run_pairs(batch, targets, with_edits(trace, edit), targets.layout)

    def _run_pairs(
        self, batch: Batch, targets: Batch, trace: Recorder, target_layout: TextLayout
    ) -> EncoderDecoderOutput:
        check_memory(self, batch.ids.shape, trace, target_length=targets.ids.shape[1])
        run = trace.run(self.name, batch.encodings, targets.encodings, source=self)
        return until_stop(lambda _: self._run(batch, targets, trace, target_layout), run, targets.encodings)

    def gradients(
        self,
        text: Text,
        metric: Metric = "loss",
        *,
        target: Text | None = None,
        at: str | Iterable[str] = "*.output",
        only: str | Iterable[str] | None = None,
        parameters: str | Iterable[str] = (),
        checkpoint: bool = False,
    ) -> ModelGradients:
        """Return a number computed from the output, and its gradients, as `TextModel.gradients` does.

        `text` and `target` are those of a call; ``"loss"`` is that of the target.
        """
        return gradients_of_run(
            self, lambda model, trace: model(text, target, trace=trace), metric, at, only, parameters, checkpoint
        )

    def _run(self, batch: Batch, targets: Batch, trace: Recorder, target_layout: TextLayout) -> EncoderDecoderOutput:
        trace.set_layout(batch.layout)
        memory = self.encode(batch.ids, mask=batch.mask, trace=trace)
        state = self.init_cross_attention_cache(memory, batch.mask, trace=trace)
        trace.set_layout(target_layout)
        hidden, _ = self.decode(targets.ids, state, mask=targets.mask, trace=trace)
        return EncoderDecoderOutput(
            hidden, targets.encodings, self.head, memory=memory, memory_encodings=batch.encodings
        )

    def record_full_sequence(self, generated: Sequence[Generated], *, trace: Recorder) -> None:
        """Run the texts and the finished targets once more as a whole."""
        texts = [one.prompt for one in generated]
        batch = make_batch(texts, self.tokenizer, max_length=self.max_length, name=self.name)
        targets = self._targets([one.encoding for one in generated], len(texts))
        self._run_pairs(batch, targets, trace, targets.layout.after_prompts([1] * len(texts)))

    def _generation_states(self, prompts: Sequence[Encoding], options: GenerationOptions) -> list[GenerationState]:
        if not self.has_start:
            raise RegardError(
                "generation_config.json names no token to generate from: "
                "write decoder_start_token_id or bos_token_id into it"
            )
        start = self.tokenizer.from_ids([self.start_id])
        return [
            GenerationState(self.tokenizer, prompt, options, self.end_ids, self.forced, target_start=start)
            for prompt in prompts
        ]

    def _targets(self, target: Text | None, count: int) -> Batch:
        """Return the decoder's input for each of `count` texts."""
        start = self.tokenizer.from_ids([self.start_id])
        if target is None:
            target = [start] * count
        elif isinstance(target, str):
            target = [_shift_right(self.tokenizer(target), start)]
        elif isinstance(target, Iterable) and not isinstance(target, np.ndarray | Encoding | Mapping | Set):
            target = [_shift_right(self.tokenizer(one), start) if isinstance(one, str) else one for one in target]  # type: ignore[assignment]
        targets = make_batch(target, self.tokenizer, max_length=self.max_length, name=self.name)
        if len(targets.ids) != count:
            raise RegardError(f"got {len(targets.ids)} targets for {count} texts; give one target for each text")
        return targets


def _shift_right(target: Encoding, start: Encoding) -> Encoding:
    """Return a target with the start token before it and without its final special tokens."""
    size = len(target)
    while size and target.special_tokens_mask[size - 1]:
        size -= 1
    return target.select(range(size)).prepend_special(start.ids, start.tokens)


def embedding_names(stored_names: Collection[str], prefix: str, *, tied: bool) -> dict[str, str]:
    """Return the checkpoint's names of the embeddings of ``encoder`` and ``decoder`` and of the ``head``.

    One table may serve for all, stored as ``shared`` or under any of the three names; each of the three may also have
    its own. Without `tied` the head always has its own.
    """
    shared = f"{prefix}shared.weight"
    own = {
        "encoder": f"{prefix}encoder.embed_tokens.weight",
        "decoder": f"{prefix}decoder.embed_tokens.weight",
        "head": "lm_head.weight",
    }
    stored = [x for x in (shared, *own.values()) if x in stored_names and (tied or x != own["head"])]
    fallback = stored[0] if stored else shared
    names = {part: name if name in stored_names else fallback for part, name in own.items()}
    return names if tied else names | {"head": own["head"]}


def embedding_tables(source: TensorSource, name_of: Mapping[str, str], shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return the table of each part, ``V E``, by its name from `embedding_names`; parts of one name have one table."""
    tables = {name: source.array(name, shape) for name in sorted(set(name_of.values()))}
    return {part: tables[name] for part, name in name_of.items()}
