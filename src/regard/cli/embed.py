"""``regard embed FILE -o vectors.npy``: one vector for each line; of a corpus in a folder of partitions."""

from __future__ import annotations

import argparse

from regard._utils.errors import RegardError
from regard.cli.corpus import is_corpus_run, run_corpus
from regard.cli.input import warn_unknown
from regard.cli.output_files import Embedded, check_output_files, write_output_files
from regard.cli.progress import progress_bar
from regard.cli.tables import is_parquet, is_table, load_pyarrow, read_texts
from regard.models import load
from regard.models.base import as_text_model
from regard.models.sentence import sentence_reader

_SAMPLED_TEXTS = 20  # of which the tokens are looked at before all are run


def run(arguments: argparse.Namespace) -> None:
    """Write one vector for each line of a file, or for each ``--text``, or for each row of a corpus."""
    names = ("pooling", "max_length", "truncate", "prompt", "prompt_name", "batch_size")
    options = {name: getattr(arguments, name) for name in names}
    if is_corpus_run(arguments):
        if arguments.file is None or arguments.texts is not None or arguments.output or arguments.skip_empty:
            raise RegardError(
                "--out takes a corpus, and neither --text, -o nor --skip-empty: an empty row has no vector"
            )
        run_corpus(arguments, arguments.file, "EmbedJob", options)
        return
    if not arguments.output:
        raise RegardError("say where: -o vectors.npy, or --out FOLDER for a corpus")
    texts = _texts(arguments)
    check_output_files(arguments)
    if any(map(is_parquet, arguments.output)):
        load_pyarrow(".npy")  # raises before anything is computed
    model = as_text_model(load(arguments.model, ignore=arguments.ignore or ()))
    lines = list(texts)
    reader = sentence_reader(model, arguments.max_length, arguments.prompt, arguments.prompt_name)
    warn_unknown(model, [reader.tokenizer(text) for text in list(texts.values())[:_SAMPLED_TEXTS]])
    with progress_bar(len(texts)) as progress:
        vectors = model.embed(
            list(texts.values()),
            progress=progress,
            label=lambda i: f"{_unit(arguments)} {lines[i]}",
            **options,
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
        lines = read_texts(arguments.file, arguments.column, "; for a text give --text TEXT")
    stripped = {number: line.strip() for number, line in enumerate(lines, start=1)}
    empty = [number for number, line in stripped.items() if not line]
    if len(empty) == len(stripped):
        raise RegardError("no text to embed: every line is empty")
    if empty and not arguments.skip_empty:
        named = ", ".join(map(str, empty[:5])) + (" …" if len(empty) > 5 else "")
        raise RegardError(
            f"{_unit(arguments)}{'s' * (len(empty) > 1)} {named} {'are' if len(empty) > 1 else 'is'} empty: "
            f"--skip-empty leaves {'them' if len(empty) > 1 else 'it'} out"
        )
    return {number: line for number, line in stripped.items() if line}


def _unit(arguments: argparse.Namespace) -> str:
    """Return what a text is one of: a row of a table, or a line."""
    return "row" if arguments.file is not None and is_table(arguments.file) else "line"
