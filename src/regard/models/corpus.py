"""Runs of many texts, or pictures, one trace each, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, Sized
from itertools import chain, groupby, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard._utils.validation import function, truncate as shortened, whole_number
from regard.models.batch import OneText, as_encoding
from regard.models.output import run_traced
from regard.text.encoding import Encoding
from regard.text.words import check_no_set_or_table, join_names
from regard.trace import Trace

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of texts done and that of all, None where it is unknown."""

_WINDOW = 4096  # texts that are sorted by length at a time


def iter_traces(
    model: Any,
    texts: Iterable[OneText],
    batch_size: int = 32,
    only: Any = None,
    keep: str = "maps",
    edit: Any = None,
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
    batch_size: int,
    only: Any,
    keep: str,
    edit: Any,
    skip: int,
    progress: Progress | None,
) -> Iterator[tuple[int, Trace]]:
    """Yield the index of each picture and its trace; see `ImageModel.iter_traces`."""
    batch_size, skip = whole_number("batch_size", batch_size, 1), whole_number("skip", skip, 0)
    if isinstance(pictures, str | bytes | Set | Mapping) or not isinstance(pictures, Iterable):
        raise RegardError("iter_traces takes an iterable of pictures, such as a list of files")
    batches = _batches(iter(enumerate(pictures)), batch_size)
    return _traces(model, batches, _trace_options(only, keep, edit), skip, _reporting(pictures, progress))


def activations(
    model: Any,
    texts: Iterable[OneText],
    at: str | Iterable[str],
    *,
    positions: int | Iterable[int] = -1,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> np.ndarray:
    """Return steps of each of many texts at some positions; see `TextModel.activations`."""
    check_texts(texts)
    texts = list(texts)
    if not texts:
        raise RegardError("there is no text; give at least one")
    numbers = list(positions) if isinstance(positions, Iterable) else [positions]
    if not numbers or not all(isinstance(each, int | np.integer) and not isinstance(each, bool) for each in numbers):
        raise RegardError(f"positions is a number or several, such as -1 or [0, -1], got {shortened(positions)}")
    tokens = np.array(numbers if isinstance(positions, Iterable) else positions)
    rows = _rows_of_one_shape(iter_traces(model, texts, only=at, keep="arrays", **options), tokens)
    first = next(rows)
    shape, dtype = (len(texts), *first[1].shape), first[1].dtype
    if out is None:
        values = np.empty(shape, dtype)
        for i, row in chain([first], rows):
            values[i] = row
        return values
    with atomic_write(out) as stream:
        npy.write_array_header_1_0(stream, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        start = stream.tell()
        for i, row in chain([first], rows):
            stream.seek(start + i * row.nbytes)
            stream.write(row.tobytes())
    return np.memmap(out, dtype, "r", start, shape)


def _rows_of_one_shape(traces: Iterable[tuple[int, Trace]], positions: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index and the steps of each text; an error where their shape is not that of the first one."""
    first: tuple[int, np.ndarray] | None = None
    for i, trace in traces:
        row = _values_at(i, trace, positions)
        first = first or (i, row)
        if row.shape != first[1].shape:
            raise RegardError(
                f"the steps of at= have other shapes in text {i} than in text {first[0]}, so they are not one array: "
                f"{join_names(trace.names(), 10)}"
            )
        yield i, row


def _values_at(index: int, trace: Trace, positions: np.ndarray) -> np.ndarray:
    """Return the steps of a text at some positions, which come first after the axis of steps: ``S …`` or ``S P …``."""
    steps: dict[str, np.ndarray] = {}
    for name in trace.names():
        axes = trace.axes(name).split()
        axis = axes.index("T" if "T" in axes else "S")
        length = trace[name].shape[axis]
        if (outside := positions[(positions < -length) | (positions >= length)]).size:
            raise RegardError(f"text {index} has {length} tokens: there is no position {outside.flat[0]}")
        steps[name] = np.moveaxis(np.take(trace[name], positions, axis), range(axis, axis + positions.ndim),
                                  range(1, 1 + positions.ndim))[0]  # fmt: skip
    shapes = {step.shape for step in steps.values()}
    if len(shapes) > 1:
        raise RegardError(
            f"the steps of at= differ in their shapes, so they are not one array: {join_names(steps, 10)}"
        )
    return np.stack(list(steps.values()))


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
        raise RegardError("texts are an iterable, such as a list or an open file: for one text, a list of one")


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
