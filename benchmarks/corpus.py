"""A corpus of many texts: memory, and what it costs to be able to continue a run that was interrupted.

Each measurement is a process of its own, which loads MiniLM, notes its largest resident set, and computes the head
metrics of all texts, `regard.metrics.corpus_head_metrics`. The memory above the model is bound by 500 MB, and the
script fails above it. Of fewer texts: the processor time of all threads, which other work on the machine hardly
changes, without a file to resume from, with one, and with one but killed (SIGKILL) when a quarter, a half and three
quarters are done. The results must have the same bits.

    python benchmarks/corpus.py            10,000 and 1,000 sentences, and the table in benchmarks/results
    python benchmarks/corpus.py --smoke    200 and 100 sentences, nothing written
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from _measure import kernel_in_words, machine, markdown, quartiles, versions, write_results

BOUND_MB = 500
KILLS = 3
THREADS = 2
WORDS = """
    the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all
    were when we there can an your which their said if do will each about how up out them then she many some so these
"""


def sentences(count: int) -> list[str]:
    """Return sentences of 3 to 80 words and a full stop."""
    draw, words = random.Random(0), WORDS.split()
    lengths = (max(3, min(80, int(draw.lognormvariate(2.6, 0.5)))) for _ in range(count))
    return [" ".join(draw.choice(words) for _ in range(length)) + "." for length in lengths]


def measure(count: int, resume: str | None) -> dict[str, Any]:
    """Compute in this process; return megabytes above the model, seconds, and the digest of the result."""
    import regard
    from regard.metrics import corpus_head_metrics

    regard.set_num_threads(THREADS)
    model, texts = regard.load("minilm"), sentences(count)
    corpus_head_metrics(model, texts[:8])  # what is loaded or made at the first run
    before, start = _peak_mb(), time.perf_counter()
    found = corpus_head_metrics(model, texts, resume=resume)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(b"".join(column.tobytes() for column in found.to_columns().values())).hexdigest()
    return {"megabytes": _peak_mb() - before, "seconds": seconds, "digest": digest}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def run(count: int, resume: str | None = None, kills: int = 0) -> dict[str, Any]:
    """Return what a process measures, which was killed some times before, and the processor time of all together."""
    command = [sys.executable, __file__, "--count", str(count), *(["--resume", resume] if resume else [])]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    start = _processor_seconds()
    for kill in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | limits)
        while process.poll() is None and _done(resume) < count * (kill + 1) / (kills + 1):
            time.sleep(0.05)
        process.kill()
        process.communicate()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ | limits)
    return {**json.loads(done.stdout), "processor": _processor_seconds() - start}


def _processor_seconds() -> float:
    """Return the processor time of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _done(resume: str | None) -> int:
    """Return how many texts the sums in a file are of."""
    from regard.formats.safetensors import SafetensorsFile

    return int(SafetensorsFile(resume).metadata["done"]) if resume and Path(resume).exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--rounds", type=int, default=5, help="of the processor times")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.count:
        print(json.dumps(measure(arguments.count, arguments.resume)))
        return
    many, count, rounds = (200, 100, 1) if arguments.smoke else (10_000, 1_000, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/sums"
        megabytes = run(many, file)["megabytes"]
        ways = {"one run": (None, 0), "with a file to resume from": (file, 0), f"killed {KILLS} times": (file, KILLS)}
        found = [{name: run(count, *way) for name, way in ways.items()} for _ in range(rounds)]
    if len({each["digest"] for one in found for each in one.values()}) != 1:
        sys.exit("the results differ")
    rows = []
    for name in ways:
        ratios = [one[name]["processor"] / one["one run"]["processor"] for one in found]
        low, high = quartiles(ratios)
        spread = "" if name == "one run" else f"{np.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        rows.append([name, f"{np.median([one[name]['processor'] for one in found]):.1f} s", spread])
    page = "\n\n".join([
        "# Many texts",
        f"{machine()}; {THREADS} threads; {date.today().isoformat()}. {versions('numpy')}. {kernel_in_words()}. "
        "The head metrics of sentences of up to 80 words by MiniLM, `corpus_head_metrics`. Made by `nox -s bench`.",
        f"{many:,} sentences take **{megabytes:.0f} MB** above the model.",
        f"The processor time of both threads for {count:,} sentences, from the start of Python to its end; "
        f"rounds: {rounds}; in brackets the middle half. Killed when a quarter, a half and three quarters are done, "
        "the run starts Python and loads the model four times, and computes again what is younger than the file, which "
        "is written every five seconds. All results have the same bits.",
        markdown(["", "processor time", "times one run"], rows),
    ])  # fmt: skip
    print(page)
    if megabytes > BOUND_MB:
        sys.exit(f"more than {BOUND_MB} MB above the model")
    if not arguments.smoke:
        write_results("corpus.md", page)


if __name__ == "__main__":
    main()
