"""What every model has in common: text in, vectors out. Knows no architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.checkpoint.open import Checkpoint
from regard.models.embed import embed
from regard.models.pooling import Pooling
from regard.nn import Layer
from regard.text.encoding import Encoding
from regard.trace import Edit, Trace

Text: TypeAlias = "str | Encoding | Sequence[str] | Sequence[Encoding] | Sequence[int] | np.ndarray"
"""One text or a batch of them, as strings, as encodings, or as ids (``T`` or ``B T``)."""


class Tokenizer(Protocol):
    """What a model asks of its tokenizer."""

    @property
    def pad_id(self) -> int | None:
        """The id that fills up shorter texts of a batch."""

    def __call__(self, text: str) -> Encoding:
        """Return `text` as tokens."""

    def from_ids(self, ids: Sequence[int]) -> Encoding:
        """Return the encoding that has these ids."""


@dataclass(frozen=True, eq=False)
class Output:
    """What a model returns.

    Parameters
    ----------
    hidden : array, ``B T E``
        The contextual vectors: what each token became in the last block.
    encodings : tuple of Encoding
        The texts as tokens, one for each batch entry. Where a text is shorter than ``T`` the rest is padding.
    head : function, optional
        What a language model makes of contextual vectors: a score for each entry of its vocabulary.
    """

    hidden: np.ndarray
    encodings: tuple[Encoding, ...]
    head: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)

    @cached_property
    def logits(self) -> np.ndarray:
        """The scores of the token that comes next, ``B T V``; computed when they are first asked for.

        Raises
        ------
        RegardError
            The model is no language model.
        """
        if self.head is None:
            raise RegardError("an encoder has no logits: it returns contextual vectors, .hidden, and predicts no token")
        return self.head(self.hidden)


class Model(Protocol):
    """A transformer that reads text."""

    @property
    def name(self) -> str:
        """What it was loaded as."""

    @property
    def config(self) -> Any:
        """Its sizes and choices, as a frozen dataclass."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into its tokens."""

    def __call__(self, text: Text, *, trace: Recorder = NULL_RECORDER) -> Output:
        """Run on one text or a batch."""


@dataclass(frozen=True, eq=False, repr=False)
class TextModel(Layer):
    """A pretrained model: calling it makes tokens of a text and runs on them.

    A family is a frozen dataclass that derives from it, with its layers as further fields.

    Parameters
    ----------
    name : str
    config
        Its sizes and choices.
    tokenizer : Tokenizer
    pooling : Pooling, optional
        How a sentence model makes one vector of those of its tokens.
    """

    name: str
    config: Any
    tokenizer: Tokenizer
    pooling: Pooling | None = field(default=None, kw_only=True, repr=False)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its files."""
        raise NotImplementedError

    @property
    def max_length(self) -> int:
        """The most tokens that it looks at at once."""
        raise NotImplementedError

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; the mask, ``B 1 1 T``, is True where text is."""
        raise NotImplementedError

    head: ClassVar[Callable[[Any, np.ndarray], np.ndarray] | None] = None
    """A language model's method from contextual vectors, ``... E``, to logits, ``... V``."""

    def __call__(
        self, text: Text, *, trace: Recorder = NULL_RECORDER, edit: Mapping[str, Edit] | None = None
    ) -> Output:
        """Return the contextual vectors of every token.

        Parameters
        ----------
        text
            One text or a batch of them, as strings, encodings or ids.
        trace : Trace, optional
            Records the steps; the names are those that `forward` taps.
        edit : mapping of str to function, optional
            Names of steps (``*`` stands for anything) and what to do to the value there: the same as
            ``trace=Trace(edit=edit)``, for a run of which nothing else is to be recorded.

        Raises
        ------
        RegardError
            There is nothing at all, or more tokens than the model looks at at once (an empty text may have special
            ones); both a trace and an edit are given, or a name of the edit is that of no step.
        """
        trace = with_edits(trace, edit)
        texts = batch(text, self.tokenizer, max_length=self.max_length, name=self.name)
        trace.set_metadata(self.name, texts.encodings)
        hidden = self.forward(texts.ids, mask=texts.mask, trace=trace)
        trace.check_edits_used()
        return Output(hidden, texts.encodings, self.head)

    def embed(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        pooling: str | Pooling | None = None,
        truncate: bool = False,
        progress: Callable[[int, int], None] | None = None,
        label: Callable[[int], str] = "text {}".format,
    ) -> np.ndarray:
        """Return one vector for each text, ``N E``, in the order given.

        Texts of about a length run together, so that little is padded.

        Parameters
        ----------
        texts : sequence of str
        batch_size : int
            How many run together.
        pooling : str or Pooling, optional
            ``"mean"``, ``"cls"``, ``"max"``, ``"mean_sqrt_len"``, ``"weightedmean"`` or ``"lasttoken"``, with vectors
            of length 1; or a `Pooling`. As the model's own configuration says by default.
        truncate : bool
            Cut texts that are longer than the model looks at, in place of an error.
        progress : function, optional
            Is called with how many texts are done, and how many there are.
        label : function, optional
            What a text is called in messages, by its number from 0.

        Raises
        ------
        RegardError
            There is no text, one is too long, or the model has no pooling and none is named.

        References
        ----------
        Reimers and Gurevych (2019), "Sentence-BERT", https://arxiv.org/abs/1908.10084.
        """
        chosen = Pooling((pooling,)) if isinstance(pooling, str) else pooling
        return embed(
            self, texts, batch_size=batch_size, pooling=chosen, truncate=truncate, progress=progress, label=label
        )


def with_edits(trace: Recorder, edit: Mapping[str, Edit] | None) -> Recorder:
    """Return what a run gets that was given a trace, or edits in place of one.

    Raises
    ------
    RegardError
        Both are given.
    """
    if edit is None:
        return trace
    if trace is not NULL_RECORDER:
        raise RegardError("a trace brings its own edits: give them to it, Trace(edit=...)")
    return Trace(only=(), edit=edit)


@dataclass(frozen=True, eq=False)
class Batch:
    """Texts side by side as one array.

    Parameters
    ----------
    ids : integer array, ``B T``
    mask : boolean array, ``B 1 1 T``, or None
        True where there is text, False at padding; None when no text is padded.
    encodings : tuple of Encoding
    """

    ids: np.ndarray
    mask: np.ndarray | None
    encodings: tuple[Encoding, ...]


def batch(text: Text, tokenizer: Tokenizer, *, max_length: int, name: str) -> Batch:
    """Return `text` as a batch; shorter texts are padded at the right.

    Raises
    ------
    RegardError
        There is nothing at all, it is of no kind that a model reads, or it is longer than `max_length` tokens.
    """
    encodings = _encodings(text, tokenizer)
    lengths = [len(encoding) for encoding in encodings]
    if not lengths or not all(lengths):
        raise RegardError("there is no text to look at: give at least one token")
    longest = max(lengths)
    if longest > max_length:
        added = sum(encodings[lengths.index(longest)].special_tokens_mask)
        of_which = f" ({added} of them added by its tokenizer)" if added else ""
        raise RegardError(
            f"the text has {longest} tokens{of_which}, but {name} looks at no more than {max_length} at once; "
            f"shorten it by {longest - max_length} or give it in parts"
        )
    pad = tokenizer.pad_id or 0
    ids = np.array([(*e.ids, *[pad] * (longest - len(e))) for e in encodings], dtype=np.int64)  # B T
    mask = None
    if min(lengths) < longest:
        mask = (np.arange(longest) < np.array(lengths)[:, None])[:, None, None, :]  # B 1 1 T
    return Batch(ids, mask, encodings)


def _encodings(text: Text, tokenizer: Tokenizer) -> tuple[Encoding, ...]:
    if isinstance(text, str):
        return (tokenizer(text),)
    if isinstance(text, Encoding):
        return (text,)
    if isinstance(text, Iterable) and not isinstance(text, np.ndarray):
        encodings = [tokenizer(item) if isinstance(item, str) else item for item in text]
        if all(isinstance(encoding, Encoding) for encoding in encodings):
            return tuple(encodings)  # type: ignore[arg-type]
    text = _as_ids(text)
    if not np.issubdtype(text.dtype, np.integer) or text.ndim not in (1, 2):
        raise RegardError(
            f"a text is a str, an Encoding or ids; ids are integers of shape T or B T, got {text.dtype} of shape "
            f"{text.shape}"
        )
    return tuple(tokenizer.from_ids([int(i) for i in row]) for row in np.atleast_2d(text))


def _as_ids(text: object) -> np.ndarray:
    try:
        return np.asarray(text)
    except ValueError as error:
        raise RegardError(f"a batch of ids needs rows of one length: {error}; texts may differ in length") from error
