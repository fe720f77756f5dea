"""MiniLM with its attention recorded: regard beside transformers on PyTorch and ONNX Runtime.

Each runs in a process of its own that stays, with the same weights, ids and number of threads. They take turns within
one run, a round for each length; the result is the ratio within a round, because the speed of a machine drifts slowly.
regard records the queries, keys and log-sum-exp of every layer (`Trace(maps=True)`), from which any weight can be had;
the others return the weights themselves, as transformers does with `output_attentions=True`. Tokenization is left out.

    python benchmarks/minilm.py            30 rounds, and the table in benchmarks/results/minilm.md
    python benchmarks/minilm.py --smoke    three rounds, nothing written
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Times, alternate_processes, answer, faster, kernel_in_words, machine, markdown, versions

LENGTHS = (8, 32, 128, 512)
THREADS = 2
SECONDS = 0.15  # of a round, at least one run
RESULTS = Path(__file__).parent / "results" / "minilm.md"

Run = Callable[[], Any]


def regard_run(only: str | None) -> Callable[[list[int]], Run]:
    """Return what makes a run of regard that records the steps of this name; all of them without one."""
    import regard

    regard.set_num_threads(THREADS)
    model = regard.load("minilm")

    def prepared(ids: list[int]) -> Run:
        text = model.tokenizer.from_ids(ids)
        return lambda: model(text, trace=regard.Trace(maps=True, only=only))

    return prepared


def transformers_model() -> Any:
    import torch
    from transformers import AutoModel

    from regard.models.hub import resolve

    torch.set_num_threads(THREADS)
    return AutoModel.from_pretrained(str(resolve.find("minilm")), attn_implementation="eager").eval()


def transformers_run() -> Callable[[list[int]], Run]:
    import torch

    model = transformers_model()

    def prepared(ids: list[int]) -> Run:
        tensor = torch.tensor([ids])

        def run() -> Any:
            with torch.inference_mode():
                return model(input_ids=tensor, output_attentions=True)

        return run

    return prepared


def onnx_run() -> Callable[[list[int]], Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "minilm.onnx")
        export(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids: lambda: session.run(None, {"ids": np.array([ids])})


def export(path: str) -> None:
    """Write the transformers model as ONNX, with the weights of every layer among its outputs."""
    import warnings

    import torch

    class Whole(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers_model()

        def forward(self, ids: Any) -> Any:
            output = self.model(input_ids=ids, output_attentions=True)
            return output.last_hidden_state, *output.attentions

    whole = Whole()
    names = ["hidden", *(f"weights.{i}" for i in range(whole.model.config.num_hidden_layers))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            whole, (torch.randint(1000, 20000, (1, 8)),), path, dynamo=False, opset_version=17,
            input_names=["ids"], output_names=names, dynamic_axes={"ids": {1: "T"}},
        )  # fmt: skip


RUNS: dict[str, Callable[[], Callable[[list[int]], Run]]] = {
    "regard": lambda: regard_run("*.attn.weights"),
    "regard, every step": lambda: regard_run(None),
    "transformers": transformers_run,
    "ONNX Runtime": onnx_run,
}
PEERS = ("transformers", "ONNX Runtime")


def work(name: str) -> None:
    """Be the process of one of them."""
    prepared = RUNS[name]()
    rng = np.random.default_rng(0)
    answer({str(n): prepared([int(i) for i in rng.integers(1000, 20000, n)]) for n in LENGTHS}, SECONDS)


def page(times: dict[str, dict[str, Times]]) -> str:
    """Return the measurement as Markdown."""
    rows = []
    for length in LENGTHS:
        its = {name: by_length[str(length)] for name, by_length in times.items()}
        best = Times([min(pair) for pair in zip(*(its[peer].rounds for peer in PEERS), strict=True)])
        ratios = [f"{faster(its[ours], best)}" for ours in RUNS if ours not in PEERS]
        rows.append([f"{length}", *(f"{its[name]}" for name in RUNS), *ratios])
    rounds = len(times["regard"][str(LENGTHS[0])].rounds)
    return "\n".join(
        [
            "# MiniLM with its attention recorded",
            "",
            f"{machine()}; {THREADS} threads each. {versions('numpy', 'torch', 'transformers', 'onnxruntime')}.",
            f"{kernel_in_words()}. float32, one text, tokenization left out; medians of {rounds} rounds that",
            "alternate, in brackets the middle half. Made by `nox -s bench`.",
            "",
            '`regard` records q, k and the log-sum-exp of every layer, `Trace(maps=True, only="*.attn.weights")`;',
            "*every step* all other taps too, `Trace(maps=True)`. transformers (eager, `output_attentions=True`) and",
            "ONNX Runtime (exported from it, weights among the outputs) return the weights of every layer.",
            "",
            markdown(["tokens", *RUNS, "times as fast as the better peer", "and with every step"], rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="MiniLM, recorded, beside transformers and ONNX Runtime.")
    parser.add_argument("--smoke", action="store_true", help="three rounds; write nothing")
    parser.add_argument("--work", choices=RUNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    rounds = 3 if arguments.smoke else 30
    text = page(alternate_processes(__file__, RUNS, [str(n) for n in LENGTHS], rounds=rounds, threads=THREADS))
    print(text)
    if not arguments.smoke:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
