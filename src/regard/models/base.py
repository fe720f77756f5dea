"""The interface of every model: text in, contextual vectors out. Contains no architecture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import boolean, truncate, whole_number
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.batch import Batch, OneText, Text, Tokenizer, make_batch, remove_padding
from regard.models.checkpoint.open import Checkpoint
from regard.models.corpus import activations, iter_traces
from regard.models.gradients import Metric, ModelGradients, gradients_of_run
from regard.models.memory import check_memory
from regard.models.output import Leave, Output, until_stop, with_edits
from regard.models.pooling import Pooling
from regard.models.sentence import SentenceReader, SentenceSettings, sentence_reader
from regard.nn import Layer, parameters
from regard.text.encoding import Encoding
from regard.text.words import check_no_set_or_table
from regard.trace import Edit, Trace
from regard.trace.text_layout import TextLayout

_NAME = 60  # characters of a name in a repr


class Model(Protocol):
    """A transformer that reads text."""

    @property
    def name(self) -> str:
        """The name or path that it was loaded from."""

    @property
    def config(self) -> Any:
        """Its configuration, a frozen dataclass."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Raise `RegardError`: a model is loaded."""
        raise RegardError('a model is loaded: regard.load("minilm"), or the folder of its files')

    def __call__(self, text: Text, *, trace: Recorder = NULL_RECORDER) -> Output:
        """Run on one text or a batch."""


@dataclass(frozen=True, eq=False, repr=False)
class PretrainedModel(Layer):
    """What `load` returns: a `TextModel`, an `ImageModel`, or a model of both.

    Parameters
    ----------
    name : str
    config
        Its configuration, a frozen dataclass.
    """

    name: str
    config: Any

    @classmethod
    def class_for(cls, checkpoint: Checkpoint) -> type[PretrainedModel]:  # noqa: ARG003
        """Return the class of a checkpoint of this family: this one, or that of a part which was saved alone."""
        return cls

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        raise NotImplementedError

    def save(self, folder: str | os.PathLike[str], *, dtype: str = "float32", shard_bytes: int = 5_000_000_000) -> None:
        """Write the model, loaded or edited, as a folder that `load` and transformers read.

        Tensors have the names and the layout of the files that it was loaded from, whose configuration, tokenizer and
        tensors without effect are copied; quantized weights are written as numbers. They are computed one after the
        other, so the model is not in memory twice. The folder appears when it is complete.

        Parameters
        ----------
        folder : path
            A new folder, or an empty one.
        dtype : {"float32", "bfloat16", "float64"}
            Of all tensors. bfloat16 rounds to 8 significant bits, unless the weights were loaded from it.
        shard_bytes : int
            The most bytes of a file; larger models are several files and their index.

        Raises
        ------
        RegardError
            The folder is not empty or cannot be written; a number is not finite in `dtype`; the model is not stored
            under its name any more, or has other arrays than what is; or arrays that are one tensor there differ.

        Examples
        --------
        >>> model = regard.load("smollm2")              # doctest: +SKIP
        >>> model.save("smollm2-bf16", dtype="bfloat16")  # doctest: +SKIP
        """
        from regard.models.checkpoint.save import save_model

        save_model(self, folder, dtype=dtype, shard_bytes=shard_bytes)

    def with_adapter(self, folder: str | os.PathLike[str]) -> Self:
        """Return this model with a LoRA adapter merged into its weights; the model itself stays as it is.

        `save` writes the result as a whole model. Arrays that the adapter has nothing for are shared; a quantized
        matrix that it changes becomes numbers.

        Parameters
        ----------
        folder : path
            Of an adapter as peft writes it: adapter_config.json and adapter_model.safetensors.

        Raises
        ------
        RegardError
            It is no LoRA of linear maps, or has a part that is not supported (DoRA, embeddings, parameters of experts);
            or it is an adapter of another model.

        References
        ----------
        Hu et al. (2021), "LoRA", https://arxiv.org/abs/2106.09685.
        """
        from regard.models.adapters import with_adapter

        adapted: Self = with_adapter(self, folder)
        return adapted

    if not TYPE_CHECKING:  # to which a model has the attributes of its class alone

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; of what language models alone have with the way to one."""
            if name in ("circuits", "paths", "generate", "stream", "predictions"):
                kind = "a decoder" if name in ("circuits", "paths") else "a language model"
                raise AttributeError(f"{self.name} has no {name}: load {kind}, such as regard.load('smollm2')")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """Return its class, name and sizes; `config` has the others, `blocks` the layers."""
        name = self.name if len(self.name) <= _NAME else f"…{self.name[-_NAME:]}"
        sizes = {"num_layers": "layers", "num_heads": "heads", "embed_dim": "wide"}
        shown = [f"{getattr(self.config, size)} {word}" for size, word in sizes.items() if hasattr(self.config, size)]
        count = sum(x.size for x in {id(x): x for x in parameters(self).values()}.values())
        return f"<{type(self).__name__} {name!r}: {', '.join([*shown, f'{count:,} parameters'])}>"


@dataclass(frozen=True, eq=False, repr=False)
class TextModel(PretrainedModel):
    """A pretrained model with its tokenizer.

    A family is a frozen dataclass that derives from it, with its layers as further fields.

    Parameters
    ----------
    name : str
    config
        Its configuration, a frozen dataclass.
    tokenizer : Tokenizer
    sentence : SentenceSettings
        How it embeds texts: pooling, the most tokens, prompts.
    """

    name: str
    config: Any
    tokenizer: Tokenizer
    sentence: SentenceSettings = field(default=SentenceSettings(), kw_only=True, repr=False)

    @property
    def max_length(self) -> int:
        """The most tokens of a text: by default the positions of the configuration."""
        return int(self.config.max_positions)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True at text."""
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
            One text or a batch of them, as strings, encodings or ids; or the mapping that a tokenizer of transformers
            returns, with ``input_ids`` and optionally ``attention_mask``: padding at either side is as in transformers.
        trace : Trace, optional
            Records the steps under the names that `forward` taps.
        edit : mapping of str to function, optional
            Names of steps, or patterns as for `Trace`, and a function of the value there, short for
            ``trace=Trace(only=(), edit=edit)``.

        Raises
        ------
        RegardError
            A text has no tokens, as an empty one without special tokens, or more than `max_length`; both `trace` and
            `edit` are given; or a name of `edit` matches no step.
        """
        trace = with_edits(trace, edit)
        return self.run_batch(make_batch(text, self.tokenizer, max_length=self.max_length, name=self.name), trace)

    def run_batch(self, batch: Batch, trace: Recorder, layout: TextLayout | None = None) -> Output:
        """Return the contextual vectors of a batch, whose texts stand where `layout` says, by default its own."""
        check_memory(self, batch.ids.shape, trace)
        trace.set_layout(layout or batch.layout)

        def compute(leave: Leave) -> Output:
            hidden = leave(self.forward(batch.ids, mask=batch.mask, trace=trace))
            return self.output(hidden, batch.encodings)

        return until_stop(compute, trace.run(self.name, batch.encodings, copies=False, source=self), batch.encodings)

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> Output:
        """Return the result of a run from its contextual vectors, ``B T E``."""
        return Output(hidden, encodings, self.head)

    def gradients(
        self,
        text: Text,
        metric: Metric = "loss",
        *,
        at: str | Iterable[str] = "*.output",
        only: str | Iterable[str] | None = None,
        parameters: str | Iterable[str] = (),
        checkpoint: bool = False,
    ) -> ModelGradients:
        """Return a number computed from the output, and its gradient with respect to steps of the run and parameters.

        Parameters
        ----------
        text
            As a call takes it.
        metric : function or "loss"
            From the `Output` to one number, by operators, functions of NumPy and of `regard.functional`:
            ``lambda o: o.logits[0, -1, a] - o.logits[0, -1, b]``. ``"loss"`` is the mean cross-entropy of the next
            token of a language model.
        at : str or iterable of str
            Names of the steps, or patterns, as for `Trace`. For ``scores``, ``weights`` and the
            other steps of that shape, ``B H T S``, the map is held, and otherwise never.
        only : str or iterable of str, optional
            Names of the values to record; those of `at` by default.
        parameters : str or iterable of str
            Names of arrays, as `regard.nn.parameters` has them; none by default.
        checkpoint : bool
            Compute each block again when its gradient is, in place of keeping what it computes.

        Raises
        ------
        RegardError
            A name matches nothing, no name is given, or the metric is not one number that depends on the steps or
            parameters.

        Examples
        --------
        >>> from regard.models import toy
        >>> found = toy("the cat sat").gradients("the cat sat", lambda o: o.hidden[0, 2].sum(), at="*.v")
        >>> found.gradients["blocks.0.attn.v"].shape  # B G S Dv
        (1, 1, 3, 8)
        """
        return gradients_of_run(
            self, lambda model, trace: model(text, trace=trace), metric, at, only, parameters, checkpoint
        )

    def embed(
        self,
        texts: Sequence[str | Encoding] | Mapping[str, Any],
        *,
        batch_size: int = 32,
        pooling: str | Pooling | None = None,
        max_length: int | None = None,
        truncate: bool = False,
        prompt: str | None = None,
        prompt_name: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        label: Callable[[int], str] = "text {}".format,
    ) -> np.ndarray:
        """Return one vector for each text, ``N E``, in the order given.

        By default as the files beside a sentence model say (`sentence`), which is what sentence-transformers computes.
        Texts of similar length run together, so that there is little padding.

        Parameters
        ----------
        texts : sequence of str, or mapping
            Texts, or encodings; or ``input_ids`` and ``attention_mask`` of transformers, with padding on the right.
        batch_size : int
            How many texts run together.
        pooling : str or Pooling, optional
            ``"mean"``, ``"cls"``, ``"max"``, ``"mean_sqrt_len"``, ``"weightedmean"`` or ``"lasttoken"``, with vectors
            of length 1; or a `Pooling`. By default that of the model's own configuration.
        max_length : int, optional
            The most tokens of a text, special ones included: by default as many as the model was made for, which may be
            fewer than it takes (all-MiniLM-L6-v2: 256 of 512).
        truncate : bool
            Truncate texts that are longer instead of raising an error.
        prompt : str, optional
            A text that is put before each text, not before encodings.
        prompt_name : str, optional
            The name of one of the model's prompts, ``model.sentence.prompts``: ``"query"``. By default the model's
            default prompt, where it has one; ``prompt=""`` puts nothing.
        progress : function, optional
            Called with the number of texts done and the number of all.
        label : function, optional
            The name of a text in messages, from its index.

        Raises
        ------
        RegardError
            There is no text, one has no tokens or too many, no pooling is given and the model has none that can be
            computed, or it has no prompt of this name.

        References
        ----------
        Reimers and Gurevych (2019), "Sentence-BERT", https://arxiv.org/abs/1908.10084.
        """
        batch_size, truncate = whole_number("batch_size", batch_size, 1), boolean("truncate", truncate)
        pool = self.sentence.chosen_pooling(pooling, self.name)
        reader = sentence_reader(self, max_length, prompt, prompt_name)
        encodings = self._encodings(texts, reader, truncate, label)
        firsts = [0 if pool.include_prompt else reader.prompt_tokens(encoding) for encoding in encodings]
        vectors: np.ndarray | None = None
        done = 0
        order = sorted(range(len(encodings)), key=lambda i: -len(encodings[i]))  # similar lengths: little padding
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            with np.errstate(all="ignore"):
                hidden = self([encodings[i] for i in indices]).hidden
            if hidden.shape[:2] != (len(indices), len(encodings[indices[0]])):
                raise RegardError(f"{self.name} cannot embed: its contextual vectors are not those of the input text")
            with np.errstate(all="ignore"):
                pooled = [pool(row[: len(encodings[i])], firsts[i]) for row, i in zip(hidden, indices, strict=True)]
            for i, vector in zip(indices, pooled, strict=True):
                if not np.isfinite(vector).all():
                    raise RegardError(f"the vector of {label(i)} is not finite in {hidden.dtype}")
                if vectors is None:
                    vectors = np.empty((len(encodings), len(vector)), vector.dtype)
                vectors[i] = vector
            done += len(indices)
            if progress is not None:
                progress(done, len(order))
        if vectors is None:
            raise RegardError("there is no text to embed; give at least one")
        return vectors

    def iter_traces(
        self,
        texts: Iterable[OneText],
        *,
        batch_size: int = 32,
        only: str | Iterable[str] | None = None,
        keep: Literal["maps", "arrays"] = "maps",
        edit: Mapping[str, Edit] | None = None,
        truncate: bool = False,
        skip: int = 0,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Iterator[tuple[int, Trace]]:
        """Yield the trace of each of many texts with the index of the text, ``(i, trace)``.

        The order is that of length, the shortest first: within each 4,096 texts, which are tokenized at a time. Texts
        of the same number of tokens run together, so that there is no padding. One batch is held at a time,
        whose arrays its traces share: keep copies of values, not traces.

        Parameters
        ----------
        texts : iterable of str
            Any number of them; an open file yields its lines. Each may also be an encoding, or ids.
        batch_size : int
            The most texts that run together.
        only
            Names of steps, as `Trace` takes them.
        keep : {"maps", "arrays"}
            Attention as maps, in O(n · D), or as arrays of n² weights.
        edit : mapping of str to function, optional
            Edits of each run.
        truncate : bool
            Truncate texts longer than `max_length` instead of raising an error.
        skip : int
            How many texts to leave out, the first in the order in which they are yielded: those that an interrupted
            loop has done. The others have the bits that they have without it.
        progress : function, optional
            Called with the number of texts done and the number of all, None where `texts` does not know it.

        Raises
        ------
        RegardError
            A text has no tokens, is too long, or is not a text.

        Examples
        --------
        >>> import regard
        >>> model = regard.load("induction")
        >>> for i, trace in model.iter_traces(["qzkf", "abc", "cab"], only="*attn.weights"):
        ...     print(i, trace["blocks.0.attn.weights"].shape)
        1 (1, 4, 3, 3)
        2 (1, 4, 3, 3)
        0 (1, 4, 4, 4)
        """
        return iter_traces(self, texts, batch_size, only, keep, edit, truncate, skip, progress)

    def activations(
        self,
        texts: Iterable[OneText],
        at: str | Iterable[str] = "blocks.*.output",
        *,
        positions: int | Iterable[int] = -1,
        out: str | os.PathLike[str] | None = None,
        batch_size: int = 32,
        edit: Mapping[str, Edit] | None = None,
        truncate: bool = False,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> np.ndarray:
        """Return steps of each of many texts at one token, or some: what a probe is trained on.

        Parameters
        ----------
        texts : iterable of str, encodings or ids
        at
            Names of steps of one shape, as `Trace` takes them; they are in the order of the run.
        positions : int or iterable of int
            Tokens of each text, from its first one, or from its end if negative; of keys and values those of keys.
        out : path, optional
            A file of NumPy (.npy) that is written text by text, and appears when it is complete.
        batch_size, edit, truncate, progress
            As for `iter_traces`.

        Returns
        -------
        array
            ``N S …`` of N texts and S steps: of the residual stream ``N S E``, of the context of heads ``N S H Dv``. Of
            several positions ``N S P …``. With `out` a read-only memory map of the file.

        Raises
        ------
        RegardError
            There is no text, one has no such position, the steps differ in their shapes, or the file cannot be written.

        References
        ----------
        Alain and Bengio (2016), "Understanding intermediate layers using linear classifier probes",
        https://arxiv.org/abs/1610.01644.

        Examples
        --------
        >>> import regard
        >>> regard.load("induction").activations(["qzkf", "abc", "cab"]).shape  # N L E
        (3, 2, 128)
        """
        return activations(
            self,
            texts,
            at,
            positions=positions,
            out=out,
            batch_size=batch_size,
            edit=edit,
            truncate=truncate,
            progress=progress,
        )

    def _encodings(
        self,
        texts: Sequence[str | Encoding] | Mapping[str, Any],
        reader: SentenceReader,
        truncate: bool,
        label: Callable[[int], str],
    ) -> list[Encoding]:
        """Return the texts as tokens, at least one and at most those that the reader takes."""
        if isinstance(texts, Mapping):
            encodings = remove_padding(texts, self.tokenizer)
        else:
            texts = _sequence_of_texts(texts, label)
            encodings = [reader.tokenizer(text) if isinstance(text, str) else text for text in texts]
        too_long = [i for i, encoding in enumerate(encodings) if len(encoding) > reader.max_length]
        if too_long and not truncate:
            others = f" (and {len(too_long) - 1} more too long)" if len(too_long) > 1 else ""
            more = self.max_length > reader.max_length
            option = f", or accept up to {self.max_length} (max_length=, --max-length)" if more else ""
            raise RegardError(
                f"{label(too_long[0])} has {len(encodings[too_long[0]])} tokens, but {self.name} "
                f"{'embeds' if more else 'accepts'} at most {reader.max_length}{others}; shorten it, or have it cut "
                f"(truncate=True, --truncate){option}"
            )
        if empty := [i for i, encoding in enumerate(encodings) if not len(encoding)]:
            raise RegardError(f"{label(empty[0])} has no tokens; leave it out")
        for i in too_long:
            encodings[i] = encodings[i].truncated(reader.max_length)
        return encodings


def _sequence_of_texts(texts: Any, label: Callable[[int], str]) -> list[str | Encoding]:
    """Return texts as a list; an error for what is none, which says what to give instead."""
    check_no_set_or_table(texts)
    if isinstance(texts, str | Encoding):
        raise RegardError("embed takes a sequence of str, got one text: give [text]")
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | bytearray | memoryview):
        raise RegardError(f"embed takes a sequence of str, got {type(texts).__name__}")
    try:
        sequence = list(iter(texts))
    except TypeError as error:  # an array without axes
        raise RegardError(f"embed takes a sequence of str, got {truncate(texts)}") from error
    for i, text in enumerate(sequence):
        if not isinstance(text, str | Encoding):
            raise RegardError(f"embed takes a sequence of str, but {label(i)} is {truncate(text)}")
    return sequence


def as_text_model(model: PretrainedModel) -> TextModel:
    """Return a model of texts, of a CLIP its half that is one; an error for a model of pictures."""
    half = getattr(model, "text", model)
    if not isinstance(half, TextModel):
        raise RegardError(f"{model.name} looks at pictures, and this takes a text: choose a model of texts")
    return half
