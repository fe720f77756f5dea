"""The explorer: how soon there is something to see, how long a tile of a long text takes, and what is held.

Times are those of the Python side, to the bytes of an answer: what a browser then draws is measured where it is tested.
Of a long text, one layer is recorded as q, k and the log-sum-exp, which is how `Trace(maps=True)` keeps it.

    python benchmarks/explorer.py            32,768 tokens, and the table in benchmarks/results
    python benchmarks/explorer.py --smoke    2,304 tokens, nothing written
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import machine, markdown, versions

import regard
from regard.web import Exploration
from regard.web._page import whole_page
from regard.web._questions import answer

HEADS, DIM = 4, 64
CELLS = 256  # a tile's, along a side
RESULTS = Path(__file__).parent / "results" / "explorer.md"


def recorded(tokens: int, layers: int, heads: int, *, causal: bool) -> regard.Trace:
    """Return a trace of random queries, keys and values."""
    rng = np.random.default_rng(0)
    trace = regard.Trace(maps=True, only=("*attn.weights", "*attn.v"))
    for layer in range(layers):
        q, k, v = rng.standard_normal((3, 1, heads, tokens, DIM), dtype=np.float32)
        with trace.scope(f"blocks.{layer}.attn"):
            trace("v", v, "... G S Dv")
            regard.attention(2 * q, k, v, causal=causal, trace=trace)
    return trace


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def tiles(exploration: Exploration, tokens: int, factor: int, count: int) -> list[float]:
    """Return the seconds of some tiles, in which a cell is so many tokens wide and high, all over the map."""
    rng = np.random.default_rng(factor)
    times = []
    for _ in range(count):
        side = CELLS * factor
        row, col = (int(x) for x in rng.integers(0, tokens - side + 1, 2))
        asked = {"run": 0, "layer": 0, "head": int(rng.integers(HEADS)), "rows": CELLS, "cols": CELLS}
        asked |= {"row0": row, "row1": row + side, "col0": col, "col1": col + side}
        times.append(seconds(partial(answer, exploration, "tile", asked))[0])
    return times


def spread(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e3:,.1f} ms ({min(times) * 1e3:,.1f} to {max(times) * 1e3:,.1f})"


def long_text(tokens: int, rounds: int) -> tuple[list[list[str]], str]:
    """Return what a long text takes: rows of a table, and a sentence on memory."""
    trace = recorded(tokens, 1, HEADS, causal=True)
    whole = {"row0": 0, "row1": tokens, "col0": 0, "col1": tokens, "rows": 512, "cols": 512}
    first: dict[str, list[float]] = {"manifest": [], "overview of one head": [], "thumbnails": [], "measures": []}
    for _ in range(rounds):
        exploration = Exploration(trace)
        for name, method, asked in (
            ("manifest", "manifest", {}),
            ("overview of one head", "tile", {"run": 0, "layer": 0, "head": 0, **whole}),
            ("thumbnails", "thumbnails", {"run": 0}),
            ("measures", "heads", {"run": 0}),
        ):
            took, _ = seconds(partial(answer, exploration, method, asked))
            first[name].append(took)
    rows = [[f"{name}, first asked", spread(times)] for name, times in first.items()]
    for head in range(1, HEADS):
        answer(exploration, "tile", {"run": 0, "layer": 0, "head": head, **whole})
    factor = 1
    while CELLS * factor <= tokens:
        times = tiles(exploration, tokens, factor, 4 * rounds)
        rows.append([f"tile of {CELLS} × {CELLS} cells, each {factor} × {factor} tokens", spread(times)])
        factor *= 2
    for name, asked in (("row", {"i": tokens // 2}), ("column", {"j": tokens // 3}), ("cell", {"i": 99, "j": 7})):
        asked = {"run": 0, "layer": 0, "head": 1, **asked}
        times = [seconds(partial(answer, exploration, name, asked))[0] for _ in range(rounds)]
        rows.append([name, spread(times)])
    held = exploration.memory()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
    runs, overviews, bound = (held[name] / 1e6 for name in ("runs", "overviews", "overviews_at_most"))
    sentence = (
        f"It holds {runs:,.0f} MB of queries, keys and sums of rows, and {overviews:,.0f} MB of overviews, of which "
        f"there are never more than {bound:,.0f} MB; the process had {most:,.0f} MB at its largest."
    )
    return rows, sentence


def pages(sizes: tuple[int, ...]) -> list[list[str]]:
    """Return how large files of 12 layers × 12 heads are, of random vectors, and how long they take to make."""
    rows = []
    for tokens in sizes:
        exploration = Exploration(recorded(tokens, 12, 12, causal=False))
        took, page = seconds(partial(whole_page, exploration))
        digits = page[page.index(b'"digits":') + 9 :][:1].decode()
        rows.append([f"{tokens} tokens", f"{len(page) / 1e6:.2f} MB", digits, f"{took:.1f} s"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    smoke = parser.parse_args().smoke
    tokens = 2_304 if smoke else 32_768
    rows, memory = long_text(tokens, 1 if smoke else 5)
    report = "\n".join(
        [
            "# The explorer",
            "",
            machine() + "; " + versions("numpy", "starlette", "uvicorn") + ".",
            "Medians, and the smallest and largest time. Made by `nox -s bench`.",
            "",
            f"One causal layer of {HEADS} heads and {tokens:,} tokens, recorded as q, k and the log-sum-exp.",
            "",
            markdown(["", "until the answer is there"], rows),
            "",
            memory,
            "",
            "As one file: 12 layers × 12 heads of random vectors, not causal: harder to pack than a text's.",
            "",
            markdown(["", "file", "exact decimals", "made in"], pages((32,) if smoke else (128, 512))),
        ]
    )
    print(report)
    if not smoke:
        RESULTS.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
