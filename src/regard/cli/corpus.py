"""A command over a corpus: into a folder of partitions, on workers of Dask or in this process."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.memory import gigabytes
from regard.cli.output import tell, write
from regard.cli.progress import corpus_progress
from regard.dask.extra import installed, load_module
from regard.views import escape

_OPTIONS = ("dashboard", "workers", "memory", "scheduler", "partition_tokens", "dry_run")


def is_corpus_run(arguments: argparse.Namespace) -> bool:
    """Tell whether ``--out`` is given; an error if an option of it is given without it."""
    alone = () if arguments.command in ("embed", "heads") else ("column",)  # those read it from a table too
    given = [name for name in (*alone, *_OPTIONS) if getattr(arguments, name)]
    if arguments.out is None and given:
        raise RegardError(f"--{given[0].replace('_', '-')} is for a corpus: give --out FOLDER")
    return arguments.out is not None


@installed()
def run_corpus(arguments: argparse.Namespace, address: str, name: str, options: Mapping[str, Any]) -> Any:
    """Run a job of `regard.dask.jobs` over a corpus, or print its plan, and say what was written.

    Returns the summary, None of a plan. Workers start while this process imports what it needs.
    """
    corpus = load_module("source").open_corpus(address, arguments.column or "text")
    with _workers(arguments) as workers:
        jobs, runs, specs = (load_module(module) for module in ("jobs", "run", "model_spec"))
        job = getattr(jobs, name)(**options)
        runs.check_folder(arguments.out)
        tokens = arguments.partition_tokens or runs.PARTITION_TOKENS
        spec = specs.describe_model(arguments.model, arguments.ignore or ())
        job.check(spec)
        if workers.dashboard:
            tell(f"dashboard: {workers.dashboard}")
        if arguments.dry_run:
            write(_plan_in_words(runs.estimate(job, spec, corpus, arguments.out, workers, tokens)))
            return None
        with corpus_progress() as begin:
            try:
                summary = runs.run(
                    job,
                    spec,
                    corpus,
                    arguments.out,
                    workers,
                    partition_tokens=tokens,
                    started=lambda plan, texts, done: begin(plan.rows, plan.tokens, texts, done),
                )
            except KeyboardInterrupt as interrupt:
                for note in getattr(interrupt, "__notes__", ()):
                    tell(escape(note))
                raise
    plan = summary.plan
    parts = len(plan.partitions)
    there = parts - summary.computed
    before = f", {there:,} of them there before" if there else ""
    tell(f"{escape(arguments.out)}: {plan.rows:,} rows in {parts:,} partition{'s' * (parts != 1)}{before}")
    if plan.num_errors:
        file, row, reason = plan.errors[0]
        tell(
            f"{plan.num_errors:,} row{'s' * (plan.num_errors > 1)} could not be run, see the column error; "
            f"the first: {escape(file)} row {row}: {escape(reason)}"
        )
    return summary


@installed()
def merged_sums(out: str, plan: Any) -> Any:
    """Return the sums of all partitions of a folder."""
    runs, jobs = load_module("run"), load_module("jobs")
    tables = map(jobs.sums_of_table, runs.read_parts(out, plan))
    return reduce(lambda a, b: a.merge(b), tables)


@contextmanager
def _workers(arguments: argparse.Namespace) -> Iterator[Any]:
    clusters = load_module("cluster")
    if arguments.workers and arguments.scheduler:
        raise RegardError("--workers starts processes and --scheduler uses others: choose one")
    if arguments.memory and not arguments.workers:
        raise RegardError("--memory is that of processes that --workers starts")
    if arguments.dashboard and not arguments.workers:
        raise RegardError("--dashboard shows the processes that --workers starts: give --workers too")
    address = None if arguments.workers else clusters.scheduler_address(arguments.scheduler)
    if address is None and not arguments.workers:
        yield clusters.ThisProcess()
        return
    started = (
        clusters.use_scheduler(address)
        if address
        else clusters.start_workers(arguments.workers, arguments.memory, dashboard=arguments.dashboard)
    )
    with started as workers:
        for name in ("distributed", "distributed.client"):  # what fails is said by this command, in a sentence
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield workers


def _plan_in_words(found: Any) -> str:
    plan = found.plan
    lines = {
        "partitions": f"{len(plan.partitions):,}" + (f", {found.written:,} of them written" if found.written else ""),
        "rows": f"{plan.rows:,}" + (f", {plan.num_errors:,} of them cannot be run" if plan.num_errors else ""),
        "tokens": f"{plan.tokens:,}",
        "workers": f"{found.workers}, {found.limit}",
        "memory a worker": f"about {gigabytes(found.memory)} beside the model, {gigabytes(found.model)}, and Python",
        "time": f"about {_duration(found.seconds)}, {found.rate:,.0f} tokens a second and worker in a sample",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
