"""``regard embed FILE -o vectors.npy``: one vector for each line; of a corpus in a folder of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, LazyChoices, argument, flag, option, options
from regard.cli.output_files import OutputFile, OutputFiles, output_files
from regard.cli.shared_options import CorpusRun, ModelChoice, corpus_run, count, model_choice

with deferred_imports():
    import numpy as np

    from regard._utils.errors import RegardError
    from regard.cli.corpus import is_corpus_run, run_corpus
    from regard.cli.input import warn_unknown
    from regard.cli.progress import progress_bar
    from regard.cli.tables import is_parquet, is_table, load_pyarrow, read_texts, write_vectors
    from regard.models import load
    from regard.models.base import as_text_model
    from regard.models.sentence import sentence_reader

COMMAND = Command(
    place=9,
    summary="write one vector for each line of a text",
    usage="FILE -o FILE [options]\n       regard embed CORPUS --out FOLDER [options]",
    examples="""\
  regard embed sentences.txt -o vectors.npy
  regard embed sentences.txt -o vectors.npy --truncate
  cat sentences.txt | regard embed - -o vectors.npy
  regard embed --text "The cat sat." --text "A dog ran." -o vectors.npy""",
)

_VECTORS = OutputFile("-o", (".npy", ".parquet"), "the vectors; Parquet (pyarrow): a table of line, text, vector")
_SAMPLED_TEXTS = 20  # of which the tokens are looked at before all are run


def _poolings() -> Sequence[str]:
    from regard.models.pooling import MODES

    return tuple(MODES)


@options
class Options:
    """What is typed."""

    file: str | None = argument(
        "FILE", "a file with one text per line, - reads standard input; or, with --out, a corpus", nargs="?"
    )
    texts: Sequence[str] | None = option("TEXT", "a text, in place of a file", flags=("--text",), action="append")
    model: ModelChoice = model_choice("minilm")
    pooling: str | None = option("MODE", "%(choices)s (as the model is configured)", choices=LazyChoices(_poolings))
    batch_size: int = option("N", "lines per batch (32)", type=count, default=32)
    max_length: int | None = option("N", "tokens of a line (as the model is configured)", type=count)
    truncate: bool = flag("cut lines that are too long")
    prompt: str | None = option("TEXT", "a text before each line")
    prompt_name: str | None = option("NAME", "a prompt that the model has, before each line")
    skip_empty: bool = flag("skip empty lines")
    files: OutputFiles = output_files(_VECTORS)
    corpus: CorpusRun = corpus_run(
        "a table, or a corpus in partitions, which needs regard[dask]",
        column={"help": "where the texts are in a table: Parquet, CSV or JSON lines; with --out (text)"},
    )


def run(options: Options) -> None:
    """Write one vector for each line of a file, or for each ``--text``, or for each row of a corpus."""
    names = ("pooling", "max_length", "truncate", "prompt", "prompt_name", "batch_size")
    settings = {name: getattr(options, name) for name in names}
    if is_corpus_run(options.corpus, reads_tables=True):
        if options.file is None or options.texts is not None or options.files or options.skip_empty:
            raise RegardError(
                "--out takes a corpus, and neither --text, -o nor --skip-empty: an empty row has no vector"
            )
        run_corpus(options.corpus, options.model, options.file, "EmbedJob", settings)
        return
    if not options.files:
        raise RegardError("say where: -o vectors.npy, or --out FOLDER for a corpus")
    texts = _texts(options)
    options.files.check()
    if any(map(is_parquet, options.files.paths["-o"])):
        load_pyarrow(".npy")  # raises before anything is computed
    model = as_text_model(load(options.model.model, ignore=options.model.ignore or ()))
    lines = list(texts)
    reader = sentence_reader(model, options.max_length, options.prompt, options.prompt_name)
    warn_unknown(model, [reader.tokenizer(text) for text in list(texts.values())[:_SAMPLED_TEXTS]])
    with progress_bar(len(texts)) as progress:
        vectors = model.embed(
            list(texts.values()),
            progress=progress,
            label=lambda i: f"{_unit(options)} {lines[i]}",
            **settings,
        )
    options.files.write({_VECTORS: lambda path: _write(path, lines, list(texts.values()), vectors)})


def _write(path: str, lines: list[int], texts: list[str], vectors: np.ndarray) -> str:
    write_vectors(path, lines, texts, vectors)
    count, width = vectors.shape
    return f"{count} vector{'s' * (count != 1)} of {width} numbers"


def _texts(options: Options) -> dict[int, str]:
    """Return the texts by line number, from 1.

    An error if there are none, if they come from two sources, or without ``--skip-empty`` if a line is empty.
    """
    if options.file is not None and options.texts is None:
        lines = read_texts(options.file, options.corpus.column, "; for a text give --text TEXT")
    elif options.texts is not None and options.file is None:
        lines = list(options.texts)
    else:
        raise RegardError("give either a file with one text per line (- reads standard input) or --text")
    stripped = {number: line.strip() for number, line in enumerate(lines, start=1)}
    empty = [number for number, line in stripped.items() if not line]
    if len(empty) == len(stripped):
        raise RegardError("no text to embed: every line is empty")
    if empty and not options.skip_empty:
        named = ", ".join(map(str, empty[:5])) + (" …" if len(empty) > 5 else "")
        raise RegardError(
            f"{_unit(options)}{'s' * (len(empty) > 1)} {named} {'are' if len(empty) > 1 else 'is'} empty: "
            f"--skip-empty leaves {'them' if len(empty) > 1 else 'it'} out"
        )
    return {number: line for number, line in stripped.items() if line}


def _unit(options: Options) -> str:
    """Return what a text is one of: a row of a table, or a line."""
    return "row" if options.file is not None and is_table(options.file) else "line"
