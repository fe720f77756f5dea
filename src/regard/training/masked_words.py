"""The heads with which encoders predict masked words, by the type of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.models.checkpoint.tensors import Tensors
from regard.training.batches import IGNORED, Batch


@dataclass(frozen=True)
class MaskedWordHead:
    """The names of a head in a checkpoint: logits = norm(activation(x · W + b)) · tableᵀ + c, of the embeddings' table.

    Parameters
    ----------
    architecture : str
        The class of transformers.
    prefix : str
        Of the names of the encoder's tensors beside those of the head.
    dense, norm : str
        Of W and b, and of the norm, without ``.weight`` and ``.bias``.
    bias : str
        Of c.
    activation : str, optional
        By default that of the blocks.
    """

    architecture: str
    prefix: str
    dense: str
    norm: str
    bias: str
    activation: str | None = None

    def shapes(self, model: Any, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, for a model and the fields of its config.json."""
        words, inner = model.token_embedding.weight.shape
        has_biases = config["model_type"] != "modernbert"  # there they are optional
        shapes: dict[str, tuple[int, ...]] = {f"{self.dense}.weight": (inner, model.config.embed_dim)}
        if config.get("classifier_bias", has_biases):
            shapes[f"{self.dense}.bias"] = (inner,)
        shapes[f"{self.norm}.weight"] = (inner,)
        if config.get("norm_bias", has_biases):
            shapes[f"{self.norm}.bias"] = (inner,)
        if config.get("decoder_bias", True):
            shapes[self.bias] = (words,)
        return shapes

    def draw(
        self, model: Any, config: Mapping[str, Any], rng: np.random.Generator, std: float
    ) -> dict[str, np.ndarray]:
        """Return the tensors of a new head: a matrix from a normal distribution, the norm 1, biases 0."""

        def make(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if len(shape) > 1:
                return rng.normal(0, std, shape)
            return np.ones(shape) if name == f"{self.norm}.weight" else np.zeros(shape)

        return {name: make(name, shape) for name, shape in self.shapes(model, config).items()}

    def read(
        self, checkpoint: Tensors, model: Any, config: Mapping[str, Any], encoder: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the tensors of an encoder with those of its head in the checkpoint; without them where it has none."""
        # A model that was saved without a head has names without prefix.
        tensors = {self.prefix + name.removeprefix(self.prefix).removeprefix("bert."): x for name, x in encoder.items()}
        names = self.shapes(model, config)
        return tensors | {name: checkpoint[name] for name in names if name in checkpoint.shapes}


_BERT = "cls.predictions.transform"
_HEADS: Mapping[str, MaskedWordHead] = MappingProxyType(
    {
        "albert": MaskedWordHead(
            "AlbertForMaskedLM", "albert.", "predictions.dense", "predictions.LayerNorm", "predictions.bias"
        ),
        "bert": MaskedWordHead(
            "BertForMaskedLM", "bert.", f"{_BERT}.dense", f"{_BERT}.LayerNorm", "cls.predictions.bias"
        ),
        "deberta-v2": MaskedWordHead(
            "DebertaV2ForMaskedLM", "deberta.", f"{_BERT}.dense", f"{_BERT}.LayerNorm", "cls.predictions.bias"
        ),
        "distilbert": MaskedWordHead(
            "DistilBertForMaskedLM", "distilbert.", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias",
        ),
        "electra": MaskedWordHead(
            "ElectraForMaskedLM", "electra.", "generator_predictions.dense", "generator_predictions.LayerNorm",
            "generator_lm_head.bias", "gelu",
        ),
        "modernbert": MaskedWordHead(
            "ModernBertForMaskedLM", "model.", "head.dense", "head.norm", "decoder.bias", "gelu"
        ),
        "mpnet": MaskedWordHead(
            "MPNetForMaskedLM", "mpnet.", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "gelu"
        ),
        "nomic_bert": MaskedWordHead(
            "NomicBertForMaskedLM", "nomic_bert.", f"{_BERT}.dense", f"{_BERT}.layer_norm", "cls.predictions.bias"
        ),
        "roberta": MaskedWordHead(
            "RobertaForMaskedLM", "roberta.", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "gelu"
        ),
        "xlm-roberta": MaskedWordHead(
            "XLMRobertaForMaskedLM", "roberta.", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "gelu"
        ),
    }
)  # fmt: skip


def masked_word_head(config: Mapping[str, Any]) -> MaskedWordHead:
    """Return the head of an encoder with the fields of config.json.

    Raises
    ------
    RegardError
        There is none for its type, or it does not share the table of the embeddings.
    """
    head = _HEADS.get(str(config.get("model_type")))
    if head is None:
        raise RegardError(
            f"an encoder of type {config.get('model_type')!r} cannot be trained: masked words are predicted by "
            f"{', '.join(_HEADS)}"
        )
    if not config.get("tie_word_embeddings", True) or not config.get("legacy", True):
        raise RegardError("an encoder cannot be trained whose head for masked words has a table of its own")
    return head


def mask_words(
    ids: np.ndarray, rng: np.random.Generator, *, mask_id: int, vocab_size: int, rate: float = 0.15
) -> Batch:
    """Return a batch in which words are masked, and are to be predicted: one at least of each row.

    Parameters
    ----------
    ids : integer array, ``B T``
    rng : Generator
    mask_id : int
        Of the mask, which 80% of the chosen tokens become; 10% become another token, 10% stay.
    vocab_size : int
    rate : float
        The share of tokens that are chosen.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """
    chosen, how = rng.random(ids.shape) < rate, rng.random(ids.shape)
    chosen[:, 0] |= ~chosen.any(-1)
    changed = np.where(how < 0.8, mask_id, np.where(how < 0.9, rng.integers(0, vocab_size, ids.shape), ids))
    return Batch(np.where(chosen, changed, ids), np.where(chosen, ids, IGNORED))
