"""``regard embed FILE -o vectors.npy``: one vector for each line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.cli.input import read_file_or_input
from regard.cli.output_files import check_output_files, write_output_files
from regard.models import TextModel, load


class Embedded(NamedTuple):
    """Texts with their line numbers, from 1, and their vectors, ``N E``."""

    lines: list[int]
    texts: list[str]
    vectors: np.ndarray


def run(arguments: argparse.Namespace) -> None:
    """Write one vector for each line of a file, or for each ``--text``."""
    texts = _texts(arguments)
    check_output_files(arguments)
    if any(map(_is_parquet, arguments.output)):
        _pyarrow()  # raises before anything is computed
    model = load(arguments.model, ignore=arguments.ignore or ())
    if not isinstance(model, TextModel):
        raise RegardError(f"{model.name} does not embed texts: choose an encoder, --model NAME")
    lines = list(texts)
    with _progress(len(texts)) as progress:
        vectors = model.embed(
            list(texts.values()),
            batch_size=arguments.batch_size,
            pooling=arguments.pooling,
            truncate=arguments.truncate,
            progress=progress,
            label=lambda i: f"line {lines[i]}",
        )
    write_output_files(Embedded(lines, list(texts.values()), vectors), arguments)


def _texts(arguments: argparse.Namespace) -> dict[int, str]:
    """Return the texts by line number, from 1.

    An error if there are none, if they come from two sources, or without ``--skip-empty`` if a line is empty.
    """
    if (arguments.file is None) == (arguments.texts is None):
        raise RegardError("give either a file with one text a line (- reads standard input) or --text")
    if arguments.texts is not None:
        lines = arguments.texts
    else:
        lines = read_file_or_input(arguments.file, "; for a text give --text TEXT").removesuffix("\n").split("\n")
    stripped = {number: line.strip() for number, line in enumerate(lines, start=1)}
    empty = [number for number, line in stripped.items() if not line]
    if len(empty) == len(stripped):
        raise RegardError("no text to embed: every line is empty")
    if empty and not arguments.skip_empty:
        named = ", ".join(map(str, empty[:5])) + (" …" if len(empty) > 5 else "")
        raise RegardError(
            f"line{'s' * (len(empty) > 1)} {named} {'are' if len(empty) > 1 else 'is'} empty: --skip-empty leaves "
            f"{'them' if len(empty) > 1 else 'it'} out"
        )
    return {number: line for number, line in stripped.items() if line}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback that draws a progress bar on standard error; None where that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda done, _: bar.update(task, completed=done)


def write_vectors(path: str, embedded: Embedded) -> None:
    """Write the vectors as NumPy file, or with the columns ``line``, ``text`` and ``vector`` as Parquet table."""
    if not _is_parquet(path):
        with atomic_write(path) as stream:
            np.save(stream, embedded.vectors, allow_pickle=False)
        return
    pyarrow = _pyarrow()
    from pyarrow import parquet

    flat = pyarrow.array(np.ascontiguousarray(embedded.vectors).reshape(-1))
    table = pyarrow.table(
        {
            "line": pyarrow.array(embedded.lines, pyarrow.int64()),
            "text": pyarrow.array(embedded.texts, pyarrow.string()),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, embedded.vectors.shape[1]),
        }
    )
    with atomic_write(path) as stream:
        parquet.write_table(table, stream)


def _is_parquet(path: str) -> bool:
    return path.lower().endswith(".parquet")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise RegardError("Parquet needs pyarrow: pip install 'regard[parquet]', or write a .npy file") from None
    return pyarrow
