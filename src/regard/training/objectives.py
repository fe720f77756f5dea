"""What a model is trained for: from a batch to the logits of what is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.models.bart import Bart
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
        return batches.as_batch(item, self.model.tokenizer, self.model.max_length)

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
        Of the logits, which are products with the table of the embeddings.
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
    activation: str = field(kw_only=True)
    architecture: str = field(kw_only=True)

    embeddings_tap: ClassVar[str] = "normed_embeddings"

    def as_batch(self, item: Any) -> Batch:
        """Return a batch of ids and targets, an error for texts: `mask_words` makes a batch of them."""
        if not isinstance(item, tuple | Batch):
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
        return F.linear(x, self.model.token_embedding.weight.T, self.bias), batch.targets.reshape(-1)[places]


Objective: TypeAlias = NextToken | SequenceToSequence | MaskedWords


def make_objective(model: TextModel, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Objective:
    """Return what a model is trained for.

    Parameters
    ----------
    model : TextModel
    config, tensors : mapping
        The fields of config.json; and the tensors, those of an encoder with its head.

    Raises
    ------
    RegardError
        A decoder has no head, or there is none known for an encoder.
    """
    if isinstance(model, EncoderDecoder):
        return SequenceToSequence(model)
    if isinstance(model, LanguageModel):
        return NextToken(model)
    head, heads = masked_word_head(config), tensors.get
    return MaskedWords(
        model,
        Linear(tensors[f"{head.dense}.weight"].T, heads(f"{head.dense}.bias")),
        LayerNorm(tensors[f"{head.norm}.weight"], heads(f"{head.norm}.bias"), model.config.norm_eps),
        heads(head.bias),
        activation=head.activation or model.config.activation,
        architecture=head.architecture,
    )


def _attention_mask(batch: Batch) -> np.ndarray | None:
    """Return ``B 1 1 T``, True where there is text; None where all is."""
    return None if batch.mask is None or batch.mask.all() else batch.mask[:, None, None, :]
