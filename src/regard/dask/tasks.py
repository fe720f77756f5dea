"""What a worker does with a partition of a corpus: compute its table, or measure how long that takes."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any

from regard.dask.jobs import Job, Rows
from regard.dask.model_spec import ModelSpec, load_model, one_at_a_time
from regard.dask.output import OutputFolder, part_name
from regard.dask.partitions import Partition
from regard.dask.rows import encode_rows
from regard.models.memory import estimate_memory
from regard.trace import Trace

_SAMPLED_TOKENS = 1 << 13


def compute_partition(partition: Partition, *, job: Job, spec: ModelSpec, out: str) -> None:
    """Write the file of a partition, unless it is there.

    A worker may die between writing it and saying so, and a task of a run that has ended may still be running.
    """
    folder = OutputFolder(out)
    if folder.has(part_name(partition)):
        return
    files: list[str] = []
    rows: list[int] = []
    values: list[Any] = []
    for segment in partition.segments:
        segment_values = segment.read()
        first = segment.first_row + segment.start
        files += [segment.piece.address] * len(segment_values)
        rows += range(first, first + len(segment_values))
        values += segment_values
    content = _table_bytes(job, spec, files, rows, values)
    folder.write_new(part_name(partition), content)


def _table_bytes(job: Job, spec: ModelSpec, files: list[str], numbers: list[int], values: list[Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    model = load_model(spec)
    encodings, errors = encode_rows(job.reader(model), values, truncate=job.truncate)
    with one_at_a_time():
        table = job.table(model, Rows(files, numbers, encodings, errors))
    stream = io.BytesIO()
    words = [field.name for field in table.schema if pyarrow.types.is_string(field.type)]
    parquet.write_table(table, stream, use_dictionary=words)  # numbers hardly repeat
    return stream.getvalue()


def measure(partition: Partition, *, job: Job, spec: ModelSpec) -> tuple[float, int]:
    """Return tokens a second of a sample of a partition, and the memory of a batch of texts as long as its longest."""
    model = load_model(spec)
    encodings: dict[int, Any] = {}
    longest = taken = 0
    sampled = getattr(job, "sampled_tokens", _SAMPLED_TOKENS)
    for segment in partition.segments:
        values = segment.read()
        encoded, _ = encode_rows(job.reader(model), values, truncate=job.truncate)
        longest = max([longest, *map(len, encoded.values())])
        for encoding in encoded.values():
            if taken < sampled:
                encodings[len(encodings)] = encoding
                taken += len(encoding)
    if not encodings:
        return 1.0, 0
    with one_at_a_time():
        job.table(model, _sample({0: encodings[0]}))  # what is made at the first run
        start = time.perf_counter()
        job.table(model, _sample(encodings))
    rate = taken / (time.perf_counter() - start)
    return rate, estimate_memory(model, getattr(job, "batch_size", 1), longest, Trace(only=())).total


def _sample(encodings: Mapping[int, Any]) -> Rows:
    count = len(encodings)
    return Rows(["sample"] * count, range(1, count + 1), encodings, [None] * count)
