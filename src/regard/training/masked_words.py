"""Masked words: what is hidden in a batch, and the heads with which encoders predict it, by the type of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.models.build import layer_norm, linear
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import (
    OLD_NORM_SUFFIXES,
    ExpectedTensors,
    TensorSource,
    current_names,
    load_layers,
)
from regard.training.batches import IGNORED, Batch

_TIED_SUFFIXES = {".decoder.bias": ".bias"}  # one array under two names


@dataclass(frozen=True)
class MaskedWordHead:
    """A head in a checkpoint: logits = norm(activation(x · W + b)) · tableᵀ + c.

    Parameters
    ----------
    architecture : str
        The class of transformers.
    prefixes : tuple of str
        Of the names of the encoder's tensors beside those of the head; the first is how they are written.
    dense, norm, decoder : str
        The names of W and b, of the norm, and of a table and c without ties, each without ``.weight`` and ``.bias``.
    bias : str
        The name of c, if the table is that of the embeddings.
    activation : str, optional
        By default that of the blocks.
    """

    architecture: str
    prefixes: tuple[str, ...]
    dense: str
    norm: str
    decoder: str
    bias: str
    activation: str | None = None

    def load(self, checkpoint: Checkpoint, model: Any, dtype: Any) -> dict[str, Any]:
        """Return the layers `dense` and `norm`, and the arrays `bias` and `table`, None for one that there is not.

        Raises
        ------
        RegardError
            A tensor is missing, of another shape, or not of finite numbers.
        """
        build, renamed = self._builder(checkpoint, model), self._renamed(checkpoint)
        return load_layers(checkpoint, build, num_layers=0, unused=("",), renamed_suffixes=renamed, dtype=dtype)

    def is_stored(self, checkpoint: Checkpoint, model: Any) -> bool:
        """Whether a checkpoint has the head, or a part of it."""
        names = current_names(checkpoint.tensors().shapes, self._renamed(checkpoint))
        return any(spec.hf_name in names for spec in ExpectedTensors(self._builder(checkpoint, model)).specs)

    def function(self, checkpoint: Checkpoint, model: Any) -> str:
        """Return the name of the activation; an error for an unknown one."""
        config = checkpoint.config()
        if config.peek("model_type") == "modernbert":
            return config.activation("classifier_activation", "gelu")
        return self.activation or str(model.config.activation)

    def bare(self, name: str) -> str:
        """Return the name of a tensor of the encoder without a prefix."""
        return next((name.removeprefix(each) for each in self.prefixes if name.startswith(each)), name)

    def _renamed(self, checkpoint: Checkpoint) -> dict[str, str]:
        return {**OLD_NORM_SUFFIXES, **(_TIED_SUFFIXES if _is_tied(checkpoint) else {})}

    def _builder(self, checkpoint: Checkpoint, model: Any) -> Callable[[TensorSource], dict[str, Any]]:
        """Return the code that builds the layers."""
        words, inner = model.token_embedding.weight.shape
        config, is_tied = checkpoint.config(), _is_tied(checkpoint)
        has_biases = config.peek("model_type") != "modernbert"  # there they are optional
        dense_bias, norm_bias = config.flag("classifier_bias", has_biases), config.flag("norm_bias", has_biases)
        bias = self.bias if is_tied else f"{self.decoder}.bias"
        has_bias = config.flag("decoder_bias", True)

        def build(source: TensorSource) -> dict[str, Any]:
            return {
                "dense": linear(source, self.dense, model.config.embed_dim, inner, bias=dense_bias),
                "norm": layer_norm(source, self.norm, inner, model.config.norm_eps, bias=norm_bias),
                "bias": source.array(bias, (words,)) if has_bias else None,
                "table": None if is_tied else source.array(f"{self.decoder}.weight", (words, inner)),
            }

        return build


def _bert(architecture: str, *prefixes: str, norm: str = "LayerNorm") -> MaskedWordHead:
    at = "cls.predictions"
    names = f"{at}.transform.dense", f"{at}.transform.{norm}", f"{at}.decoder", f"{at}.bias"
    return MaskedWordHead(architecture, prefixes, *names)


def _roberta(architecture: str, prefix: str) -> MaskedWordHead:
    dense, norm, decoder, bias = (f"lm_head.{part}" for part in ("dense", "layer_norm", "decoder", "bias"))
    return MaskedWordHead(architecture, (prefix,), dense, norm, decoder, bias, activation="gelu")


_HEADS: Mapping[str, MaskedWordHead] = MappingProxyType(
    {
        "albert": MaskedWordHead(
            "AlbertForMaskedLM",
            ("albert.",),
            *(f"predictions.{part}" for part in ("dense", "LayerNorm", "decoder", "bias")),
        ),
        "bert": _bert("BertForMaskedLM", "bert."),
        "deberta-v2": _bert("DebertaV2ForMaskedLM", "deberta."),
        "distilbert": MaskedWordHead(
            "DistilBertForMaskedLM",
            ("distilbert.",),
            "vocab_transform",
            "vocab_layer_norm",
            "vocab_projector",
            "vocab_projector.bias",
        ),
        "electra": MaskedWordHead(
            "ElectraForMaskedLM",
            ("electra.",),
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            "generator_lm_head.bias",
            activation="gelu",
        ),
        "modernbert": MaskedWordHead(
            "ModernBertForMaskedLM", ("model.",), "head.dense", "head.norm", "decoder", "decoder.bias"
        ),
        "mpnet": _roberta("MPNetForMaskedLM", "mpnet."),
        "nomic_bert": _bert("NomicBertForMaskedLM", "nomic_bert.", "bert.", norm="layer_norm"),
        "roberta": _roberta("RobertaForMaskedLM", "roberta."),
        "xlm-roberta": _roberta("XLMRobertaForMaskedLM", "roberta."),
    }
)
_NEWER_DEBERTA = MaskedWordHead(
    "DebertaV2ForMaskedLM",
    ("deberta.",),
    *(f"lm_predictions.lm_head.{part}" for part in ("dense", "LayerNorm", "decoder", "bias")),
)


def masked_word_head(checkpoint: Checkpoint) -> MaskedWordHead:
    """Return the head of an encoder.

    Raises
    ------
    RegardError
        There is none for its type.
    """
    config = checkpoint.config()
    kind = config.peek("model_type")
    if kind == "deberta-v2" and config.peek("legacy") is False:
        return _NEWER_DEBERTA
    if kind not in _HEADS:
        raise RegardError(
            f"a model of type {kind!r} cannot be trained; of models without a decoder these can, on masked words: "
            f"{', '.join(_HEADS)}"
        )
    return _HEADS[kind]


def mask_words(
    ids: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: Iterable[int] = (),
    mask: np.ndarray | None = None,
    rate: float = 0.15,
) -> Batch:
    """Return a batch in which words are masked, and are to be predicted: one at least of each row, if it has any.

    Parameters
    ----------
    ids : integer array, ``B T``
    rng : Generator
    mask_id : int
        Of the mask, which 80% of the chosen tokens become; 10% become another token, 10% stay.
    vocab_size : int
    special_ids : iterable of int
        Tokens that are not words, such as those at the ends of a text.
    mask : boolean array, ``B T``, optional
        True where there is text.
    rate : float
        The share of tokens that are chosen.

    Raises
    ------
    RegardError
        An argument is invalid.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
        raise RegardError(f"ids must be integers, B T, got {ids.dtype} with the shape {ids.shape}")
    if not 0 < rate <= 1:
        raise RegardError(f"rate must be above 0 and at most 1, got {rate!r}")
    ids = ids.astype(np.int64)
    is_word = ~np.isin(ids, list(special_ids))
    if mask is not None:
        mask = np.asarray(mask)
        if mask.shape != ids.shape or mask.dtype != bool:
            raise RegardError(f"mask must be booleans in the shape of ids, {ids.shape}, got {mask.dtype} {mask.shape}")
        is_word &= mask
    drawn, how = np.where(is_word, rng.random(ids.shape), np.inf), rng.random(ids.shape)
    is_target = (drawn < rate) | (drawn == drawn.min(-1, keepdims=True)) & is_word  # of a row without one, any
    changed = np.where(how < 0.8, mask_id, np.where(how < 0.9, rng.integers(0, vocab_size, ids.shape), ids))
    return Batch(np.where(is_target, changed, ids), np.where(is_target, ids, IGNORED), mask)


def _is_tied(checkpoint: Checkpoint) -> bool:
    """Whether the table of the head is that of the embeddings, as it is where nothing is said."""
    config = checkpoint.config()
    return config.peek("tie_word_embeddings") is not False or config.peek("legacy") is False
