"""Attribution patching beside activation patching on 30 prompts: their correlation over heads and over positions.

``python benchmarks/attribution_patching.py`` patches each head (the sum over positions) and each position after each
block of SmolLM2 on its own, in every fifth of its 30 layers, and compares the change of the difference of two logits
with the estimate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

import regard
from regard.metrics import attribution_patching
from regard.metrics.attribution_target import attributed_metric
from regard.models import Output
from regard.trace import Trace

COUNTRIES = {
    "France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens",
    "Spain": "Madrid", "Germany": "Berlin", "China": "Beijing", "England": "London",
}  # fmt: skip
FRAMES = ("The capital of {} is", "The largest city in {} is", "He moved to {} and lived in its capital,")


def prompts() -> Iterator[tuple[str, str, str, str]]:
    """Yield 30 of a text, one with another country, and the next tokens of both."""
    countries = list(COUNTRIES)
    for frame in FRAMES:
        for one, other in zip(countries, countries[1:] + countries[:1], strict=True):
            yield frame.format(one), frame.format(other), f" {COUNTRIES[one]}", f" {COUNTRIES[other]}"


def patched(before: np.ndarray, after: np.ndarray, index: Callable[[int], tuple[object, ...]]) -> np.ndarray:
    """Return `before` with the part `index(i)` of entry i replaced by that of the other run."""
    value = before.copy()
    for i in range(len(value)):
        value[i][index(i)] = after[0][index(i)]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--every", type=int, default=5, help="patch layers 0, N, 2 N …")
    arguments = parser.parse_args()
    model = regard.load(arguments.model, download=False)
    layers, heads = range(0, model.config.num_layers, arguments.every), model.config.num_heads
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"heads": [], "positions": []}
    for text, corrupted, to, versus in list(prompts())[: arguments.prompts]:
        estimated = attribution_patching(model, text, corrupted, to, versus=versus)
        clean, other = model.tokenizer(text), Trace(only=("blocks.*.attn.context", "blocks.*.output"))
        model(corrupted, trace=other)
        metric = attributed_metric(model, clean, to, versus)

        def changes(step: str, count: int, index: Callable[[int], tuple[object, ...]]) -> list[float]:
            after = other[step]  # noqa: B023
            output = model([clean] * count, edit={step: lambda x: patched(x, after, index)})  # noqa: B023
            each = (Output(output.hidden[i : i + 1], output.encodings[:1], output.head) for i in range(count))
            return [float(metric.compute(one)) - estimated.value for one in each]  # noqa: B023

        true_heads = [changes(f"blocks.{i}.attn.context", heads, lambda head: (head,)) for i in layers]
        true_positions = [changes(f"blocks.{i}.output", len(clean), lambda at: (at,)) for i in layers]
        found["heads"].append((estimated.heads()[layers], np.array(true_heads)))
        found["positions"].append((estimated.positions()[layers], np.array(true_positions)))
    for name, pairs in found.items():
        each = [np.corrcoef(ours.ravel(), true.ravel())[0, 1] for ours, true in pairs]
        ours, true = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
        low, middle, high = np.quantile(each, [0, 0.5, 1])
        print(
            f"{name}: correlation {np.corrcoef(ours, true)[0, 1]:.3f} over {len(each)} prompts; of each prompt "
            f"{low:.3f} to {high:.3f}, median {middle:.3f}"
        )


if __name__ == "__main__":
    main()
