"""MiniLM beside transformers on PyTorch and ONNX Runtime: all maps as arrays, one sentence, many, and a whole process.

Each contestant runs in a process of its own that stays, with the same weights, texts and number of threads. They take
turns within one run, and the result is the ratio within a round, because the speed of a machine drifts.

    python benchmarks/minilm.py                  all parts, and the table in benchmarks/results/minilm.md
    python benchmarks/minilm.py --part maps      one part of it; the table once all have been measured
    python benchmarks/minilm.py --smoke          two rounds of little, nothing written
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _measure import (
    REST,
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

LENGTHS = (8, 128, 510)
THREADS = 2
SECONDS = 0.1  # of a round of short calls
BATCH = 32
SENTENCES = 1000
WORDS = """
    the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all
    were when we there can an your which their said if do will each about how up out them then she many some so these
    would other into has more her two like him see time could no make than first been its who now people my made over
"""
LAYERS, HEADS, WIDTH, HIDDEN = 6, 12, 384, 1536  # of the model
LIMIT = "the limit"

Run = Callable[[], Any]


def sentences(count: int) -> list[str]:
    """Return sentences of 3 to 200 words, most of them short."""
    draw, words = random.Random(0), WORDS.split()
    return [
        " ".join(draw.choice(words) for _ in range(max(3, min(200, int(draw.lognormvariate(3.2, 0.7))))))
        for _ in range(count)
    ]


def ids_of(length: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(0).integers(1000, 20000, length)]


def model_folder() -> str:
    from regard.models.hub import resolve

    return str(resolve.find("minilm"))


def regard_runs(count: int, *, lazy: bool = False) -> dict[str, Run]:
    import regard

    regard.set_num_threads(THREADS)
    model, texts = regard.load("minilm"), sentences(count)
    encodings = {n: model.tokenizer.from_ids(ids_of(n)) for n in LENGTHS}

    def maps(n: int) -> Run:
        return lambda: model(encodings[n], trace=regard.Trace(maps=lazy, only="*.attn.weights"))

    return {
        **{f"{n} maps": maps(n) for n in LENGTHS},
        "plain": lambda: model(encodings[LENGTHS[0]]),
        "mixed": lambda: model.embed(texts, batch_size=BATCH),
    }


def transformers_runs(count: int) -> dict[str, Run]:
    import torch

    torch.set_num_threads(THREADS)
    eager, fused = (transformers_model(kind) for kind in ("eager", "sdpa"))
    tensors = {n: torch.tensor([ids_of(n)]) for n in LENGTHS}

    def hidden(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found: np.ndarray = fused(torch.from_numpy(ids), torch.from_numpy(mask)).last_hidden_state.numpy()
        return found

    def maps(n: int) -> Run:
        run: Run = torch.inference_mode()(lambda: eager(input_ids=tensors[n], output_attentions=True))
        return run

    return {
        **{f"{n} maps": maps(n) for n in LENGTHS},
        "plain": torch.inference_mode()(lambda: fused(input_ids=tensors[LENGTHS[0]])),
        "mixed": lambda: embed(sentences(count), model_folder(), hidden),
    }


def onnx_runs(count: int, folder: str) -> dict[str, Run]:
    maps, plain = (session(f"{folder}/{kind}.onnx") for kind in ("maps", "plain"))
    arrays = {n: np.array([ids_of(n)]) for n in LENGTHS}
    mask = np.ones_like(arrays[LENGTHS[0]])

    def run_maps(n: int) -> Run:
        return lambda: maps.run(None, {"ids": arrays[n]})

    return {
        **{f"{n} maps": run_maps(n) for n in LENGTHS},
        "plain": lambda: plain.run(None, {"ids": arrays[LENGTHS[0]], "mask": mask}),
        "mixed": lambda: embed(sentences(count), model_folder(), onnx_hidden(plain)),
    }


def session(path: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_hidden(plain: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda ids, mask: plain.run(None, {"ids": ids, "mask": mask})[0]


def embed(texts: list[str], folder: str, hidden: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Return a vector for each text as a peer's user would: sorted by length, in padded batches."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    order = sorted(range(len(encoded)), key=lambda i: -len(encoded[i]))
    vectors = np.empty((len(texts), WIDTH), np.float32)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        lengths = np.array([len(encoded[i]) for i in chosen])
        mask = (np.arange(lengths[0]) < lengths[:, None]).astype(np.int64)
        ids = np.zeros_like(mask)
        for row, i in zip(ids, chosen, strict=True):
            row[: len(encoded[i])] = encoded[i]
        means = (hidden(ids, mask) * mask[:, :, None]).sum(1) / lengths[:, None]
        vectors[chosen] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return vectors


def transformers_model(attention: str) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(model_folder(), attn_implementation=attention).eval()


def export(folder: str) -> None:
    """Write the transformers model as ONNX, with the weights of every layer among its outputs, and without."""
    import warnings

    import torch

    class Maps(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers_model("eager")

        def forward(self, ids: Any) -> Any:
            output = self.model(input_ids=ids, output_attentions=True)
            return output.last_hidden_state, *output.attentions

    class Plain(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers_model("sdpa")

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ids, axes = torch.randint(1000, 20000, (2, 8)), {0: "B", 1: "T"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Maps(), (ids[:1],), f"{folder}/maps.onnx", dynamo=False, opset_version=17, input_names=["ids"],
            output_names=["hidden", *(f"weights.{i}" for i in range(6))], dynamic_axes={"ids": {1: "T"}},
        )  # fmt: skip
        torch.onnx.export(
            Plain(), (ids, torch.ones_like(ids)), f"{folder}/plain.onnx", dynamo=False, opset_version=17,
            input_names=["ids", "mask"], output_names=["hidden"], dynamic_axes={"ids": axes, "mask": axes},
        )  # fmt: skip


RUNS: dict[str, Callable[[int, str], dict[str, Run]]] = {
    "regard": lambda count, _: regard_runs(count),
    "regard, lazy": lambda count, _: regard_runs(count, lazy=True),
    "transformers": lambda count, _: transformers_runs(count),
    "ONNX Runtime": onnx_runs,
    LIMIT: lambda *_: limit_runs(),
}
SHOWN = tuple(name for name in RUNS if name != LIMIT)
PEERS = ("transformers", "ONNX Runtime")


def measure_processes(folder: str, count: int, rounds: int) -> dict[str, dict[str, Times]]:
    """Return the seconds of whole processes that write a vector for each line of a file."""
    lines = Path(folder) / "lines.txt"
    lines.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
    commands = {
        "regard": [sys.executable, "-m", "regard", "embed", str(lines), "-o", f"{folder}/regard.npy"],
        "ONNX Runtime": [sys.executable, __file__, "--embed", "--folder", folder, "--model", model_folder()],
    }
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | limits
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            time.sleep(REST)
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
            times[name].append(time.perf_counter() - start)
    ours, theirs = np.load(f"{folder}/regard.npy"), np.load(f"{folder}/onnx.npy")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    return {name: {"process": Times(seconds[1:])} for name, seconds in times.items()}  # the first fills file caches


def multiply_adds(lengths: Sequence[int]) -> int:
    """Return the multiply-adds of texts of so many tokens: of the linear maps, the scores and the contexts."""
    return sum(LAYERS * n * WIDTH * (4 * WIDTH + 2 * HIDDEN + 2 * n) for n in lengths)


def limit_runs() -> dict[str, Run]:
    """Return calls that do the parts of a text with its maps, each alone and as fast as it can be."""
    import regard
    from regard.functional import native
    from regard.functional.native import ops

    regard.set_num_threads(THREADS)
    kernel, x, weight = native.kernel(), np.ones((2048, WIDTH), np.float32), np.ones((WIDTH, WIDTH), np.float32)
    packed, out, one = ops.pack([weight]), np.empty_like(x), np.ones((512, 1), np.float32)
    memory = [np.ones(4 * LAYERS * HEADS * max(LENGTHS) ** 2 // THREADS, np.uint8) for _ in range(THREADS)]
    pool = ThreadPoolExecutor(THREADS)
    if kernel is None or packed is None:
        sys.exit("the limit is measured with the kernel")

    def in_parts(rows: int, most: int, call: Callable[[int], object]) -> None:
        for first in range(0, rows, most):
            call(min(most, rows - first))

    def run(length: int) -> None:
        weights, hidden = LAYERS * HEADS * length**2, LAYERS * HIDDEN * length
        in_parts(multiply_adds([length]) // weight.size, len(x), lambda n: kernel.linear(out[:n], x[:n], packed, None))
        in_parts(-(-weights // WIDTH), 512, lambda n: kernel.scaled_softmax(out[:n], x[:n], one[:n], one[:n]))
        in_parts(-(-hidden // WIDTH), 512, lambda n: kernel.gelu(out[:n], x[:n], None))
        list(pool.map(lambda part: ctypes.memset(part.ctypes.data, 1, 4 * weights // THREADS), memory))

    return {f"{n} maps": functools.partial(run, n) for n in LENGTHS} | {"plain": lambda: None}


def row(title: str, its: dict[str, Times], least: float | None = None) -> list[str]:
    """Return a row: seconds of each, how many times as fast regard is as the better peer, and lower bounds of it."""
    rounds = [its[peer].rounds for peer in PEERS if peer in its]
    best = Times([min(each) for each in zip(*rounds, strict=True)])
    shown = [f"{its[name]}" if name in its else "" for name in SHOWN]
    bound = "" if least is None else f"{1e3 * least:,.3f} ms, {100 * least / its['regard'].median:.0f}%"
    share = f"{its[LIMIT]}, {100 * faster(its['regard'], its[LIMIT]).median:.0f}%" if LIMIT in its else ""
    return [title, *shown, f"{faster(its['regard'], best)}", bound, share]


def page(parts: dict[str, dict[str, dict[str, Times]]], count: int) -> str:
    """Return the measurement as Markdown."""

    def of(part: str, call: str) -> dict[str, Times]:
        return {name: calls[call] for name, calls in parts[part].items() if call in calls}

    import regard

    speed, encode = multiply_add_peak(THREADS), regard.load("minilm").tokenizer
    rows = [row(f"all 72 maps, {n} tokens", of("maps", f"{n} maps"), multiply_adds([n]) / speed) for n in LENGTHS]
    plain, mixed = of("maps", "plain"), of("mixed", "mixed")
    plain.pop("regard, lazy", None), plain.pop(LIMIT, None)
    one, every = [LENGTHS[0]], [len(encode(text).ids) for text in sentences(count)]
    rows.append(row(f"one sentence of {one[0]} tokens, nothing recorded", plain, multiply_adds(one) / speed))
    rows.append(row(f"{count:,} sentences to vectors", mixed, multiply_adds(every) / speed))
    rows.append(row(f"the same, whole process from `python` to the file, {count:,} lines", of("process", "process")))
    rounds = {part: len(next(iter(next(iter(calls.values())).values())).rounds) for part, calls in parts.items()}
    return "\n".join(
        [
            "# MiniLM",
            "",
            f"{machine()}; {THREADS} threads each; {datetime.date.today()}.",
            f"{versions('numpy', 'torch', 'transformers', 'onnxruntime')}.",
            f"{kernel_in_words()}. float32; medians of rounds that alternate",
            f"({', '.join(f'{part} {n}' for part, n in rounds.items())}), in brackets the middle half.",
            f"Made by `nox -s bench`{priority()}.",
            "",
            'Maps are arrays of weights in `regard` (`Trace(only="*.attn.weights")`), transformers (eager,',
            "`output_attentions=True`) and ONNX Runtime (exported from it, weights among the outputs). *Lazy* records",
            "q, k and the log-sum-exp of every layer in their place (`Trace(maps=True)`), from which any weight can be",
            "computed: it is not compared. Without maps the peers use PyTorch's fused attention. Tokenization is left",
            "out of the first four rows. Sentences have 3 to 200 words; peers run them sorted by length in batches of",
            f"{BATCH}, padded. The least is the time of the multiply-adds without padding at the most that both cores",
            f"do in registers, {speed / 1e9:.0f} thousand million a second, and its share of regard's. The limit is",
            "the time of the parts one after the other, measured in turn with the others: as many multiply-adds in a",
            "large product with packed weights, as many exponentials and activations in the cores' own caches, and the",
            "bytes of the maps, written to memory. Norms, weights from memory and the interpreter are not in it.",
            "",
            markdown(["", *SHOWN, "times as fast as the better peer", "the least", "the limit"], rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="MiniLM beside transformers and ONNX Runtime.")
    parser.add_argument("--smoke", action="store_true", help="two rounds of little; write nothing")
    parser.add_argument(
        "--part", choices=("maps", "mixed", "process"), help="measure one part, and keep it in --folder"
    )
    parser.add_argument("--folder", help="where the peer's files, and the parts measured so far, are")
    for hidden in ("--work", "--model", "--count"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--embed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--export", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        name = arguments.work
        runs = RUNS[name](int(arguments.count), arguments.folder)
        wanted = {known: run for known, run in runs.items() if (known == "mixed") == (arguments.model == "mixed")}
        return answer(wanted, SECONDS, warm_up=arguments.model != "mixed")
    if arguments.export:
        return export(arguments.folder)
    if arguments.embed:
        lines = Path(f"{arguments.folder}/lines.txt").read_text(encoding="utf-8").splitlines()
        plain = session(f"{arguments.folder}/plain.onnx")
        np.save(f"{arguments.folder}/onnx.npy", embed(lines, arguments.model, onnx_hidden(plain)))
        return None
    with tempfile.TemporaryDirectory() as temporary:
        measure(arguments, arguments.folder or temporary)
    return None


def measure(arguments: argparse.Namespace, folder: str) -> None:
    """Measure the parts that are wanted; write the table once all are there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    if not Path(folder, "plain.onnx").exists():
        subprocess.run([sys.executable, __file__, "--export", "--folder", folder], check=True)
    count = 40 if arguments.smoke else SENTENCES

    def alternated(part: str, names: Sequence[str], calls: Sequence[str], rounds: int) -> dict[str, dict[str, Times]]:
        options = ["--folder", folder, "--count", str(count), "--model", part]
        return alternate_processes(__file__, names, calls, rounds=rounds, threads=THREADS, options=options)

    parts: dict[str, Callable[[], dict[str, dict[str, Times]]]] = {
        "maps": lambda: alternated(
            "maps", [*RUNS], [*(f"{n} maps" for n in LENGTHS), "plain"], 2 if arguments.smoke else 12
        ),
        "mixed": lambda: alternated("mixed", ["regard", *PEERS], ["mixed"], 2 if arguments.smoke else 5),
        "process": lambda: measure_processes(folder, count, 2 if arguments.smoke else 5),
    }
    found = {}
    for part, run in parts.items():
        kept = Path(folder, f"{part}.json")
        if arguments.part in (None, part):
            kept.write_text(json.dumps(run()), encoding="utf-8")
        if kept.exists():
            stored = json.loads(kept.read_text(encoding="utf-8"))
            found[part] = {
                name: {call: Times(*rounds) for call, rounds in calls.items()} for name, calls in stored.items()
            }
    if len(found) < len(parts):
        print(f"measured: {', '.join(found)}; still missing: {', '.join(parts.keys() - found)}")
        return
    text = page(found, count)
    print(text)
    if not arguments.smoke:
        write_results("minilm.md", text)


if __name__ == "__main__":
    main()
