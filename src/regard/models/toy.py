"""The lessons' layer: random embeddings, positions, and one layer of self-attention with random weights.

It shows every step on any text, offline; what looks at what means nothing, for nothing was learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import learned_positions, sinusoidal_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import Output, Text, batch
from regard.nn import Embedding, Layer, SelfAttention
from regard.text import Vocabulary, WordTokenizer
from regard.text.embedding_matrix import as_table
from regard.text.words import check_texts

Positions: TypeAlias = Literal["sinusoidal", "table", "none"]

_MOST_TOKENS = 4096  # all weights are kept, T² for each head
_MOST_FEATURES = 4096  # each of four projections has E²


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
        Added to the embeddings; without it words have no order.
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
        ``blocks.0.output``, the names that a model with more layers has too.
        """
        max_length = _MOST_TOKENS if self.position_table is None else len(self.position_table)
        texts = batch(text, self.tokenizer, max_length=max_length, name=self.name)
        trace.set_metadata(self.name, texts.encodings)
        x = trace("token_embeddings", self.token_embedding(texts.ids), "B T E")
        if self.position_table is not None:
            positions = learned_positions(self.position_table, x.shape[1])
            x = x + trace("position_embeddings", positions, "T E")
        x = trace("embeddings", x, "B T E")
        with trace.scope("blocks.0"):
            with trace.scope("attn"):
                x = self.attn(x, mask=texts.mask, trace=trace)
            x = trace("output", x, "B T E")
        trace.check_edits_used()
        return Output(x, texts.encodings)


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
        The vocabulary is made of their words, split at white space and lower-cased.
    seed : int
        The same seed gives the same layer.
    embed_dim : int, optional
        ``E``; 8 by default, or the width of `embeddings`.
    num_heads : int
        ``H``, which must divide E.
    positions : {"sinusoidal", "table", "none"}
        Waves of fixed lengths; a table with random numbers, as before learning; or no positions.
    embeddings : array, ``V E``, optional
        One row for each entry of `vocabulary`, in place of random ones; integers become float64.
    vocabulary : Vocabulary, optional
        The words that the rows of `embeddings` belong to, where it is not simply those of `texts`.

    Raises
    ------
    RegardError
        There are no words, or the sizes do not fit together; or `embeddings` are not finite real numbers.
    """
    texts = check_texts(texts)
    seed, num_heads = _whole("seed", seed), _whole("num_heads", num_heads)
    vocabulary = Vocabulary.from_text(texts) if vocabulary is None else vocabulary
    tokenizer = WordTokenizer(vocabulary)
    if seed < 0:
        raise RegardError(f"a seed is a whole number from 0 up, not {seed}")
    rng = np.random.default_rng(seed)
    length = min(_MOST_TOKENS, max((len(text.split()) for text in texts), default=0))
    if length == 0:
        raise RegardError("there is no text to look at: give at least one word")
    given = None if embeddings is None else as_table(embeddings, len(vocabulary))
    if given is not None and embed_dim not in (None, given.shape[1]):
        raise RegardError(f"embeddings {given.shape} have {given.shape[1]} features, not {embed_dim}")
    width = _whole("embed_dim", 8 if embed_dim is None else embed_dim) if given is None else given.shape[1]
    if not 1 <= width <= _MOST_FEATURES:
        raise RegardError(f"embed_dim is from 1 to {_MOST_FEATURES}, not {width}")
    if num_heads < 1 or width % num_heads:
        raise RegardError(f"embed_dim {width} does not split into {num_heads} heads of equal size; choose a divisor")
    table = Embedding.init(rng, len(vocabulary), width) if given is None else Embedding(given)
    if positions not in get_args(Positions):
        raise RegardError(f"positions is one of {', '.join(get_args(Positions))}, not {positions!r}")
    position_table = None
    if positions == "sinusoidal":
        position_table = sinusoidal_positions(length, width).astype(table.weight.dtype)
    elif positions == "table":
        position_table = rng.uniform(-1, 1, (length, width)).astype(table.weight.dtype)
    return Toy(
        name=f"toy layer, random weights, seed {seed}",
        config=ToyConfig(width, num_heads, positions, seed),
        tokenizer=tokenizer,
        token_embedding=table,
        position_table=position_table,
        attn=SelfAttention.init(rng, width, num_heads, bias=False, dtype=table.weight.dtype),
    )


def _whole(name: str, value: int) -> int:
    try:
        return index(value)
    except TypeError:
        raise RegardError(f"{name} is a whole number, not {value!r}") from None
