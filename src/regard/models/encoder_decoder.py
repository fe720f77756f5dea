"""What encoder-decoders have in common: one text is read, another is written. Knows no architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import Batch, Output, Text, batch, with_edits
from regard.models.generation.decoding_state import DecodingState
from regard.models.generation.loop import Generated, GenerationState
from regard.models.generation.options import GenerationOptions
from regard.models.language import LanguageModel
from regard.nn import CrossAttention
from regard.nn.kv_cache import KVCache
from regard.text.encoding import Encoding
from regard.trace import Edit


@dataclass(frozen=True, eq=False)
class EncoderDecoderOutput(Output):
    """What an encoder-decoder returns: ``hidden`` and ``encodings`` are those of the target.

    Parameters
    ----------
    memory : array, ``B S E``
        The encoder's contextual vectors, which the decoder looks at.
    memory_encodings : tuple of Encoding
        The texts that the encoder has read, as tokens.
    """

    memory: np.ndarray = field(kw_only=True)
    memory_encodings: tuple[Encoding, ...] = field(kw_only=True)


class _Block(Protocol):
    @property
    def cross_attn(self) -> CrossAttention:
        """What looks at the encoder's vectors."""


class _Decoder(Protocol):
    @property
    def blocks(self) -> Sequence[_Block]:
        """The blocks, one after the other."""


class EncoderDecoder(LanguageModel):
    """A model whose encoder reads a text and whose decoder, looking at that, writes another.

    A family has, besides what a `LanguageModel` has, the field ``decoder`` with its blocks, and ``start_id`` in its
    configuration.
    """

    decoder: _Decoder

    @property
    def start_id(self) -> int:
        """The token that every target begins with."""
        return int(self.config.start_id)

    def encode(self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the encoder's contextual vectors, ``B S E``, of ids ``B S``; the mask is ``B 1 1 S``."""
        raise NotImplementedError

    def init_cross_attention_cache(
        self, memory: np.ndarray, mask: np.ndarray | None, *, trace: Recorder = NULL_RECORDER
    ) -> DecodingState:
        """Return the state of a decoder that looks at the encoder's vectors, ``B S E``, and has run nothing yet.

        Taps ``decoder.blocks.i.cross_attn.k`` and ``v``, which are computed once for all tokens of a target.
        """
        kept = []
        for index, block in enumerate(self.decoder.blocks):
            with trace.scope(f"decoder.blocks.{index}.cross_attn"):
                kept.append(KVCache().append(*block.cross_attn.project_kv(memory, trace=trace)))
        return DecodingState((KVCache(),) * len(kept), memory=tuple(kept), memory_mask=mask)

    def decode(
        self, ids: np.ndarray, state: DecodingState, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the decoder's contextual vectors, ``B T E``, of the tokens behind those of the state, and the next.

        The mask, ``B 1 1 T``, is True where text is; it is for a state in which nothing has run yet.
        """
        raise NotImplementedError

    def prefill(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Encode the texts, ``B S``, and run the start token; return its vectors, ``B 1 E``, and the caches."""
        state = self.init_cross_attention_cache(self.encode(ids, mask=mask, trace=trace), mask, trace=trace)
        return self.decode(np.full((len(ids), 1), self.start_id), state, trace=trace)

    def decode_step(
        self, ids: np.ndarray, state: DecodingState, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the contextual vectors, ``B T E``, of tokens ``B T`` after those of `state`, and the next state."""
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
        """Return the contextual vectors of the target for the text, or for each of a batch of them.

        Parameters
        ----------
        text
            What the encoder reads.
        target
            What the decoder reads; by default the token alone that every target begins with. A string is put as
            in training: behind that token, and without the special ones at its end, so that the logits of each
            token are for the next one of the string. Encodings and ids are read as they are.
        trace : Recorder
            Gets the steps of the encoder as ``encoder.blocks.i.attn.*`` and so on, those of the decoder as
            ``decoder.blocks.i.attn.*``, ``decoder.blocks.i.cross_attn.*`` and so on.
        edit : mapping of str to function, optional
            As `regard.Trace` takes it, for who wants an answer that is edited and no trace.

        Raises
        ------
        RegardError
            What a text or a target has too much of or none; or not as many targets as texts; or both a trace and an
            edit.
        """
        trace = with_edits(trace, edit)
        texts = batch(text, self.tokenizer, max_length=self.max_length, name=self.name)
        targets = self._targets(target, len(texts.ids))
        trace.set_metadata(self.name, texts.encodings)
        memory = self.encode(texts.ids, mask=texts.mask, trace=trace)
        state = self.init_cross_attention_cache(memory, texts.mask, trace=trace)
        hidden, _ = self.decode(targets.ids, state, mask=targets.mask, trace=trace)
        trace.check_edits_used()
        return EncoderDecoderOutput(
            hidden, targets.encodings, self.head, memory=memory, memory_encodings=texts.encodings
        )

    def record_full_sequence(self, generated: Sequence[Generated], *, trace: Recorder) -> None:
        """Run once over texts and all that was written for them, as if it had been given."""
        self([one.prompt for one in generated], [one.encoding for one in generated], trace=trace)

    def _generation_states(self, prompts: Sequence[Encoding], options: GenerationOptions) -> list[GenerationState]:
        start = self.tokenizer.from_ids([self.start_id])
        return [
            GenerationState(self.tokenizer, prompt, options, self.end_ids, self.forced, target_start=start)
            for prompt in prompts
        ]

    def _targets(self, target: Text | None, count: int) -> Batch:
        """Return what the decoder reads for each of `count` texts."""
        start = self.tokenizer.from_ids([self.start_id])
        if target is None:
            target = [start] * count
        elif isinstance(target, str):
            target = [_shifted(self.tokenizer(target), start)]
        elif isinstance(target, Iterable) and not isinstance(target, np.ndarray | Encoding):
            target = [_shifted(self.tokenizer(one), start) if isinstance(one, str) else one for one in target]  # type: ignore[assignment]
        targets = batch(target, self.tokenizer, max_length=self.max_length, name=self.name)
        if len(targets.ids) != count:
            raise RegardError(f"{len(targets.ids)} targets are given for {count} texts; give one for each")
        return targets


def _shifted(target: Encoding, start: Encoding) -> Encoding:
    """Return a target behind the token that it starts with, and without the special tokens at its end."""
    size = len(target)
    while size and target.special_tokens_mask[size - 1]:
        size -= 1
    return replace(
        target,
        ids=start.ids + target.ids[:size],
        tokens=start.tokens + target.tokens[:size],
        special_tokens_mask=(True, *target.special_tokens_mask[:size]),
        word_ids=(None, *target.word_ids[:size]),
        offsets=((0, 0), *target.offsets[:size]),
    )


def tables(shapes: Mapping[str, Any], prefix: str, *, tied: bool) -> dict[str, str]:
    """Return under which name a checkpoint holds the embeddings of ``encoder`` and ``decoder`` and the ``head``.

    One table may serve for all, called ``shared``, or as whichever of the three is written; each of the three may
    also have its own. Without `tied` the head always has.
    """
    shared = f"{prefix}shared.weight"
    own = {
        "encoder": f"{prefix}encoder.embed_tokens.weight",
        "decoder": f"{prefix}decoder.embed_tokens.weight",
        "head": "lm_head.weight",
    }
    written = [name for name in (shared, *own.values()) if name in shapes and (tied or name != own["head"])]
    any_other = written[0] if written else shared
    found = {part: name if name in shapes else any_other for part, name in own.items()}
    return found if tied else found | {"head": own["head"]}
