"""``regard embed FILE --out vectors.npy``: the vector of each line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.cli.input import read_file_or_input
from regard.cli.output_files import check_targets
from regard.models import TextModel, load


def run(arguments: argparse.Namespace) -> None:
    """Write one vector for each line, or for each text that was typed."""
    lines = _lines(arguments)
    check_targets(arguments)
    as_parquet = Path(arguments.out_file).suffix.lower() == ".parquet"
    if as_parquet:
        _pyarrow()  # what would fail at the end is told before anything is computed
    model = load(arguments.model)
    if not isinstance(model, TextModel):
        raise RegardError(f"{model.name} makes no vectors of texts")
    numbers, texts = list(lines), list(lines.values())
    with _progress(len(texts)) as progress:
        vectors = model.embed(
            texts,
            batch_size=arguments.batch_size,
            pooling=arguments.pooling,
            truncate=arguments.truncate,
            progress=progress,
            label=lambda i: f"line {numbers[i]}",
        )
    if as_parquet:
        _write_parquet(arguments.out_file, numbers, texts, vectors)
        return
    with atomic_write(arguments.out_file) as stream:
        np.save(stream, vectors, allow_pickle=False)


def _lines(arguments: argparse.Namespace) -> dict[int, str]:
    """Return the texts by the number of their line, from 1.

    Raises
    ------
    RegardError
        There is none, there are two sources of them, or a line is empty and is not to be left out.
    """
    if (arguments.file is None) == (arguments.texts is None):
        raise RegardError("give either a file with a text on each line (- is standard input), or texts with --text")
    if arguments.texts is not None:
        lines = arguments.texts
    else:
        lines = read_file_or_input(arguments.file).removesuffix("\n").split("\n")
    stripped = {number: line.strip() for number, line in enumerate(lines, start=1)}
    empty = [number for number, line in stripped.items() if not line]
    if len(empty) == len(stripped):
        raise RegardError("there is no text to embed: every line is empty")
    if empty and not arguments.skip_empty:
        named = ", ".join(map(str, empty[:5])) + (" …" if len(empty) > 5 else "")
        raise RegardError(
            f"line{'s' * (len(empty) > 1)} {named} {'are' if len(empty) > 1 else 'is'} empty and would have no vector: "
            f"--skip-empty leaves {'them' if len(empty) > 1 else 'it'} out"
        )
    return {number: line for number, line in stripped.items() if line}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what draws a bar on standard error; None where that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True))
    with bar:
        task = bar.add_task("", total=total)
        yield lambda done, _: bar.update(task, completed=done)


def _write_parquet(path: str, numbers: list[int], texts: list[str], vectors: np.ndarray) -> None:
    """Write a table with the columns ``line``, ``text`` and ``vector``."""
    pyarrow = _pyarrow()
    from pyarrow import parquet

    flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
    table = pyarrow.table(
        {
            "line": pyarrow.array(numbers, pyarrow.int64()),
            "text": pyarrow.array(texts, pyarrow.string()),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    with atomic_write(path) as stream:
        parquet.write_table(table, stream)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise RegardError("Parquet is written by pyarrow: pip install 'regard[parquet]', or give a .npy file") from None
    return pyarrow
