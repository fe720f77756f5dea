"""The tokenizer of the lessons: one token for each word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.text.encoding_from_ids import check_ids, encode_tokens
from regard.text.vocabulary import Vocabulary
from regard.text.words import split_words

Unknown = Literal["error", "unk", "drop"]
UNK = "<unk>"


@dataclass(frozen=True)
class WordTokenizer:
    """Splits a text at whitespace and looks up every word.

    Parameters
    ----------
    vocabulary
        The known words.
    lowercase
        Whether words are lower-cased before they are looked up. Offsets refer to the text as given.
    unknown
        What to do with a word that is not in `vocabulary`: ``"error"`` raises and names all such words; ``"unk"``
        replaces it by the vocabulary's ``"<unk>"``; ``"drop"`` leaves it out of the encoding.

    Raises
    ------
    RegardError
        `unknown` has another value, or is ``"unk"`` and the vocabulary has no ``"<unk>"``.

    Examples
    --------
    >>> tokenizer = WordTokenizer(Vocabulary.from_mapping({"the": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4}))
    >>> tokenizer("The cat sat on the mat").ids
    (0, 1, 2, 3, 0, 4)
    """

    vocabulary: Vocabulary
    lowercase: bool = True
    unknown: Unknown = "error"

    def __post_init__(self) -> None:
        if self.unknown not in get_args(Unknown):
            raise RegardError(f"unknown must be one of {', '.join(get_args(Unknown))}, got {self.unknown!r}")
        if self.unknown == "unk" and UNK not in self.vocabulary:
            raise RegardError(f"unknown='unk' needs the word {UNK!r} in the vocabulary; add it or choose 'drop'")

    @classmethod
    def from_text(cls, text: str, *, lowercase: bool = True) -> WordTokenizer:
        """Make a tokenizer for the words of `text`."""
        return cls(Vocabulary.from_text(text, lowercase=lowercase), lowercase)

    def __call__(self, text: str) -> Encoding:
        """Return `text` as ``T`` tokens; a text without words has none.

        Raises
        ------
        RegardError
            `text` is not a str or has a lone surrogate, or it has unknown words and `unknown` is ``"error"``.
        """
        words = split_words(text, lowercase=self.lowercase)
        missing = set(self.vocabulary.missing(word for word, _ in words))
        if missing and self.unknown == "error":
            raise RegardError(self._unknown_message([word for word, _ in words if word in missing]))
        if self.unknown == "drop":
            words = [(word, span) for word, span in words if word not in missing]
        tokens = tuple(UNK if word in missing else word for word, _ in words)
        return Encoding(
            text=text,
            ids=self.vocabulary.ids(tokens),
            tokens=tokens,
            special_tokens_mask=(False,) * len(tokens),
            word_ids=tuple(range(len(tokens))),
            offsets=tuple(span for _, span in words),
        )

    def from_ids(self, ids: Iterable[int]) -> Encoding:
        """Return the encoding of `ids`, whose text is their words joined by spaces.

        Raises
        ------
        RegardError
            Some ids are not in the vocabulary; all such are named.
        """
        size = len(self.vocabulary)
        ids = check_ids(ids, lambda i: 0 <= i < size, size)
        return encode_tokens(ids, [self.vocabulary.words[i] for i in ids], [False] * len(ids))

    @property
    def pad_id(self) -> None:
        """None: there is no padding token."""

    def _unknown_message(self, words: list[str]) -> str:
        names = ", ".join(map(repr, dict.fromkeys(words)))
        return (
            f"not among the {len(self.vocabulary)} words of the vocabulary{' after lower-casing' * self.lowercase}: "
            f"{names}; add them to it, or choose unknown='unk' or unknown='drop'"
        )
