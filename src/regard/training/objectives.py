"""What a model is trained for: from a batch to the logits of what is to be predicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.models.bart import Bart
from regard.models.checkpoint.open import Checkpoint
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.language import LanguageModel
from regard.nn import Layer, LayerNorm, Linear
from regard.training import batches
from regard.training.batches import IGNORED, Batch
from regard.training.masked_words import masked_word_head


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
    """An encoder that predicts words which are masked, through a head.

    Parameters
    ----------
    model : TextModel
    dense : Linear, ``E D``
        To the features of the embeddings.
    norm : LayerNorm
    bias : array, ``V``, optional
        Of the logits.
    table : array, ``V D``, optional
        The logits are products with it; by default with the table of the embeddings.
    activation, architecture : str
        The function between `dense` and `norm`, and the class of transformers that has the head.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """

    model: Any
    dense: Linear
    norm: LayerNorm
    bias: np.ndarray | None
    table: np.ndarray | None
    activation: str = field(kw_only=True)
    architecture: str = field(kw_only=True)

    embeddings_tap: ClassVar[str] = "normed_embeddings"

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
        x = self.norm(self.dense(x, activation=self.activation))
        table = self.model.token_embedding.weight if self.table is None else self.table
        return F.linear(x, table.T, self.bias), batch.targets.reshape(-1)[places]


Objective: TypeAlias = NextToken | SequenceToSequence | MaskedWords


def make_objective(model: TextModel, checkpoint: Checkpoint, dtype: Any) -> Objective:
    """Return what a model is trained for; an encoder gets its head from the checkpoint.

    Raises
    ------
    RegardError
        There is no head known for an encoder, or its tensors do not fit.
    """
    if isinstance(model, EncoderDecoder):
        return SequenceToSequence(model)
    if isinstance(model, LanguageModel):
        return NextToken(model)
    head = masked_word_head(checkpoint)
    return MaskedWords(
        model,
        **head.load(checkpoint, model, dtype),
        activation=head.function(checkpoint, model),
        architecture=head.architecture,
    )


def count_tokens(objective: Objective, batch: Batch) -> int:
    """Return how many tokens a model reads in a batch."""
    return batch.ids.size + (batch.targets.size if isinstance(objective, SequenceToSequence) else 0)


def _attention_mask(batch: Batch) -> np.ndarray | None:
    """Return ``B 1 1 T``, True where there is text; None where all is."""
    return None if batch.mask is None or batch.mask.all() else batch.mask[:, None, None, :]
