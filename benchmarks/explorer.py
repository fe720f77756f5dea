"""The explorer: time to the first map, time of a tile of a long text, and memory.

In Python, to the bytes of an answer; and in Chromium, from the address to a painted map, and from asking for a tile to
its last byte, by the page's own clock. The server is `regard explore`. Of a long text, one layer is recorded as q, k
and the log-sum-exp, which is how `Trace(maps=True)` keeps it. Then what a person waits for: a text run in the page, a
head changed, and a text of thousands of tokens of SmolLM2.

    python benchmarks/explorer.py            32,768 tokens, and the table in benchmarks/results
    python benchmarks/explorer.py --smoke    2,304 tokens, nothing written
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _measure import machine, markdown, versions, write_results

import regard
from regard.explorer import Exploration
from regard.explorer.export_html import render_page
from regard.explorer.query import dispatch
from regard.text.encoding import Encoding

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "browser"))
timing: Any = import_module("timing")  # how the tests measure

HEADS, DIM = 4, 64
ZOOMS = (0.05, 0.15, 0.5, 1.5, 5, 20, 40)  # pixels of a token along a side
CELLS = 256  # a tile's, along a side


def recorded(tokens: int, layers: int, heads: int, *, causal: bool) -> regard.Trace:
    """Return a trace of random queries, keys and values."""
    rng = np.random.default_rng(0)
    trace = regard.Trace(maps=True, only=("*attn.weights", "*attn.v"))
    for layer in range(layers):
        q, k, v = rng.standard_normal((3, 1, heads, tokens, DIM), dtype=np.float32)
        with trace.scope(f"blocks.{layer}.attn"):
            trace("v", v, "... G S Dv")
            regard.attention(2 * q, k, v, causal=causal, trace=trace)
    words = [f"w{i}" for i in range(tokens)]
    spans = tuple(itertools.pairwise(itertools.accumulate(map(len, words), initial=0)))
    numbers = tuple(range(tokens))
    trace.encodings = (Encoding("".join(words), numbers, tuple(words), (False,) * tokens, numbers, spans),)
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
        asked = {"run": 0, "layer": 0, "head": int(rng.integers(HEADS)), "bin_size": factor}
        asked |= {"row0": row, "row1": row + side, "col0": col, "col1": col + side}
        times.append(seconds(partial(dispatch, exploration, "tile", asked))[0])
    return times


def spread(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e3:,.1f} ms ({min(times) * 1e3:,.1f} to {max(times) * 1e3:,.1f})"


def long_text(trace: regard.Trace, tokens: int, rounds: int) -> tuple[list[list[str]], str]:
    """Return how long Python takes for a long text: rows of a table, and a sentence on memory."""
    whole = {"row0": 0, "row1": tokens, "col0": 0, "col1": tokens, "bin_size": -(-tokens // 512)}
    first: dict[str, list[float]] = {}
    for _ in range(rounds):
        exploration = Exploration(trace)
        for name, method, asked in (
            ("manifest", "manifest", {}),
            ("overview of one head", "tile", {"run": 0, "layer": 0, "head": 0, **whole}),
            (f"overview of the mean of {HEADS} heads", "tile", {"run": 0, "layer": 0, "head": "mean", **whole}),
            ("thumbnails", "thumbnails", {"run": 0}),
            ("metrics", "heads", {"run": 0}),
        ):
            took, _ = seconds(partial(dispatch, exploration, method, asked))
            first.setdefault(name, []).append(took)
    rows = [[f"{name}, first query", spread(times)] for name, times in first.items()]
    factor = 1
    while CELLS * factor <= tokens:
        times = tiles(exploration, tokens, factor, 4 * rounds)
        rows.append([f"tile of {CELLS} × {CELLS} cells, each {factor} × {factor} tokens", spread(times)])
        factor *= 2
    for name, asked in (("row", {"i": tokens // 2}), ("column", {"j": tokens // 3}), ("cell", {"i": 99, "j": 7})):
        asked = {"run": 0, "layer": 0, "head": 1, **asked}
        times = [seconds(partial(dispatch, exploration, name, asked))[0] for _ in range(rounds)]
        rows.append([name, spread(times)])
    held = exploration.memory()
    runs, overviews, bound = ((held[name] or 0) / 1e6 for name in ("runs", "overviews", "overviews_limit"))
    sentence = (
        f"It holds {runs:,.0f} MB of queries, keys and sums of rows, and {overviews:,.0f} MB of overviews, of which "
        f"there are never more than {bound:,.0f} MB."
    )
    return rows, sentence


def long_text_in_browser(browser: Any, trace: regard.Trace, tokens: int, rounds: int) -> tuple[list[list[str]], str]:
    """Return what a page of a long text takes: rows of a table, and a sentence on memory."""
    rng = np.random.default_rng(0)
    tiles: dict[float, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        trace.save(path)
        with timing.command_serving("--trace", str(path)) as (address, process):
            overviews = [timing.first_picture(browser, f"{address}#h={head}") for head in range(HEADS)]
            with timing.opened(browser, address) as page:
                for k in ZOOMS:
                    page.evaluate("performance.clearResourceTimings()")
                    for _ in range(4 * rounds):
                        timing.looked_at(page, f"{rng.integers(tokens)}_{rng.integers(tokens)}_{k}")
                    tiles[k] = timing.tile_seconds(page)
                heap, renderer = timing.page_memory(browser, page)
            server = timing.resident(process, "VmHWM")
    rows = [["from the address to the painted overview of a head", spread(overviews)]]
    rows += [[f"tile in view, a token {k} pixels wide: {len(t)} of them", spread(t)] for k, t in tiles.items() if t]
    every = [each for times in tiles.values() for each in times]
    rows.append([f"tile in view, all {len(every)}", spread(every)])
    sentence = (
        f"The server had {server / 1e6:,.0f} MB at its largest; the browser's process of the page "
        f"{renderer / 1e6:,.0f} MB at the end, of which {heap / 1e6:,.0f} MB were JavaScript's."
    )
    return rows, sentence


# From a key to the end of the first frame with the new map, which the page does not show as stale. The map is drawn in
# a frame, after which a task ends it. Pictures are compared before and after: to make one takes as long as a frame.
_PRESS = """
async ([key, target, text]) => {
  const map = document.querySelector(".rg-map"), pressed = document.querySelector(target);
  const canvas = map.querySelector("canvas");
  const shown = () => document.querySelector(text ? ".rg-text-panel .rg-words" : "h2").textContent;
  await new Promise((done) => setTimeout(done, 400 + 17 * Math.random()));
  const [picture, before] = [canvas.toDataURL(), shown()];
  let painted = null;
  const onDrawn = () => {
    if (painted || shown() === before || map.querySelector(".rg-stale")) return;
    painted = new Promise((done) => setTimeout(() => done(performance.now())));
  };
  new MutationObserver(onDrawn).observe(map, { attributes: true, attributeFilter: ["data-drawn"] });
  if (text) pressed.value = text;
  const started = performance.now();
  pressed.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  while (!painted) {
    if (performance.now() - started > 10_000) throw new Error(`${key} changed nothing`);
    await new Promise((done) => setTimeout(done, 20));
  }
  const took = (await painted) - started;
  if (canvas.toDataURL() === picture) throw new Error("the same picture");
  return took;
}
"""
_HAS_THUMBNAIL = """
() => {
  const thumbnail = document.querySelector(".rg-thumb");
  return thumbnail?.getContext("2d").getImageData(0, 0, thumbnail.width, thumbnail.height).data.some(Boolean);
}
"""
_FRAMES = """
async (milliseconds) => {
  const started = performance.now();
  let frames = 0, now = started;
  while (now - started < milliseconds) { now = await new Promise(requestAnimationFrame); frames++; }
  return 1000 * frames / (now - started);
}
"""
WORDS = ("cat", "dog", "bird", "horse", "child", "teacher", "river", "engine", "letter", "garden", "doctor", "window")
SENTENCE = "The {} did not cross the street because it was too tired."  # 14 tokens of MiniLM
LONG_TEXT = 3_365  # tokens of SmolLM2


def interactions(browser: Any) -> list[list[str]]:
    """Return how long a person waits for a text that the page runs, and for another head."""
    with timing.command_serving(SENTENCE.format("animal")) as (address, _):
        with timing.opened(browser, address) as page:
            text = [page.evaluate(_PRESS, ["Enter", ".rg-live textarea", SENTENCE.format(word)]) for word in WORDS]
        with timing.opened(browser, f"{address}#l=2&h=0") as page:
            head = [page.evaluate(_PRESS, [key, "body", ""]) for key in ["]"] * 10 + ["["] * 10]
    return [
        ["a text of 14 tokens, MiniLM, from Enter to the painted map", spread([each / 1e3 for each in text])],
        ["another head, from the key to the painted map", spread([each / 1e3 for each in head])],
    ]


def long_text_of_model(browser: Any) -> list[list[str]]:
    """Return how long a text of thousands of tokens takes to run and to look at."""
    model: Any = regard.load("smollm2")
    words = (f"{WORDS[i * i % 11]} number {i} saw the {WORDS[i * 7 % 12]}." for i in itertools.count())
    text = ""
    while len(model.tokenizer(text)) < LONG_TEXT:
        text += " ".join(itertools.islice(words, 10)) + "\n"
    text = text[: model.tokenizer(text).offsets[LONG_TEXT - 1][1]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text(text, encoding="utf-8")
        started = time.perf_counter()
        command = timing.command_serving("--model", "smollm2", "--file", str(path))
        with command as (address, _), timing.opened(browser, address) as page:
            painted = time.perf_counter() - started
            page.keyboard.press("1")
            page.wait_for_function(_HAS_THUMBNAIL, timeout=300_000)
            thumbnails = time.perf_counter() - started - painted
            page.keyboard.press("4")
            page.wait_for_selector(".rg-plane[data-drawn]", timeout=300_000)
            page.keyboard.press(" ")
            frames = float(page.evaluate(_FRAMES, 3_000))
    return [
        [f"{LONG_TEXT:,} tokens of SmolLM2, from the command to the painted map", f"{painted:.1f} s"],
        ["its thumbnails in view, after that", f"{thumbnails:.1f} s"],
        ["its representations by layer while they play", f"{frames:.0f} frames a second"],
    ]


def pages(browser: Any, sizes: tuple[int, ...], rounds: int) -> list[list[str]]:
    """Return how large files of 12 layers × 12 heads are, of random vectors, and how long they take."""
    rows = []
    for tokens in sizes:
        exploration = Exploration(recorded(tokens, 12, 12, causal=False))
        took, page = seconds(partial(render_page, exploration))
        digits = page[page.index(b'"decimals":') + 11 :][:1].decode()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            path.write_bytes(page)
            seen = spread([timing.first_picture(browser, path.as_uri(), offline=True) for _ in range(rounds)])
        rows.append([f"{tokens} tokens", f"{len(page) / 1e6:.2f} MB", digits, f"{took:.1f} s", seen])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    smoke = parser.parse_args().smoke
    tokens = 2_304 if smoke else 32_768
    rounds = 1 if smoke else 5
    trace = recorded(tokens, 1, HEADS, causal=True)
    rows, memory = long_text(trace, tokens, rounds)
    with timing.launched() as browser:
        seen, held = long_text_in_browser(browser, trace, tokens, rounds)
        waits = interactions(browser) + ([] if smoke else long_text_of_model(browser))
        files = pages(browser, (32,) if smoke else (128, 512), rounds)
        chromium = browser.version
    report = "\n".join(
        [
            "# The explorer",
            "",
            machine() + "; " + versions("numpy", "starlette", "uvicorn") + f", Chromium {chromium}.",
            "Medians, and the smallest and largest time. Made by `nox -s bench`.",
            "",
            f"One causal layer of {HEADS} heads, {tokens:,} tokens, recorded as q, k and the log-sum-exp. In Python:",
            "",
            markdown(["", "until the answer is there"], rows),
            "",
            memory,
            "",
            "In Chromium, which queries the server over HTTP:",
            "",
            markdown(["", "by the page's clock"], seen),
            "",
            held,
            "",
            "What a person waits for, in Chromium:",
            "",
            markdown(["", "until it is painted"], waits),
            "",
            "As one file: 12 layers × 12 heads of random vectors, not causal: harder to pack than a text's.",
            "",
            markdown(["", "file", "exact decimals", "made in", "from the address to a painted map"], files),
        ]
    )
    print(report)
    if not smoke:
        write_results("explorer.md", report)


if __name__ == "__main__":
    main()
