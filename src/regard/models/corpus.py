"""Runs of many texts, or pictures, one trace each, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set, Sized
from itertools import groupby, islice
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard._utils.validation import function, truncate as shortened, whole_number
from regard.models.batch import OneText, as_encoding
from regard.models.output import run_traced
from regard.text.encoding import Encoding
from regard.text.words import check_no_set_or_table
from regard.trace import Edit, Trace

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of texts done and that of all, None where it is unknown."""

_WINDOW = 4096  # texts that are sorted by length at a time


def iter_traces(
    model: Any,
    texts: Iterable[OneText],
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
    batch_size, skip = whole_number("batch_size", batch_size, 1), whole_number("skip", skip, 0)
    check_texts(texts)
    batches = _text_batches(model, texts, batch_size, truncate, skip)
    return _traces(model, batches, _trace_options(only, keep, edit), skip, _reporting(texts, progress))


def iter_picture_traces(
    model: Any,
    pictures: Iterable[Any],
    *,
    batch_size: int = 32,
    only: str | Iterable[str] | None = None,
    keep: Literal["maps", "arrays"] = "maps",
    edit: Mapping[str, Edit] | None = None,
    skip: int = 0,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Trace]]:
    """Yield the index of each picture and its trace; see `ImageModel.iter_traces`."""
    batch_size, skip = whole_number("batch_size", batch_size, 1), whole_number("skip", skip, 0)
    if isinstance(pictures, str | bytes | Set | Mapping) or not isinstance(pictures, Iterable):
        raise RegardError("iter_traces takes an iterable of pictures, such as a list of files")
    batches = _batches(iter(enumerate(pictures)), batch_size)
    return _traces(model, batches, _trace_options(only, keep, edit), skip, _reporting(pictures, progress))


def _trace_options(only: Any, keep: str, edit: Any) -> dict[str, Any]:
    if not isinstance(keep, str) or keep not in ("maps", "arrays"):
        raise RegardError(f"keep must be maps or arrays, got {keep!r}")
    options = {"only": "*" if only is None else only, "maps": keep == "maps", "edit": edit}
    Trace(**options)  # raises for what is not a name or an edit
    return options


def _reporting(items: Iterable[Any], progress: Progress | None) -> Callable[[int], None]:
    """Return the function that is called with how many are done."""
    total = len(items) if isinstance(items, Sized) else None
    function("progress", progress)
    if progress is None:
        return lambda _: None
    return lambda done: progress(done, total)


def check_texts(texts: object) -> None:
    """Raise `RegardError` for what is not an iterable of texts in an order."""
    check_no_set_or_table(texts)
    if isinstance(texts, str | Encoding | Mapping) or not isinstance(texts, Iterable):
        raise RegardError("iter_traces takes an iterable of texts, such as a list or an open file")


def _traces(
    model: Any,
    batches: Iterable[list[tuple[int, Any]]],
    options: dict[str, Any],
    skip: int,
    report: Callable[[int], None],
) -> Iterator[tuple[int, Trace]]:
    """Run batches of what a model takes, each with its index, but for those of which all are skipped."""
    done = 0
    for batch in batches:
        skipped = max(skip - done, 0)
        if skipped < len(batch):  # run whole, so that the values are those of a run without `skip`
            trace = run_traced(model, [item for _, item in batch], Trace(**options))
            for at in range(skipped, len(batch)):
                yield batch[at][0], trace.select(at)
        done += len(batch)
        if done > skip:
            report(done)


def _text_batches(
    model: Any, texts: Iterable[OneText], batch_size: int, truncate: bool, skip: int
) -> Iterator[list[tuple[int, Any]]]:
    """Yield texts as tokens, those of the same number of them together, the shortest of a window first."""
    numbered, done = enumerate(texts), 0
    while taken := list(islice(numbered, _WINDOW)):
        done += len(taken)
        if done <= skip:
            yield taken  # none of which is run
            continue
        window = [(i, encode(model, i, text, truncate)) for i, text in taken]
        window.sort(key=lambda item: len(item[1]))
        for _, same in groupby(window, key=lambda item: len(item[1])):
            yield from _batches(same, batch_size)


def _batches(items: Iterator[tuple[int, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    while batch := list(islice(items, min(size, _WINDOW))):
        yield batch


def encode(model: Any, index: int, text: object, truncate: bool) -> Encoding:
    """Return a text as tokens, at least one and at most those that the model takes."""
    encoding = as_encoding(text.removesuffix("\n") if isinstance(text, str) else text, model.tokenizer)
    if encoding is None:
        raise RegardError(f"text {index} is not a str, an encoding or ids, got {shortened(text)}")
    if not len(encoding):
        raise RegardError(f"text {index} is empty; give at least one token")
    if len(encoding) <= model.max_length:
        return encoding
    if not truncate:
        raise RegardError(
            f"text {index} has {len(encoding)} tokens, but {model.name} accepts at most {model.max_length}; shorten it "
            "or truncate"
        )
    return encoding.truncated(model.max_length)
