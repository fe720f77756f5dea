"""What a model is trained for: from a batch to the logits of what is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.nn import Layer, LayerNorm, Linear
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

    @property
    def architecture(self) -> str:
        """The class of transformers that has it."""
        name = type(self.model).__name__
        return "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"

    def __call__(self, batch: Batch, *, trace: Recorder = NULL_RECORDER) -> tuple[Any, np.ndarray]:
        """Return logits, ``... V``, and targets, ``...``."""
        return self.model.head(self.model.forward(batch.ids, trace=trace)), batch.targets


@dataclass(frozen=True, eq=False, repr=False)
class MaskedWords(Layer):
    """An encoder that predicts words which are masked, through the head of BERT.

    Parameters
    ----------
    model : Bert
    dense : Linear, ``E E``
    norm : LayerNorm
    bias : array, ``V``
        Of the logits, which are products with the table of the embeddings.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """

    model: Any
    dense: Linear
    norm: LayerNorm
    bias: np.ndarray

    architecture: ClassVar[str] = "BertForMaskedLM"

    def __call__(self, batch: Batch, *, trace: Recorder = NULL_RECORDER) -> tuple[Any, np.ndarray]:
        """Return the logits at the masked words, ``N V``, and those words, ``N``."""
        mask = None if batch.mask is None or batch.mask.all() else batch.mask[:, None, None, :]
        hidden = self.model.forward(batch.ids, mask=mask, trace=trace)
        places = np.flatnonzero(batch.targets != IGNORED)
        x = F.embedding(hidden.reshape(-1, hidden.shape[-1]), places)  # N E
        x = self.norm(self.dense(x, activation=self.model.config.activation))
        return F.linear(x, self.model.token_embedding.weight.T, self.bias), batch.targets.reshape(-1)[places]


Objective: TypeAlias = NextToken | MaskedWords


def make_objective(model: TextModel, tensors: Mapping[str, np.ndarray] | None) -> Objective:
    """Return what a model is trained for; `tensors` are those of an encoder with its head for masked words.

    Raises
    ------
    RegardError
        The model is neither a decoder nor a BERT with that head.
    """
    if tensors is not None:
        dense, norm, bias = (f"cls.predictions.{name}" for name in ("transform.dense", "transform.LayerNorm", "bias"))
        if type(model).__name__ != "Bert" or f"{dense}.weight" not in tensors:
            raise RegardError(f"{model.name} has no head for masked words: choose a BERT that was saved with it")
        return MaskedWords(
            model,
            Linear(tensors[f"{dense}.weight"].T, tensors[f"{dense}.bias"]),
            LayerNorm(tensors[f"{norm}.weight"], tensors[f"{norm}.bias"], model.config.norm_eps),
            tensors[bias],
        )
    if model.head is None or hasattr(model, "encode"):
        raise RegardError(
            f"{model.name} cannot be trained to predict the next token: decoders can, and a BERT on masked words"
        )
    return NextToken(model)
