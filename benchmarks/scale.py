"""What corpora and long texts cost on more workers than there are here: simulated from rates that are measured here.

It measures, on one thread, the tokens that MiniLM embeds and the floating-point operations of attention of a
pair of blocks, and the bytes that two processes of a cluster of Dask exchange; and writes a table of bytes moved and of
time on 1 to 1,000 workers of that speed. What it assumes stands below the tables.

`--million` computes one attention of 1,000,000 × 1,000,000 tokens and its map on two workers of 1 GB, checks 200 rows
against a direct computation, and prints seconds, bytes and errors.

    python benchmarks/scale.py            the tables, in benchmarks/results/scale.md; so does --simulate
    python benchmarks/scale.py --smoke    smaller measurements, nothing written
    python benchmarks/scale.py --million --out MAP.zarr
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _measure import kernel_in_words, machine, markdown, priority, versions, write_results
from corpus import sentences

from regard.dask.run import PARTITION_TOKENS

WORKERS = (1, 2, 10, 100, 1000)
SENTENCES = tuple(10**n for n in range(6, 10))
TOKENS = tuple(10**n for n in range(6, 9))
DIM, WINDOW, BLOCK = 64, 4096, 8192
MAX_BLOCKS = 512  # along a side of a map: a block of a longer text is longer
TEXT_BYTES, VECTOR_BYTES = 100, 4 * 384  # of a sentence
TASK_SECONDS = 5e-4  # of the scheduler, for each task
START_SECONDS = 5.0  # of a worker: Python, imports and the model
STORAGE = 1.25e9  # bytes a second, for all workers together: a network of 10 Gbit/s


class Rates(NamedTuple):
    """Measured on one thread of one worker."""

    tokens: float  # embedded a second
    tokens_per_sentence: float
    flops: float  # of attention, a second
    bandwidth: float  # bytes a second between two processes


class Cost(NamedTuple):
    """Of one run."""

    moved: float  # bytes between workers, or from and to storage
    seconds: float
    tasks: int


def embedding_cost(count: int, workers: int, rates: Rates) -> Cost:
    """Return what embedding some sentences costs: reading and writing go on beside computing."""
    tokens = count * rates.tokens_per_sentence
    tasks = math.ceil(tokens / PARTITION_TOKENS)
    busiest = math.ceil(tasks / workers) * min(PARTITION_TOKENS, tokens)
    moved = count * (TEXT_BYTES + VECTOR_BYTES)
    seconds = max(busiest / rates.tokens, moved / STORAGE, tasks * TASK_SECONDS)
    return Cost(moved, START_SECONDS + seconds, tasks)


def attention_cost(tokens: int, workers: int, rates: Rates, window: int | None) -> Cost:
    """Return what one head of causal attention costs, its blocks of queries shared out in order.

    A block of keys goes once to each worker that has a block of queries which attends to it, but for the one that
    has it already.
    """
    size = max(BLOCK, -(-tokens // MAX_BLOCKS)) if window is None else BLOCK
    blocks = -(-tokens // size)
    behind = blocks if window is None else -(-(window - 1) // size)  # blocks of keys before a block's own
    pairs = sum(min(i, behind) + 1 for i in range(blocks))
    scores = tokens * (tokens + 1) / 2 if window is None else tokens * min(window, tokens)
    used = min(workers, blocks)
    firsts = [i * blocks // used for i in range(used)]
    fetched = sum(min(first, behind) for first in firsts)
    moved = fetched * size * DIM * 4 * 2  # k and v in float32
    busiest = math.ceil(pairs / used) / pairs
    seconds = 4 * DIM * scores * busiest / rates.flops + moved / used / rates.bandwidth
    return Cost(moved, START_SECONDS + max(seconds, (2 * pairs + 3 * blocks) * TASK_SECONDS), pairs)


def measured(*, smoke: bool) -> Rates:
    """Return the rates of this machine."""
    from regard import attention_partial, load, set_num_threads

    set_num_threads(1)
    texts = sentences(50 if smoke else 1000)
    model = load("minilm")
    count = sum(len(model.tokenizer(text)) for text in texts)
    seconds = best(lambda: model.embed(texts), 1 if smoke else 3)
    size = 1024 if smoke else BLOCK
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((size, DIM)).astype(np.float32) for _ in range(3))
    operations = 4 * DIM * size**2
    flops = operations / best(lambda: attention_partial(q, k, v), 3)
    return Rates(count / seconds, count / len(texts), flops, bandwidth(2**22 if smoke else 2**26))


def best(call: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the fastest of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def bandwidth(size: int) -> float:
    """Return the bytes a second that one worker gets from another process of this machine, by TCP."""
    with cluster(2) as client:
        one, other = list(client.scheduler_info()["workers"])
        seconds = []
        for number in range(4):
            array = client.submit(np.full, size // 8, float(number), workers=[one], pure=False)
            client.submit(len, array, workers=[one], pure=False).result()
            start = time.perf_counter()
            client.submit(len, array, workers=[other], pure=False).result()
            seconds.append(time.perf_counter() - start)
    return size / min(seconds)


def cluster(workers: int) -> Any:
    """Return a client of a local cluster of processes with 1 GB and one thread each."""
    from distributed import Client, LocalCluster

    return Client(LocalCluster(workers, threads_per_worker=1, memory_limit="1GB", dashboard_address=None))


def simulate(rates: Rates) -> str:
    """Return the page of tables."""
    columns = [f"{workers:,} workers" if workers > 1 else "1 worker" for workers in WORKERS]
    corpora = [
        [
            f"{count:,}",
            amount(embedding_cost(count, 1, rates).moved),
            *(duration(embedding_cost(count, workers, rates).seconds) for workers in WORKERS),
        ]
        for count in SENTENCES
    ]
    texts = [
        [
            f"{tokens:,}, {'causal' if window is None else f'window of {window:,}'}",
            amount(attention_cost(tokens, WORKERS[-1], rates, window).moved),
            *(duration(attention_cost(tokens, workers, rates, window).seconds) for workers in WORKERS),
        ]
        for window in (WINDOW, None)
        for tokens in TOKENS
    ]
    return "\n".join(
        [
            "# Many workers, simulated",
            "",
            f"{machine()}; {date.today().isoformat()}. {versions('numpy', 'dask', 'distributed')}. {kernel_in_words()}"
            f"{priority()}. Made by `python benchmarks/scale.py --simulate`.",
            "",
            f"Measured on one thread: MiniLM embeds {rates.tokens:,.0f} tokens a second, "
            f"{rates.tokens_per_sentence:.1f} to a sentence; attention of {BLOCK:,} × {BLOCK:,} tokens, D = {DIM}, "
            f"float32, {rates.flops / 1e9:.0f} GF/s; one process gets {rates.bandwidth / 1e9:.2f} GB/s from another. "
            "Nothing below was run: it follows from these numbers.",
            "",
            "Embedding of sentences; moved from and to storage:",
            "",
            markdown(["sentences", "moved", *columns], corpora),
            "",
            f"Attention of one head, D = {DIM}, causal; moved between {WORKERS[-1]:,} workers:",
            "",
            markdown(["tokens", "moved", *columns], texts),
            "",
            "Assumptions:",
            "",
            "- a worker has one core of the speed measured here; none fails, none waits for the cache of another;",
            f"- storage gives all workers together {STORAGE / 1e9:.2f} GB/s, while they compute; "
            f"a sentence has {TEXT_BYTES} bytes and its vector {VECTOR_BYTES:,};",
            "- workers exchange keys at the bandwidth measured here, each on its own link, and wait meanwhile; a block "
            "of keys goes to each worker that needs it once (Dask's own placement moves more: docs/scale.md);",
            f"- the scheduler takes {1e3 * TASK_SECONDS:.1f} ms for a task, and is the limit where that is more; "
            f"a worker starts in {START_SECONDS:.0f} s;",
            f"- partitions have {PARTITION_TOKENS:,} tokens, blocks of a text {BLOCK:,}, of a causal one at least a "
            f"{MAX_BLOCKS}th of it; there are no more workers in use than partitions or blocks of queries;",
            "- the busiest worker has a fair share of the blocks, rounded up; queries and results stay where they are.",
        ]
    )


def amount(size: float) -> str:
    """Return bytes in words."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"


def duration(seconds: float) -> str:
    """Return seconds in words."""
    for unit, factor in (("years", 365.25 * 86400), ("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def million(out: Path) -> str:
    """Compute one attention of a million tokens and its map; return what it took, in words."""
    import dask.array as da
    import distributed

    import dask
    import regard.dask
    from regard import attention

    length, seconds = 10**6, {}

    def vectors(seed: int) -> Any:
        def draw(block_info: Any = None) -> np.ndarray:
            first, end = block_info[None]["array-location"][0]
            return np.random.default_rng([seed, first]).standard_normal((end - first, DIM)).astype(np.float32)

        sizes = (BLOCK,) * (length // BLOCK) + (length % BLOCK,)
        return da.map_blocks(draw, chunks=(sizes, (DIM,)), dtype=np.float32, meta=np.empty((0, 0), np.float32))

    q, k, v = (vectors(seed) for seed in range(3))
    with cluster(2) as client:
        start = time.perf_counter()
        context = regard.dask.attention(q, k, v, causal=True, window=(WINDOW, 0)).persist()
        distributed.wait(context)
        seconds["attention"] = time.perf_counter() - start
        rows = np.sort(np.random.default_rng(4).choice(length, 200, replace=False))
        largest = own = 0.0
        for row, ours in zip(rows.tolist(), context[rows].compute(), strict=True):
            keys = slice(max(0, row - WINDOW), row + 1)
            one = dask.compute(q[row : row + 1], k[keys], v[keys], scheduler="synchronous")
            wide = [x.astype(np.float64) for x in one]
            exponentials = np.exp(wide[1] @ wide[0][0] / math.sqrt(DIM))
            exact = exponentials @ wide[2] / exponentials.sum()
            largest = max(largest, float(np.abs(ours - exact).max()))
            own = max(own, float(np.abs(attention(*one)[0] - exact).max()))
        del context
        start = time.perf_counter()
        regard.dask.AttentionMap(q, k, causal=True, window=(WINDOW, 0)).to_zarr(out)
        seconds["map"] = time.perf_counter() - start
        peaks = client.run(_peak).values()
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return (
        f"attention {seconds['attention']:.0f} s, map {seconds['map']:.0f} s and {amount(size)}; a worker took at most "
        f"{amount(max(peaks))}. Of 200 rows the largest error is {largest:.1e}, that of regard.attention {own:.1e}."
    )


def _peak() -> float:
    import resource

    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulate", action="store_true", help="also beside --million")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path, help="folder of the map of --million, which is kept")
    arguments = parser.parse_args()
    if arguments.simulate or not arguments.million:
        page = simulate(measured(smoke=arguments.smoke))
        print(page)
        if not arguments.smoke:
            write_results("scale.md", page)
    if arguments.million:
        with tempfile.TemporaryDirectory() as folder:
            print(million(arguments.out or Path(folder) / "million.zarr"))


if __name__ == "__main__":
    main()
