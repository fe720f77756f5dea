"""Made-up texts and traces."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard import Encoding, Trace


def encoding_of(words: list[list[str]]) -> Encoding:
    """Return an encoding between ``[CLS]`` and ``[SEP]`` of words, each a list of its sub-words."""
    tokens, ids, spans, of_word = ["[CLS]"], [0], [(0, 0)], [None]
    text = ""
    for number, pieces in enumerate(words):
        text += " " if text else ""
        for place, piece in enumerate(pieces):
            tokens.append(piece if place == 0 else f"##{piece}")
            spans.append((len(text), len(text) + len(piece)))
            ids.append(len(ids))
            of_word.append(number)
            text += piece
    tokens.append("[SEP]")
    return Encoding(
        text=text,
        ids=(*ids, len(ids)),
        tokens=tuple(tokens),
        special_tokens_mask=(True, *[False] * (len(tokens) - 2), True),
        word_ids=(*of_word, None),
        offsets=(*spans, (0, 0)),
    )


def softmaxed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights whose rows sum to 1."""
    weights = np.exp(3 * rng.standard_normal(shape))
    return weights / weights.sum(axis=-1, keepdims=True)


def trace_of(rng: np.random.Generator, encoding: Encoding, *, layers: int = 3, heads: int = 5, width: int = 7) -> Trace:
    """Return a trace of one text with random weights and vectors."""
    trace = Trace()
    trace.set_metadata("made-up", [encoding])
    T = len(encoding)
    trace("token_embeddings", rng.standard_normal((1, T, width)), "B T E")
    for layer in range(layers):
        with trace.scope(f"blocks.{layer}"):
            trace("attn.weights", softmaxed(rng, (1, heads, T, T)), "B H T S")
            trace("output", rng.standard_normal((1, T, width)), "B T E")
    return trace


def recorded(model: Callable[..., object], *inputs: object, **options: Any) -> Trace:
    """Return the trace, made with these options, of a call of a model, a layer or a function."""
    trace = Trace(**options)
    model(*inputs, trace=trace)
    return trace


SENTENCE = [["the"], ["cat", "s"], ["un", "believ", "ably"], ["sat"]]
