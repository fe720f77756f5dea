"""A model of the size that people run, out of its file: its first call, the first picture, the explorer's first map.

And the memory that a run takes in addition to the model, beside the estimate of it.

Each number is of a process of its own, with the file in the page cache; the medians of several are shown.

    python benchmarks/large_model.py FILE.gguf    the table in benchmarks/results/large_model.md
    python benchmarks/large_model.py --only-memory MODEL ...    its second half of each model, in memory.md there
    python benchmarks/large_model.py --smoke      SmolLM2 once, nothing written
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from _measure import kernel_in_words, machine, markdown, versions, write_results

THREADS, TOKENS, LONG, LATER, ROUNDS = 2, 8, 500, 5, 5
SENTENCE = "The cat sat on the mat because it was tired"
WORDS = "The committee met on Tuesday to discuss the budget of the school, and agreed to repair the roof first. " * 40


def first_call(model: str) -> list[float]:
    """Return the seconds of loading and of the first call, and the first as a multiple of the median of later ones."""
    import regard

    regard.set_num_threads(THREADS)
    ids, times = np.random.default_rng(0).integers(1, 1000, (1, TOKENS)), []
    start = time.perf_counter()
    loaded: Any = regard.load(model)
    loading = time.perf_counter() - start
    for _ in range(1 + LATER):
        start = time.perf_counter()
        _ = loaded(ids).logits
        times.append(time.perf_counter() - start)
    return [loading, times[0], times[0] / statistics.median(times[1:])]


def first_map(model: str) -> list[float]:
    """Return the seconds from a loaded model to the map of a head in the explorer, of a text of many tokens."""
    import regard
    from regard.explorer.launch import exploration_of

    regard.set_num_threads(THREADS)
    loaded: Any = regard.load(model)
    text = loaded.tokenizer.decode(loaded.tokenizer(WORDS).ids[:LONG])
    start = time.perf_counter()
    exploration = exploration_of((text,), loaded)
    exploration.manifest()
    exploration.whole(0, *exploration.initial_head)
    return [time.perf_counter() - start]


def memory(model: str, record: str, tokens: int, batch: int) -> list[float]:
    """Return the estimate for a run of some texts with a record, and what the run took, in MB."""
    import regard
    from regard.models.memory import estimate_memory

    regard.set_num_threads(THREADS)
    loaded: Any = regard.load(model)
    ids, trace = np.random.default_rng(0).integers(1, 1000, (batch, tokens)), regard.Trace(**RECORDS[record])
    loaded(ids[:, :TOKENS])
    estimate = estimate_memory(loaded, batch, tokens, trace).total
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that from here on
    before = status("VmRSS")
    loaded(ids, trace=trace)
    return [estimate / 1e6, status("VmHWM") - before]


def status(name: str) -> float:
    """Return an entry of the status of this process in MB."""
    (line,) = [line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if name in line]
    return int(line.split()[1]) * 1024 / 1e6


WORK: dict[str, Any] = {"first_call": first_call, "first_map": first_map, "memory": memory}
RECORDS: dict[str, dict[str, Any]] = {
    "nothing": {"only": ()},
    "maps": {"maps": True},
    "outputs of blocks": {"only": "*.output"},
    "weights": {"only": "*.weights"},
}


def of_process(command: list[str]) -> list[float]:
    """Return the numbers that a process prints, the seconds that it takes, and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert status == 0, command
    numbers = [float(word) for word in printed.split()] if "--work" in command else []
    return [*numbers, seconds, usage.ru_maxrss / 1e3]


def measure(model: str, rounds: int) -> str:
    """Return the table of a model."""
    work = {name: [sys.executable, __file__, model, "--work", name] for name in ("first_call", "first_map")}
    commands = {"picture": [sys.executable, "-m", "regard", SENTENCE, "--model", model], **work}
    of_process(commands["picture"])  # the file is in the page cache
    found: dict[str, list[list[float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(of_process(command))
    picture, call, shown = (
        [statistics.median(column) for column in zip(*rows, strict=True)] for rows in found.values()
    )
    rows = [
        ["`regard TEXT`, from its start to its end", f"{picture[0]:.2f} s", f"{picture[1]:.0f} MB"],
        ["loading", f"{call[0]:.2f} s", ""],
        [f"the first call, {TOKENS} tokens with logits", f"{call[1]:.2f} s", f"{call[-1]:.0f} MB"],
        ["times a later one", f"{call[2]:.2f}", ""],
        [
            f"the explorer's first map, {LONG} tokens, after loading",
            f"{shown[0]:.2f} s",
            f"{shown[-1]:.0f} MB",
        ],
    ]
    return markdown(["", "median", "peak memory of the process"], rows)


def measure_memory(models: list[str], batch: int, tokens: int) -> str:
    """Return the table of what runs take in addition to models, each in a process of its own."""
    rows = []
    for model in models:
        for record in RECORDS:
            options = ["--work", "memory", "--record", record, "--batch", str(batch), "--tokens", str(tokens)]
            estimate, taken, *_ = of_process([sys.executable, __file__, model, *options])
            row = [record, f"{estimate:.0f} MB", f"{taken:.0f} MB", f"{estimate / taken:.2f}"]
            rows.append([Path(model).name, *row] if len(models) > 1 else row)
    names = ["model"] if len(models) > 1 else []
    texts = f"{batch} × {tokens}" if batch > 1 else f"{tokens}"
    return markdown([*names, f"a run of {texts} tokens that records", "estimate", "peak", "estimate ÷ peak"], rows)


def where() -> str:
    """Return the machine and the versions in words."""
    return f"{machine()}; {THREADS} threads; {date.today().isoformat()}. {versions('numpy')}. {kernel_in_words()}."


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2"], help="a GGUF file, a folder or a name (smollm2)")
    parser.add_argument("--smoke", action="store_true", help="one round; writes nothing")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--only-memory", action="store_true", help="the memory of runs alone, of several models")
    parser.add_argument("--tokens", type=int, default=LONG, help=f"of the runs whose memory is measured ({LONG})")
    parser.add_argument("--batch", type=int, default=1, help="texts of the runs whose memory is measured (1)")
    parser.add_argument("--record", choices=RECORDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    models: list[str] = arguments.models
    if arguments.work:
        more = (arguments.record, arguments.tokens, arguments.batch) if arguments.record else ()
        print(*WORK[arguments.work](models[0], *more))
        return
    taken = measure_memory(models, arguments.batch, arguments.tokens)
    if arguments.only_memory:
        page = f"# The memory of a run, and its estimate\n\n{where()}\n\n{taken}\n"
        print(page)
        if not arguments.smoke:
            write_results("memory.md", page)
        return
    (model,) = models
    table = f"{measure(model, 1 if arguments.smoke else ROUNDS)}\n\n{taken}"
    size = f", {Path(model).stat().st_size / 1e9:.2f} GB" if Path(model).is_file() else ""
    page = f"# A large model\n\n{Path(model).name}{size}. {where()} Medians of {ROUNDS} rounds.\n\n{table}\n"
    print(page)
    if not arguments.smoke:
        write_results("large_model.md", page)


if __name__ == "__main__":
    main()
