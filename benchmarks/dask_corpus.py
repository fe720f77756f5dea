"""Embeddings of a corpus on workers of Dask: overhead beside the plain command, scaling, and a peer.

Overhead: the command with one worker beside the plain command, from the start of Python to its end, both on one thread,
where client and scheduler have the other processor, and both on two, where they have none of their own. Scaling: the
run alone, its workers started, by two workers of one thread beside one. The peer is `encode` of sentence-transformers
with a pool of two processes of one thread, the pool started, which must give the same vectors; without that package,
its part of the table is missing. A round measures each once, in turn.

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
from _measure import kernel_in_words, machine, markdown, priority, versions, write_results
from corpus import sentences

PEER = "sentence-transformers, two processes"
COMMANDS = {  # by name: how many threads, and whether on a worker
    "plain command": (1, False),
    "command, one worker": (1, True),
    "plain command, two threads": (2, False),
    "command, one worker of two threads": (2, True),
}
CONTESTANTS = (*COMMANDS, "one worker", "two workers", PEER)
REST = 1.0  # seconds between two


def command(file: Path, out: Path, threads: int, on_worker: bool) -> float:
    """Return the seconds of a command."""
    options = ["--workers", "1", "--out", str(out)] if on_worker else ["-o", f"{out}.npy"]
    words = [sys.executable, "-m", "regard", "embed", str(file), *options]
    start = time.perf_counter()
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL, env=os.environ | limits(threads))
    return time.perf_counter() - start


def limits(threads: int) -> dict[str, str]:
    """Return the variables that give a process some threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


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

    from regard import load
    from regard.models.hub import resolve

    model: Any = SentenceTransformer(str(resolve.find("minilm")), device="cpu")
    texts = file.read_text(encoding="utf-8").splitlines()
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    try:
        warm = model.encode(texts[:64], pool=pool, batch_size=32)
        if np.abs(warm - load("minilm").embed(texts[:64])).max() > 1e-5:
            sys.exit("sentence-transformers gives other vectors")
        start = time.perf_counter()
        model.encode(texts, pool=pool, batch_size=32)
        return time.perf_counter() - start
    finally:
        model.stop_multi_process_pool(pool)


def measure(name: str, count: int) -> float:
    """Return the seconds of one contestant; of those that are no command, for two fifths of the sentences."""
    count = count if name in COMMANDS else count * 2 // 5
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "corpus.txt"), Path(folder, "out")
        file.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
        if name in COMMANDS:
            return command(file, out, *COMMANDS[name])
        return peer(file) if name == PEER else run(file, out, ("one worker", "two workers").index(name) + 1)


def one_round(count: int, contestants: list[str]) -> dict[str, float]:
    """Return the seconds of each contestant, in a process of its own."""
    seconds = {}
    for name in contestants:
        time.sleep(REST)
        words = [sys.executable, __file__, "--work", name, "--count", str(count)]
        environment = os.environ | limits(1) | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=environment)
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
        ["overhead: the command with one worker ÷ the plain one, one thread each", ratio(*CONTESTANTS[1::-1])],
        ["overhead: the same with two threads each", ratio(*CONTESTANTS[3:1:-1])],
        ["scaling: one worker ÷ two workers, a thread each (2 is linear)", ratio("one worker", "two workers")],
        [f"{PEER} ÷ two workers", ratio(PEER, "two workers")],
    ]
    rounds_in_words = f"{len(rounds)} round{'s' * (len(rounds) != 1)}"
    return "\n\n".join([
        "# A corpus on Dask",
        f"{machine()}; {date.today().isoformat()}. "
        f"{versions('numpy', 'dask', 'distributed', 'sentence-transformers', 'torch')}. {kernel_in_words()}. "
        f"{count:,} sentences of up to 80 words by MiniLM in float32, without the commands {count * 2 // 5:,}; "
        f"{rounds_in_words}, median (least to most){priority()}. "
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
        write_results("dask_corpus.md", page)


if __name__ == "__main__":
    main()
