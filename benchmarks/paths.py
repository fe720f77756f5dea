"""Graphs behind predictions beside EAP and EAP-IG in PyTorch: how much of a number they keep, and in what time.

Edge attribution patching (Syed et al. 2023) and with integrated gradients (Hanna et al. 2024, five steps) are written
here from the papers for a Llama in PyTorch: every query, key, value, feed-forward layer and the logits read a copy of
the residual stream, whose gradient times the change of each writer scores an edge. The graph grows from the logits by
the largest score and is pruned, so it may have fewer edges than asked for. The faithfulness of all graphs is measured
by the same runs with cut edges: the share of the number that remains. As more than 1 is as far off as less, what counts
is 1 − |1 − share|, at least 0. The search of regard measures that share itself while it chooses edges, EAP and EAP-IG
do not; so the share that is lost if only the graph is cut, by which none of them chooses, is reported too.

    python benchmarks/paths.py            writes the tables of benchmarks/results/paths.md, not measured yet
    python benchmarks/paths.py --smoke    one prompt of each at two sizes, nothing written
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
from _measure import machine, markdown, versions, write_results
from circuit_prompts import Prompt, greater_years, indirect_objects

import regard
from regard.metrics.attribution_target import attributed_metric
from regard.metrics.edge_runs import INPUTS, EdgeRun, Reader
from regard.nn import parameters

SIZES = (10, 30, 100, 300)
STEPS = 5
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
        self.written, self.places = stream.values, {writer.label: i for i, writer in enumerate(stream.writers)}

        self.readers = readers_of(model)

    def measure(self, edges: set[tuple[Reader, str]]) -> tuple[float, float, int]:
        """Return the share that some edges alone keep, the share lost if only they are cut, and their number."""
        return self.share(edges, cut=False), 1 - self.share(edges, cut=True), len(edges)

    def share(self, edges: set[tuple[Reader, str]], *, cut: bool) -> float:
        """Return the share of the number that remains if all other edges are cut, or, with `cut`, only these."""
        kept = {reader: np.ones(len(self.places)) for reader in self.readers} if cut else {}
        for reader, writer in edges:
            kept.setdefault(reader, np.zeros(len(self.places)))[self.places[writer]] = not cut
        hidden = self.start.with_edges(self.run, self.written, kept).vectors(self.model)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one prompt of each at two sizes; writes nothing")
    parser.add_argument("--prompts", type=int, default=20, help="of each task")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(2)
    regard.set_num_threads(2)
    model = regard.load("smollm2", download=False)
    peer = Peer(model)
    count, sizes = (1, SIZES[:2]) if arguments.smoke else (arguments.prompts, SIZES)
    tasks = {
        "indirect objects": indirect_objects(count),
        "greater years": greater_years(count, model.tokenizer),
    }
    sections = []
    for task, prompts in tasks.items():
        measured: dict[str, list[list[tuple[float, float, int]]]] = {"regard": [], "EAP-IG": [], "EAP": []}
        seconds: dict[str, list[float]] = {name: [] for name in measured}
        for prompt in prompts:
            judge, number = Judge(model, prompt), number_of(model, prompt)
            ids, other = (list(model.tokenizer(each).ids) for each in (prompt.text, prompt.corrupted))
            graphs_of_sizes = []
            for size in sizes:
                start = time.perf_counter()
                graphs_of_sizes.append(
                    model.paths(prompt.text, prompt.to, prompt.versus, corrupted=prompt.corrupted, edges=size)
                )
            seconds["regard"].append(time.perf_counter() - start)  # of the largest graph, with its checks
            measured["regard"].append(
                [judge.measure({(e.reader, e.writer.label) for e in each.edges}) for each in graphs_of_sizes]
            )
            for name, steps in (("EAP-IG", STEPS), ("EAP", 1)):
                start = time.perf_counter()
                scores = peer.scores(ids, other, number, steps)
                assert abs(peer.value - judge.value) < 1e-3, (peer.value, judge.value)
                graphs = [grown(scores, size) for size in sizes]
                seconds[name].append(time.perf_counter() - start)
                measured[name].append([judge.measure({(as_reader(r), w) for r, w in graph}) for graph in graphs])
            print(task, {name: np.round(each[-1], 2).tolist() for name, each in measured.items()}, flush=True)
        rows = []
        for name, each in measured.items():
            array, lost, counts = np.moveaxis(np.array(each), -1, 0)
            near = np.maximum(0, 1 - np.abs(1 - array))
            area = np.trapezoid(near.mean(0), np.log(sizes)) / np.log(sizes[-1] / sizes[0])
            cells = [
                f"{np.median(array[:, i]):.2f} ({near[:, i].mean():.2f}); {np.median(lost[:, i]):.2f}; "
                f"{np.median(counts[:, i]):.0f}"
                for i in range(len(sizes))
            ]
            rows.append([name, *cells, f"{area:.3f}", f"{np.median(seconds[name]):.1f} s"])
        sections.append(
            f"## {task}, {len(prompts)} prompts\n\n" + markdown(["", *map(str, sizes), "area", "time"], rows)
        )
        print(sections[-1], flush=True)
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
        "area is that under 1 − |1 − share|, over the logarithm of the number of edges. The search of regard measures "
        "the share that remains while it chooses edges, and EAP and EAP-IG do not: the share that is lost is the "
        "comparison in which neither has an advantage. The time is the median of a prompt: for regard that of the "
        "largest graph with its runs with cut edges, for the others that of the scores and all graphs, without such "
        "runs.\n\n" + "\n\n".join(sections),
    )


if __name__ == "__main__":
    main()
