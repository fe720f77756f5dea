"""The generation loop: one more token for each sequence, until every one has finished.

It serves every `LanguageModel`, and depends on no architecture and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.functional.recorder import Recorder
from regard.models.batch import Batch
from regard.models.generation.detokenizer import StreamingDetokenizer, append_tokens
from regard.models.generation.options import FinishReason, ForcedTokens, GenerationOptions
from regard.text import Encoding, SubwordTokenizer
from regard.text.clean_up import StreamingCleanUp

if TYPE_CHECKING:
    from regard.models.language import LanguageModel


@dataclass(frozen=True)
class Generated:
    """A prompt and its continuation.

    Parameters
    ----------
    prompt : Encoding
        The text that was given.
    ids : tuple of int
        The generated tokens, the one that ended the text included.
    text : str
        Their text, without special tokens, and without the stop string and what follows it.
    finish_reason : str
        ``"eos"``: at an end-of-sequence token; ``"stop"``: at one of `stop`; ``"length"``: at `max_new_tokens`;
        ``"max_context"``: at the model's `max_length`; ``""``: not finished.
    encoding : Encoding
        Prompt and generated tokens as one encoding; for an encoder-decoder the target: its start token and the
        generated tokens.
    """

    prompt: Encoding
    ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    encoding: Encoding

    __repr__ = fields_repr


class GenerationState:
    """One sequence while it is generated.

    It ends at one of `end_ids`, the end-of-sequence tokens. In an encoder-decoder the generated tokens follow
    `target_start` in place of the prompt.
    """

    def __init__(
        self,
        tokenizer: SubwordTokenizer,
        prompt: Encoding,
        options: GenerationOptions,
        end_ids: Sequence[int],
        forced: ForcedTokens,
        *,
        target_start: Encoding | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._end_ids = frozenset(end_ids)
        self._forced = forced
        self._rng = np.random.default_rng(options.seed)
        self._is_target = target_start is not None
        self._context = prompt if target_start is None else target_start
        self._detokenizer = StreamingDetokenizer(tokenizer, self._context.ids)
        self._clean_up = StreamingCleanUp() if tokenizer.cleans_up else None
        self._pending = ""  # text that may be the beginning of a stop string
        self.prompt = prompt
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason = ""

    def choose(self, logits: np.ndarray) -> int:
        """Return the next token for its logits, ``V``, of which the tokenizer may have fewer."""
        if self._forced.eos is not None and len(self.ids) == self._options.max_new_tokens - 1:
            return self._forced.eos
        if self._forced.bos is not None and self._is_target and not self.ids:
            return self._forced.bos
        ids = self._tokenizer.token_ids
        ids = ids[ids < len(logits)]
        return int(ids[self._options.choose(logits[ids], self._rng)])

    def add(self, token: int, *, fills_context: bool) -> str:
        """Add a token, which may fill the context of the model, and return the text that can be emitted now."""
        self.ids.append(token)
        is_full = len(self.ids) == self._options.max_new_tokens
        if token in self._end_ids:
            self.finish_reason = "length" if is_full and self._forced.eos is not None else "eos"
        elif token in self._options.stop_ids:
            self.finish_reason = "stop"
        else:
            self._pending += self._cleaned(self._detokenizer.add(token))
            self.finish_reason = "length" if is_full else "max_context" if fills_context else ""
        if self.finish_reason:
            self._pending += self._cleaned(self._detokenizer.flush(), is_last=True)
        stop_strings = self._options.stop_strings
        if places := [at for stop in stop_strings if (at := self._pending.find(stop)) >= 0]:
            self.finish_reason, self._pending = "stop", self._pending[: min(places)]
        hold = 0 if self.finish_reason else max((_overlap(self._pending, stop) for stop in stop_strings), default=0)
        end = len(self._pending) - hold
        piece, self._pending = self._pending[:end], self._pending[end:]
        self.text += piece
        return piece

    def _cleaned(self, piece: str, *, is_last: bool = False) -> str:
        """Return what is certain of the text after another piece, cleaned up as the tokenizer does."""
        if self._clean_up is None:
            return piece
        return self._clean_up.add(piece) + (self._clean_up.flush() if is_last else "")

    def generated(self) -> Generated:
        """Return what has been generated so far."""
        encoding = append_tokens(self._context, self.ids, self._tokenizer)
        return Generated(self.prompt, tuple(self.ids), self.text, self.finish_reason, encoding)


class Stream(Iterator[str]):
    """The continuation of a text, piece by piece; made by `LanguageModel.stream`."""

    def __init__(self, state: GenerationState, pieces: Iterator[tuple[int, str]]) -> None:
        self._state = state
        self._pieces = pieces

    def __next__(self) -> str:
        return next(piece for _, piece in self._pieces if piece)

    @property
    def generated(self) -> Generated:
        """What has been generated so far, also after an interruption."""
        return self._state.generated()


def generation_loop(
    model: LanguageModel, texts: Batch, sequences: Sequence[GenerationState], trace: Recorder
) -> Iterator[tuple[int, str]]:
    """Continue every text of a batch until it has finished; yield its index and a piece of text after each token.

    With the key/value cache, a step runs one token of each sequence, and the head scores the last position only.
    """
    with trace.run(model.name, texts.encodings):
        hidden, state = model.prefill(texts.ids, mask=texts.mask, trace=trace)
        padding = np.zeros(len(texts.ids), int) if state.padding is None else state.padding
        context_left = model.max_length - (state.end - padding)
        if context_left.min() < 1:
            raise RegardError(
                f"the prompt has {model.max_length} tokens, the most that {model.name} accepts, so no token can be "
                f"added; shorten it"
            )
        active = list(range(len(sequences)))
        while True:
            for index, logits in zip(active, model.head(hidden[:, -1]), strict=True):
                sequence = sequences[index]
                token = sequence.choose(logits)
                yield index, sequence.add(token, fills_context=len(sequence.ids) + 1 == context_left[index])
            unfinished = [row for row, index in enumerate(active) if not sequences[index].finish_reason]
            if not unfinished:
                return
            if len(unfinished) < len(active):
                state, active = state.select_batch(unfinished), [active[row] for row in unfinished]
            ids = np.array([sequences[index].ids[-1:] for index in active])
            hidden, state = model.decode_step(ids, state, trace=trace)


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last characters of `text` are the first ones of `stop`."""
    return next(size for size in range(min(len(stop) - 1, len(text)), -1, -1) if text.endswith(stop[:size]))
