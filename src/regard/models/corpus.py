"""Runs of many texts, one trace each, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set, Sized
from itertools import groupby, islice
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.models.base import run_traced, truncated
from regard.text.encoding import Encoding
from regard.trace import Edit, Trace

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of texts done and that of all, None where it is unknown."""

_WINDOW = 4096  # texts that are sorted by length at a time


def iter_traces(
    model: Any,
    texts: Iterable[str | Encoding],
    *,
    batch_size: int = 32,
    only: str | Iterable[str] | None = None,
    keep: Literal["maps", "arrays"] = "maps",
    edit: Mapping[str, Edit] | None = None,
    truncate: bool = False,
    skip: int = 0,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Trace]]:
    """Yield the index of each text and its trace; see `TextModel.iter_traces`."""
    batch_size = whole_number("batch_size", batch_size, 1)
    skip = whole_number("skip", skip, 0)
    if keep not in ("maps", "arrays"):
        raise RegardError(f"keep must be maps or arrays, got {keep!r}")
    check_texts(texts)
    options = {"only": only, "maps": keep == "maps", "edit": edit}
    return _traces(model, texts, batch_size, options, truncate, skip, progress)


def check_texts(texts: object) -> None:
    """Raise `RegardError` for what is no iterable of texts in an order."""
    if isinstance(texts, str | Encoding | Set | Mapping) or not isinstance(texts, Iterable):
        raise RegardError("iter_traces takes an iterable of texts, such as a list or an open file")


def _traces(
    model: Any,
    texts: Iterable[str | Encoding],
    batch_size: int,
    options: dict[str, Any],
    truncate: bool,
    skip: int,
    progress: Progress | None,
) -> Iterator[tuple[int, Trace]]:
    total = len(texts) if isinstance(texts, Sized) else None
    numbered, done = enumerate(texts), 0
    while taken := list(islice(numbered, _WINDOW)):
        if done + len(taken) <= skip:
            done += len(taken)
            continue
        window = [(i, encode(model, i, text, truncate)) for i, text in taken]
        window.sort(key=lambda item: len(item[1]))
        for _, same in groupby(window, key=lambda item: len(item[1])):
            while batch := list(islice(same, batch_size)):
                skipped = max(skip - done, 0)
                if skipped < len(batch):  # run whole, so that the values are those of a run without `skip`
                    trace = run_traced(model, [encoding for _, encoding in batch], Trace(**options))
                    for at in range(skipped, len(batch)):
                        yield batch[at][0], trace.select(at)
                done += len(batch)
                if progress is not None and done > skip:
                    progress(done, total)


def encode(model: Any, index: int, text: object, truncate: bool) -> Encoding:
    """Return a text as tokens, at least one and at most those that the model takes."""
    if not isinstance(text, str | Encoding):
        raise RegardError(f"text {index} is no str, got {text!r}")
    encoding: Encoding = model.tokenizer(text.removesuffix("\n")) if isinstance(text, str) else text
    if not len(encoding):
        raise RegardError(f"text {index} is empty; give at least one token")
    if len(encoding) <= model.max_length:
        return encoding
    if not truncate:
        raise RegardError(
            f"text {index} has {len(encoding)} tokens, but {model.name} accepts at most {model.max_length}; shorten it "
            "or truncate"
        )
    return truncated(encoding, model.max_length)
