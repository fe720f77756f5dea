"""The logit lens: what a decoder would predict if it ended after each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard._utils.validation import whole_number
from regard.metrics.attribution_target import next_token_id
from regard.text.encoding import Encoding
from regard.trace import Trace

_NUMBERS = 1 << 22  # logits at a time


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The prediction of the next token from each residual stream, ``L`` + 1 of them.

    Parameters
    ----------
    names : tuple of str
        The steps that were read: ``embeddings``, ``blocks.0.output``, …
    ids : integer array, ``N B T k``
        The likeliest tokens, the likeliest first.
    probabilities : array, ``N B T k``
        Theirs.
    target : integer array, ``B T``
        The token whose number the next three have.
    target_probability, target_rank : array, ``N B T``
        Its probability, and how many tokens are likelier.
    target_logit : array, ``N B T``
    entropy : array, ``N B T``
        Of the prediction, in nats.
    encodings : tuple of Encoding
    """

    names: tuple[str, ...]
    ids: np.ndarray
    probabilities: np.ndarray
    target: np.ndarray
    target_probability: np.ndarray
    target_rank: np.ndarray
    target_logit: np.ndarray
    entropy: np.ndarray
    encodings: tuple[Encoding, ...]

    __repr__ = fields_repr


def logit_lens(model: Any, trace: Trace, target: str | int | None = None, *, k: int = 5) -> LogitLens:
    """Return what a decoder would predict after each block: its final norm and head, applied to each residual stream.

    Parameters
    ----------
    model : Decoder
        What the trace is of.
    trace : Trace
        With the steps ``embeddings`` and ``blocks.*.output``.
    target : str or int, optional
        A token, as text or id; by default at each position the one that the model itself finds likeliest at the end.
    k : int
        How many of the likeliest tokens to return.

    Raises
    ------
    RegardError
        The model is no decoder, or the trace lacks a step.

    References
    ----------
    nostalgebraist (2020), "interpreting GPT: the logit lens",
    https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens.

    Examples
    --------
    >>> import regard
    >>> model, trace = regard.load("induction"), regard.Trace(only=("embeddings", "*.output"))
    >>> _ = model("qzkfqz", trace=trace)
    >>> lens = regard.metrics.logit_lens(model, trace, "k")
    >>> lens.target_rank[:, 0, -1].tolist()[-1]  # k comes next: no token is likelier
    0
    """
    k, names = min(whole_number("k", k, 1), model.config.vocab_size), streams(model, trace)
    if target is None:
        target_ids = np.concatenate([logits.argmax(-1) for logits in _logits(model, trace[names[-1]])])
    else:
        lead = trace[names[0]].shape[:2]
        target_ids = np.full(lead, next_token_id(model, trace.encodings[0], target)).reshape(-1)
    read = [_read(model, trace[name], target_ids, k) for name in names]
    shape = (len(names), *trace[names[0]].shape[:2])
    ids, probabilities, probability, rank, logit, entropy = (
        np.stack(each).reshape(*shape, *each[0].shape[1:]) for each in zip(*read, strict=True)
    )
    at = target_ids.reshape(shape[1:])
    return LogitLens(names, ids, probabilities, at, probability, rank, logit, entropy, trace.encodings)


def streams(model: Any, trace: Trace) -> tuple[str, ...]:
    """Return the names of the residual streams of a decoder; an error if the trace lacks one."""
    if not hasattr(model, "final_norm") or not hasattr(model, "token_embedding"):
        raise RegardError(f"{model.name} is no decoder: its residual streams are no predictions of a token")
    names = ("embeddings", *(f"blocks.{i}.output" for i in range(len(model.blocks))))
    if missing := [name for name in names if name not in trace.names()]:
        raise RegardError(f"the trace has no {missing[0]}: record Trace(only=('embeddings', 'blocks.*.output'))")
    return names


def _read(model: Any, stream: np.ndarray, target_ids: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """Return the fields of a `LogitLens` for one stream, ``(B T) …``."""
    found, start = [], 0
    for logits in _logits(model, stream):
        target = target_ids[start : start + len(logits), None]
        start += len(logits)
        largest = logits.max(-1, keepdims=True)
        log_probabilities = logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))
        probabilities = np.exp(log_probabilities)
        likeliest, of_target = _largest(logits, k), np.take_along_axis(logits, target, -1)
        found.append((
            likeliest,
            np.take_along_axis(probabilities, likeliest, -1),
            np.take_along_axis(probabilities, target, -1)[:, 0],
            (logits > of_target).sum(-1),
            of_target[:, 0],
            -(probabilities * log_probabilities).sum(-1),
        ))  # fmt: skip
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))


def _logits(model: Any, stream: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the logits of a few positions after the other, ``t V``, float64."""
    vectors = stream.reshape(-1, stream.shape[-1])
    count = max(1, _NUMBERS // model.config.vocab_size)
    for start in range(0, len(vectors), count):
        yield np.asarray(model.head(model.final_norm(vectors[start : start + count])), np.float64)


def _largest(logits: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest, the largest first; of equal ones the first first."""
    candidates = np.argpartition(-logits, k - 1, axis=-1)[..., :k]
    values = np.take_along_axis(logits, candidates, -1)
    return np.take_along_axis(candidates, np.lexsort((candidates, -values), axis=-1), -1)
