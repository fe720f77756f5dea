"""Pretrained word vectors, read from GloVe and word2vec files."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard._utils.reprs import fields_repr
from regard.text.embedding_matrix import as_embedding_matrix
from regard.text.vocabulary import Vocabulary
from regard.text.word_vector_formats import read_rows
from regard.text.words import check_words, join_names

_EXPANSION, _UNPACKED_BYTES = 32, 1 << 20  # a compressed file may give so many times its size, or so many bytes


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each word of a vocabulary.

    Parameters
    ----------
    vocabulary
        The words, in the order of the rows, as a `WordTokenizer` takes it.
    vectors
        One row for each word, ``V E``.

    Raises
    ------
    RegardError
        `vectors` is not of shape ``V E``, or has numbers that are not finite.
    """

    vocabulary: Vocabulary
    vectors: NDArray[np.float32]  # V E

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", as_embedding_matrix(self.vectors, len(self.vocabulary)))

    @property
    def words(self) -> tuple[str, ...]:
        """The words, in the order of the rows of `vectors`."""
        return self.vocabulary.words

    @property
    def embed_dim(self) -> int:
        """The number of features, ``E``."""
        return int(self.vectors.shape[1])

    def vectors_for(self, tokens: Iterable[str]) -> NDArray[np.float32]:
        """Return a new array with the vector of each token, ``T E``.

        Raises
        ------
        RegardError
            Some tokens have no vector; the first ten are named. Case matters: ``"The"`` is not ``"the"``.
        """
        tokens = check_words(tokens)
        if missing := self.vocabulary.missing(tokens):
            raise RegardError(
                f"no vector for {join_names(map(repr, missing))}; lookup is case-sensitive: lower-case the words "
                "if the vectors are lower-case, or leave them out"
            )
        rows = np.array(self.vocabulary.ids(tokens), dtype=np.intp)
        return self.vectors[rows]


def read_word_vectors(path: str | os.PathLike[str], words: Iterable[str] | None = None) -> WordVectors:
    r"""Read word vectors: GloVe text, word2vec text or word2vec binary, plain or compressed with gzip.

    The format is detected from the content. The file is streamed, only the requested words are kept, and reading ends
    once all of them are found.

    Parameters
    ----------
    path
        The file.
    words
        The words to keep; those that the file lacks are left out (`WordVectors.vectors_for` names them). None keeps
        every word. In the rows of other words the numbers are counted, not parsed.

    Returns
    -------
    The words and float32 vectors in the order of the file; of several rows of a word the first.
    A word that is not valid UTF-8 is kept with its invalid bytes escaped (``"caf\xc3"``).

    Raises
    ------
    RegardError
        The file cannot be read, has another format, or is malformed: the message gives the line, or for word2vec
        binary the number of the word. Or gzip unpacks it to more than 1 MiB and 32 times its size.

    Notes
    -----
    GloVe text has a word and its numbers on each line, separated by spaces; the word may contain
    spaces. word2vec puts "count dimension" on a line before the rows; its binary form has a word, a
    space and little-endian float32 numbers. A first line of two integers is read as that header.

    References
    ----------
    GloVe: https://nlp.stanford.edu/projects/glove/; word2vec: https://code.google.com/archive/p/word2vec/
    """
    encoded = None if words is None else frozenset(word.encode("utf-8", "surrogatepass") for word in check_words(words))
    with _stream(path) as stream:
        embed_dim, rows = read_rows(stream, encoded)
        unique: dict[str, None] = {}
        numbers = bytearray()
        for raw, vector in rows:
            if (word := raw.decode("utf-8", "backslashreplace")) not in unique:
                unique[word] = None
                numbers += vector.tobytes()
            if encoded is not None and len(unique) == len(encoded):
                break
    vectors = np.frombuffer(numbers, dtype=np.float32).reshape(len(unique), embed_dim)
    return WordVectors(Vocabulary(tuple(unique)), vectors)


class _BoundedGzipFile(gzip.GzipFile):
    """A compressed file that may give little more than real ones do: vectors in text shrink to a third."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file)
        self._limit = max(_UNPACKED_BYTES, _EXPANSION * os.fstat(file.fileno()).st_size)

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() > self._limit:
            raise RegardError(
                f"it expands to more than {self._limit:,} bytes, the limit for its size; if you trust it, unpack it "
                f"and give the file inside"
            )
        return super().read(size)


@contextmanager
def _stream(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader[Any]]:
    """Open a file, decompressed if necessary; errors inside the context name the file."""
    try:
        with open_regular(path) as file:
            magic = file.read(2)
            file.seek(0)
            if magic == b"\x1f\x8b":
                with _BoundedGzipFile(file) as unpacked, io.BufferedReader(unpacked) as stream:
                    yield stream
            else:
                yield file
    except (OSError, EOFError, ValueError, zlib.error) as error:  # ValueError: an invalid path
        raise RegardError(
            f"cannot read word vectors from {path}: {getattr(error, 'strerror', None) or error}"
        ) from error
    except RegardError as error:
        raise RegardError(f"cannot read word vectors from {path}: {error}") from error
