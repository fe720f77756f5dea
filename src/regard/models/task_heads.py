"""Task heads: what a text encoder was trained for on top of its contextual vectors, read from the same checkpoint.

A head for masked words has logits of the vocabulary at each token; a classifier has those of its classes, for a whole
text or for each token. The tables below have the names of their tensors by the type of the model; the sizes are those
of the model and of the tensors. `regard.models.encoder.Encoder` reads a head where its checkpoint has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.models.build import layer_norm, linear
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import (
    OLD_NORM_SUFFIXES,
    ExpectedTensors,
    TensorSource,
    current_names,
    load_layers,
)
from regard.nn import Layer, LayerNorm, Linear

_TIED_SUFFIXES = {".decoder.bias": ".bias"}  # one array under two names
_DEFAULT_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}
_SEQUENCE, _TOKENS = "ForSequenceClassification", "ForTokenClassification"  # ends of the names of classes


@dataclass(frozen=True, eq=False, repr=False)
class MaskedWordHead(Layer):
    """The head of an encoder that predicts masked words: logits = norm(activation(x · W + b)) · tableᵀ + c.

    Parameters
    ----------
    dense : Linear, ``E D``
        To the features of the embeddings.
    norm : LayerNorm
    bias : array, ``V``, optional
        Of the logits.
    table : array, ``V D``, optional
        The logits are products with it; None: with the table of the embeddings.
    activation, architecture : str
        The function between `dense` and `norm`, and the class of transformers that has the head.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1.
    """

    dense: Linear
    norm: LayerNorm
    bias: np.ndarray | None
    table: np.ndarray | None
    activation: str = field(kw_only=True)
    architecture: str = field(kw_only=True)

    def __call__(self, hidden: Any, embeddings: Any) -> Any:
        """Return the logits, ``... V``, of contextual vectors, ``... E``; `embeddings`, ``V D``, are the model's."""
        x = self.norm(self.dense(hidden, activation=self.activation))
        table = embeddings if self.table is None else self.table
        return F.linear(x, table.T, self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Layer):
    """The head of an encoder that chooses classes, for a whole text or for each token.

    Parameters
    ----------
    dense : Linear, ``E E``, optional
        Before the logits, followed by the activation and the norm; a head without it has no activation.
    norm : LayerNorm, optional
    classifier : Linear, ``E V``
        To the logits.
    activation : str, optional
        ``"tanh"``, or one of `regard.functional.activation`.
    pooling : {"cls", "mean"}, optional
        Which vector is that of a text: the first one or the mean; None for a head that classifies each token.
    labels : tuple of str
        The names of the classes.
    independent : bool
        Whether each class has a probability of its own, sigmoid(logit); otherwise the softmax has that of each.
    regression : bool
        Whether the logits are numbers that have no probabilities.
    """

    dense: Linear | None
    norm: LayerNorm | None
    classifier: Linear
    activation: str | None = field(kw_only=True)
    pooling: Literal["cls", "mean"] | None = field(kw_only=True)
    labels: tuple[str, ...] = field(kw_only=True)
    independent: bool = field(kw_only=True)
    regression: bool = field(default=False, kw_only=True)

    def __call__(self, hidden: Any, lengths: np.ndarray) -> Any:
        """Return the logits, ``B V`` or ``B T V``, of contextual vectors ``B T E``, of texts of some `lengths`."""
        x = hidden
        if self.pooling == "cls":
            x = hidden[:, 0]
        elif self.pooling == "mean":  # vectors of padding are 0
            x = hidden.sum(1) / lengths[:, None].astype(hidden.dtype)
        if self.dense is not None:
            x = self.dense(x)
        if self.activation is not None:
            x = np.tanh(x) if self.activation == "tanh" else F.activation(self.activation)(x)
        return self.classifier(x if self.norm is None else self.norm(x))


TaskHead: TypeAlias = MaskedWordHead | Classifier
"""What an encoder may have on top of its contextual vectors."""


def class_names(labels: Any, count: int, source: object) -> tuple[str, ...]:
    """Return the names of the `count` classes of a head, those of ``id2label`` by their numbers from 0.

    Without it, or where it is the default of transformers, for two classes, they are numbered.

    Raises
    ------
    RegardError
        It names other classes than the head, in the files at `source`, has.
    """
    names = {str(number): label for number, label in labels.items()} if isinstance(labels, Mapping) else labels
    numbered = tuple(f"LABEL_{i}" for i in range(count))
    if names is None or names == _DEFAULT_LABELS:
        return numbered
    if not isinstance(names, dict) or set(names) != {str(i) for i in range(count)}:
        problem = f"names {len(names)}" if isinstance(names, dict) else f"is {truncate(labels)}"
        raise RegardError(
            f"id2label of {source} {problem}, but the head has {count} classes: name each by its number from 0, or "
            "remove the field"
        )
    if not all(isinstance(label, str) for label in names.values()):
        raise RegardError(f"id2label of {source} must have a text for each class, got {truncate(labels)}")
    return tuple(names[str(i)] for i in range(count))


@dataclass(frozen=True, kw_only=True)
class _HeadNames:
    """What a configuration may say of a head besides the names of its tensors."""

    activation_field: str | None = None  # which names another activation
    has_biases: bool = True  # of `dense` and `norm`, where nothing is said

    def _biases(self, config: Any) -> tuple[bool, bool]:
        """Return whether `dense` and `norm` have biases."""
        return config.flag("classifier_bias", self.has_biases), config.flag("norm_bias", self.has_biases)

    def _known_activation(self, config: Any, default: str) -> str:
        """Return the activation; an error if the configuration names an unknown one."""
        if self.activation_field is None:
            return default
        name = config.peek(self.activation_field) or default
        if name != "tanh":
            F.activation(name)
        return str(name)


@dataclass(frozen=True)
class MaskedWordNames(_HeadNames):
    """The names of a `MaskedWordHead` in a checkpoint.

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
    is_always_tied: bool = field(default=False, kw_only=True)  # whatever the configuration says

    def load(self, checkpoint: Checkpoint, model: Any, dtype: Any) -> MaskedWordHead:
        """Return the head of a checkpoint.

        Raises
        ------
        RegardError
            A tensor is missing, of another shape, or not of finite numbers.
        """
        build, renamed = self._builder(checkpoint, model), self._renamed(checkpoint)
        layers = load_layers(checkpoint, build, num_layers=0, unused=("",), renamed_suffixes=renamed, dtype=dtype)
        return MaskedWordHead(**layers, activation=self._activation(checkpoint, model), architecture=self.architecture)

    def stored(self, checkpoint: Checkpoint, names: Set[str]) -> Set[str]:
        """Return which of the `names` of the head's tensors a checkpoint has."""
        return names & current_names(checkpoint.tensors().shapes, self._renamed(checkpoint)).keys()

    def fits(self, checkpoint: Checkpoint, model: Any) -> bool:
        """Tell whether a checkpoint has all tensors of the head, in the shapes that the model needs."""
        shapes = checkpoint.tensors().shapes
        stored = current_names(shapes, self._renamed(checkpoint))
        specs = ExpectedTensors(self._builder(checkpoint, model)).specs
        return all(spec.hf_name in stored and shapes[stored[spec.hf_name]] == spec.shape for spec in specs)

    def tensors(self, checkpoint: Checkpoint, model: Any) -> set[str]:
        """Return the names of the tensors of the head."""
        return {spec.hf_name for spec in ExpectedTensors(self._builder(checkpoint, model)).specs}

    def bare(self, name: str) -> str:
        """Return the name of a tensor of the encoder without a prefix."""
        return next((name.removeprefix(each) for each in self.prefixes if name.startswith(each)), name)

    def _activation(self, checkpoint: Checkpoint, model: Any) -> str:
        return self._known_activation(checkpoint.config(), self.activation or str(model.config.activation))

    def _is_tied(self, checkpoint: Checkpoint) -> bool:
        """Whether the table of the head is that of the embeddings, as it is where nothing is said."""
        return self.is_always_tied or checkpoint.config().peek("tie_word_embeddings") is not False

    def _renamed(self, checkpoint: Checkpoint) -> dict[str, str]:
        return {**OLD_NORM_SUFFIXES, **(_TIED_SUFFIXES if self._is_tied(checkpoint) else {})}

    def _builder(self, checkpoint: Checkpoint, model: Any) -> Callable[[TensorSource], dict[str, Any]]:
        """Return the code that builds the layers."""
        words, inner = model.token_embedding.weight.shape
        config, is_tied = checkpoint.config(), self._is_tied(checkpoint)
        dense_bias, norm_bias = self._biases(config)
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


@dataclass(frozen=True)
class ClassifierNames(_HeadNames):
    """The names of a `Classifier` of whole texts in a checkpoint; that of tokens has the logits alone, as a rule.

    Parameters
    ----------
    dense, classifier : str
        Of the linear maps, without ``.weight`` and ``.bias``.
    activation : str
        Of `dense`.
    is_inside : bool
        Whether `dense` is a part of the encoder, whose prefix its name has: the pooler.
    norm : str, optional
        Of the norm, which the head for tokens has too, after `dense`.
    """

    dense: str
    classifier: str = "classifier"
    activation: str = "tanh"
    is_inside: bool = False
    norm: str | None = None

    def load(self, checkpoint: Checkpoint, model: Any, dtype: Any, *, of_tokens: bool) -> Classifier | None:
        """Return the head of a checkpoint, None if it has none or not the whole.

        Raises
        ------
        RegardError
            A tensor is of another shape, or not of finite numbers.
        """
        config, shapes, E = checkpoint.config(), checkpoint.tensors().shapes, model.config.embed_dim
        classifier = "classifier" if of_tokens else self.classifier
        count = (*shapes.get(f"{classifier}.weight", ()), 1)[0]
        dense, is_modern = self.dense, self.norm is not None
        if self.is_inside:
            dense = next((p + dense for p in type(model).prefixes if f"{p}{dense}.weight" in shapes), dense)
        has_dense = is_modern or not of_tokens
        dense_bias, norm_bias = self._biases(config)

        def build(source: TensorSource) -> dict[str, Any]:
            return {
                "dense": linear(source, dense, E, E, bias=dense_bias) if has_dense else None,
                "norm": layer_norm(source, self.norm, E, model.config.norm_eps, bias=norm_bias) if self.norm else None,
                "classifier": linear(source, classifier, E, count),
            }

        needed = {spec.hf_name for spec in ExpectedTensors(build).specs}
        if not needed <= current_names(shapes, OLD_NORM_SUFFIXES).keys():
            return None
        layers = load_layers(
            checkpoint, build, num_layers=0, unused=("",), renamed_suffixes=OLD_NORM_SUFFIXES, dtype=dtype
        )
        pooling: Any = "cls"
        if of_tokens:
            pooling = None
        elif is_modern:
            pooling = config.peek("classifier_pooling") or "cls"
            if pooling not in ("cls", "mean"):
                raise RegardError(f"classifier_pooling of {checkpoint.path} must be cls or mean, got {pooling!r}")
        activation = self._known_activation(config, self.activation)
        return Classifier(
            **layers,
            activation=activation if has_dense else None,
            pooling=pooling,
            labels=class_names(config.peek("id2label"), count, checkpoint.path),
            independent=count == 1 or config.peek("problem_type") == "multi_label_classification",
            regression=config.peek("problem_type") == "regression",
        )


def _bert(architecture: str, *prefixes: str, norm: str = "LayerNorm") -> MaskedWordNames:
    at = "cls.predictions"
    names = f"{at}.transform.dense", f"{at}.transform.{norm}", f"{at}.decoder", f"{at}.bias"
    return MaskedWordNames(architecture, prefixes, *names)


def _roberta(architecture: str, prefix: str) -> MaskedWordNames:
    dense, norm, decoder, bias = (f"lm_head.{part}" for part in ("dense", "layer_norm", "decoder", "bias"))
    return MaskedWordNames(architecture, (prefix,), dense, norm, decoder, bias, activation="gelu")


_MASKED_WORDS: Mapping[str, MaskedWordNames] = MappingProxyType(
    {
        "albert": MaskedWordNames(
            "AlbertForMaskedLM",
            ("albert.",),
            *(f"predictions.{part}" for part in ("dense", "LayerNorm", "decoder", "bias")),
        ),
        "bert": _bert("BertForMaskedLM", "bert."),
        "deberta-v2": _bert("DebertaV2ForMaskedLM", "deberta."),
        "distilbert": MaskedWordNames(
            "DistilBertForMaskedLM",
            ("distilbert.",),
            "vocab_transform",
            "vocab_layer_norm",
            "vocab_projector",
            "vocab_projector.bias",
        ),
        "electra": MaskedWordNames(
            "ElectraForMaskedLM",
            ("electra.",),
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            "generator_lm_head.bias",
            activation="gelu",
        ),
        "modernbert": MaskedWordNames(
            *("ModernBertForMaskedLM", ("model.",), "head.dense", "head.norm", "decoder", "decoder.bias", "gelu"),
            activation_field="classifier_activation",
            has_biases=False,
        ),
        "mpnet": _roberta("MPNetForMaskedLM", "mpnet."),
        "nomic_bert": _bert("NomicBertForMaskedLM", "nomic_bert.", "bert.", norm="layer_norm"),
        "roberta": _roberta("RobertaForMaskedLM", "roberta."),
        "camembert": _roberta("CamembertForMaskedLM", "roberta."),
        "xlm-roberta": _roberta("XLMRobertaForMaskedLM", "roberta."),
    }
)
_NEWER_DEBERTA = MaskedWordNames(
    "DebertaV2ForMaskedLM",
    ("deberta.",),
    *(f"lm_predictions.lm_head.{part}" for part in ("dense", "LayerNorm", "decoder", "bias")),
    is_always_tied=True,
)
_POOLER = ClassifierNames("pooler.dense", is_inside=True)
_OUT_PROJ = ClassifierNames("classifier.dense", "classifier.out_proj")
_CLASSIFIERS: Mapping[str, ClassifierNames] = MappingProxyType(
    {
        "albert": ClassifierNames("pooler", is_inside=True),
        "bert": _POOLER,
        "deberta-v2": ClassifierNames("pooler.dense", activation="gelu", activation_field="pooler_hidden_act"),
        "distilbert": ClassifierNames("pre_classifier", activation="relu"),
        "electra": ClassifierNames("classifier.dense", "classifier.out_proj", "gelu"),
        "modernbert": ClassifierNames(
            "head.dense",
            activation="gelu",
            norm="head.norm",
            activation_field="classifier_activation",
            has_biases=False,
        ),
        "mpnet": _OUT_PROJ,
        "nomic_bert": _POOLER,
        "roberta": _OUT_PROJ,
        "camembert": _OUT_PROJ,
        "xlm-roberta": _OUT_PROJ,
    }
)


def load_task_head(checkpoint: Checkpoint, model: Any, dtype: Any) -> TaskHead | None:
    """Return the head that a checkpoint has for its encoder, `model`; None if it has none or not the whole.

    A classifier is read if the architecture in the configuration is one, for the names of its tensors do not say
    whether it is one of texts or of tokens. A head that the architecture does not have, and that does not fit the
    model, was left in the files: it is none.

    Raises
    ------
    RegardError
        A tensor of the head is of another shape, or not of finite numbers.
    """
    config = checkpoint.config()
    kind, architectures = config.peek("model_type"), config.peek("architectures")
    if kind not in _MASKED_WORDS:  # of a family outside regard
        return None
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if architecture.endswith((_SEQUENCE, _TOKENS)):
        return _CLASSIFIERS[kind].load(checkpoint, model, dtype, of_tokens=architecture.endswith(_TOKENS))
    names = masked_word_names(checkpoint)
    if architecture == names.architecture:
        needed = names.tensors(checkpoint, model)
        has_head = names.stored(checkpoint, needed) == needed
    else:
        has_head = names.fits(checkpoint, model)
    return names.load(checkpoint, model, dtype) if has_head else None


def of_classifier(checkpoint: Checkpoint, names: Set[str]) -> set[str]:
    """Return which names of the tensors of a head for masked words are those of the classifier that a checkpoint has.

    ModernBERT's heads share the names of their first layers.
    """
    config = checkpoint.config()
    kind, architectures = config.peek("model_type"), config.peek("architectures")
    if kind not in _CLASSIFIERS or not str((architectures or [""])[0]).endswith((_SEQUENCE, _TOKENS)):
        return set()
    classifier = _CLASSIFIERS[kind]
    parts = tuple(f"{part}." for part in (classifier.dense, classifier.norm) if part)
    return {name for name in names if name.startswith(parts)}


def masked_word_names(checkpoint: Checkpoint) -> MaskedWordNames:
    """Return the names of the head for masked words of an encoder.

    Raises
    ------
    RegardError
        There is none for its type.
    """
    config = checkpoint.config()
    kind = config.peek("model_type")
    if kind == "deberta-v2" and (config.peek("legacy") is False or _has_newer_head(checkpoint)):
        return _NEWER_DEBERTA
    if kind not in _MASKED_WORDS:
        raise RegardError(
            f"a model of type {kind!r} cannot be trained; of models without a decoder these can, on masked words: "
            f"{', '.join(_MASKED_WORDS)}"
        )
    return _MASKED_WORDS[kind]


def _has_newer_head(checkpoint: Checkpoint) -> bool:
    """Whether a DeBERTa has its own head alone, as the published files do whose configuration has no ``legacy``."""
    names = checkpoint.tensors().shapes
    return f"{_NEWER_DEBERTA.dense}.weight" in names and "cls.predictions.transform.dense.weight" not in names
