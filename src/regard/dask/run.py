"""A run of a job over a corpus into a folder: planned, computed partition by partition, and continued."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.dask.cluster import SchedulerLostError, Workers, worker_memory
from regard.dask.jobs import Job, identity
from regard.dask.model_spec import ModelSpec, load_model
from regard.dask.output import OutputFolder, Partitioning, first_errors, part_name, require_same
from regard.dask.partitions import SHOWN_ERRORS, Scan, cut, fingerprint, first_rows, scan
from regard.dask.source import Corpus, Piece
from regard.dask.tasks import compute_partition, measure
from regard.nn import parameters

PARTITION_TOKENS = 1 << 16
_ROUNDS = 2  # in which a partition is tried whose workers died, four in a round

Progress = Callable[[int, int], None]
"""Called with the texts and tokens that are done."""


@dataclass(frozen=True)
class Summary:
    """What a run has written."""

    partitioning: Partitioning
    computed: int  # partitions, the others were there


@dataclass(frozen=True)
class Estimate:
    """What a run would take: bytes in addition to the model in each worker, and seconds from a measured sample."""

    partitioning: Partitioning
    written: int  # partitions that are there
    workers: int
    limit: str  # memory of a worker, in words
    memory: int
    model: int  # bytes, shared by the workers of a machine
    rate: float  # tokens a second of one worker
    seconds: float


def check_folder(address: str) -> None:
    """Raise `RegardError` if a run cannot have this folder. Creates nothing."""
    OutputFolder(address).check()


def partition_corpus(
    job: Job, spec: ModelSpec, corpus: Corpus, folder: OutputFolder, workers: Workers, partition_tokens: int
) -> Partitioning:
    """Return the partitioning in the folder if it is of this run, or a new one; texts are read unless files are known.

    Raises
    ------
    RegardError
        The folder is of another run, or a file cannot be read.
    """
    manifest = folder.read_manifest()
    about = {
        "version of regard": __version__,
        "model": f"sha256 {spec.sha256}",
        "column": corpus.column,
        "tokens of a partition": partition_tokens,
        **identity(job),
    }
    if manifest is not None:
        require_same(folder.address, manifest, about | {"texts": manifest.identity.get("texts")})
        if manifest.is_of(corpus):
            partitioning = manifest.partitioning(corpus)
            _check_empty(corpus, partitioning)
            return partitioning
    scans = _scans(job, spec, corpus, workers)
    counted = tuple(each.counted for each in scans)
    about["texts"] = fingerprint(counted)
    if manifest is not None:
        require_same(folder.address, manifest, about)
    if not any(len(each.lengths) for each in scans):
        raise RegardError(f"there is no text in {corpus.address}")
    with_errors = (
        (piece, place, each.errors)
        for piece, place, each in zip(corpus.pieces, first_rows(corpus.pieces, counted), scans, strict=True)
    )
    partitions = tuple(cut(corpus.pieces, scans, partition_tokens))
    errors = first_errors(with_errors)[:SHOWN_ERRORS]
    return Partitioning(about, corpus.stamps, counted, partitions, errors, sum(each.num_errors for each in scans))


def _check_empty(corpus: Corpus, partitioning: Partitioning) -> None:
    """Raise `RegardError` if a piece has rows that is empty by the partitioning: no partition reads it."""
    for piece, counted in zip(corpus.pieces, partitioning.pieces, strict=True):
        if not counted.rows:
            counted.check(piece)


def _scans(job: Job, spec: ModelSpec, corpus: Corpus, workers: Workers) -> list[Scan]:
    """Return what each piece holds; this process begins while the workers start."""
    scan_piece = functools.partial(scan, spec=spec, job=job)
    scanned: dict[Piece, Scan] = {}
    for piece in corpus.pieces:
        if workers.are_there():
            break
        scanned[piece] = scan_piece(piece)
    rest = [piece for piece in corpus.pieces if piece not in scanned]
    scanned |= dict(_run(workers, f"scan-{job.name}", scan_piece, rest))
    return [scanned[piece] for piece in corpus.pieces]


def run(
    job: Job,
    spec: ModelSpec,
    corpus: Corpus,
    out: str,
    workers: Workers,
    *,
    partition_tokens: int = PARTITION_TOKENS,
    started: Callable[[Partitioning, int, int], Progress | None] = lambda *_: None,
) -> Summary:
    """Compute what is missing in the folder `out`.

    `started` is called with the partitioning and the texts and tokens that are there, and returns what is called after
    each partition.

    Raises
    ------
    RegardError
        An input is wrong, or the run ended early: the message says how much is written.
    """
    folder = OutputFolder(out)
    folder.create()
    partitioning = partition_corpus(job, spec, corpus, folder, workers, partition_tokens)
    if folder.read_manifest() is None:
        folder.write_manifest(partitioning)
    if (manifest := folder.read_manifest()) is not None:
        require_same(out, manifest, partitioning.identity)  # another run may have begun there
    folder.write_manifest(partitioning)
    there = folder.written()
    missing = [partition for partition in partitioning.partitions if part_name(partition) not in there]
    rows, tokens = (
        partitioning.rows - sum(p.rows for p in missing),
        partitioning.tokens - sum(p.tokens for p in missing),
    )
    progress = started(partitioning, rows, tokens)
    compute = functools.partial(compute_partition, job=job, spec=spec, out=folder.everywhere)
    try:
        for partition, _ in _run(workers, job.name, compute, missing):
            rows, tokens = rows + partition.rows, tokens + partition.tokens
            if progress is not None:
                progress(rows, tokens)
    except RegardError as error:
        raise RegardError(f"{error}; {_so_far(folder, partitioning)}") from error
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_so_far(folder, partitioning))
        raise
    folder.remove_partial()
    if {part_name(partition) for partition in partitioning.partitions} - folder.written():
        raise RegardError(f"the workers have another folder {out} than this process: give one that all machines share")
    return Summary(partitioning, len(missing))


def read_parts(out: str, partitioning: Partitioning) -> Iterator[Any]:
    """Yield the table of each partition of a run that has ended."""
    from pyarrow import parquet

    folder = OutputFolder(out)
    for partition in partitioning.partitions:
        yield parquet.read_table(io.BytesIO(folder.read(part_name(partition))))


def _run(workers: Workers, name: str, function: Callable[[Any], Any], items: Any) -> Any:
    """Yield each item with its result, whatever happens to workers and scheduler.

    Raises
    ------
    RegardError
        A task failed, or its workers died every time.
    """
    from distributed import KilledWorker

    pending = dict.fromkeys(items)
    killed: dict[Any, BaseException] = {}
    for _ in range(_ROUNDS):
        killed.clear()
        while waiting := [item for item in pending if item not in killed]:
            try:
                for item, result in workers.map(name, function, waiting):
                    if isinstance(result, KilledWorker):
                        killed[item] = result
                    elif isinstance(result, BaseException):
                        raise _as_regard_error(result)
                    else:
                        del pending[item]
                        yield item, result
            except SchedulerLostError:
                workers.reconnect()
        if not killed:
            return
    raise RegardError(
        f"{next(iter(killed))} ended every worker that computed it, {worker_memory(workers)} each: give workers more "
        "memory, or --batch-size less"
    )


def _as_regard_error(error: BaseException) -> BaseException:
    if isinstance(error, RegardError) or not isinstance(error, OSError | MemoryError):
        return error
    return RegardError(f"a worker ended with {type(error).__name__}: {error}")


def _so_far(folder: OutputFolder, partitioning: Partitioning) -> str:
    written = len(folder.written() & {part_name(partition) for partition in partitioning.partitions})
    return f"{written} of {len(partitioning.partitions)} partitions are in {folder.address}: the same command continues"


def estimate(
    job: Job, spec: ModelSpec, corpus: Corpus, out: str, workers: Workers, partition_tokens: int = PARTITION_TOKENS
) -> Estimate:
    """Return what a run would take. Creates nothing."""
    folder = OutputFolder(out)
    partitioning = partition_corpus(job, spec, corpus, folder, workers, partition_tokens)
    there = folder.written() if folder.read_manifest() is not None else set()
    missing = [partition for partition in partitioning.partitions if part_name(partition) not in there]
    sample = functools.partial(measure, job=job, spec=spec)
    ((_, (rate, memory)),) = _run(workers, f"sample-{job.name}", sample, (missing or list(partitioning.partitions))[:1])
    seconds = sum(partition.tokens for partition in missing) / rate / workers.count
    model = sum(array.nbytes for array in {id(x): x for x in parameters(load_model(spec)).values()}.values())
    written, limit = len(partitioning.partitions) - len(missing), worker_memory(workers)
    return Estimate(partitioning, written, workers.count, limit, memory, model, rate, seconds)
