"""A command over a corpus: into a folder of partitions, on workers of Dask or in this process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.memory import gigabytes
from regard.cli.options import given_options
from regard.cli.output import tell, write
from regard.cli.progress import corpus_progress
from regard.cli.shared_options import CorpusRun, ModelChoice
from regard.dask.extra import installed, load_module
from regard.views import escape

_OPTIONS = ("--dashboard", "--workers", "--memory", "--scheduler", "--partition-tokens", "--dry-run")


def is_corpus_run(corpus: CorpusRun, *, reads_tables: bool = False) -> bool:
    """Tell whether ``--out`` is given; an error if an option of it is given without it.

    A command that `reads_tables` has another use of ``--column``.
    """
    needs_out = given_options(corpus, *(() if reads_tables else ("--column",)), *_OPTIONS)
    if corpus.out is None and needs_out:
        raise RegardError(f"{needs_out[0]} is for a corpus: give --out FOLDER")
    return corpus.out is not None


@installed()
def run_corpus(settings: CorpusRun, model: ModelChoice, address: str, name: str, options: Mapping[str, Any]) -> Any:
    """Run a job of `regard.dask.jobs` over a corpus, or print its partitions, and say what was written.

    Returns the summary, None if only partitions are printed. Workers start while this process imports what it needs.
    """
    assert settings.out is not None  # `is_corpus_run` has told
    corpus = load_module("source").open_corpus(address, settings.column or "text")
    with _workers(settings) as workers:
        jobs, runs, specs = (load_module(module) for module in ("jobs", "run", "model_spec"))
        job = getattr(jobs, name)(**options)
        runs.check_folder(settings.out)
        tokens = settings.partition_tokens or runs.PARTITION_TOKENS
        spec = specs.describe_model(model.model, model.ignore or ())
        job.check(spec)
        if workers.dashboard:
            tell(f"dashboard: {workers.dashboard}")
        if settings.dry_run:
            write(_plan_in_words(runs.estimate(job, spec, corpus, settings.out, workers, tokens)))
            return None
        with corpus_progress() as begin:
            try:
                summary = runs.run(
                    job,
                    spec,
                    corpus,
                    settings.out,
                    workers,
                    partition_tokens=tokens,
                    started=lambda parts, texts, done: begin(parts.rows, parts.tokens, texts, done),
                )
            except KeyboardInterrupt as interrupt:
                for note in getattr(interrupt, "__notes__", ()):
                    tell(escape(note))
                raise
    partitioning = summary.partitioning
    parts = len(partitioning.partitions)
    there = parts - summary.computed
    before = f", {there:,} of them there before" if there else ""
    if sys.stderr is not None:
        rows = f"{partitioning.rows:,} rows in {parts:,} partition{'s' * (parts != 1)}{before}"
        print(f"wrote {escape(settings.out)}: {rows}", file=sys.stderr, flush=True)
    if count := partitioning.num_errors:
        file, row, reason = partitioning.errors[0]
        tell(
            f"{count:,} row{'s' * (count > 1)} could not be run, see the column error; "
            f"the first: {escape(file)} row {row}: {escape(reason)}"
        )
    return summary


@installed()
def merged_sums(out: str, partitioning: Any) -> Any:
    """Return the sums of all partitions of a folder."""
    runs, jobs = load_module("run"), load_module("jobs")
    tables = map(jobs.sums_of_table, runs.read_parts(out, partitioning))
    return reduce(lambda a, b: a.merge(b), tables)


@contextmanager
def _workers(settings: CorpusRun) -> Iterator[Any]:
    clusters = load_module("cluster")
    if settings.workers and settings.scheduler:
        raise RegardError("--workers starts processes and --scheduler uses others: choose one")
    if settings.memory and not settings.workers:
        raise RegardError("--memory is that of processes that --workers starts")
    if settings.dashboard and not settings.workers:
        raise RegardError("--dashboard shows the processes that --workers starts: give --workers too")
    address = None if settings.workers else clusters.scheduler_address(settings.scheduler)
    if address is None and not settings.workers:
        yield clusters.ThisProcess()
        return
    started = (
        clusters.use_scheduler(address)
        if address
        else clusters.start_workers(settings.workers, settings.memory, dashboard=settings.dashboard)
    )
    with started as workers:
        for name in ("distributed", "distributed.client"):  # what fails is said by this command, in a sentence
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield workers


def _plan_in_words(estimate: Any) -> str:
    partitioning = estimate.partitioning
    lines = {
        "partitions": f"{len(partitioning.partitions):,}"
        + (f", {estimate.written:,} of them written" if estimate.written else ""),
        "rows": f"{partitioning.rows:,}"
        + (f", {partitioning.num_errors:,} of them cannot be run" if partitioning.num_errors else ""),
        "tokens": f"{partitioning.tokens:,}",
        "workers": f"{estimate.workers}, {estimate.limit}",
        "memory a worker": f"about {gigabytes(estimate.memory)}, the model's {gigabytes(estimate.model)}, and Python",
        "time": f"about {_duration(estimate.seconds)}, {estimate.rate:,.0f} tokens a second and worker in a sample",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
