"""The interface of a language model: logits, cached decoding and text generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack, overload

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import function
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import TextModel
from regard.models.batch import Batch, Text, make_batch, remove_padding
from regard.models.checkpoint.generation_config import end_ids, forced_ids
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.generation.decoding_state import DecodingState
from regard.models.generation.loop import Generated, GenerationState, Stream, generation_loop
from regard.models.generation.options import ForcedTokens, GenerationArguments, GenerationOptions
from regard.models.output import with_edits
from regard.models.predictions import Prediction, likeliest
from regard.models.tokenized_inputs import TokenizedInputs
from regard.text import Encoding, SubwordTokenizer
from regard.trace import Edit, Trace


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LanguageModel(TextModel):
    """A model that predicts the next token, and so can continue a text.

    Parameters
    ----------
    end_ids : tuple of int
        The end-of-sequence tokens.
    forced : ForcedTokens
        The tokens that its checkpoint forces at certain places.
    """

    tokenizer: SubwordTokenizer
    end_ids: tuple[int, ...]
    forced: ForcedTokens = field(default=ForcedTokens(), repr=False)

    left_padded_prompts: ClassVar[bool] = True
    """Whether padding before a prompt in a mapping of transformers has no effect on what `generate` returns."""

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Return the logits, ``... V``, of contextual vectors ``... E``."""
        raise NotImplementedError

    def prefill(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Run the prompts; return the contextual vectors that end with those of the last token, and the caches.

        Parameters
        ----------
        ids : integer array, ``B T``
            The prompts, shorter ones padded at the right.
        mask : boolean array, ``B 1 1 T``, optional
            True where there is text.
        """
        raise NotImplementedError

    def decode_step(
        self, ids: np.ndarray, state: DecodingState, *, trace: Recorder = NULL_RECORDER
    ) -> tuple[np.ndarray, DecodingState]:
        """Return the contextual vectors, ``B T E``, of tokens ``B T`` after those of `state`, and the next state."""
        raise NotImplementedError

    def record_full_sequence(self, generated: Sequence[Generated], *, trace: Recorder) -> None:
        """Run the finished sequences, prompt and continuation, once more as a whole."""
        batch = make_batch(
            [one.encoding for one in generated], self.tokenizer, max_length=self.max_length, name=self.name
        )
        self.run_batch(batch, trace, batch.layout.after_prompts([len(one.prompt) for one in generated]))

    def predictions(
        self, text: str | Encoding | Sequence[int], k: int = 5, *, edit: Mapping[str, Edit] | None = None
    ) -> tuple[Prediction, ...]:
        """Return the likeliest tokens after a text, the likeliest first.

        Parameters
        ----------
        text
            One text, as a string, an encoding or ids.
        k : int
            How many.
        edit : mapping of str to function, optional
            Edits of the run.

        Examples
        --------
        >>> import regard
        >>> regard.load("induction").predictions("xK3bQxK3", k=1)[0].text
        'b'
        """
        if not _is_one(text):
            raise RegardError("predictions takes one text")
        return likeliest(
            self.head(self(text, edit=edit).hidden[0, -1]),
            k,
            lambda i: self.tokenizer.decode([i], skip_special_tokens=False),
        )

    @overload
    def generate(  # a str is a sequence of str, and meant as one text
        self,
        prompt: str | Encoding | Sequence[int],
        *,
        trace: Recorder = ...,
        edit: Mapping[str, Edit] | None = ...,
        on_text: Callable[[int, str], None] | None = ...,
        **options: Unpack[GenerationArguments],
    ) -> Generated: ...

    @overload
    def generate(
        self,
        prompt: Text,
        *,
        trace: Recorder = ...,
        edit: Mapping[str, Edit] | None = ...,
        on_text: Callable[[int, str], None] | None = ...,
        **options: Unpack[GenerationArguments],
    ) -> Generated | tuple[Generated, ...]: ...

    def generate(
        self,
        prompt: Text,
        *,
        trace: Recorder = NULL_RECORDER,
        edit: Mapping[str, Edit] | None = None,
        on_text: Callable[[int, str], None] | None = None,
        **options: Unpack[GenerationArguments],
    ) -> Generated | tuple[Generated, ...]:
        """Continue a text, or each of a batch of texts.

        The texts of a batch do not attend to each other: each is continued as it would be alone.

        These arguments alone decide how the next token is chosen. Of the generation settings in a checkpoint, those
        that name tokens are followed (``eos_token_id``, ``forced_bos_token_id``, ``forced_eos_token_id`` and, for an
        encoder-decoder, ``decoder_start_token_id`` or else ``bos_token_id``), and no others: not ``temperature``,
        ``num_beams``, ``min_length``, ``repetition_penalty``, ``no_repeat_ngram_size``, ``suppress_tokens`` or
        ``bad_words_ids``.

        Parameters
        ----------
        prompt
            One text or a batch of them, as strings, encodings, ids or tokenized inputs, as the model takes them.
        max_new_tokens : int
            The most tokens to add, 128 by default. Generation ends earlier at an end-of-sequence token, at `stop`, and
            at the model's `max_length`; `Generated.finish_reason` says which.
        temperature : float
            0 (the default): greedy decoding; otherwise sample from softmax(logits / temperature).
        top_k : int, optional
            Sample among the k likeliest tokens only.
        top_p : float, optional
            Sample among the fewest tokens whose probabilities sum to at least `top_p`.
        seed : int, optional
            Of the random numbers, the same for each text of a batch: the same seed gives the same tokens, whatever else
            is in the batch. Without it every call samples differently.
        stop : str, int, or several of them
            Strings before which the text ends, and ids of tokens that end it.
        trace : Trace, optional
            Its edits apply to every step. It records the whole text, prompt and continuation, as if run at once: row i
            of the weights is what token i attended to when token i + 1 was generated.
        edit : mapping of str to function, optional
            Edits of every step, without a trace: ``edits.add(vector, "blocks.5.output")`` steers the text, and
            ``positions=`` are those of the whole text, negative ones from the end of the prompt. A function of your own
            gets the values of the prompt, and then those of one new token at a time.
        on_text : function, optional
            Called with the index of a text and the next piece of its continuation, as soon as there is one.

        Returns
        -------
        Generated, or a tuple of them for a batch

        Raises
        ------
        RegardError
            There is no text, it is too long, the batch is an iterator, an argument is invalid, both `trace` and `edit`
            are given, a name of an edit matches no step, or the files of an encoder-decoder name no start token.
        """
        function("on_text", on_text)
        is_one = _is_one(prompt)
        texts = self._prompts(prompt)
        sequences = self._generation_states(texts.encodings, GenerationOptions.from_keywords(**options))
        if isinstance(trace, Trace) and trace.has_start:
            raise RegardError("start= is for one run: leave it out of the trace of generate")
        edits = with_edits(trace, edit)
        if edits is trace:
            edits = trace.editing() if isinstance(trace, Trace) else NULL_RECORDER
        for index, piece in generation_loop(self, texts, sequences, edits):
            if on_text is not None and piece:
                on_text(index, piece)
        generated = tuple(sequence.generated() for sequence in sequences)
        if trace is not NULL_RECORDER:
            self.record_full_sequence(generated, trace=trace)
        return generated[0] if is_one else generated

    def stream(
        self,
        prompt: str | Encoding | Sequence[int] | Mapping[str, Any],
        *,
        edit: Mapping[str, Edit] | None = None,
        **options: Unpack[GenerationArguments],
    ) -> Stream:
        """Return an iterator over the continuation of one text, in pieces of complete characters.

        Nothing is computed before the first piece is requested. `edit` and `options` are those of `generate`;
        `Stream.generated` holds what has been generated so far.

        Examples
        --------
        >>> for piece in model.stream("The cat"):                       # doctest: +SKIP
        ...     print(piece, end="", flush=True)
        """
        if not _is_one(prompt):
            raise RegardError("stream takes one text; for a batch use generate with on_text")
        texts = self._prompts(prompt)
        (sequence,) = self._generation_states(texts.encodings, GenerationOptions.from_keywords(**options))
        return Stream(sequence, generation_loop(self, texts, [sequence], with_edits(NULL_RECORDER, edit)))

    def _prompts(self, prompt: Text) -> Batch:
        if isinstance(prompt, Mapping):
            prompt = remove_padding(prompt, self.tokenizer, left=self.left_padded_prompts)
        return make_batch(prompt, self.tokenizer, max_length=self.max_length, name=self.name)

    def _generation_states(self, prompts: Sequence[Encoding], options: GenerationOptions) -> list[GenerationState]:
        return [GenerationState(self.tokenizer, prompt, options, self.end_ids, self.forced) for prompt in prompts]


def language_fields(checkpoint: Checkpoint, config: Any, *, name: str) -> dict[str, Any]:
    """Return the fields of a `LanguageModel`, which every family builds in the same way."""
    return {
        "name": name,
        "config": config,
        "tokenizer": tokenizer_for(checkpoint, config.vocab_size),
        "end_ids": end_ids(checkpoint),
        "forced": forced_ids(checkpoint),
    }


def _is_one(prompt: Text) -> bool:
    """Tell whether a prompt is one text rather than a batch; an iterator, which can be read only once, is an error."""
    if isinstance(prompt, Iterator):
        raise RegardError("a batch must be a sequence of texts, got an iterator; give a list")
    if isinstance(prompt, str | Encoding):
        return True
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    if isinstance(prompt, Mapping):
        return TokenizedInputs.read(prompt).is_one
    return isinstance(prompt, Iterable) and all(isinstance(item, int | np.integer) for item in prompt)
