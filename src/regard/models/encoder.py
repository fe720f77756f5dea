"""What text encoders share: how they are loaded, how their blocks follow each other, and what their heads predict.

A family adds `layers`, which builds its layers, and `forward`, its forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard._utils.validation import whole_number
from regard.functional.recorder import Recorder
from regard.models.base import TextModel
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import OLD_NORM_SUFFIXES, TensorSource, load_layers
from regard.models.output import Output
from regard.models.predictions import Prediction, likeliest
from regard.models.task_heads import Classifier, MaskedWordHead, TaskHead, load_task_head
from regard.nn import EncoderBlock
from regard.text import SubwordTokenizer
from regard.text.encoding import Encoding
from regard.trace import Edit


@dataclass(frozen=True, eq=False)
class TaskOutput(Output):
    """The result of an encoder that has a task head.

    Parameters
    ----------
    task_head : function
        From contextual vectors, ``B T E``, to logits.
    labels : tuple of str
        The names of the classes; none for a head of masked words.
    """

    task_head: Callable[[Any], Any] = field(kw_only=True, repr=False)
    labels: tuple[str, ...] = field(default=(), kw_only=True)

    __repr__ = fields_repr

    @cached_property
    def logits(self) -> np.ndarray:
        """The logits; computed on first access.

        For masked words ``B T V``: of the word at each token. For a classifier those of its classes: ``B V``, or
        ``B T V`` for one of tokens.
        """
        logits: np.ndarray = self.task_head(self.hidden)
        return logits

    def loss(self) -> Any:
        """Raise: an encoder has no next token."""
        raise RegardError("an encoder has no next token: compute a loss of its logits, F.cross_entropy(o.logits, …)")

    def token_losses(self) -> np.ndarray:
        """Raise: an encoder has no next token."""
        return np.asarray(self.loss())


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(TextModel):
    """An encoder with its tokenizer.

    Parameters
    ----------
    task_head : MaskedWordHead or Classifier, optional
        What it was trained for on top of its vectors, if it was saved with it.
    """

    tokenizer: SubwordTokenizer
    task_head: TaskHead | None = field(default=None, kw_only=True)

    config_type: ClassVar[Any]
    prefixes: ClassVar[tuple[str, ...]]  # of all names: alone, and inside a model with a task head
    unused: ClassVar[tuple[str, ...]]  # beginnings of names of tensors that may be present too

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = cls.config_type.read(checkpoint.config())
        layers = load_layers(
            checkpoint,
            lambda source: cls.layers(source, config),
            num_layers=config.num_layers,
            prefixes=cls.prefixes,
            unused=cls.unused_with(config),
            renamed_suffixes=OLD_NORM_SUFFIXES,
            dtype=dtype,
        )
        model = cls(name=name, config=config, tokenizer=tokenizer_for(checkpoint, config.vocab_size), **layers)
        return replace(model, task_head=load_task_head(checkpoint, model, dtype))

    @classmethod
    def layers(cls, source: TensorSource, config: Any) -> dict[str, Any]:
        """Return the fields of the model that are layers."""
        raise NotImplementedError

    @classmethod
    def unused_with(cls, config: Any) -> tuple[str, ...]:  # noqa: ARG003
        """Return `unused` for a configuration."""
        return cls.unused

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> Output:
        """Return the result of a run from its contextual vectors, ``B T E``."""
        if isinstance(self.task_head, Classifier):
            lengths = np.array([len(encoding) for encoding in encodings])
            compute: Callable[[Any], Any] = partial(self.task_head, lengths=lengths)
            return TaskOutput(hidden, encodings, task_head=compute, labels=self.task_head.labels)
        if isinstance(self.task_head, MaskedWordHead):
            table: Any = self.token_embedding.weight  # type: ignore[attr-defined]
            return TaskOutput(hidden, encodings, task_head=partial(self.task_head, embeddings=table))
        return super().output(hidden, encodings)

    def predictions(
        self,
        text: str | Encoding | Sequence[int],
        k: int = 5,
        *,
        position: int | None = None,
        edit: Mapping[str, Edit] | None = None,
    ) -> tuple[Prediction, ...]:
        """Return the likeliest words of a masked place, or the likeliest classes, the likeliest first.

        Parameters
        ----------
        text, k, edit
            As in `LanguageModel.predictions`.
        position : int, optional
            The token of which the word or the class is predicted; by default the mask, of which there is then one. A
            classifier of whole texts takes none.

        Raises
        ------
        RegardError
            The model was saved without a head; there are several texts; or the text has no such place, or has no mask
            or several and `position` does not say which.

        Examples
        --------
        >>> import regard
        >>> model = regard.load("answerdotai/ModernBERT-base")                   # doctest: +SKIP
        >>> model.predictions("The capital of France is [MASK].", k=1)[0].text  # doctest: +SKIP
        ' Paris'
        """
        head = self.task_head
        if head is None:
            raise RegardError(f"{self.name} has no predictions: it was saved without a head; use its vectors (.hidden)")
        if isinstance(head, Classifier) and head.regression:
            raise RegardError(f"{self.name} gives numbers, not classes with probabilities: use .logits of its output")
        output = self(text, edit=edit)
        if len(output.encodings) != 1:
            raise RegardError("predictions takes one text")
        place = _place(output.encodings[0], self.tokenizer, head, position)
        if place is not None:
            output = replace(output, hidden=output.hidden[:, [place]])
        logits = output.logits.reshape(-1)
        if isinstance(head, Classifier):
            return likeliest(logits, k, head.labels.__getitem__, independent=head.independent)
        return likeliest(logits, k, lambda i: self.tokenizer.decode([i], skip_special_tokens=False))


def _place(encoding: Encoding, tokenizer: Any, head: TaskHead, position: int | None) -> int | None:
    """Return the token whose logits are asked for, None for those of the text; see `Encoder.predictions`."""
    if isinstance(head, Classifier) and head.pooling is not None:
        if position is not None:
            raise RegardError("the classes are those of the whole text: leave out position=")
        return None
    if position is None:
        masks = [i for i, token in enumerate(encoding.ids) if token == tokenizer.mask_id]
        if isinstance(head, Classifier) or len(masks) != 1:
            reason = "each token has classes" if isinstance(head, Classifier) else f"the text has {len(masks)} masks"
            raise RegardError(f"{reason}: give position=, the number of a token, from 0 to {len(encoding) - 1}")
        position = masks[0]
    position = whole_number("position", position, -len(encoding))
    if position >= len(encoding):
        raise RegardError(f"position must be less than the {len(encoding)} tokens of the text, got {position}")
    return position % len(encoding)


def run_blocks(
    blocks: Sequence[EncoderBlock],
    x: np.ndarray,
    mask: np.ndarray | None,
    trace: Recorder,
    *,
    each: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> np.ndarray:
    """Return the output of all blocks, ``B T E``, 0 at padding.

    `options` are further arguments of every block, `each` those of one block after the other.
    """
    for i, (block, own) in enumerate(zip(blocks, each or [{}] * len(blocks), strict=True)):
        with trace.scope(f"blocks.{i}"):
            x = block(x, mask=mask, trace=trace, **options, **own)
    return without_padding(x, mask)


def without_padding(x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return x, ``B T E``, with 0 at padding."""
    return x if mask is None else np.where(mask[:, 0, 0, :, None], x, x.dtype.type(0))
