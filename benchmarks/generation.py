"""SmolLM2 from its GGUF: regard beside transformers on PyTorch.

How long from a cold start to the first token; then, each in a process of its own that stays, how long a token takes
and how long a text of 1,024 tokens is read, in float32 with the same number of threads. They take turns within one
run; the result is the ratio within a round, because the speed of a machine drifts slowly.

    python benchmarks/generation.py            the tables in benchmarks/results/generation.md
    python benchmarks/generation.py --smoke    two rounds, nothing written
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Times, alternate_processes, answer, faster, kernel_in_words, machine, markdown, versions

PROMPT = "The cat sat on the mat, and the dog"
TOKENS = 32
THREADS = 2
SECONDS = 0.5  # of a round, at least one run
CALLS = {"token": f"a token, of {TOKENS}", "prompt": "a text of 1,024 tokens"}
FIRST = "cold start to the first token"
RESULTS = Path(__file__).parent / "results" / "generation.md"


def gguf() -> Path:
    """Return the file of the model."""
    from regard.models.hub import resolve

    found = resolve.find("smollm2")
    return found if found.is_file() else next(found.glob("*.gguf"))


def ids_of_a_text() -> np.ndarray:
    return np.random.default_rng(0).integers(100, 40_000, (1, 1024))


def regard_calls() -> dict[str, Callable[[], object]]:
    import regard

    regard.set_num_threads(THREADS)
    model: Any = regard.load("smollm2")
    endless, ids = replace(model, end_ids=()), ids_of_a_text()
    return {
        "token": lambda: endless.generate(PROMPT, max_new_tokens=TOKENS),
        "prompt": lambda: model.head(model.forward(ids)[:, -1]),
    }


def peer() -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = gguf()
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    return tokenizer, model.eval()


def transformers_calls() -> dict[str, Callable[[], object]]:
    import torch

    torch.set_num_threads(THREADS)
    tokenizer, model = peer()
    prompt, ids = tokenizer(PROMPT, return_tensors="pt"), torch.from_numpy(ids_of_a_text())

    def token() -> object:
        with torch.inference_mode():
            return model.generate(**prompt, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)

    def text() -> object:
        with torch.inference_mode():
            return model(ids, logits_to_keep=1)

    return {"token": token, "prompt": text}


def first_token() -> None:
    """Be transformers from a cold start to the first token."""
    import torch

    torch.set_num_threads(THREADS)
    tokenizer, model = peer()
    prompt = tokenizer(PROMPT, return_tensors="pt")
    with torch.inference_mode():
        print(tokenizer.decode(model.generate(**prompt, max_new_tokens=1, do_sample=False)[0]))


RUNS = {"regard": regard_calls, "transformers": transformers_calls}
COLD = {
    "regard": ["regard", "generate", PROMPT, "--model", "smollm2", "--max-new-tokens", "1"],
    "transformers": [sys.executable, __file__, "--first-token"],
}


def cold_starts(rounds: int) -> dict[str, Times]:
    """Return the seconds of whole processes, which alternate; the first of each, which fills the page cache, not."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "PATH": path}
    times: dict[str, Times] = {name: Times([]) for name in COLD}
    for number in range(rounds + 1):
        for name, command in COLD.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            if number:
                times[name].rounds.append(time.perf_counter() - start)
    return times


def page(times: dict[str, dict[str, Times]], cold: dict[str, Times]) -> str:
    """Return the measurement as Markdown."""
    rows = [[FIRST, *(f"{cold[name].median:.2f} s" for name in RUNS), str(faster(*cold.values()))]]
    for call, what in CALLS.items():
        share = TOKENS if call == "token" else 1
        ours, theirs = (Times([t / share for t in times[name][call].rounds]) for name in RUNS)
        rows.append([what, str(ours), str(theirs), str(faster(ours, theirs))])
    rounds = len(times["regard"]["token"].rounds)
    return "\n".join(
        [
            "# SmolLM2-135M from its GGUF",
            "",
            f"{machine()}; {THREADS} threads each. {versions('numpy', 'torch', 'transformers', 'gguf')}.",
            f"{kernel_in_words()}. float32, greedy; medians of {rounds} rounds that alternate",
            f"({len(cold['regard'].rounds)} of the cold start), in brackets the middle half. Made by `nox -s bench`.",
            "",
            markdown(["", *RUNS, "times as fast"], rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="SmolLM2 beside transformers.")
    parser.add_argument("--smoke", action="store_true", help="two rounds; write nothing")
    parser.add_argument("--work", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--first-token", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return answer(RUNS[arguments.work](), SECONDS)
    if arguments.first_token:
        return first_token()
    rounds = 2 if arguments.smoke else 7
    times = alternate_processes(__file__, RUNS, list(CALLS), rounds=rounds, threads=THREADS)
    text = page(times, cold_starts(1 if arguments.smoke else 3))
    print(text)
    if not arguments.smoke:
        RESULTS.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
