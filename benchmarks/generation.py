"""SmolLM2 from its GGUF: regard beside transformers on PyTorch, and beside llama.cpp.

How long from a cold start to the first token; then, each in a process of its own that stays, how long a token takes,
how long texts are read, with the same number of threads. They take turns within one run; the result is the ratio within
a round, because the speed of a machine drifts slowly. Last, how long a model loads, and what memory its process takes.

llama.cpp runs from `llama-cpp-python`, built for this processor without AMX, whose path fails in some virtual machines;
it quantises the activations to 8 bits, which regard and transformers do not. It reads the same file, and one that its
own quantiser made of it in Q4_0, its quickest kind.

    python benchmarks/generation.py            the tables in benchmarks/results/generation.md
    python benchmarks/generation.py --smoke    two rounds without llama.cpp, nothing written
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Times, alternate_processes, answer, faster, kernel_in_words, machine, markdown, versions

PROMPT = "The cat sat on the mat, and the dog"
TOKENS = 32
LENGTHS = (512, 2048)
THREADS = 2
SECONDS = 0.5  # of a round, at least one run
CALLS = {"token": f"a token, of {TOKENS}"} | {str(n): f"a text of {n:,} tokens" for n in LENGTHS}
FIRST = "cold start to the first token"
RESULTS = Path(__file__).parent / "results" / "generation.md"
LLAMA_FILES = "LLAMA_FILES"  # names the folder of llama.cpp's own files

Calls = Mapping[str, Callable[[], object]]


def gguf() -> Path:
    """Return the file of the model."""
    from regard.models.hub import resolve

    found = resolve.find("smollm2")
    return found if found.is_file() else next(found.glob("*.gguf"))


def ids_of_a_text(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(100, 40_000, (1, length))


def regard_model() -> Any:
    import regard

    regard.set_num_threads(THREADS)
    return replace(regard.load("smollm2"), end_ids=())


def regard_calls() -> Calls:
    model = regard_model()

    def text(ids: np.ndarray) -> object:
        return model.head(model.forward(ids)[:, -1])

    token = partial(model.generate, PROMPT, max_new_tokens=TOKENS)
    return {"token": token} | {str(n): partial(text, ids_of_a_text(n)) for n in LENGTHS}


def peer() -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(THREADS)
    file = gguf()
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    return tokenizer, model.eval()


def transformers_calls() -> Calls:
    import torch

    tokenizer, model = peer()
    prompt = tokenizer(PROMPT, return_tensors="pt")

    def token() -> object:
        with torch.inference_mode():
            return model.generate(**prompt, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)

    def text(ids: Any) -> object:
        with torch.inference_mode():
            return model(ids, logits_to_keep=1)

    return {"token": token} | {str(n): partial(text, torch.from_numpy(ids_of_a_text(n))) for n in LENGTHS}


def llama_model(kind: str) -> Any:
    from llama_cpp import Llama

    path = gguf() if kind == "Q4_1" else Path(os.environ[LLAMA_FILES], f"{kind}.gguf")
    context = max(LENGTHS) + 1
    return Llama(str(path), n_ctx=context, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)


def llama_calls(kind: str) -> Calls:
    model = llama_model(kind)
    prompt = model.tokenize(PROMPT.encode())

    def token() -> object:
        model.reset()
        model.eval(prompt)
        for _ in range(TOKENS):
            model.eval([int(np.argmax(model.scores[model.n_tokens - 1]))])
        return model

    def text(ids: Sequence[int]) -> object:
        model.reset()
        model.eval(ids)
        return model

    return {"token": token} | {str(n): partial(text, ids_of_a_text(n)[0].tolist()) for n in LENGTHS}


def write_llama_files(folder: str) -> None:
    """Write the model as llama.cpp's quantiser stores it in its quickest kind."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, True
    if llama_cpp.llama_model_quantize(str(gguf()).encode(), f"{folder}/Q4_0.gguf".encode(), options):
        sys.exit("llama.cpp does not quantise the file")


RUNS: dict[str, Callable[[], Calls]] = {
    "regard": regard_calls,
    "transformers": transformers_calls,
    "llama.cpp Q4_1": lambda: llama_calls("Q4_1"),
    "llama.cpp Q4_0": lambda: llama_calls("Q4_0"),
}
LOADS: dict[str, Callable[[], object]] = {
    "regard": regard_model,
    "transformers": peer,
    "llama.cpp Q4_1": lambda: llama_model("Q4_1"),
    "llama.cpp Q4_0": lambda: llama_model("Q4_0"),
}


def first_token() -> None:
    """Be transformers from a cold start to the first token."""
    import torch

    tokenizer, model = peer()
    prompt = tokenizer(PROMPT, return_tensors="pt")
    with torch.inference_mode():
        print(tokenizer.decode(model.generate(**prompt, max_new_tokens=1, do_sample=False)[0]))


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


def footprint(name: str) -> None:
    """Print the seconds that a model takes to load, imports apart, and the process's memory in MB after some tokens."""
    answers, sys.stdout = sys.stdout, sys.stderr
    importlib.import_module({"regard": "regard.models", "transformers": "transformers"}.get(name, "llama_cpp"))
    start = time.perf_counter()
    LOADS[name]()
    seconds = time.perf_counter() - start
    RUNS[name]()["token"]()
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(seconds, resident / 1e6, file=answers)


def footprints(names: Sequence[str], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median seconds of loading, and megabytes, of processes that alternate."""
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, __file__, "--footprint", name]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            found[name].append([float(word) for word in out.stdout.split()])
    return {name: (statistics.median(s for s, _ in each), statistics.median(m for _, m in each))
            for name, each in found.items()}  # fmt: skip


def page(times: dict[str, dict[str, Times]], cold: dict[str, Times], sizes: dict[str, tuple[float, float]]) -> str:
    """Return the measurement as Markdown: for each peer its time, and how many times as fast regard is."""
    peers = [name for name in times if name != "regard"]
    rows = [[FIRST, f"{cold['regard'].median:.2f} s", f"{cold['transformers'].median:.2f} s",
             str(faster(*cold.values())), *[""] * (2 * len(peers) - 2)]]  # fmt: skip
    for call, what in CALLS.items():
        share = TOKENS if call == "token" else 1
        each = {name: Times([t / share for t in times[name][call].rounds]) for name in times}
        compared = [text for peer in peers for text in (str(each[peer]), str(faster(each["regard"], each[peer])))]
        rows.append([what, str(each["regard"]), *compared])
    for what, at, unit, digits in (("loading", 0, "s", 2), ("resident memory after some tokens", 1, "MB", 0)):
        ours = sizes["regard"][at]
        compared = [text for p in peers for text in (f"{sizes[p][at]:.{digits}f} {unit}", f"{sizes[p][at] / ours:.2f}")]
        rows.append([what, f"{ours:.{digits}f} {unit}", *compared])
    packages = ["numpy", "torch", "transformers", *(["llama_cpp_python"] if len(peers) > 1 else [])]
    return "\n".join(
        [
            "# SmolLM2-135M from its GGUF",
            "",
            f"{machine()}; {THREADS} threads each; {date.today().isoformat()}. {versions(*packages)}.",
            f"{kernel_in_words()}. Greedy; medians of {len(times['regard']['token'].rounds)} rounds that alternate",
            f"({len(cold['regard'].rounds)} of the cold start), in brackets the middle half;",
            "the ratios are the peer's ÷ regard's.",
            "transformers computes with weights in float32; llama.cpp (without AMX) with activations of 8 bits.",
            "Made by `nox -s bench`.",
            "",
            markdown(["", "regard", *[text for peer in peers for text in (peer, "times")]], rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="SmolLM2 beside transformers and llama.cpp.")
    parser.add_argument("--smoke", action="store_true", help="two rounds without llama.cpp; write nothing")
    parser.add_argument("--work", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--footprint", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--first-token", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return answer(RUNS[arguments.work](), SECONDS)
    if arguments.footprint:
        return footprint(arguments.footprint)
    if arguments.first_token:
        return first_token()
    names = ("regard", "transformers") if arguments.smoke else tuple(RUNS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[LLAMA_FILES] = folder
        if not arguments.smoke:
            write_llama_files(folder)
        times = alternate_processes(__file__, names, list(CALLS), rounds=2 if arguments.smoke else 7, threads=THREADS)
        sizes = footprints(names, 1 if arguments.smoke else 3)
    text = page(times, cold_starts(1 if arguments.smoke else 3), sizes)
    print(text)
    if not arguments.smoke:
        RESULTS.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
