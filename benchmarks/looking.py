"""Looking at maps of weights: the compiled kernel beside NumPy, and beside the machine's multiply-adds.

The weights of a whole layer like those of MiniLM, a tile out of a long text, and what goes through all of its weights.
Beside the kernel stands regard's NumPy path, which takes every argument: as it is with a kernel, whose softmax it
borrows, and as it is where there is none; and for the layer also the lessons' formula.
They alternate within one process; the table gives medians, with the smallest and largest time behind them.
The share of peak counts one multiply-add for each feature of each cell that is gone through, against those a second
that the threads can do, measured meanwhile.

    python benchmarks/looking.py            32,768 tokens, and the table in benchmarks/results
    python benchmarks/looking.py --smoke    2,048 tokens, nothing written
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _measure import BLAS_REST

from regard import AttentionMap, attention_weights
from regard.functional import native
from regard.functional.native import buffer_pool

DIM = 64
TILE = 512
SHORT = 0.1  # seconds
RESULTS = Path(__file__).parent / "results" / "looking.md"


def formula(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the weights in NumPy alone, whose softmax the kernel does not help with."""
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights


def nothing() -> None:
    """Stand in for `native.kernel`."""


def without_kernel(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return the same work as it is done where regard was built without a compiler."""

    def alone() -> Any:
        with mock.patch.object(native, "kernel", new=nothing), mock.patch.object(buffer_pool, "native", new=nothing):
            return work()

    return alone


def measured(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternating(rounds: int, *works: Callable[[], Any]) -> list[list[float]]:
    """Return the times of each of `works`, which take turns after a round that does not count.

    A turn begins with a rest, and, where calls are short, with one that does not count.
    """
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, its in zip(works, times, strict=True):
            time.sleep(BLAS_REST)
            if its and its[-1] < SHORT:
                work()
            took = measured(work)
            if number:
                its.append(took)
    return times


def spread(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e3:,.1f} ms ({min(times) * 1e3:,.1f} to {max(times) * 1e3:,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    smoke = parser.parse_args().smoke
    kernel = native.kernel()
    if native is None:
        sys.exit(native.unavailable_reason())
    rng = np.random.default_rng(0)
    tokens = 2_048 if smoke else 32_768
    many, some, few = (3, 2, 1) if smoke else (41, 7, 5)

    # Whole weights of a layer, and a tile with the sums of its rows
    layer = rng.standard_normal((2, 12, 512, 32), dtype=np.float32)
    q, k = rng.standard_normal((2, 1, tokens, DIM), dtype=np.float32)
    here: Any = {"rows": slice(tokens // 2, tokens // 2 + TILE), "cols": slice(tokens // 4, tokens // 4 + TILE)}
    rows = []
    whole: list[Callable[[], Any]] = [
        partial(attention_weights, *layer, implementation=path) for path in ("native", "reference")
    ]
    tile: list[Callable[[], Any]] = [
        partial(attention_weights, q, k, **here, implementation=path) for path in ("native", "blockwise")
    ]
    for name, rounds, works in (
        (
            "whole weights, 12 heads, n = 512, D = 32",
            many,
            [*whole, without_kernel(whole[1]), partial(formula, *layer)],
        ),
        (
            f"tile of {TILE} × {TILE} out of {tokens:,} × {tokens:,}, D = {DIM}, from scratch",
            some,
            tile,
        ),
    ):
        kernel, *others = alternating(rounds, *works)
        row = [name, spread(kernel)]
        for times in others:
            row += [spread(times), f"{statistics.median(times) / statistics.median(kernel):.1f} times"]
        rows.append("| " + " | ".join([*row, *[""] * (8 - len(row))]) + " |")

    # What goes through all weights of one head
    look = AttentionMap(q, k)
    look.received()  # the sums of the rows are then known

    overviews: dict[str, Callable[[], Any]] = {
        f"pooled to {TILE} × {TILE}, largest, from scratch": lambda: AttentionMap(q, k).pooled((TILE, TILE)),
        f"pooled to {TILE} × {TILE}, mean, from scratch": lambda: AttentionMap(q, k).pooled((TILE, TILE), "mean"),
        "entropy": look.entropy,
        "mean distance": look.distance,
        "top 10 of each row": lambda: look.top(10),
        "received": look.received,
    }
    peaks = [kernel.fma_peak()]
    all_times = alternating(few, *overviews.values(), lambda: peaks.append(kernel.fma_peak()))
    ideal = tokens**2 * DIM / max(peaks)
    passes = [
        f"| {name} | {spread(times)} | {ideal / statistics.median(times):.0%} |"
        for name, times in zip(overviews, all_times[:-1], strict=True)
    ]
    table = "\n".join(
        [
            "# Looking at maps of weights",
            "",
            f"float32, {kernel.instruction_set()}; {native.num_threads()} threads, which together do at most "
            f"{max(peaks) / 1e9:.0f} thousand million",
            "fused multiply-adds a second, measured meanwhile.",
            f"Python {platform.python_version()}, NumPy {version('numpy')}, {platform.machine()}.",
            "Medians, and the smallest and largest time. Made by `nox -s bench`.",
            "",
            "| | kernel | NumPy path | | NumPy path where there is no kernel | | the formula in NumPy | |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"One head of {tokens:,} tokens, D = {DIM}, every weight gone through once; the sums of the rows are known",
            "except where it says so.",
            "",
            "| | kernel | of the peak |",
            "|---|---:|---:|",
            *passes,
        ]
    )
    print(table)
    if not smoke:
        RESULTS.write_text(table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
