"""From a cold start to attention weights: ``regard TEXT`` beside transformers on PyTorch.

Both get the same weights of the same model, from disk, for the same text, each in a process of its own:
Python started, libraries imported, model loaded, one run. The two alternate; the result is the ratio of a pair,
because the speed of a machine drifts slowly.

    python benchmarks/cold_start.py            ten pairs, and the table in benchmarks/results/cold_start.md
    python benchmarks/cold_start.py --smoke    two pairs, nothing written
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _measure import machine, versions, write_results

from regard.models.hub import resolve

TEXT = "The cat sat on the mat"
PEER = """
import sys
import torch
from transformers import AutoModel, AutoTokenizer
folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
with torch.no_grad():
    output = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
print(torch.stack(output.attentions).shape)
"""


def seconds(command: list[str]) -> float:
    """Return how long a command takes from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(pairs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of regard and of the peer, pair by pair."""
    folder = str(resolve.find("minilm"))
    ours = [str(Path(sys.executable).with_name("regard")), TEXT]
    theirs = [sys.executable, "-c", PEER, folder, TEXT]
    for command in (ours, theirs):
        seconds(command)  # once unmeasured, so that the files of both are in the page cache
    times = [(seconds(ours), seconds(theirs)) for _ in range(pairs)]
    return [a for a, _ in times], [b for _, b in times]


def table(ours: list[float], theirs: list[float]) -> str:
    """Return the measurement as Markdown."""
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    rows = [
        ("`regard TEXT`", f"{statistics.median(ours):.2f} s", f"{min(ours):.2f} to {max(ours):.2f} s"),
        ("transformers + torch", f"{statistics.median(theirs):.2f} s", f"{min(theirs):.2f} to {max(theirs):.2f} s"),
        ("**times faster**", f"**{statistics.median(ratios):.1f}**", f"{ratios[0]:.1f} to {ratios[-1]:.1f}"),
    ]
    lines = ["| whole process | median | spread |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    peers = versions("torch", "transformers", "numpy")
    note = f"{len(ours)} pairs, alternating, the model on disk. {machine()}; {peers}. Made by `nox -s bench`."
    return "\n".join(["# Cold start", "", *lines, "", note, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Cold start beside transformers on PyTorch.")
    parser.add_argument("--smoke", action="store_true", help="two pairs; write nothing")
    smoke = parser.parse_args().smoke
    page = table(*measure(2 if smoke else 10))
    print(page)
    if not smoke:
        write_results("cold_start.md", page)


if __name__ == "__main__":
    main()
