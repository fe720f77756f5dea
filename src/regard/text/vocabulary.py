"""A vocabulary of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.text.words import check_texts, check_words, split_words


@dataclass(frozen=True)
class Vocabulary:
    """The ``V`` words, in the order of their indices.

    Parameters
    ----------
    words
        Distinct words; ``words[i]`` has index i.

    Raises
    ------
    RegardError
        A word is repeated (all such are named) or not a str.
    """

    words: tuple[str, ...]

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", check_words(self.words))
        if len(self._index) < len(self.words):
            repeated = [word for word, count in Counter(self.words).items() if count > 1]
            raise RegardError(f"a vocabulary must have each word once, got several of {', '.join(map(repr, repeated))}")

    @classmethod
    def from_text(cls, texts: str | Iterable[str], *, lowercase: bool = True) -> Vocabulary:
        """Collect the words of a text, or of several, in the order in which they first appear."""
        words = (word for text in check_texts(texts) for word, _ in split_words(text, lowercase=lowercase))
        return cls(tuple(dict.fromkeys(words)))

    @classmethod
    def from_mapping(cls, indices: Mapping[str, int]) -> Vocabulary:
        """Make a vocabulary of a mapping from word to index, such as ``{"the": 0, "cat": 1}``.

        Raises
        ------
        RegardError
            The indices are not 0 to V − 1, each used once. The message has every problem.
        """
        words_at: dict[int, list[str]] = {}
        problems = []
        for word, index in indices.items():
            if hasattr(index, "__index__") and not isinstance(index, bool):
                words_at.setdefault(int(index), []).append(word)
            else:
                problems.append(f"{word!r} has the index {index!r}, which is not an integer")
        for index, words in words_at.items():
            if not 0 <= index < len(indices):
                problems.append(f"{', '.join(map(repr, words))}: index {index} is outside 0 to {len(indices) - 1}")
            elif len(words) > 1:
                problems.append(f"{', '.join(map(repr, words))} share index {index}")
        if unused := [index for index in range(len(indices)) if index not in words_at]:
            problems.append(f"no word has index {', '.join(map(str, unused))}")
        if problems:
            raise RegardError(f"{len(indices)} words must have each index from 0 once: {'; '.join(problems)}")
        return cls(tuple(words_at[index][0] for index in range(len(indices))))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def missing(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return those of `words` that are not in the vocabulary, each once, in order."""
        return tuple(word for word in dict.fromkeys(check_words(words)) if word not in self)

    def ids(self, words: Iterable[str]) -> tuple[int, ...]:
        """Return the index of each of `words`.

        Raises
        ------
        RegardError
            Some words are missing; the message names all of them.
        """
        words = check_words(words)
        if missing := self.missing(words):
            raise RegardError(f"not among the {len(self)} words of the vocabulary: {', '.join(map(repr, missing))}")
        return tuple(self._index[word] for word in words)
