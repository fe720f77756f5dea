"""The logit lens: what a decoder would predict if it ended after each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.frames import Tabular, make_dataset
from regard._utils.validation import whole_number
from regard.metrics.attribution_target import next_token_ids, require_decoder, token_texts
from regard.metrics.token_places import TokenPlaces
from regard.text.encoding import Encoding
from regard.trace import Trace
from regard.trace.notebook_html import page, picture, table, tokens_line

_NUMBERS = 1 << 22  # logits at a time
_ROWS = 12  # streams of the table in a notebook


@dataclass(frozen=True, eq=False)
class LogitLens(Tabular):
    """The prediction of the next token from each residual stream, ``N`` = ``L`` + 1 of them.

    Parameters
    ----------
    names : tuple of str
        The steps that were read: ``embeddings``, ``blocks.0.output``, …
    ids : integer array, ``N B T k``
        The likeliest tokens, the likeliest first.
    tokens : array of str, ``N B T k``
        Their texts.
    probabilities : array, ``N B T k``
        Theirs.
    target : integer array, ``B T``
        The token whose number the next three have.
    target_token : array of str, ``B T``
        Its text.
    target_probability, target_rank : array, ``N B T``
        Its probability, and how many tokens are likelier.
    target_logit : array, ``N B T``
    entropy : array, ``N B T``
        Of the prediction, in nats.
    encodings : tuple of Encoding
    """

    names: tuple[str, ...]
    ids: np.ndarray
    tokens: np.ndarray
    probabilities: np.ndarray
    target: np.ndarray
    target_token: np.ndarray
    target_probability: np.ndarray
    target_rank: np.ndarray
    target_logit: np.ndarray
    entropy: np.ndarray
    encodings: tuple[Encoding, ...]

    def to_columns(self) -> dict[str, np.ndarray]:
        """Return a row for each stream, text and position: the likeliest token there, and the target."""
        places = TokenPlaces(self.encodings, self.target.shape)
        columns = {"step": np.repeat(np.array(self.names), places.count), **places.columns(len(self.names))}
        likeliest = {"predicted": self.tokens, "predicted_id": self.ids, "probability": self.probabilities}
        columns |= {name: places.rows(values[..., 0]) for name, values in likeliest.items()}
        columns |= {
            name: places.rows(np.broadcast_to(values, self.entropy.shape))
            for name, values in (("target", self.target_token), ("target_id", self.target))
        }
        for name in ("target_probability", "target_rank", "target_logit", "entropy"):
            columns[name] = places.rows(getattr(self, name))
        return columns

    def to_xarray(self) -> Any:
        """Return all arrays as an ``xarray.Dataset``; ``step`` and, of one text, ``token`` are coordinates."""
        variables = {name: ("N B T k", getattr(self, name)) for name in ("ids", "tokens", "probabilities")}
        variables |= {name: ("B T", getattr(self, name)) for name in ("target", "target_token")}
        for name in ("target_probability", "target_rank", "target_logit", "entropy"):
            variables[name] = ("N B T", getattr(self, name))
        places = TokenPlaces(self.encodings, self.target.shape)
        return make_dataset(variables, {"step": ("N", np.array(self.names)), **places.coordinates()})

    def __repr__(self) -> str:
        streams, batch, length, _ = self.ids.shape
        return f"<LogitLens: {streams} residual streams, {batch} × {length} tokens>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the target in each stream of the first text, and its last token."""
        places = TokenPlaces(self.encodings, self.target.shape)
        tokens, last = places.first_text(), len(places.first_text()) - 1
        shown = np.unique(np.linspace(0, len(self.names) - 1, _ROWS).round().astype(int)).tolist()
        rows = [
            (
                self.names[i],
                ", ".join(f"{token!r} {p:.1%}" for token, p in zip(*self._likeliest(i, last), strict=True)),
                f"{self.target_rank[i, 0, last]:,}",
                f"{self.target_probability[i, 0, last]:.1%}",
            )
            for i in shown
        ]
        target = repr(str(self.target_token[0, last]))
        caption = "probability of the target, streams down, positions across; the table is of the last position"
        return page(
            repr(self)[1:-1],
            tokens_line(tokens),
            picture([self.target_probability[:, 0, : len(tokens)]], caption, cell=8),
            table(("step", "likeliest", f"rank of {target}", "probability"), rows),
            try_next=("lens.target_rank[:, 0, -1]", "lens.to_frame()"),
        )

    def _likeliest(self, stream: int, position: int) -> tuple[list[str], list[float]]:
        at = (stream, 0, position, slice(3))
        return self.tokens[at].tolist(), self.probabilities[at].tolist()


def logit_lens(model: Any, trace: Trace, target: Any = None, *, k: int = 5) -> LogitLens:
    """Return what a decoder would predict after each block: its final norm and head, applied to each residual stream.

    Parameters
    ----------
    model : Decoder
        What the trace is of.
    trace : Trace
        With the steps ``embeddings`` and ``blocks.*.output``.
    target : str, int, or array of them, optional
        A token, as text or id, one for each text, or an array ``B T`` of one for each position, or what broadcasts to
        it (of a single text a list, ``T``); by default at each position the one that the model itself finds likeliest
        at the end.
    k : int
        How many of the likeliest tokens to return.

    Raises
    ------
    RegardError
        The model is not a decoder, the trace lacks a step, or a target is not one token.

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
    names = streams(model, trace)
    k = min(whole_number("k", k, 1), model.config.vocab_size)
    lead = trace[names[0]].shape[:2]
    if target is None:
        at = np.concatenate([logits.argmax(-1) for logits in _logits(model, trace[names[-1]])]).reshape(lead)
    else:
        at = next_token_ids(model, trace.encodings, target, lead)
    read = [_read(model, trace[name], at.reshape(-1), k) for name in names]
    ids, probabilities, probability, rank, logit, entropy = (
        np.stack(each).reshape(len(names), *lead, *each[0].shape[1:]) for each in zip(*read, strict=True)
    )
    texts = token_texts(model, ids), token_texts(model, at)
    return LogitLens(
        names, ids, texts[0], probabilities, at, texts[1], probability, rank, logit, entropy, trace.encodings
    )


def streams(model: Any, trace: Trace) -> tuple[str, ...]:
    """Return the names of the residual streams of a decoder; an error if the trace lacks one."""
    require_decoder(model)
    names = ("embeddings", *(f"blocks.{i}.output" for i in range(len(model.blocks))))
    if missing := [name for name in names if name not in trace.names()]:
        if trace.has_start:
            raise RegardError(f"the run started from a block, so that it has no {missing[0]}: run the whole model")
        raise RegardError(f"the trace has no {missing[0]}: record Trace(only=('embeddings', 'blocks.*.output'))")
    return names


def _read(model: Any, stream: np.ndarray, target_ids: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """Return the fields of a `LogitLens` for one stream, ``(B T) …``."""
    parts, start = [], 0
    for logits in _logits(model, stream):
        target = target_ids[start : start + len(logits), None]
        start += len(logits)
        largest = logits.max(-1, keepdims=True)
        log_probabilities = logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))
        probabilities = np.exp(log_probabilities)
        likeliest, of_target = _largest(logits, k), np.take_along_axis(logits, target, -1)
        parts.append((
            likeliest,
            np.take_along_axis(probabilities, likeliest, -1),
            np.take_along_axis(probabilities, target, -1)[:, 0],
            (logits > of_target).sum(-1),
            of_target[:, 0],
            -(probabilities * log_probabilities).sum(-1),
        ))  # fmt: skip
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


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
