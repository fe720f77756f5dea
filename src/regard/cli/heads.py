"""``regard heads TEXT``: the metrics of every head."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TypeAlias

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import make_console, print_header
from regard.cli.corpus import is_corpus_run, merged_sums, run_corpus
from regard.cli.input import load_model, run_model, run_picture
from regard.cli.output import tell, write
from regard.cli.output_files import check_output_files, write_output_files
from regard.cli.progress import progress_bar
from regard.cli.tables import is_parquet, load_pyarrow, read_texts
from regard.cli.texts import read_text
from regard.metrics import CorpusHeadMetrics, HeadMetrics, head_metrics, repeated_tokens
from regard.metrics.corpus import measure_corpus
from regard.metrics.registry import listed_metrics
from regard.metrics.running_sums import remove_sums
from regard.models import ImageModel, Model, TextModel
from regard.terminal import heads_rows, heads_summary, heads_table
from regard.text.words import join_names
from regard.views import escape


def run(arguments: argparse.Namespace) -> None:
    """Print the strongest heads, or the metrics of each head, on a text, a corpus or repeated random tokens."""
    if arguments.truncate and arguments.corpus is None:
        raise RegardError("--truncate is for --corpus")
    check_output_files(arguments)
    if any(map(is_parquet, arguments.output)):
        load_pyarrow()  # raises before anything is computed
    if is_corpus_run(arguments) and (arguments.corpus is None or arguments.text or arguments.file or arguments.toy):
        raise RegardError("--out is for --corpus, without a text and --toy")
    if (measured := _measured(arguments)) is None:
        return
    model, result, source = measured
    write_output_files(result, arguments)
    if (sums := _sums_file(arguments)) is not None:
        remove_sums(sums)
    metrics = result.as_head_metrics() if isinstance(result, CorpusHeadMetrics) else result
    if arguments.json:
        rows = heads_rows(metrics, sort=arguments.sort or "layer")
        shown = {
            "model": model.name,
            "repeated_tokens": arguments.repeated_tokens,
            "corpus": arguments.corpus,
            "heads": rows,
        }
        write(json.dumps(shown, allow_nan=False))
        return
    console = make_console(arguments)
    print_header(console, model, f" · {metrics.entropy[0].size} heads {source}")
    console.print()
    if not arguments.all and arguments.sort is None:
        console.print(Text("The strongest heads by each metric", style="bold"))
        console.print()
        console.print(heads_summary(metrics, width=console.width))
        if few := _of_few_texts(result):
            console.print(Text(few, style="dim"))
        console.print(Text("--all prints the table of all heads, --sort METRIC the largest first", style="dim"))
        return
    console.print(heads_table(metrics, sort=arguments.sort or "layer", width=console.width), soft_wrap=True)
    console.print()
    units = ", ".join(f"{entry.name} in {entry.unit}" for entry in listed_metrics() if entry.unit != "share")
    console.print(Text(f"{units}, the others fractions of the weight; –: not defined on this text", style="dim"))


def _of_few_texts(result: HeadMetrics | CorpusHeadMetrics) -> str:
    """Return which metrics are means over a part of the texts, since the others have no case of them; "" for none."""
    if not isinstance(result, CorpusHeadMetrics):
        return ""
    counts = {entry.name: int(result.counts[entry.name].max(initial=0)) for entry in listed_metrics()}
    texts = max(counts.values())
    few = [f"{name} of {count:,}" for name, count in counts.items() if count < texts]
    return f"Of {texts:,} texts {join_names(few)}: the others have no case." if few else ""


_Measured: TypeAlias = tuple[Model | ImageModel, HeadMetrics | CorpusHeadMetrics, str]


def _measured(arguments: argparse.Namespace) -> _Measured | None:
    """Return the model, the metrics of its heads, and what they were computed on; None where only a plan is printed."""
    if arguments.corpus is None and arguments.repeated_tokens is None:
        text = read_text(arguments)
        model = load_model(arguments, [text], pictures=True)
        weights = ["blocks.*.attn.weights"]
        if isinstance(model, ImageModel):
            return model, head_metrics(run_picture(model, text, weights)), "on this picture"
        return model, head_metrics(run_model(model, model.tokenizer(text), weights)), "on this text"
    source = "--corpus reads a text a line" if arguments.corpus else "--repeated-tokens samples a model's vocabulary"
    has_other = arguments.text or arguments.file is not None or arguments.toy
    if arguments.corpus and arguments.repeated_tokens:
        raise RegardError("--corpus and --repeated-tokens are both given: choose one")
    if has_other:
        raise RegardError(f"{source}: leave out the text and --toy")
    if arguments.corpus is None:
        model = load_model(arguments, [])
        length = arguments.repeated_tokens
        return model, repeated_tokens(model, length=length), f"on {length} random tokens, twice"
    if arguments.out is not None:
        return _measured_partitions(arguments)
    lines = read_texts(arguments.corpus, arguments.column)
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise RegardError(f"no text in {arguments.corpus}: every line is empty")
    model = load_model(arguments, [])
    if not isinstance(model, TextModel):
        raise RegardError(f"{model.name} does not run a corpus: choose a model, --model NAME")
    sums = _sums_file(arguments)
    if sums is not None and Path(sums).exists():
        tell(f"continuing the interrupted run of {escape(sums)}")
    try:
        with progress_bar(len(texts)) as progress:
            found = measure_corpus(model, texts, truncate=arguments.truncate, progress=progress, resume=sums)
    except KeyboardInterrupt:
        if sums is not None and Path(sums).exists():
            tell(f"the sums so far are in {escape(sums)}: the same command continues")
        raise
    return model, found, f"in the mean over {len(texts):,} texts"


def _measured_partitions(arguments: argparse.Namespace) -> _Measured | None:
    summary = run_corpus(arguments, arguments.corpus, "HeadsJob", {"truncate": arguments.truncate})
    if summary is None:
        return None
    sums = merged_sums(arguments.out, summary.plan)
    if not sums.done:
        raise RegardError(f"no row of {arguments.corpus} can be run: {summary.plan.errors[0][2]}")
    return load_model(arguments, []), CorpusHeadMetrics.of_sums(sums), f"in the mean over {sums.done:,} texts"


def _sums_file(arguments: argparse.Namespace) -> str | None:
    """Return the file of the sums of a corpus, beside the first output; None without a corpus or an output file."""
    if arguments.corpus is None or arguments.out is not None or not arguments.output:
        return None
    path = str(arguments.output[0])
    is_file = not Path(path).exists() or Path(path).is_file()  # no device, no pipe
    return f"{path}.resume" if is_file else None
