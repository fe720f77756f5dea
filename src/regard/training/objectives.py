"""What a model is trained for: from a batch to the logits of what is to be predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.models.bart import Bart
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.language import LanguageModel
from regard.models.task_heads import MaskedWordHead
from regard.nn import Layer
from regard.training import batches
from regard.training.batches import IGNORED, Batch


@dataclass(frozen=True, eq=False, repr=False)
class NextToken(Layer):
    """A decoder that predicts each next token.

    Parameters
    ----------
    model : TextModel
        With `forward` and `head`.
    """

    model: Any

    embeddings_tap: ClassVar[str] = "embeddings"  # of what the first block gets

    @property
    def architecture(self) -> str:
        """The class of transformers that has it."""
        name = type(self.model).__name__
        return "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"

    def as_batch(self, item: Any) -> Batch:
        """Return a batch of ids or texts, of which each token predicts the next, or of ids and targets."""
        batch = batches.as_batch(item, self.model.tokenizer, self.model.max_length)
        if batch.mask is not None and (batch.mask[:, 1:] > batch.mask[:, :-1]).any():
            raise RegardError("a text begins after padding: the texts of a decoder are padded on the right")
        return batch

    def __call__(self, batch: Batch, *, trace: Recorder = NULL_RECORDER) -> tuple[Any, np.ndarray]:
        """Return logits, ``... V``, and targets, ``...``."""
        return self.model.head(self.model.forward(batch.ids, trace=trace)), batch.targets


@dataclass(frozen=True, eq=False, repr=False)
class SequenceToSequence(Layer):
    """An encoder-decoder that predicts each token of a target from a source and the tokens before it.

    Parameters
    ----------
    model : EncoderDecoder
    """

    model: Any

    @property
    def architecture(self) -> str:
        """The class of transformers that has it."""
        return f"{type(self.model).__name__}ForConditionalGeneration"

    @property
    def embeddings_tap(self) -> str:
        """The tap of what the first block gets."""
        return "normed_embeddings" if isinstance(self.model, Bart) else "token_embeddings"

    def as_batch(self, item: Any) -> Batch:
        """Return a batch of sources and targets."""
        return batches.as_pairs(item, self.model.tokenizer, self.model.max_length)

    def __call__(self, batch: Batch, *, trace: Recorder = NULL_RECORDER) -> tuple[Any, np.ndarray]:
        """Return logits, ``B T V``, and targets, ``B T``; the decoder reads the targets after its start token."""
        mask, targets = _attention_mask(batch), batch.targets
        pad_id = self.model.tokenizer.pad_id or 0
        ids = np.where(targets == IGNORED, pad_id, targets)
        ids = np.concatenate([np.full((len(ids), 1), self.model.start_id), ids[:, :-1]], 1)
        memory = self.model.encode(batch.ids, mask=mask, trace=trace)
        state = self.model.init_cross_attention_cache(memory, mask, trace=trace)
        return self.model.head(self.model.decode(ids, state, trace=trace)[0]), targets


@dataclass(frozen=True, eq=False, repr=False)
class MaskedWords(Layer):
    """An encoder that predicts words which are masked, through its head.

    Parameters
    ----------
    model : Encoder
        With a `MaskedWordHead`.
    """

    model: Any

    embeddings_tap: ClassVar[str] = "normed_embeddings"

    @property
    def architecture(self) -> str:
        """The class of transformers that has it."""
        return str(self.model.task_head.architecture)

    def as_batch(self, item: Any) -> Batch:
        """Return a batch of ids and targets, an error for texts: `mask_words` makes a batch of them."""
        is_pair = isinstance(item, tuple) and all(isinstance(x, np.ndarray) for x in item)
        if not is_pair and not isinstance(item, Batch):
            raise RegardError(
                f"{self.model.name} predicts masked words, so a batch is what training.mask_words returns, or (ids, "
                f"targets), got {type(item).__name__}"
            )
        return batches.as_batch(item, self.model.tokenizer, self.model.max_length)

    def __call__(self, batch: Batch, *, trace: Recorder = NULL_RECORDER) -> tuple[Any, np.ndarray]:
        """Return the logits at the masked words, ``N V``, and those words, ``N``."""
        hidden = self.model.forward(batch.ids, mask=_attention_mask(batch), trace=trace)
        places = np.flatnonzero(batch.targets != IGNORED)
        x = F.embedding(hidden.reshape(-1, hidden.shape[-1]), places)  # N E
        logits = self.model.task_head(x, self.model.token_embedding.weight)
        return logits, batch.targets.reshape(-1)[places]


Objective: TypeAlias = NextToken | SequenceToSequence | MaskedWords


def make_objective(model: TextModel) -> Objective:
    """Return what a model is trained for."""
    if isinstance(model, EncoderDecoder):
        return SequenceToSequence(model)
    if isinstance(model, LanguageModel):
        return NextToken(model)
    assert isinstance(getattr(model, "task_head", None), MaskedWordHead)  # `Trainable` draws one where there is none
    return MaskedWords(model)


def count_tokens(objective: Objective, batch: Batch) -> int:
    """Return how many tokens a model reads in a batch."""
    return batch.ids.size + (batch.targets.size if isinstance(objective, SequenceToSequence) else 0)


def _attention_mask(batch: Batch) -> np.ndarray | None:
    """Return ``B 1 1 T``, True where there is text; None where all is."""
    return None if batch.mask is None or batch.mask.all() else batch.mask[:, None, None, :]
