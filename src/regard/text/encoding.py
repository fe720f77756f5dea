"""A text as tokens: the result of a tokenizer, kept by traces and shown by views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.text.combining_marks import is_mark

_SPACES = "\u0120\u2581"  # as vocabularies spell them, byte-level ones and SentencePiece
_PER_TOKEN = ("ids", "tokens", "special_tokens_mask", "word_ids", "offsets")


@dataclass(frozen=True)
class Encoding:
    """One text as tokens. All sequences have one entry for each of the ``T`` tokens.

    Parameters
    ----------
    text
        The text as it was given.
    ids
        Vocabulary indices.
    tokens
        The tokens as in the vocabulary (``"##ing"``).
    special_tokens_mask
        True for a token that the tokenizer added (``[CLS]``), False for a token of the text.
    word_ids
        The index of the token's word, in non-decreasing order; None for a special token.
    offsets
        Start and end of the token in `text`, in characters; ``(0, 0)`` for a special token.
    grid
        For a picture, whose tokens are patches: their rows and columns. The patches come last, row by row.
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special_tokens_mask: tuple[bool, ...]
    word_ids: tuple[int | None, ...]
    offsets: tuple[tuple[int, int], ...]
    grid: tuple[int, int] | None = None

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in _PER_TOKEN}
        if len(set(lengths.values())) > 1:
            raise RegardError(f"an encoding must have one entry for each token in every field, got {lengths}")
        if self.grid is not None and not 1 <= self.grid[0] * self.grid[1] <= len(self.ids):
            raise RegardError(f"an encoding of {len(self.ids)} tokens has no {self.grid[0]} × {self.grid[1]} patches")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, positions: Sequence[int]) -> Encoding:
        """Return the encoding with the tokens at `positions` alone; the text stays whole."""
        return Encoding(self.text, *(tuple(getattr(self, name)[i] for i in positions) for name in _PER_TOKEN))

    def truncated(self, max_length: int) -> Encoding:
        """Return the encoding with the first tokens and the final special ones, `max_length` together at most."""
        num_final = 0
        while num_final < min(max_length, len(self)) and self.special_tokens_mask[len(self) - 1 - num_final]:
            num_final += 1
        kept = [*range(max_length - num_final), *range(len(self) - num_final, len(self))]
        return self if len(self) <= max_length else self.select(kept)

    def prepend_special(self, ids: Sequence[int], tokens: Sequence[str]) -> Encoding:
        """Return the encoding with special tokens before it; the text stays."""
        count = len(ids)
        return replace(
            self,
            ids=(*ids, *self.ids),
            tokens=(*tokens, *self.tokens),
            special_tokens_mask=((True,) * count + self.special_tokens_mask),
            word_ids=((None,) * count + self.word_ids),
            offsets=(((0, 0),) * count + self.offsets),
        )

    def word_groups(self) -> list[tuple[str, list[int]]]:
        """Return the words in order, each as its text and the positions of its tokens.

        A special token is a word of its own. The text of a word is the slice of `text` that its tokens cover, with the
        case and the marks that a tokenizer may drop, those after its last letter among them, and without surrounding
        spaces, which a byte-level tokenizer counts as a part of it. A word of white space alone is that.
        """
        groups: list[tuple[str, list[int]]] = []
        previous: int | None = None
        for position, word in enumerate(self.word_ids):
            if word is not None and word == previous:
                groups[-1][1].append(position)
            else:
                groups.append(("", [position]))
            previous = word
        return [(self._text_of(positions), positions) for _, positions in groups]

    def uncovered_text(self) -> str:
        """Return the characters of the text that no token covers, joined."""
        covered = bytearray(len(self.text))
        for start, end in self.offsets:
            covered[start:end] = b"\1" * (end - start)
        return "".join(character for character, is_covered in zip(self.text, covered, strict=True) if not is_covered)

    def _text_of(self, positions: Sequence[int]) -> str:
        spans = [self.offsets[i] for i in positions]  # of a space that the text does not have it is empty, anywhere
        filled = [span for span in spans if span[0] < span[1]] or spans
        start, end = min(start for start, _ in filled), max(end for _, end in filled)
        following = positions[-1] + 1
        is_last = following == len(self) or self.special_tokens_mask[following]
        most = len(self.text) if is_last else self.offsets[following][0]
        while 0 < end < most and is_mark(self.text[end]):
            end += 1
        token = self.tokens[positions[0]]
        without_span = token if token.strip(_SPACES) else " " * len(token)
        return self.text[start:end].strip() or self.text[start:end] or without_span

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data for JSON; `grid` of a picture alone."""
        fields = asdict(self)
        if self.grid is None:
            del fields["grid"]
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Encoding:
        """Make an encoding from the result of `to_dict`, also after a round trip through JSON.

        Raises
        ------
        RegardError
            A field is missing or has a wrong type, an id is negative, or an offset lies outside the text.
        """
        try:
            text, offsets = fields["text"], tuple((start, end) for start, end in fields["offsets"])
            ids, tokens, mask, word_ids = (tuple(fields[name]) for name in _PER_TOKEN[:-1])
            grid = None if fields.get("grid") is None else tuple(fields["grid"])
            valid = {
                "text": isinstance(text, str),
                "ids": all(type(i) is int and 0 <= i < 2**63 for i in ids),
                "tokens": all(isinstance(token, str) for token in tokens),
                "special_tokens_mask": all(isinstance(special, bool) for special in mask),
                "word_ids": all(word is None or (type(word) is int and word >= 0) for word in word_ids),
                "offsets": all(type(a) is type(b) is int and 0 <= a <= b <= len(text) for a, b in offsets),
                "grid": grid is None or (len(grid) == 2 and all(type(n) is int and n > 0 for n in grid)),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise RegardError(f"not an encoding: {error!r}") from error
        for name, is_valid in valid.items():
            if not is_valid:
                raise RegardError(f"not an encoding: its {name} are {ascii(fields[name])[:80]}")
        return cls(text, ids, tokens, mask, word_ids, offsets, grid)
