"""A corpus of many texts: memory, and what it costs to be able to continue a run that was interrupted.

Each measurement is a process of its own, which loads MiniLM, notes its largest resident set, and computes the head
metrics of all texts, `regard.metrics.corpus_head_metrics`: without a file to resume from, with one, and with one but
killed (SIGKILL) three times on its way. The three results must have the same bits. The memory above the model is bound
by 500 MB, and the script fails above it.

    python benchmarks/corpus.py            10,000 sentences, and the table in benchmarks/results
    python benchmarks/corpus.py --smoke    200 sentences, nothing written
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
from _measure import kernel_in_words, machine, markdown, quartiles, versions

BOUND_MB = 500
KILLS = 3
THREADS = 2
WORDS = """
    the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all
    were when we there can an your which their said if do will each about how up out them then she many some so these
"""
RESULTS = Path(__file__).parent / "results" / "corpus.md"


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


def run(count: int, resume: str | None = None, kills: tuple[float, ...] = ()) -> dict[str, Any]:
    """Return what a process measures, which was killed some seconds after each of its starts before."""
    command = [sys.executable, __file__, "--count", str(count), *(["--resume", resume] if resume else [])]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    start = time.perf_counter()
    for seconds in kills:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | limits)
        time.sleep(seconds)
        process.kill()
        process.communicate()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ | limits)
    return {**json.loads(done.stdout), "wall": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.count:
        print(json.dumps(measure(arguments.count, arguments.resume)))
        return
    count, rounds = (200, 1) if arguments.smoke else (10_000, 3)
    found: dict[str, list[dict[str, Any]]] = {"one run": [], "with resume=": [], f"killed {KILLS} times": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            found["one run"].append(run(count))
            found["with resume="].append(run(count, f"{folder}/sums"))
            quarter = found["one run"][-1]["wall"] / (KILLS + 1)
            found[f"killed {KILLS} times"].append(run(count, f"{folder}/sums", (quarter,) * KILLS))
    measured = [each for runs in found.values() for each in runs]
    if len({each["digest"] for each in measured}) != 1:
        sys.exit("the results differ")
    base = found["one run"]
    rows = []
    for name, runs in found.items():
        walls = [each["wall"] / one["wall"] for each, one in zip(runs, base, strict=True)]
        low, high = quartiles(walls)
        megabytes = max(each["megabytes"] for each in runs)
        spread = "" if runs is base else f"{np.median(walls):.2f} ({low:.2f} to {high:.2f})"
        rows.append([name, f"{megabytes:.0f} MB", f"{np.median([each['wall'] for each in runs]):.1f} s", spread])
    page = "\n\n".join([
        "# Many texts",
        f"{machine()}; {THREADS} threads; {date.today().isoformat()}. {versions('numpy')}. {kernel_in_words()}. "
        f"The head metrics of {count:,} sentences of up to 80 words by MiniLM, `corpus_head_metrics`: median of "
        f"{rounds} rounds that alternate, in brackets the middle half. The last row includes all starts, "
        "and what was computed again because the sums are written only every five seconds. All results have the same "
        "bits. Made by `nox -s bench`.",
        markdown(["", "memory above the model", "from start to end", "times one run"], rows),
    ])  # fmt: skip
    print(page)
    if max(each["megabytes"] for each in measured) > BOUND_MB:
        sys.exit(f"more than {BOUND_MB} MB above the model")
    if not arguments.smoke:
        RESULTS.write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
