"""Attention maps: the compiled kernel against NumPy, and against the machine's peak of multiply-adds.

Measures the weights of a whole layer of the size of MiniLM's, a tile of a long sequence, and statistics of its whole
map. The kernel is compared with regard's NumPy implementation, which takes every argument, once with the kernel's
softmax and once without a kernel; for the layer also with the formula of the lesson.
All alternate within one process; the table gives medians, with the smallest and largest time in brackets.
The share of the peak counts one multiply-add for each feature of each cell, against the multiply-adds a second that
the threads can do, measured in the same rounds.

    python benchmarks/attention_map.py            32,768 tokens; writes the table to benchmarks/results
    python benchmarks/attention_map.py --smoke    2,048 tokens; writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from _measure import BLAS_REST, machine, versions, write_results

from regard import AttentionMap, attention_weights
from regard.functional import native
from regard.functional.native import buffer_pool

DIM = 64
TILE = 512
SHORT = 0.1  # seconds


def formula(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the weights by NumPy alone, softmax included."""
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights


def without_kernel(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return the same call as if regard had been built without a compiler."""

    def patched() -> Any:
        with mock.patch.object(native, "kernel", no_kernel), mock.patch.object(buffer_pool, "kernel", no_kernel):
            return call()

    return patched


def no_kernel() -> None:
    """Replace `native.kernel`."""


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternating(rounds: int, *calls: Callable[[], Any]) -> list[list[float]]:
    """Return the seconds of each call, measured in turn after one round that is discarded.

    Each turn begins with a rest and, where calls are short, with one call that is discarded.
    """
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, own_times in zip(calls, times, strict=True):
            time.sleep(BLAS_REST)
            if own_times and own_times[-1] < SHORT:
                call()
            took = seconds(call)
            if number:
                own_times.append(took)
    return times


def spread(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e3:,.1f} ms ({min(times) * 1e3:,.1f} to {max(times) * 1e3:,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    smoke = parser.parse_args().smoke
    kernel = native.kernel()
    if kernel is None:
        sys.exit(native.unavailable_reason())
    rng = np.random.default_rng(0)
    tokens = 2_048 if smoke else 32_768
    many, some, few = (3, 2, 1) if smoke else (41, 7, 5)

    # The whole weights of a layer, and a tile with the softmax statistics of its rows
    layer = rng.standard_normal((2, 12, 512, 32), dtype=np.float32)
    q, k = rng.standard_normal((2, 1, tokens, DIM), dtype=np.float32)
    tile_at: Any = {"rows": slice(tokens // 2, tokens // 2 + TILE), "cols": slice(tokens // 4, tokens // 4 + TILE)}
    rows = []
    whole: list[Callable[[], Any]] = [
        partial(attention_weights, *layer, implementation=name) for name in ("native", "reference")
    ]
    tile: list[Callable[[], Any]] = [
        partial(attention_weights, q, k, **tile_at, implementation=name) for name in ("native", "blockwise")
    ]
    for name, rounds, calls in (
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
        ours, *others = alternating(rounds, *calls)
        row = [name, spread(ours)]
        for times in others:
            row += [spread(times), f"{statistics.median(times) / statistics.median(ours):.1f} times"]
        rows.append("| " + " | ".join([*row, *[""] * (8 - len(row))]) + " |")

    # Overviews and statistics of the whole map of one head
    attention_map = AttentionMap(q, k)
    attention_map.received()  # computes the softmax statistics of the rows, which are stored

    overviews: dict[str, Callable[[], Any]] = {
        f"pooled to {TILE} × {TILE}, largest, from scratch": lambda: AttentionMap(q, k).pooled((TILE, TILE)),
        f"pooled to {TILE} × {TILE}, mean, from scratch": lambda: AttentionMap(q, k).pooled((TILE, TILE), "mean"),
        "entropy": attention_map.entropy,
        "mean distance": attention_map.distance,
        "top 10 of each row": lambda: attention_map.top(10),
        "received": attention_map.received,
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
            "# Attention maps",
            "",
            f"float32, {kernel.instruction_set()}; {native.num_threads()} threads, together at most "
            f"{max(peaks) / 1e9:.0f} thousand million",
            "fused multiply-adds a second, measured in the same rounds.",
            f"{machine()}; {versions('numpy')}.",
            "Medians, and the smallest and largest time. Made by `nox -s bench`.",
            "",
            "| | kernel | NumPy | | NumPy without a kernel | | the formula in NumPy | |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"One head of {tokens:,} tokens, D = {DIM}, every weight computed once; the softmax statistics of the",
            "rows are stored except where it says from scratch.",
            "",
            "| | kernel | of the peak |",
            "|---|---:|---:|",
            *passes,
        ]
    )
    print(table)
    if not smoke:
        write_results("attention_map.md", table)


if __name__ == "__main__":
    main()
