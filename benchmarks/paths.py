"""Graphs behind predictions beside EAP and EAP-IG in PyTorch: how much of a number they keep, and in what time.

Edge attribution patching (Syed et al. 2023) and with integrated gradients (Hanna et al. 2024, five steps) are written
here from the papers for a Llama in PyTorch: every query, key, value, feed-forward layer and the logits read a copy of
the residual stream, whose gradient times the change of each writer scores an edge. The graph grows from the logits by
the largest score and is pruned, so it may have fewer edges than asked for. The faithfulness of all graphs is measured
by the same runs with cut edges: the share of the number that remains. As more than 1 is as far off as less, what counts
is 1 − |1 − share|, at least 0. The search of regard measures that share itself while it chooses edges, EAP and EAP-IG
do not; so the share that is lost if only the graph is cut, by which none of them chooses, is reported too. Each has a
process of its own with one thread, they work in turns, and what is counted is the time of the processor.

    python benchmarks/paths.py               writes the tables of benchmarks/results/paths.md
    python benchmarks/paths.py --minutes 5   of each task as many prompts as 5 minutes allow
    python benchmarks/paths.py --smoke       one prompt of each, nothing written
"""

from __future__ import annotations

import argparse
import heapq
import math
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import date
from functools import cache
from typing import Any

import numpy as np
from _measure import interval, machine, markdown, versions, write_results
from circuit_prompts import Prompt, greater_years, indirect_objects

import regard
from regard.metrics.attribution_target import attributed_metric
from regard.metrics.edge_runs import INPUTS, EdgeRun, Reader
from regard.nn import parameters

SIZES = (10, 30, 100, 300)
STEPS = {"EAP-IG": 5, "EAP": 1}
CONTESTANTS = ("regard", *STEPS)
TASKS = ("indirect objects", "greater years")
Graph = set[tuple[Reader, str]]
Scores = dict[str, dict[str, float]]  # by reader and writer


class Peer:
    """SmolLM2 in PyTorch, with the weights of regard's model in float32."""

    def __init__(self, model: Any) -> None:
        import torch

        self.torch, self.config = torch, model.config
        self.weights = {name: torch.from_numpy(np.array(x, np.float32)) for name, x in parameters(model).items()}
        self.heads, self.groups = model.config.num_heads, model.blocks[0].attn.num_kv_heads

    def run(self, embeddings: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return the contextual vector of the last token, what each reader reads, and what each writer writes."""
        torch, w, H = self.torch, self.weights, self.heads
        T, eps = len(embeddings), self.config.norm_eps
        D = w["blocks.0.attn.q_proj.weight"].shape[1] // H
        angles = (
            torch.from_numpy(self.config.rope(np.arange(T), np.float32)[0]),
            torch.from_numpy(self.config.rope(np.arange(T), np.float32)[1]),
        )
        causal = torch.full((T, T), -torch.inf).triu(1)
        readers: dict[str, Any] = {}
        writers: dict[str, Any] = {"token embedding": embeddings}

        def norm(x: Any, name: str) -> Any:
            return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name]

        def read(name: str, x: Any, count: int) -> Any:
            copies = x.expand(count, *x.shape).clone() if count else x.clone()
            copies.retain_grad()
            readers[name] = copies
            return copies

        def of_heads(name: str) -> Any:  # H E D
            weight = w[name].reshape(w[name].shape[0], -1, D).permute(1, 0, 2)
            return weight.repeat_interleave(H // len(weight), 0)

        def rotated(x: Any) -> Any:
            first, second = x.chunk(2, -1)
            cos, sin = angles
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

        x = embeddings
        for i in range(len({name.split(".")[1] for name in w if name.startswith("blocks.")})):
            at = f"blocks.{i}"
            q, k, v = (
                norm(read(f"{i}{kind}", x, H), f"{at}.attn_norm.weight") @ of_heads(f"{at}.attn.{kind}_proj.weight")
                for kind in "qkv"
            )
            pattern = (rotated(q) @ rotated(k).mT / D**0.5 + causal).softmax(-1)
            outputs = pattern @ v @ w[f"{at}.attn.o_proj.weight"].reshape(H, D, -1)
            writers |= {f"L{i}H{head}": each for head, each in enumerate(outputs)}
            x = x + outputs.sum(0)
            y = norm(read(f"{i}mlp", x, 0), f"{at}.mlp_norm.weight")
            gate, up = (y @ w[f"{at}.mlp.{name}_proj.weight"] for name in ("gate", "up"))
            written = (torch.nn.functional.silu(gate) * up) @ w[f"{at}.mlp.down_proj.weight"]
            writers[f"L{i} MLP"] = written
            x = x + written
        return norm(read("logits", x, 0), "final_norm.weight")[-1], readers, writers

    def scores(self, text: list[int], other: list[int], number: Callable[[Any], Any], steps: int) -> Scores:
        """Return the score of every edge; one step is the gradient at the text alone."""
        torch, table = self.torch, self.weights["token_embedding.weight"]
        clean, corrupted = table[text], table[other]
        with torch.no_grad():
            changes = [self._written(each) for each in (clean, corrupted)]
        names = list(changes[0])
        change = torch.stack([changes[0][name] - changes[1][name] for name in names])  # N T E
        gradients: dict[str, Any] = {}
        for step in range(1, steps + 1):  # the last is the text itself
            point = (corrupted + step / steps * (clean - corrupted)).requires_grad_()
            vector, readers, _ = self.run(point)
            value = number(vector @ self._head())
            value.backward()
            for name, copies in readers.items():
                gradients[name] = gradients.get(name, 0) + copies.grad / steps
        self.value = float(value.detach())
        by_reader: Scores = {}
        order = {name: place for place, name in enumerate(names)}
        for name, gradient in gradients.items():
            each = gradient if gradient.ndim == 3 else gradient[None]
            layer = "".join(filter(str.isdigit, name))
            end = len(names) if name == "logits" else order[f"L{layer} MLP" if name.endswith("mlp") else f"L{layer}H0"]
            values = torch.einsum("nte,rte->rn", change[:end], each).tolist()
            for head, row in enumerate(values):
                label = f"{name}{head}" if len(values) > 1 else name
                by_reader[label] = dict(zip(names, row, strict=False))
        return by_reader

    def _written(self, embeddings: Any) -> dict[str, Any]:
        with self.torch.enable_grad():
            writers = self.run(embeddings.clone().requires_grad_())[2]
        return {name: x.detach() for name, x in writers.items()}

    def _head(self) -> Any:
        head = self.weights.get("lm_head.weight")
        return self.weights["token_embedding.weight"].T if head is None else head


def as_reader(name: str) -> Reader:
    """Return the reader that a label of `Peer.scores` names: 3q7, 12mlp or logits."""
    if name == "logits":
        return Reader("logits")
    if name.endswith("mlp"):
        return Reader("mlp", int(name[:-3]))
    kind = next(letter for letter in "qkv" if letter in name)
    layer, head = name.split(kind)
    return Reader(kind, int(layer), int(head))


def grown(scores: Scores, count: int) -> set[tuple[str, str]]:
    """Return edges from the logits backwards, the largest of those whose reader's node is in first; then pruned."""
    inputs: dict[str | None, list[str]] = {}
    for name in scores:
        node = as_reader(name).node
        inputs.setdefault(None if node is None else node.label, []).append(name)
    edges: set[tuple[str, str]] = set()
    reached: set[str | None] = set()
    heap: list[tuple[float, str, str]] = []

    def reach(node: str | None) -> None:
        if node not in reached:
            reached.add(node)
            for reader in inputs.get(node, []):
                for writer, score in scores[reader].items():
                    heapq.heappush(heap, (-abs(score), reader, writer))

    reach(None)
    while heap and len(edges) < count:
        _, reader, writer = heapq.heappop(heap)
        edges.add((reader, writer))
        reach(writer)
    while True:
        fed = {label for reader, _ in edges if (node := as_reader(reader).node) for label in [node.label]}
        kept = {edge for edge in edges if edge[1] == "token embedding" or edge[1] in fed}
        used = {writer for _, writer in kept}
        kept = {edge for edge in kept if (node := as_reader(edge[0]).node) is None or node.label in used}
        if kept == edges:
            return edges
        edges = kept


class Judge:
    """Runs of one prompt with cut edges."""

    def __init__(self, model: Any, prompt: Prompt) -> None:
        self.model, self.text = model, model.tokenizer(prompt.text)
        self.compute = attributed_metric(model, self.text, prompt.to, prompt.versus).compute
        self.run, other = regard.Trace(), regard.Trace()
        self.value = float(self.compute(model([self.text], trace=self.run)))
        self.baseline_value = float(self.compute(model([model.tokenizer(prompt.corrupted)], trace=other)))
        self.start = EdgeRun(other)
        stream = self.start.stream(model)[0]
        self.places = {writer.label: i for i, writer in enumerate(stream.writers)}

        self.readers = readers_of(model)

    def measure(self, edges: Graph) -> tuple[float, float, int]:
        """Return the share that some edges alone keep, the share lost if only they are cut, and their number."""
        return self.share(edges, cut=False), 1 - self.share(edges, cut=True), len(edges)

    def share(self, edges: Graph, *, cut: bool) -> float:
        """Return the share of the number that remains if all other edges are cut, or, with `cut`, only these."""
        kept = {reader: np.ones(len(self.places)) for reader in self.readers} if cut else {}
        for reader, writer in edges:
            kept.setdefault(reader, np.zeros(len(self.places)))[self.places[writer]] = not cut
        hidden = self.start.with_edges(self.run, kept).vectors(self.model)
        number = float(self.compute(self.model.output(hidden, (self.text,))))
        return (number - self.baseline_value) / (self.value - self.baseline_value)


def readers_of(model: Any) -> list[Reader]:
    """Return all readers of the residual stream."""
    layers, heads = range(len(model.blocks)), range(model.config.num_heads)
    inputs = [Reader(kind, layer, head) for layer in layers for kind in INPUTS for head in heads]
    return [*inputs, *(Reader("mlp", layer) for layer in layers), Reader("logits")]


def number_of(model: Any, prompt: Prompt) -> Callable[[Any], Any]:
    """Return the number as a function of logits of PyTorch."""
    if not callable(prompt.to):
        to, versus = (model.tokenizer(each).ids[-1] for each in (prompt.to, prompt.versus))
        return lambda logits: logits[to] - logits[versus]
    digits = [model.tokenizer(str(digit)).ids[-1] for digit in range(10)]
    decade = prompt.to.__defaults__[0]
    return lambda logits: logits[digits][decade + 1 :].mean() - logits[digits][: decade + 1].mean()


@cache
def loaded() -> Any:
    """Return SmolLM2, of this process."""
    regard.set_num_threads(1)
    return regard.load("smollm2", download=False)


@cache
def peer() -> Peer:
    """Return it in PyTorch."""
    import torch

    torch.set_num_threads(1)
    return Peer(loaded())


@cache
def prompts_of(task: str, count: int) -> list[Prompt]:
    """Return the prompts of a task."""
    return indirect_objects(count) if task == TASKS[0] else greater_years(count, loaded().tokenizer)


def work(name: str, task: str, place: int, count: int) -> tuple[list[Graph], float, float]:
    """Return the graphs of one contestant, the seconds of the processor for the largest, and the number."""
    model, prompt = loaded(), prompts_of(task, count)[place]
    if name == "regard":
        graphs = []
        for size in SIZES:
            start = time.process_time()
            found = model.paths(prompt.text, prompt.to, prompt.versus, corrupted=prompt.corrupted, edges=size)
            seconds = time.process_time() - start
            graphs.append({(edge.reader, edge.writer.label) for edge in found.edges})
        return graphs, seconds, found.value
    ids, other = (list(model.tokenizer(each).ids) for each in (prompt.text, prompt.corrupted))
    contestant, number = peer(), number_of(model, prompt)
    start = time.process_time()
    scores = contestant.scores(ids, other, number, STEPS[name])
    largest = grown(scores, SIZES[-1])
    seconds = time.process_time() - start
    pairs = [*(grown(scores, size) for size in SIZES[:-1]), largest]
    return [{(as_reader(reader), writer) for reader, writer in each} for each in pairs], seconds, contestant.value


def near(shares: np.ndarray) -> np.ndarray:
    """Return how near shares are to 1, at least 0."""
    return np.asarray(np.maximum(0, 1 - np.abs(1 - shares)))


def area(shares: np.ndarray) -> np.ndarray:
    """Return the area under `near` over the logarithm of the number of edges, for each prompt."""
    return np.asarray(np.trapezoid(near(shares), np.log(SIZES)) / np.log(SIZES[-1] / SIZES[0]))


def section(task: str, count: int, minutes: float, pools: dict[str, ProcessPoolExecutor]) -> str:
    """Return the tables of a task, of as many prompts as the minutes allow."""
    measured: dict[str, list[list[tuple[float, float, int]]]] = {name: [] for name in CONTESTANTS}
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    until = time.monotonic() + 60 * minutes
    for place, prompt in enumerate(prompts_of(task, count)):
        judge = Judge(loaded(), prompt)
        for name, pool in pools.items():
            graphs, taken, value = pool.submit(work, name, task, place, count).result()
            assert abs(value - judge.value) < 1e-3, (name, value, judge.value)
            seconds[name].append(taken)
            measured[name].append([judge.measure(graph) for graph in graphs])
        print(
            task,
            {name: (np.round(each[-1], 2).tolist(), seconds[name][-1]) for name, each in measured.items()},
            flush=True,
        )
        if time.monotonic() > until:
            break
    arrays = {name: np.moveaxis(np.array(each), -1, 0) for name, each in measured.items()}  # 3 P sizes each
    ours, rows, ahead = arrays["regard"], [], []
    for name, (kept, lost, counts) in arrays.items():
        cells = [
            f"{np.median(kept[:, i]):.2f} ({near(kept)[:, i].mean():.2f}); {np.median(lost[:, i]):.2f}; "
            f"{np.median(counts[:, i]):.0f}"
            for i in range(len(SIZES))
        ]
        rows.append([name, *cells, f"{np.median(seconds[name]):.2f} s"])
        cost = np.array(seconds["regard"]) / seconds[name]
        areas = area(kept), area(lost)
        ours_areas = area(ours[0]), area(ours[1])
        is_own = name == "regard"
        ahead.append(
            [
                name,
                *(interval(each) for each in areas),
                *("" if is_own else interval(a - b) for a, b in zip(ours_areas, areas, strict=True)),
                "" if is_own else interval(cost),
            ]
        )
    shares = markdown(["", *map(str, SIZES), "time"], rows)
    header = ["", "area, alone", "area, cut", "regard ahead, alone", "regard ahead, cut", "time of regard, times"]
    return f"## {task}, {len(seconds['regard'])} prompts\n\n{shares}\n\n{markdown(header, ahead)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="one prompt of each; writes nothing")
    parser.add_argument("--prompts", type=int, default=20, help="of each task")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most, for each task")
    arguments = parser.parse_args()
    count = 1 if arguments.smoke else arguments.prompts
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pools = {name: stack.enter_context(ProcessPoolExecutor(1, spawn)) for name in CONTESTANTS}
        for name, pool in pools.items():
            pool.submit(work, name, TASKS[0], 0, 1).result()  # loads the model and fills the caches
        sections = [section(task, count, arguments.minutes, pools) for task in TASKS]
    print(*sections, sep="\n\n")
    if arguments.smoke:
        return
    write_results(
        "paths.md",
        "# Graphs behind predictions\n\n"
        f"{machine()}; {date.today()}. {versions('numpy', 'torch')}. SmolLM2-135M, its weights widened to float32 for "
        "PyTorch.\n\n"
        "By number of edges asked for: the median share of the number that remains with the graph alone, in brackets "
        "the mean of 1 − |1 − share|, at least 0; the median share that is lost if only the graph is cut; and the "
        "median number of edges of the graph, in which EAP and EAP-IG have fewer than asked for after pruning. The "
        "area is that under 1 − |1 − share|, over the logarithm of the number of edges, with 95% intervals by the "
        "bootstrap over prompts: of the share that remains, and of that which is lost. The search of regard measures "
        "the share that remains while it chooses edges, and EAP and EAP-IG do not: the share that is lost is the "
        "comparison in which neither has an advantage. The time is that of the processor, of one thread, with other "
        "work on the machine, the median of a prompt: for regard that of the largest graph with its runs with cut "
        "edges, for the others that of the scores and all graphs, without such runs.\n\n" + "\n\n".join(sections),
    )


if __name__ == "__main__":
    main()
