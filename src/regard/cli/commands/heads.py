"""``regard heads TEXT``: the metrics of every head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, LazyChoices, flag, option, options
from regard.cli.output_files import OutputFile, OutputFiles, output_files

with deferred_imports():
    from pathlib import Path

    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import open_page
    from regard.cli.corpus import is_corpus_run, merged_sums, run_corpus
    from regard.cli.input import load_model, run_model, run_picture, tokenize
    from regard.cli.output import tell, write_json
    from regard.cli.progress import progress_bar
    from regard.cli.tables import is_parquet, load_pyarrow, read_texts, write_table
    from regard.cli.texts import read_text
    from regard.metrics import CorpusHeadMetrics, HeadMetrics, head_metrics, repeated_tokens
    from regard.metrics.corpus import measure_corpus
    from regard.metrics.registry import listed_metrics
    from regard.metrics.running_sums import remove_sums
    from regard.models import ImageModel, Model, TextModel
    from regard.terminal import heads_rows, heads_summary, heads_table
    from regard.text.words import join_names
    from regard.views import escape

COMMAND = Command(
    place=6,
    summary="print the strongest heads by each metric, or all",
    usage="TEXT [options]",
    examples="""\
  regard heads "The cat sat on the mat, and the cat slept"
  regard heads "The cat sat on the mat" --all
  regard heads --repeated-tokens 50 --sort induction --model induction
  regard heads --corpus sentences.txt -o heads.csv""",
)

_TABLE = OutputFile(
    "-o",
    (".parquet", ".csv"),
    "a table of layer, head and metrics, of --corpus with intervals; Parquet needs pyarrow",
)


def _sort_keys() -> Sequence[str]:
    from regard.metrics import METRICS

    return ("layer", *METRICS)


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("minilm")
    corpus: str | None = option("FILE", "the mean over many texts, one a line, or a --column; with --out any corpus")
    truncate: bool = flag("truncate lines of --corpus that are too long")
    repeated_tokens: int | None = option("N", "N random tokens, twice, in place of a text", type=shared.count)
    sort: str | None = option("KEY", "print all heads, the largest first: %(choices)s", choices=LazyChoices(_sort_keys))
    all: bool = flag("print all heads, not only the strongest")
    json: bool = shared.json_flag("the metrics")
    files: OutputFiles = output_files(_TABLE)
    partitions: shared.CorpusRun = shared.corpus_run()
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print the strongest heads, or the metrics of each head, on a text, a corpus or repeated random tokens."""
    if options.truncate and options.corpus is None:
        raise RegardError("--truncate is for --corpus")
    options.files.check()
    if any(map(is_parquet, options.files.paths["-o"])):
        load_pyarrow()  # raises before anything is computed
    if is_corpus_run(options.partitions, reads_tables=True) and (
        options.corpus is None or options.source.text or options.source.file or options.toy
    ):
        raise RegardError("--out is for --corpus, without a text and --toy")
    if (measured := _measured(options)) is None:
        return
    model, result, source = measured
    options.files.write({_TABLE: lambda path: _write(path, result)})
    if (sums := _sums_file(options)) is not None:
        remove_sums(sums)
    metrics = result.as_head_metrics() if isinstance(result, CorpusHeadMetrics) else result
    if options.json:
        rows = heads_rows(metrics, sort=options.sort or "layer")
        shown = {
            "model": model.name,
            "repeated_tokens": options.repeated_tokens,
            "corpus": options.corpus,
            "heads": rows,
        }
        write_json(shown)
        return
    console = open_page(options.color, model, f" · {metrics.entropy[0].size} heads {source}")
    console.print()
    if not options.all and options.sort is None:
        console.print(Text("The strongest heads by each metric", style="bold"))
        console.print()
        console.print(heads_summary(metrics, width=console.width))
        if few := _of_few_texts(result):
            console.print(Text(few, style="dim"))
        console.print(Text("--all prints the table of all heads, --sort METRIC the largest first", style="dim"))
        return
    console.print(heads_table(metrics, sort=options.sort or "layer", width=console.width), soft_wrap=True)
    console.print()
    units = ", ".join(f"{entry.name} in {entry.unit}" for entry in listed_metrics() if entry.unit != "share")
    console.print(Text(f"{units}, the others fractions of the weight; –: not defined on this text", style="dim"))


def _write(path: str, result: HeadMetrics | CorpusHeadMetrics) -> str:
    columns = result.to_columns()
    write_table(path, columns)
    return f"a row for each of {len(columns['layer'])} heads"


def _of_few_texts(result: HeadMetrics | CorpusHeadMetrics) -> str:
    """Return which metrics are means over a part of the texts, since the others have no case of them; "" for none."""
    if not isinstance(result, CorpusHeadMetrics):
        return ""
    counts = {entry.name: int(result.counts[entry.name].max(initial=0)) for entry in listed_metrics()}
    texts = max(counts.values())
    few = [f"{name} of {count:,}" for name, count in counts.items() if count < texts]
    return f"Of {texts:,} texts {join_names(few)}: the others have no case." if few else ""


_Measured: TypeAlias = "tuple[Model | ImageModel, HeadMetrics | CorpusHeadMetrics, str]"


def _measured(options: Options) -> _Measured | None:
    """Return the model, the metrics of its heads, and what was measured; None if only partitions are printed."""
    if options.corpus is None and options.repeated_tokens is None:
        text = read_text(options.source)
        model = load_model(options.model, options.toy, [text], pictures=True)
        weights = ["blocks.*.attn.weights"]
        if isinstance(model, ImageModel):
            return model, head_metrics(run_picture(model, text, weights)), "on this picture"
        return model, head_metrics(run_model(model, tokenize(model, text), weights)), "on this text"
    source = "--corpus reads one text per line" if options.corpus else "--repeated-tokens samples a model's vocabulary"
    has_other = options.source.text or options.source.file is not None or options.toy
    if options.corpus and options.repeated_tokens:
        raise RegardError("--corpus and --repeated-tokens are both given: choose one")
    if has_other:
        raise RegardError(f"{source}: leave out the text and --toy")
    if options.corpus is None:
        model = load_model(options.model, options.toy, [])
        length = options.repeated_tokens
        assert length is not None
        return model, repeated_tokens(model, length=length), f"on {length} random tokens, twice"
    if options.partitions.out is not None:
        return _measured_partitions(options, options.corpus, options.partitions.out)
    lines = read_texts(options.corpus, options.partitions.column)
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise RegardError(f"no text in {options.corpus}: every line is empty")
    if empty := len(lines) - len(texts):
        tell(f"{empty:,} empty line{'s are' if empty > 1 else ' is'} left out of the mean")
    model = load_model(options.model, options.toy, [])
    if not isinstance(model, TextModel):
        raise RegardError(f"{model.name} does not run a corpus: choose a model, --model NAME")
    sums = _sums_file(options)
    if sums is not None and Path(sums).exists():
        tell(f"continuing the interrupted run of {escape(sums)}")
    try:
        with progress_bar(len(texts)) as progress:
            metrics = measure_corpus(model, texts, truncate=options.truncate, progress=progress, resume=sums)
    except KeyboardInterrupt:
        if sums is not None and Path(sums).exists():
            tell(f"the sums so far are in {escape(sums)}: the same command continues")
        raise
    return model, metrics, f"averaged over {len(texts):,} texts"


def _measured_partitions(options: Options, corpus: str, out: str) -> _Measured | None:
    summary = run_corpus(options.partitions, options.model, corpus, "HeadsJob", {"truncate": options.truncate})
    if summary is None:
        return None
    sums = merged_sums(out, summary.partitioning)
    if not sums.done:
        raise RegardError(f"no row of {corpus} can be run: {summary.partitioning.errors[0][2]}")
    return (
        load_model(options.model, options.toy, []),
        CorpusHeadMetrics.of_sums(sums),
        f"averaged over {sums.done:,} texts",
    )


def _sums_file(options: Options) -> str | None:
    """Return the file of the sums of a corpus, beside the first output; None without a corpus or an output file."""
    if options.corpus is None or options.partitions.out is not None or not options.files:
        return None
    path = options.files.paths["-o"][0]
    is_file = not Path(path).exists() or Path(path).is_file()  # no device, no pipe
    return f"{path}.resume" if is_file else None
