"""Going on with a text: which token comes next, when to end, and what the tokens spell.

Knows a model as something that runs the next tokens; does not know architectures or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional import softmax
from regard.functional.inputs import number
from regard.functional.recorder import Recorder
from regard.models.base import Batch
from regard.text.encoding import Encoding

if TYPE_CHECKING:
    from regard.models.language import LanguageModel

Ending: TypeAlias = str | int
"""A string before which a text ends, or the id of a token that ends it."""

Why: TypeAlias = Literal["", "end", "stop", "length", "limit"]
"""Why a text ended; "" while it has not."""

_UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # what the bytes of a character that is not whole yet are decoded to


class _Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int:
        """How many ids there are."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of special tokens, which spell nothing."""

    def from_ids(self, ids: Sequence[int]) -> Encoding:
        """Return the encoding that has these ids."""

    def decode(self, ids: Sequence[int], /) -> str:
        """Return the text that ids spell, without special tokens."""


@dataclass(frozen=True)
class Generated:
    """A text and what a model went on with.

    Parameters
    ----------
    prompt : Encoding
        The text that was given.
    ids : tuple of int
        The tokens that were added, the one that ended it included.
    text : str
        What they spell, without special tokens, and without the `stop` that ended it and what comes after.
    ending : str
        Why it ended: ``"end"``, at a token that ends a text; ``"stop"``, at one of `stop`; ``"length"``, with
        `max_new_tokens`; ``"limit"``, where the model can look at no more; ``""``, it has not.
    encoding : Encoding
        Prompt and added tokens as one text. Of an encoder-decoder it is the target: the added tokens behind the one
        that every target begins with.
    """

    prompt: Encoding
    ids: tuple[int, ...]
    text: str
    ending: Why
    encoding: Encoding


@dataclass(frozen=True)
class Forced:
    """Tokens that stand at certain places of what is added, whatever their scores.

    Parameters
    ----------
    first : int, optional
        The first one that an encoder-decoder writes: of translators it says which language is written.
    last : int, optional
        The one with which `max_new_tokens` are there.
    """

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the scores.

    Parameters
    ----------
    temperature, top_k, top_p, seed
        As `LanguageModel.generate` takes them.

    References
    ----------
    Fan, Lewis and Dauphin (2018), "Hierarchical neural story generation", https://arxiv.org/abs/1805.04833 (top-k);
    Holtzman et al. (2019), "The curious case of neural text degeneration", https://arxiv.org/abs/1904.09751 (top-p).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if number("temperature", self.temperature) < 0:
            raise RegardError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None:
            whole_number("top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < number("top_p", self.top_p) <= 1:
            raise RegardError(f"top_p is a share, above 0 and at most 1, got {self.top_p}")
        if self.seed is not None:
            whole_number("seed", self.seed, 0)
        drawn = [name for name in ("top_k", "top_p", "seed") if getattr(self, name) is not None]
        if self.temperature == 0 and drawn:
            raise RegardError(
                f"at temperature 0 the likeliest token is taken and {' and '.join(drawn)} would change nothing: give a "
                f"temperature above 0 too"
            )

    def choose(self, logits: np.ndarray, rng: np.random.Generator) -> int:
        """Return the next token for its scores, ``V``; with a temperature, drawn with one number of `rng`."""
        if not np.isfinite(logits).all():
            raise RegardError("the scores of the next token are not finite: the numbers of the model are too large")
        if self.temperature == 0:
            return int(np.argmax(logits))
        tokens, shares = self.shares(logits)
        reached = np.searchsorted(np.cumsum(shares), rng.random() * shares.sum(), side="right")
        return int(tokens[min(int(reached), len(tokens) - 1)])

    def shares(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens to draw among, likeliest first, and the probability of each before they are cut off."""
        logits = logits.astype(np.float64)
        with np.errstate(over="ignore"):  # next to no temperature takes the likeliest
            logits = (logits - logits.max()) / self.temperature
        tokens = np.arange(len(logits))
        if self.top_k is not None and self.top_k < len(logits):
            kth = np.partition(logits, -self.top_k)[-self.top_k]
            tokens = tokens[logits >= kth]  # a few more where scores are equal
        tokens = tokens[np.argsort(-logits[tokens], kind="stable")]
        tokens = tokens[: self.top_k]
        shares = softmax(logits[tokens])
        if self.top_p is not None:
            before = np.cumsum(shares) - shares
            count = int(np.count_nonzero(before < self.top_p))
            tokens, shares = tokens[:count], shares[:count]
        return tokens, shares


class StreamingDetokenizer:
    """Turns tokens into text as they come; a character is given when all of its bytes are there.

    Tokens are decoded together with those of the piece before them, for a tokenizer may treat the first of a text in
    a way of its own. Before the first piece those are all that there are: a few of them might begin in the midst of a
    character.
    """

    def __init__(self, tokenizer: _Tokenizer, before: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        self._special = tokenizer.special_ids
        self._ids = [token for token in before if token not in self._special]
        self._known = len(self._ids)  # how many of them have been spelled

    def add(self, token: int) -> str:
        """Return the text that has become whole with a token."""
        if token in self._special:  # which spells nothing
            return ""
        self._ids.append(token)
        piece = self.rest()
        if not piece or piece.endswith(_UNREADABLE):
            return ""
        self._ids = self._ids[self._known :]
        self._known = len(self._ids)
        return piece

    def rest(self) -> str:
        """Return what the tokens spell that no text was returned for, whole or not."""
        known, whole = self._decode(self._ids[: self._known]), self._decode(self._ids)
        if not whole.startswith(known) and not known.endswith(_UNREADABLE):
            return self._decode(self._ids[self._known :])  # bytes that are no text spoil the character before them
        while not whole.startswith(known):  # the prompt ended in the midst of a character, which goes on here
            known = known[:-1]
        return whole[len(known) :]


class Writing:
    """One text while it is continued.

    Parameters
    ----------
    tokenizer : Tokenizer
    prompt : Encoding
    sampling : Sampling
    most : int
        The most tokens to add.
    stop : str, int, or several of them
    end_ids : sequence of int
        The tokens that end a text.
    forced : Forced
        The tokens at certain places.
    behind : Encoding, optional
        What the added tokens stand behind where that is not the prompt.
    """

    def __init__(
        self,
        tokenizer: Any,
        prompt: Encoding,
        sampling: Sampling,
        most: int,
        stop: Ending | Sequence[Ending],
        end_ids: Sequence[int],
        forced: Forced,
        *,
        behind: Encoding | None = None,
    ) -> None:
        self._tokenizer: _Tokenizer = tokenizer
        self._sampling = sampling
        self._most = whole_number("max_new_tokens", most, 1)
        self._stop_strings, self._stop_ids = _endings(stop)
        self._end_ids = frozenset(end_ids)
        self._first = None if behind is None else forced.first
        self._last = forced.last
        self._rng = np.random.default_rng(sampling.seed)
        self._behind = prompt if behind is None else behind
        self._speller = StreamingDetokenizer(tokenizer, self._behind.ids)
        self._held = ""  # what may be the beginning of a string to stop at
        self.prompt = prompt
        self.ids: list[int] = []
        self.text = ""
        self.ending: Why = ""

    def choose(self, logits: np.ndarray) -> int:
        """Return the next token for its scores, ``V``; one that the tokenizer can spell."""
        if len(self.ids) == self._most - 1 and self._last is not None:
            return self._last
        if not self.ids and self._first is not None:
            return self._first
        return self._sampling.choose(logits[: self._tokenizer.vocab_size], self._rng)

    def add(self, token: int, *, is_last: bool) -> str:
        """Add a token, the last that the model can look at or not, and return what of the text can be given now."""
        self.ids.append(token)
        is_forced = len(self.ids) == self._most and self._last is not None
        if token in self._end_ids:
            self.ending = "length" if is_forced else "end"
        elif token in self._stop_ids:
            self.ending = "stop"
        else:
            self._held += self._speller.add(token)
            self.ending = "length" if len(self.ids) == self._most else "limit" if is_last else ""
        if self.ending:
            self._held += self._speller.rest()
        found = [at for stop in self._stop_strings if (at := self._held.find(stop)) >= 0]
        if found:
            self.ending, self._held = "stop", self._held[: min(found)]
        keep = 0 if self.ending else max((_begun(stop, self._held) for stop in self._stop_strings), default=0)
        piece, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        self.text += piece
        return piece

    def generated(self) -> Generated:
        """Return what has come so far."""
        encoding = _continued(self._behind, self.ids, self._tokenizer)
        return Generated(self.prompt, tuple(self.ids), self.text, self.ending, encoding)


class Stream(Iterator[str]):
    """The continuation of a text, piece by piece; made by `LanguageModel.stream`."""

    def __init__(self, writing: Writing, pieces: Iterator[tuple[int, str]]) -> None:
        self._writing = writing
        self._pieces = pieces

    def __next__(self) -> str:
        return next(piece for _, piece in self._pieces if piece)

    @property
    def generated(self) -> Generated:
        """What has come so far, also after an interruption."""
        return self._writing.generated()


def generation_loop(
    model: LanguageModel, texts: Batch, writings: Sequence[Writing], trace: Recorder
) -> Iterator[tuple[int, str]]:
    """Go on with texts, side by side, until each has ended; yield after each token which text it is of and its piece.

    The cache keeps what has been computed: a step runs one token of each text, and the vocabulary is scored for the
    last position alone.
    """
    ids, state = model.begin(texts.ids, mask=texts.mask, trace=trace)
    padding = np.zeros(len(ids), int) if state.padding is None else state.padding
    room = model.limit - (ids.shape[1] - padding)  # tokens that can still be looked at
    if room.min() < 1:
        raise RegardError(
            f"the prompt has {model.limit} tokens, all that {model.name} looks at at once, so that none can be added; "
            f"shorten it"
        )
    active = list(range(len(writings)))
    while active:
        hidden, state = model.advance(ids, state, trace=trace)
        for which, logits in zip(active, model.head(hidden[:, -1]), strict=True):
            writing = writings[which]
            token = writing.choose(logits)
            yield which, writing.add(token, is_last=len(writing.ids) + 1 == room[which])
        kept = [row for row, which in enumerate(active) if not writings[which].ending]
        if len(kept) < len(active):
            state, active = state.entries(kept), [active[row] for row in kept]
        ids = np.array([writings[which].ids[-1:] for which in active])


def _endings(stop: Ending | Sequence[Ending]) -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the strings and the ids of `stop`."""
    strings, ids = [], []
    for one in stop if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,):
        if isinstance(one, str) and one:
            strings.append(one)
        elif isinstance(one, int | np.integer) and not isinstance(one, bool):
            ids.append(int(one))
        else:
            raise RegardError(f"stop is a string that is not empty, the id of a token, or several of them; got {one!r}")
    return tuple(strings), frozenset(ids)


def _begun(stop: str, text: str) -> int:
    """Return how many of the last characters of `text` are the first of `stop`."""
    return next(size for size in range(min(len(stop) - 1, len(text)), -1, -1) if text.endswith(stop[:size]))


def _continued(prompt: Encoding, ids: Sequence[int], tokenizer: _Tokenizer) -> Encoding:
    """Return a prompt and the tokens behind it as one text.

    Tokens that make one character together all span it, as they do when a tokenizer cuts it.
    """
    if not ids:
        return prompt
    added, speller = tokenizer.from_ids(ids), StreamingDetokenizer(tokenizer, prompt.ids)
    pieces = [speller.add(token) for token in ids]
    pieces[-1] += speller.rest()
    text, spans, words = prompt.text, list(prompt.spans), list(prompt.words)
    word = max((word for word in words if word is not None), default=-1)
    parts = 0  # tokens so far of a character that is not whole yet
    for piece, special in [*zip(pieces, added.special, strict=True), ("", True)]:
        parts += not special
        if parts and (piece or special):
            word += words[-1:] == [None] or not _joins(text[-1:], piece[:1])
            spans += [(len(text), len(text) + len(piece))] * parts
            words += [word] * parts
            text, parts = text + piece, 0
        if special:
            spans.append((0, 0))
            words.append(None)
    return Encoding(
        text,
        (*prompt.ids, *added.ids),
        (*prompt.tokens, *added.tokens),
        (*prompt.special, *added.special),
        tuple(words[:-1]),  # less the end that was put behind all
        tuple(spans[:-1]),
    )


def _joins(before: str, first: str) -> bool:
    """Tell whether a token that begins with one character goes on with the word that ends with another.

    It does where letters or digits meet; and a space belongs to the word behind it.
    """
    return (before.isalnum() and first.isalnum()) or (before.isspace() and not first.isspace())
