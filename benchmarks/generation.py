"""SmolLM2 from its GGUF: regard beside transformers on PyTorch, and beside llama.cpp.

How long from a cold start to the first token; then, each in a process of its own that stays, how long a token takes,
how long texts are read, with the same number of threads. They take turns within one run; the result is the ratio within
a round, because the speed of a machine drifts slowly. Last, how long a model loads, and what memory its process takes.

llama.cpp runs from `llama-cpp-python`, built for this processor without AMX, whose path fails in some virtual machines;
it quantises the activations to 8 bits, which regard and transformers do not. It reads the same file, and one that its
own quantiser made of it in Q4_0, its quickest kind, in Q8_0 and in F16.

    python benchmarks/generation.py            the tables in benchmarks/results/generation.md
    python benchmarks/generation.py --smoke    short texts, transformers with random weights, no llama.cpp; no file
    python benchmarks/generation.py --model FILE.gguf ...    each file beside llama.cpp: generation_files.md there
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import (
    BLAS_REST,
    Rates,
    Ratio,
    Times,
    alternate_processes,
    answer,
    faster,
    kernel_in_words,
    machine,
    markdown,
    multiply_add_peak,
    priority,
    versions,
    write_results,
)

SMOKE, OF_FILES = "--smoke" in sys.argv, "--model" in sys.argv
PROMPT = "The" if OF_FILES else "The cat sat on the mat, and the dog"
TOKENS = 8 if SMOKE else 16 if OF_FILES else 32
LENGTHS = (64,) if SMOKE else (512,) if OF_FILES else (512, 2048)
FILE_ROUNDS = 1 if SMOKE else 3
THREADS = 2
MEMORY = 1 << 22 if SMOKE else 400_000_000  # bytes
SECONDS = 0.1 if SMOKE else 0.5  # of a round, at least one run
CALLS = {"token": f"a token, of {TOKENS}"} | {str(n): f"a text of {n:,} tokens" for n in LENGTHS}
FILE_CALLS = {"memory": "all of a large array"} | CALLS
LLAMA_FILES = "LLAMA_FILES"  # names the folder of llama.cpp's own files
LLAMA_KINDS = {"Q4_0": 2, "Q8_0": 7, "F16": 1}  # made by its quantiser, and their numbers there

OURS, THEIRS = "regard", "llama.cpp Q4_1"  # the second reads the file itself

Calls = Mapping[str, Callable[[], object]]


def gguf() -> Path:
    """Return the file of the model: the first one that is given, by default SmolLM2."""
    from regard.models.hub import resolve

    return Path(sys.argv[sys.argv.index("--model") + 1]) if OF_FILES else resolve.find("smollm2")


def ids_of_a_text(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(100, 40_000, (1, length))


def prompt_ids() -> Sequence[int]:
    return tuple(regard_model().tokenizer(PROMPT).ids)


def regard_model() -> Any:
    import regard

    regard.set_num_threads(THREADS)
    model: Any = regard.load(gguf())
    return replace(model, end_ids=())


def regard_calls(model: Any) -> Calls:

    def text(ids: np.ndarray) -> object:
        return model.head(model.forward(ids)[:, -1])

    token = partial(model.generate, PROMPT, max_new_tokens=TOKENS)
    return {"token": token} | {str(n): partial(text, ids_of_a_text(n)) for n in LENGTHS}


def peer() -> Any:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(THREADS)
    if SMOKE:  # reading the file takes it a minute
        return LlamaForCausalLM(
            LlamaConfig(vocab_size=50_000, hidden_size=64, intermediate_size=64, num_hidden_layers=2)
        ).eval()
    file = gguf()
    return AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32).eval()


def transformers_calls(model: Any) -> Calls:
    import torch

    prompt = torch.tensor([prompt_ids()])

    def token() -> object:
        with torch.inference_mode():
            return model.generate(prompt, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)

    def text(ids: Any) -> object:
        with torch.inference_mode():
            return model(ids, logits_to_keep=1)

    return {"token": token} | {str(n): partial(text, torch.from_numpy(ids_of_a_text(n))) for n in LENGTHS}


def llama_model(kind: str) -> Any:
    from llama_cpp import Llama

    path = gguf() if kind == "Q4_1" or OF_FILES else Path(os.environ[LLAMA_FILES], f"{kind}.gguf")
    context = max(LENGTHS) + 1
    return Llama(str(path), n_ctx=context, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)


def llama_calls(model: Any) -> Calls:
    prompt = model.tokenize(PROMPT.encode(), add_bos=False)

    def best() -> int:
        return int(np.argmax(np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (model.n_vocab(),))))

    def token() -> object:
        model.reset()
        model.eval(prompt)
        for _ in range(TOKENS - 1):
            model.eval([best()])
        return best()

    def text(ids: Sequence[int]) -> object:
        model.reset()
        model.eval(ids)
        return model

    return {"token": token} | {str(n): partial(text, ids_of_a_text(n)[0].tolist()) for n in LENGTHS}


def write_llama_files(folder: str) -> None:
    """Write the model as llama.cpp's quantiser stores it."""
    import llama_cpp

    options = llama_cpp.llama_model_quantize_default_params()
    for kind, options.ftype in LLAMA_KINDS.items():
        options.allow_requantize = True
        if llama_cpp.llama_model_quantize(str(gguf()).encode(), f"{folder}/{kind}.gguf".encode(), options):
            sys.exit(f"llama.cpp does not quantise the file to {kind}")


RUNS: dict[str, Callable[[Any], Calls]] = {
    "regard": regard_calls,
    "transformers": transformers_calls,
    **{f"llama.cpp {kind}": llama_calls for kind in ("Q4_1", *LLAMA_KINDS)},
}
LOADS: dict[str, Callable[[], Any]] = {
    "regard": regard_model,
    "transformers": peer,
    **{f"llama.cpp {kind}": partial(llama_model, kind) for kind in ("Q4_1", *LLAMA_KINDS)},
}


def first_token() -> None:
    """Be transformers from a cold start to the first token."""
    import torch
    from transformers import AutoTokenizer

    file = gguf()
    tokenizer, model = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name), peer()
    prompt = tokenizer(PROMPT, return_tensors="pt")
    with torch.inference_mode():
        print(tokenizer.decode(model.generate(**prompt, max_new_tokens=1, do_sample=False)[0]))


COLD = {
    "regard": ["regard", "generate", PROMPT, "--model", "smollm2", "--max-new-tokens", "1"],
    "transformers": [sys.executable, __file__, "--first-token"],
}


def cold_starts(names: Sequence[str], rounds: int) -> dict[str, Times]:
    """Return the seconds of whole processes, which alternate; the first of each, which fills the page cache, not."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "PATH": path}
    times: dict[str, Times] = {name: Times([]) for name in names}
    for number in range(rounds + 1):
        for name in names:
            start = time.perf_counter()
            subprocess.run(
                COLD[name], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            )
            if number:
                times[name].rounds.append(time.perf_counter() - start)
    return times


def footprint(name: str) -> None:
    """Print the seconds that a model takes to load, imports apart, and the process's memory in MB after some tokens."""
    answers, sys.stdout = sys.stdout, sys.stderr
    importlib.import_module({"regard": "regard.models", "transformers": "transformers"}.get(name, "llama_cpp"))
    start = time.perf_counter()
    model = LOADS[name]()
    seconds = time.perf_counter() - start
    RUNS[name](model)["token"]()
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


def multiply_adds(config: Any, length: int) -> int:
    """Return the multiply-adds of a text of so many tokens, of which the last gets logits."""
    width, hidden = config.embed_dim, config.hidden_dim
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    maps = width * (2 * queries + 2 * keys + 3 * hidden)
    attention = queries * (length + 1)  # scores and contexts, of half of the keys on average
    return int(config.num_layers * length * (maps + attention) + width * config.vocab_size)


def least() -> str:
    """Return how long the multiply-adds of the texts take at least, and how long their parts, each alone."""
    config, speed, rates = regard_model().config, multiply_add_peak(THREADS), Rates.measure(THREADS)

    def parts(length: int) -> float:
        scores = config.num_layers * config.num_heads * length * (length + 1) / 2
        activations = config.num_layers * config.hidden_dim * length
        products = multiply_adds(config, length)
        return float(products / rates.products + scores / rates.exponentials + activations / rates.activations)

    def texts(seconds: Callable[[int], float]) -> str:
        return ", ".join(f"{length:,} tokens {1e3 * seconds(length):.0f} ms" for length in LENGTHS)

    products, exponentials, activations = (f"{1e-9 * rate:.0f}" for rate in rates)
    return (
        f"{texts(lambda n: multiply_adds(config, n) / speed)}, at {speed / 1e9:.0f} thousand million a second.\n"
        "The limit, these as fast as in a large product with packed weights, exponentials and SwiGLU, each alone in\n"
        f"the cores' own caches: {texts(parts)}; {products}, {exponentials} and\n"
        f"{activations} thousand million a second"
    )


def page(times: dict[str, dict[str, Times]], cold: dict[str, Times], sizes: dict[str, tuple[float, float]]) -> str:
    """Return the measurement as Markdown: a row for each model, with the ratio of its times to those of regard."""
    rows = []
    for name, measured in times.items():
        row = [name]
        for call in CALLS:
            share = TOKENS if call == "token" else 1
            spread = Ratio([1e3 * seconds / share for seconds in measured[call].rounds])
            row += [str(spread), "" if name == "regard" else str(faster(times["regard"][call], measured[call]))]
        seconds, megabytes = sizes.get(name, (math.nan, math.nan))
        rows.append([*row, f"{seconds:.2f}", f"{megabytes:.0f}"])
    calls = [text for what in CALLS.values() for text in (f"{what}, ms", "times")]
    header = ["", *calls, "loading, s", "memory after some tokens, MB"]
    starts = ", ".join(f"{name} {each.median:.2f} s" for name, each in cold.items())
    packages = ["numpy", "torch", "transformers", *(["llama_cpp_python"] if len(times) > 2 else [])]
    return "\n".join(
        [
            "# SmolLM2-135M from its GGUF",
            "",
            f"{machine()}; {THREADS} threads each; {date.today().isoformat()}. {versions(*packages)}.",
            f"{kernel_in_words()}. Greedy; medians of {len(times['regard']['token'].rounds)} rounds that alternate, in",
            "brackets the middle half; times: the model's ÷ regard's. regard and llama.cpp Q4_1 read the file itself.",
            "transformers computes with weights in float32, llama.cpp (without AMX) with activations of 8 bits, except",
            "those of F16.",
            f"Made by `nox -s bench`{priority()}.",
            "",
            markdown(header, rows),
            "",
            "The least, the multiply-adds of a text in float32 at the most that both cores do in registers:",
            f"{least()}.",
            "",
            f"From a cold start to the first token: {starts}.",
            "",
        ]
    )


def read_memory() -> Callable[[], object]:
    """Return a call that reads more than the caches hold, in all threads."""
    parts = np.ones((THREADS, MEMORY // THREADS // 4), np.float32)
    pool = ThreadPoolExecutor(THREADS)
    return lambda: list(pool.map(np.max, parts))


def measure_file(file: str) -> list[str]:
    """Return the row of a file: regard and llama.cpp read it, in processes that take turns."""
    import regard

    config, peak = regard.load(file).config, multiply_add_peak(THREADS)
    size, options = Path(file).stat().st_size, ["--model", file, *(["--smoke"] if SMOKE else [])]
    ours, theirs = alternate_processes(
        __file__, (OURS, THEIRS), list(FILE_CALLS), rounds=FILE_ROUNDS, threads=THREADS, rest=BLAS_REST, options=options
    ).values()
    peak = max(peak, multiply_add_peak(THREADS))
    row = [Path(file).name, f"{size / 1e9:.2f}"]
    for call in CALLS:
        share = TOKENS if call == "token" else 1
        row += [f"{1e3 * times[call].median / share:.1f}" for times in (ours, theirs)]
        row.append(str(faster(ours[call], theirs[call])))
    speed = multiply_adds(config, LENGTHS[0]) / ours[str(LENGTHS[0])].median
    memory = MEMORY / min(ours["memory"].median, theirs["memory"].median)
    row += [f"{TOKENS * size / ours['token'].median / 1e9:.1f}", f"{memory / 1e9:.1f}"]
    return [*row, f"{speed / 1e9:.0f}", f"{peak / 1e9:.0f}"]


def files_page(files: Sequence[str]) -> str:
    """Return the measurement of files as Markdown."""
    calls = [f"{what}, {unit}" for what in CALLS.values() for unit in ("regard, ms", "llama.cpp, ms", "times")]
    limits = ["regard reads, GB/s", "memory gives, GB/s", "multiply-adds, G/s", "float32 peak, G/s"]
    table = markdown(["", "GB", *calls, *limits], [measure_file(file) for file in files])
    return (
        f"# Files of several sizes, beside llama.cpp\n\n{machine()}; {THREADS} threads each; "
        f"{date.today().isoformat()}. {versions('numpy', 'llama_cpp_python')}. {kernel_in_words()}. Greedy; medians of "
        f"{FILE_ROUNDS} rounds that alternate; times: llama.cpp's ÷ regard's. Tokens follow one. Reads: the size ÷ the "
        f"time of a token, beside an array of {MEMORY / 1e6:.0f} MB that all threads read in the same rounds. "
        f"Multiply-adds: of regard's text, beside those in float32 registers. llama.cpp (without AMX) computes with "
        f"activations of 8 bits.\n\n{table}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="SmolLM2 beside transformers and llama.cpp.")
    parser.add_argument("--model", nargs="+", metavar="FILE.gguf", help="measure these beside llama.cpp alone")
    parser.add_argument("--smoke", action="store_true", help="short and without llama.cpp; write nothing")
    parser.add_argument("--work", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--footprint", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--first-token", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        calls = RUNS[arguments.work](LOADS[arguments.work]())
        if OF_FILES:
            calls["token"]()  # the pages of the file are read
            calls = {**calls, "memory": read_memory()}
        return answer(calls, SECONDS, warm_up=not OF_FILES)
    if arguments.footprint:
        return footprint(arguments.footprint)
    if arguments.first_token:
        return first_token()
    if OF_FILES:
        text = files_page(arguments.model)
        print(text)
        return None if SMOKE else write_results("generation_files.md", text)
    names = ("regard", "transformers") if SMOKE else tuple(RUNS)
    rounds, starts, read = (1, 1, ("regard",)) if SMOKE else (7, 3, names)  # transformers takes long to read the file
    with tempfile.TemporaryDirectory() as folder:
        os.environ[LLAMA_FILES] = folder
        if not SMOKE:
            write_llama_files(folder)
        options = ["--smoke"] if SMOKE else []
        cold = cold_starts([name for name in COLD if name in read], starts)
        times = alternate_processes(
            __file__, names, list(CALLS), rounds=rounds, threads=THREADS, rest=BLAS_REST, options=options
        )
        sizes = footprints(read, starts)
    text = page(times, cold, sizes)
    print(text)
    if not SMOKE:
        write_results("generation.md", text)
    return None


if __name__ == "__main__":
    main()
