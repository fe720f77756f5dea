"""The layer of the lessons: random embeddings, positions, and one layer of self-attention with random weights.

It shows every step on any text, offline. Nothing is learned, so the attention pattern is meaningless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional import learned_positions, sinusoidal_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import TextModel
from regard.models.batch import Batch, Text, make_batch
from regard.models.memory import check_memory
from regard.models.output import Output, until_stop
from regard.nn import Embedding, Layer, SelfAttention
from regard.text import Vocabulary, WordTokenizer
from regard.text.embedding_matrix import as_embedding_matrix
from regard.text.words import check_texts

Positions: TypeAlias = Literal["sinusoidal", "learned", "none"]

_MAX_TOKENS = 4096  # a trace records T² weights for each head
_MAX_EMBED_DIM = 4096  # each of the four projections has E² weights


@dataclass(frozen=True)
class ToyConfig:
    """The sizes of a toy layer and the seed of its weights."""

    embed_dim: int
    num_heads: int
    positions: Positions
    seed: int

    num_layers: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class Toy(Layer):
    """One layer of self-attention over the words of a text.

    Parameters
    ----------
    name : str
    config : ToyConfig
    tokenizer : WordTokenizer
    token_embedding : Embedding, ``V E``
    position_table : array, ``P E``, optional
        Added to the embeddings; without it the layer ignores word order.
    attn : SelfAttention
    """

    name: str
    config: ToyConfig
    tokenizer: WordTokenizer
    token_embedding: Embedding
    position_table: np.ndarray | None
    attn: SelfAttention

    def __call__(self, text: Text, *, trace: Recorder = NULL_RECORDER) -> Output:
        """Return the contextual vectors, ``B T E``.

        Taps ``token_embeddings``, ``position_embeddings``, ``embeddings``, ``blocks.0.attn.*`` and
        ``blocks.0.output``, as a model with more layers does.
        """
        max_length = _MAX_TOKENS if self.position_table is None else len(self.position_table)
        texts = make_batch(text, self.tokenizer, max_length=max_length, name=self.name)
        check_memory(self, texts.ids.shape, trace)
        trace.set_layout(texts.layout)
        run = trace.run(self.name, texts.encodings, source=self)
        return until_stop(lambda _: Output(self._forward(texts, trace), texts.encodings), run, texts.encodings)

    gradients = TextModel.gradients

    def _forward(self, texts: Batch, trace: Recorder) -> np.ndarray:
        x = trace("token_embeddings", self.token_embedding(texts.ids), "B T E")
        if self.position_table is not None:
            positions = learned_positions(self.position_table, x.shape[1])
            x = x + trace("position_embeddings", positions, "T E")
        x = trace("embeddings", x, "B T E")
        with trace.scope("blocks.0"):
            with trace.scope("attn"):
                x = self.attn(x, mask=texts.mask, trace=trace)
            return trace("output", x, "B T E")


def toy(
    texts: str | Sequence[str],
    *,
    seed: int = 42,
    embed_dim: int | None = None,
    num_heads: int = 1,
    positions: Positions = "sinusoidal",
    embeddings: np.ndarray | None = None,
    vocabulary: Vocabulary | None = None,
) -> Toy:
    """Draw a toy layer for the words of `texts`.

    Parameters
    ----------
    texts : str or sequence of str
        The vocabulary is their words, split at whitespace and lower-cased.
    seed : int
        The same seed gives the same layer.
    embed_dim : int, optional
        ``E``; 8 by default, or the width of `embeddings`.
    num_heads : int
        ``H``, which must divide E.
    positions : {"sinusoidal", "learned", "none"}
        Sinusoids; a table of random numbers, as before training; or no positions.
    embeddings : array, ``V E``, optional
        One row for each entry of `vocabulary`, in place of random ones; integers become float64.
    vocabulary : Vocabulary, optional
        The words of the rows of `embeddings`, if not those of `texts`.

    Raises
    ------
    RegardError
        There are no words, the sizes do not fit together, or `embeddings` are not finite real numbers.
    """
    texts = check_texts(texts)
    seed, num_heads = whole_number("seed", seed, 0), whole_number("num_heads", num_heads, 1)
    vocabulary = Vocabulary.from_text(texts) if vocabulary is None else vocabulary
    tokenizer = WordTokenizer(vocabulary)
    rng = np.random.default_rng(seed)
    length = min(_MAX_TOKENS, max((len(text.split()) for text in texts), default=0))
    if length == 0:
        raise RegardError("the text is empty; give at least one word")
    matrix = None if embeddings is None else as_embedding_matrix(embeddings, len(vocabulary))
    if matrix is not None and embed_dim not in (None, matrix.shape[1]):
        raise RegardError(f"embeddings have {matrix.shape[1]} features, but embed_dim is {embed_dim}")
    width = whole_number("embed_dim", 8 if embed_dim is None else embed_dim, 1) if matrix is None else matrix.shape[1]
    if width > _MAX_EMBED_DIM:
        raise RegardError(f"embed_dim must be at most {_MAX_EMBED_DIM}, got {width}")
    if width % num_heads:
        raise RegardError(f"embed_dim {width} does not split into {num_heads} heads of equal size; choose a divisor")
    table = Embedding.init(rng, len(vocabulary), width) if matrix is None else Embedding(matrix)
    if positions not in get_args(Positions):
        raise RegardError(f"positions must be one of {', '.join(get_args(Positions))}, got {positions!r}")
    position_table = None
    if positions == "sinusoidal":
        position_table = sinusoidal_positions(length, width).astype(table.weight.dtype)
    elif positions == "learned":
        position_table = rng.uniform(-1, 1, (length, width)).astype(table.weight.dtype)
    return Toy(
        name=f"toy layer, random weights, seed {seed}",
        config=ToyConfig(width, num_heads, positions, seed),
        tokenizer=tokenizer,
        token_embedding=table,
        position_table=position_table,
        attn=SelfAttention.init(rng, width, num_heads, bias=False, dtype=table.weight.dtype),
    )
