"""What language models have in common: a text so far, and what is to come. Knows no architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import Batch, Text, TextModel, batch
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.load import Checkpoint
from regard.models.generation.loop import Ending, Forced, Generated, Sampling, Stream, Writing, generation_loop
from regard.nn.kv_cache import KVCache
from regard.text import SubwordTokenizer
from regard.text.encoding import Encoding
from regard.text.files import read_file
from regard.trace import Trace


@dataclass(frozen=True, eq=False)
class State:
    """What a model keeps of the tokens so far. A value: running on returns another one.

    Parameters
    ----------
    caches : tuple of KVCache
        The keys and values of each block, all up to one position; a window keeps the last of them only.
    padding : integer array, ``B``, optional
        How many of the first positions of each text are filled up; 0 everywhere by default.
    memory : tuple of KVCache
        Of a decoder that looks at another text too: its keys and values for each block.
    memory_mask : boolean array, ``B 1 1 S``, optional
        True where the other text is.
    """

    caches: tuple[KVCache, ...]
    padding: np.ndarray | None = None
    memory: tuple[KVCache, ...] = ()
    memory_mask: np.ndarray | None = None

    @property
    def end(self) -> int:
        """The number of positions so far, filled-up ones included."""
        return self.caches[0].end

    def entries(self, chosen: Sequence[int]) -> State:
        """Return the state of some texts of the batch."""
        rows = list(chosen)

        def of(cache: KVCache) -> KVCache:
            return KVCache(cache.start).append(cache.k[rows], cache.v[rows]) if len(cache) else KVCache(cache.end)

        return replace(
            self,
            caches=tuple(map(of, self.caches)),
            padding=None if self.padding is None else self.padding[rows],
            memory=tuple(map(of, self.memory)),
            memory_mask=None if self.memory_mask is None else self.memory_mask[rows],
        )


class LanguageModel(TextModel):
    """A model that says what token comes next, and so can go on with a text.

    A family has, besides what a `TextModel` has, the fields ``end_ids``, the tokens that end a text, and ``forced``,
    those that its files want at certain places.
    """

    tokenizer: SubwordTokenizer
    end_ids: tuple[int, ...]
    forced: Forced = Forced()

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return a score for each entry of the vocabulary, ``... V``, of contextual vectors ``... E``."""
        raise NotImplementedError

    def begin(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, State]:
        """Return the ids that are to be run first, ``B T``, and the state before them.

        Parameters
        ----------
        ids : integer array, ``B T``
            The prompts, shorter ones filled up at the right.
        mask : boolean array, ``B 1 1 T``, optional
            True where there is text.
        """
        raise NotImplementedError

    def advance(self, ids: np.ndarray, state: State, *, trace: Recorder = NULL_RECORDER) -> tuple[np.ndarray, State]:
        """Return the contextual vectors, ``B T E``, of the tokens behind those of the state, and the state behind."""
        raise NotImplementedError

    def record_full_sequence(self, generated: Sequence[Generated], *, trace: Recorder) -> None:
        """Run once over whole texts, prompt and continuation, as if all had been given."""
        self([one.encoding for one in generated], trace=trace)

    @overload
    def generate(  # a str is a sequence of str, and meant as one text
        self,
        prompt: str | Encoding | Sequence[int],
        *,
        max_new_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int | None = ...,
        stop: Ending | Sequence[Ending] = ...,
        trace: Recorder = ...,
        on_text: Callable[[int, str], None] | None = ...,
    ) -> Generated: ...

    @overload
    def generate(
        self,
        prompt: Text,
        *,
        max_new_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        seed: int | None = ...,
        stop: Ending | Sequence[Ending] = ...,
        trace: Recorder = ...,
        on_text: Callable[[int, str], None] | None = ...,
    ) -> Generated | tuple[Generated, ...]: ...

    def generate(
        self,
        prompt: Text,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: Ending | Sequence[Ending] = (),
        trace: Recorder = NULL_RECORDER,
        on_text: Callable[[int, str], None] | None = None,
    ) -> Generated | tuple[Generated, ...]:
        """Go on with a text, or with each of a batch of texts.

        Texts of a batch do not look at each other: each is continued as it would be alone.

        How the next token is chosen is said by the arguments alone. Of what a model's files say of generation, the
        tokens that begin and end a text are followed (``eos_token_id``, ``decoder_start_token_id``,
        ``forced_bos_token_id``, ``forced_eos_token_id``), and nothing else: not ``temperature``, ``num_beams``,
        ``min_length``, ``repetition_penalty``, ``no_repeat_ngram_size``, ``suppress_tokens`` or ``bad_words_ids``.

        Parameters
        ----------
        prompt
            One text or a batch of them, as strings, encodings or ids.
        max_new_tokens : int
            The most tokens to add. It ends earlier at a token that ends a text, at `stop`, and where the model can
            look at no more; `Generated.ending` says which.
        temperature : float
            0 takes the likeliest token each time. Else tokens are drawn: at 1 as the model has learned, below more
            often the likely ones.
        top_k : int, optional
            Draw among the k likeliest tokens only.
        top_p : float, optional
            Draw among the fewest tokens that have this share of the probability together (Holtzman et al. 2019).
        seed : int, optional
            What the draws start from, the same for each text of a batch: the same seed gives the same tokens,
            whatever else is in the batch. Without it they are different ones each time.
        stop : str, int, or several of them
            Strings before which the text ends, and ids of tokens which end it.
        trace : Trace, optional
            Edits each step as it is computed. It records the whole text, prompt and continuation, as if it had been
            run at once: row i of the weights is what the model looked at when it produced token i + 1.
        on_text : function, optional
            Is called with the number of a text and the next piece of its continuation, as soon as there is one.

        Returns
        -------
        Generated, or a tuple of them for a batch

        Raises
        ------
        RegardError
            There is no text, it is too long, a batch is an iterator, or an argument is none that can be.
        """
        is_one = _is_one(prompt)
        texts = self._prompts(prompt)
        sampling = Sampling(temperature, top_k, top_p, seed)
        writings = self._writings(texts, sampling, max_new_tokens, stop)
        for number, piece in generation_loop(self, texts, writings, _edits_of(trace)):
            if on_text is not None and piece:
                on_text(number, piece)
        generated = tuple(writing.generated() for writing in writings)
        if trace is not NULL_RECORDER:
            self.record_full_sequence(generated, trace=trace)
        return generated[0] if is_one else generated

    def stream(
        self,
        prompt: str | Encoding | Sequence[int],
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: Ending | Sequence[Ending] = (),
    ) -> Stream:
        """Return an iterator over the continuation of one text, in pieces of whole characters.

        Nothing is computed before the first piece is asked for. The arguments are those of `generate`;
        `Stream.generated` has at any time what has come so far.

        Examples
        --------
        >>> for piece in model.stream("The cat"):                       # doctest: +SKIP
        ...     print(piece, end="", flush=True)
        """
        if not _is_one(prompt):
            raise RegardError("one text can be streamed; for a batch use generate, whose on_text tells of each piece")
        texts = self._prompts(prompt)
        sampling = Sampling(temperature, top_k, top_p, seed)
        (writing,) = self._writings(texts, sampling, max_new_tokens, stop)
        return Stream(writing, generation_loop(self, texts, [writing], NULL_RECORDER))

    def _prompts(self, prompt: Text) -> Batch:
        return batch(prompt, self.tokenizer, limit=self.limit, name=self.name)

    def _writings(
        self, texts: Batch, sampling: Sampling, max_new_tokens: int, stop: Ending | Sequence[Ending]
    ) -> list[Writing]:
        return [
            Writing(self.tokenizer, encoding, sampling, max_new_tokens, stop, self.end_ids, self.forced)
            for encoding in texts.encodings
        ]


def end_ids(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the tokens that end a text, as generation_config.json says, or else the configuration.

    Raises
    ------
    RegardError
        They are no ids.
    """
    return _ids(checkpoint, "eos_token_id")


def forced_ids(checkpoint: Checkpoint) -> Forced:
    """Return the tokens that a continuation must have, read where `end_ids` are; of several the first of all.

    Raises
    ------
    RegardError
        They are no ids.
    """
    first, last = (_ids(checkpoint, f"forced_{which}_token_id") for which in ("bos", "eos"))
    return Forced(min(first, default=None), min(last, default=None))


def with_start(checkpoint: Checkpoint) -> ConfigReader:
    """Return the reader of an encoder-decoder; what its targets begin with may stand in generation_config.json."""
    reader = checkpoint.config()
    if (start := _generation_config(checkpoint.path).get("decoder_start_token_id")) is not None:
        reader.put("decoder_start_token_id", start)
    return reader


def _ids(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    found = _generation_config(checkpoint.path).get(name)
    if found is None:
        found = checkpoint.config().peek(name)
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if not all(type(i) is int and i >= 0 for i in ids):
        raise RegardError(f"{name} of {checkpoint.path} must be an id or a list of them, not {found!r}")
    return tuple(ids)


def _generation_config(path: Path) -> dict[str, object]:
    content = read_file(path / "generation_config.json")
    try:
        fields = {} if content is None else json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise RegardError(f"generation_config.json of {path} is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RegardError(f"generation_config.json of {path} must hold a JSON object, got {type(fields).__name__}")
    return fields


def _edits_of(trace: Recorder) -> Recorder:
    return trace.editing() if isinstance(trace, Trace) else NULL_RECORDER


def _is_one(prompt: Text) -> bool:
    """Tell whether a prompt is one text, and no batch.

    Raises
    ------
    RegardError
        It can be read only once.
    """
    if isinstance(prompt, Iterator):
        raise RegardError("a batch is a sequence of texts: give a list of them, not an iterator")
    if isinstance(prompt, str | Encoding):
        return True
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    return isinstance(prompt, Iterable) and all(isinstance(item, int | np.integer) for item in prompt)
