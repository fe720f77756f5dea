"""Embeddings of a corpus on workers of Dask: overhead beside the plain command, scaling, and a peer.

Overhead: the command with one worker beside the plain command, from the start of Python to its end, on one thread
each; client and scheduler have the other processor. Scaling: the run alone, its workers
started, by two workers of one thread beside one. The peer is `encode` of sentence-transformers with a pool of two
processes of one thread, the pool started; without that package, its part of the table is missing. A round measures each
once, in turn.

    python benchmarks/dask_corpus.py                 20,000 sentences, and the table in benchmarks/results
    python benchmarks/dask_corpus.py --raw FILE      adds a round to those in FILE, and writes the table of all
    python benchmarks/dask_corpus.py --smoke         300 sentences, nothing written
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _measure import kernel_in_words, machine, markdown, versions
from corpus import sentences

RESULTS = Path(__file__).parent / "results" / "dask_corpus.md"
PEER = "sentence-transformers, two processes"
CONTESTANTS = ("plain command", "command, one worker", "one worker", "two workers", PEER)
REST = 1.0  # seconds between two


def command(file: Path, out: Path, *options: str) -> float:
    """Return the seconds of a command, on one thread."""
    words = [sys.executable, "-m", "regard", "embed", str(file), *options, str(out)]
    start = time.perf_counter()
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def run(file: Path, out: Path, workers: int) -> float:
    """Return the seconds of a run on workers that have loaded the model."""
    from regard.dask.cluster import start_workers
    from regard.dask.jobs import EmbedJob
    from regard.dask.model_spec import describe_model
    from regard.dask.run import run
    from regard.dask.source import open_corpus

    job, spec = EmbedJob(), describe_model("minilm")
    warm = file.with_name("warm.txt")
    warm.write_text("\n".join(sentences(40)), encoding="utf-8")
    with start_workers(workers, threads=1) as cluster:
        run(job, spec, open_corpus(str(warm)), f"{out}-warm", cluster, partition_tokens=100)
        start = time.perf_counter()
        run(job, spec, open_corpus(str(file)), str(out), cluster, partition_tokens=1 << 13)
        return time.perf_counter() - start


def peer(file: Path) -> float:
    """Return the seconds of sentence-transformers."""
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]

    from regard.models.hub import resolve

    model: Any = SentenceTransformer(str(resolve.find("minilm")), device="cpu")
    texts = file.read_text(encoding="utf-8").splitlines()
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    try:
        model.encode(texts[:64], pool=pool, batch_size=32)
        start = time.perf_counter()
        model.encode(texts, pool=pool, batch_size=32)
        return time.perf_counter() - start
    finally:
        model.stop_multi_process_pool(pool)


def measure(name: str, count: int) -> float:
    """Return the seconds of one contestant; of those that are no command, for two fifths of the sentences."""
    count = count if "command" in name else count * 2 // 5
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "corpus.txt"), Path(folder, "out")
        file.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
        match name:
            case "plain command":
                return command(file, out.with_suffix(".npy"), "-o")
            case "command, one worker":
                return command(file, out, "--workers", "1", "--out")
            case "one worker":
                return run(file, out, 1)
            case "two workers":
                return run(file, out, 2)
            case _:
                return peer(file)


def one_round(count: int, contestants: list[str]) -> dict[str, float]:
    """Return the seconds of each contestant, in a process of its own."""
    seconds = {}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for name in contestants:
        time.sleep(REST)
        words = [sys.executable, __file__, "--work", name, "--count", str(count)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=os.environ | one_thread)
        seconds[name] = float(done.stdout.split()[-1])
    return seconds


def table(rounds: list[dict[str, float]], count: int) -> str:
    """Return the page."""

    def ratio(above: str, below: str) -> str:
        found = [one[above] / one[below] for one in rounds if above in one and below in one]
        return f"{np.median(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "not measured"

    def seconds(name: str) -> str:
        found = [one[name] for one in rounds if name in one]
        return f"{np.median(found):.1f} s" if found else "not measured"

    rows = [
        ["overhead: the command with one worker ÷ the plain one, one thread", ratio(*CONTESTANTS[1::-1])],
        ["scaling: one worker ÷ two workers, a thread each (2 is linear)", ratio("one worker", "two workers")],
        [f"{PEER} ÷ two workers", ratio(PEER, "two workers")],
    ]
    rounds_in_words = f"{len(rounds)} round{'s' * (len(rounds) != 1)}"
    return "\n\n".join([
        "# A corpus on Dask",
        f"{machine()}; {date.today().isoformat()}. "
        f"{versions('numpy', 'dask', 'distributed', 'sentence-transformers', 'torch')}. {kernel_in_words()}. "
        f"{count:,} sentences of up to 80 words by MiniLM in float32, without the commands {count * 2 // 5:,}; "
        f"{rounds_in_words}, median (least to most). "
        "Commands are measured from the start of Python to its end; the others without the start of their processes. "
        "Made by `python benchmarks/dask_corpus.py`.",
        markdown(["", "ratio"], rows),
        markdown(["", "time"], [[name, seconds(name)] for name in CONTESTANTS]),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--raw", type=Path, help="a file of rounds, to which these are added")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print(measure(arguments.work, arguments.count))
        return
    count = 300 if arguments.smoke else 20_000
    contestants = [name for name in CONTESTANTS if name != PEER or find_spec("sentence_transformers")]
    rounds = [one_round(count, contestants) for _ in range(arguments.rounds)]
    if arguments.raw:
        known = json.loads(arguments.raw.read_text(encoding="utf-8")) if arguments.raw.exists() else []
        rounds = known + rounds
        arguments.raw.write_text(json.dumps(rounds), encoding="utf-8")
    page = table(rounds, count)
    print(page)
    if not arguments.smoke:
        RESULTS.write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
