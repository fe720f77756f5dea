"""Whether the pairs that `why` names are what makes a head attend: subtracted from the score, and ablated in real runs.

For each prompt the heads that attend most from the last token to the one that decides are asked: induction heads to the
token after the earlier copy, heads that name the indirect object to it. The contrast is the score of that key less the
mean over all other keys, or, of indirect objects, also that less the score of the other name where it stands last. The
largest pairs are subtracted from the score in the softmax; then their writers are replaced by their medians over the
tokens of the text, in a real run: those of the query at the query, those of the key at the key. (Not by means: a
feed-forward layer of SmolLM2 writes a vector of length 22,000 at the first token and of 31 at the others; the mean over
14 tokens has 1,600, and in its place changes everything that follows.) What is measured is the share of the weight
above uniform that goes. Random pairs, and as many random writers of the same kind, beside: a head for a head of the
same layer, a feed-forward layer for one of a neighbouring layer. The token embeddings, of which there is one, are left
out of both. As no layer has two feed-forward layers, and the first of a model are hard to do without, the heads among
the writers are ablated alone too, beside random heads.

    python benchmarks/why.py            the table in benchmarks/results/why.md
    python benchmarks/why.py --smoke    two prompts of each, nothing written
"""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

import numpy as np
from _measure import machine, markdown, versions, write_results
from circuit_prompts import indirect_objects, repeated_ids

import regard
from regard.functional import score_pairs
from regard.metrics import Writer
from regard.metrics.attended_cell import AttendedCell

HALF = 12  # tokens of a repeated text
HEADS = 2  # asked of each prompt
STEPS = {"head": "blocks.{}.attn.context", "mlp": "blocks.{}.mlp.output", "token_embeddings": "token_embeddings"}

ENOUGH = 0.9  # of the weight above uniform
Change = tuple[str, int, int]  # a step, a head or −1, and a position


def share_removed(before: float, after: Any, keys: int) -> Any:
    """Return the share of a weight above uniform that is gone."""
    return (before - after) / (before - 1 / keys)


def measure(
    model: Any, ids: np.ndarray, key: int, versus: int | None, pairs: int, rng: np.random.Generator
) -> list[list[float]]:
    """Return for each head a row, see `measure_head`."""
    trace = regard.Trace()
    model(ids, trace=trace)
    query = len(ids) - 1
    weights = np.stack([trace[f"blocks.{i}.attn.weights"][0, :, query, key] for i in range(len(model.blocks))])
    weights[0] = 0  # whose writers are the embeddings alone
    return [
        measure_head(
            model, ids, trace, (int(at) // weights.shape[1], int(at) % weights.shape[1], query, key), versus, pairs, rng
        )
        for at in np.argsort(-weights, axis=None)[:HEADS]
    ]


def measure_head(
    model: Any,
    ids: np.ndarray,
    trace: regard.Trace,
    at: tuple[int, int, int, int],
    versus: int | None,
    pairs: int,
    rng: np.random.Generator,
) -> list[float]:
    """Return the shares removed by pairs, writers and their heads, random ones after each; weight; counts."""
    layer, head, query, key = at
    others = [other for other in range(query + 1) if other != key] if versus is None else [versus]
    cell = AttendedCell.find(trace, layer, head, query, [key, *others], 0, None)
    projected = cell.project()
    (query_writers, q), (key_writers, k) = cell.query_parts(projected), cell.key_parts(projected)
    matrix = score_pairs(q, k[:, 0] - k[:, 1:].mean(1), scale=projected.scale)
    row = trace[f"blocks.{layer}.attn.weights"][0, head, query].astype(np.float64)
    order = np.argsort(-matrix, axis=None)
    largest = order[:pairs]
    drawn = rng.choice(matrix.size, pairs, replace=False)

    def without(score: Any) -> Any:
        factor = np.exp(-score)
        after = row[key] * factor / (1 - row[key] + row[key] * factor)
        return share_removed(row[key], after, query + 1)

    rows, columns = np.unravel_index(largest, matrix.shape)
    writers = {(query_writers[i], query) for i in rows} | {(key_writers[j], key) for j in columns}
    changes = {change for writer, position in writers if (change := place_of(writer, position))}
    changes = {change for change in changes if change[0] != STEPS["token_embeddings"]}
    controls = controls_of(model, changes, layer, rng)

    def ablated(chosen: set[Change]) -> float:
        if not chosen:
            return np.nan
        run = regard.Trace(
            only=f"blocks.{layer}.attn.weights", stop=f"blocks.{layer}.attn.weights", edit=edit_of(chosen)
        )
        model(ids, trace=run)
        return float(share_removed(row[key], run[f"blocks.{layer}.attn.weights"][0, head, query, key], query + 1))

    return [
        *(without(matrix.flat[largest].sum()), without(matrix.flat[drawn].sum())),
        *(ablated(each) for each in (changes, controls, heads_of(changes), heads_of(controls))),
        *(float(row[key]), len(changes), len(controls)),
        1 + int((without(np.cumsum(matrix.flat[order])) >= ENOUGH).argmax()),
    ]


def heads_of(changes: set[Change]) -> set[Change]:
    """Return those of heads."""
    return {change for change in changes if change[1] >= 0}


def place_of(writer: Writer, position: int) -> Change | None:
    """Return what a writer wrote as a step; None for a bias."""
    step = STEPS.get(writer.kind)
    return None if step is None else (step.format(writer.layer), writer.index, position)


def controls_of(model: Any, changes: set[Change], before: int, rng: np.random.Generator) -> set[Change]:
    """Return a random writer that was not named for each change, of its kind and at its position, and none twice.

    A head is one of the same layer; a feed-forward layer is the nearest one before the attention of a layer, at random
    of two. Where none is free there is none.
    """
    used = set(changes)
    for step, head, position in sorted(changes):
        layer = int(step.split(".")[1])
        if head >= 0:
            free = [(step, other, position) for other in range(model.config.num_heads)]
        else:
            near = sorted(range(before), key=lambda other: (abs(other - layer), other))
            free = [(STEPS["mlp"].format(other), -1, position) for other in near]
        free = [change for change in free if change not in used]
        if free:
            used.add(free[int(rng.integers(len(free) if head >= 0 else min(2, len(free))))])
    return used - changes


def edit_of(changes: set[Change]) -> dict[str, Any]:
    """Return the edits that replace what some writers wrote at a position by its median over the text."""

    def replaced(value: np.ndarray, parts: list[tuple[int, int]]) -> np.ndarray:
        typical = np.median(value, -2)
        for head, position in parts:
            at = (0, position) if head < 0 else (0, head, position)
            value[at] = typical[at[:-1]]
        return value

    by_step: dict[str, list[tuple[int, int]]] = {}
    for step, head, position in sorted(changes):
        by_step.setdefault(step, []).append((head, position))
    return {step: lambda value, parts=parts: replaced(value, parts) for step, parts in by_step.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two prompts of each; writes nothing")
    parser.add_argument("--prompts", type=int, default=100)
    arguments = parser.parse_args()
    count, rows = 2 if arguments.smoke else arguments.prompts, []
    smollm2, induction = regard.load("smollm2", download=False), regard.load("induction")
    words = np.arange(1000, 20_000)
    repeated: dict[str, tuple[Any, np.ndarray, int]] = {
        "induction, SmolLM2": (smollm2, repeated_ids(count, HALF, words), 10),
        "induction, `induction`": (induction, repeated_ids(count, HALF, np.arange(induction.config.vocab_size)), 2),
    }
    cases: dict[str, list[tuple[Any, np.ndarray, int, int | None, int]]]
    cases = {
        name: [(model, ids[:-1], HALF - 1, None, pairs) for ids in each]
        for name, (model, each, pairs) in repeated.items()
    }
    names: list[tuple[Any, np.ndarray, int, int | None, int]] = []
    for prompt in indirect_objects(count):
        ids = np.array(smollm2.tokenizer(prompt.text).ids)
        to, versus = (smollm2.tokenizer(name).ids[-1] for name in (prompt.to, prompt.versus))
        names.append((smollm2, ids, int(np.flatnonzero(ids == to)[0]), int(np.flatnonzero(ids == versus)[-1]), 10))
    cases["indirect objects, SmolLM2"] = [(*each[:3], None, each[4]) for each in names]
    cases["the same, against the other name"] = names
    for name, prompts in cases.items():
        measured = (measure(*prompt, np.random.default_rng(n)) for n, prompt in enumerate(prompts))
        each = np.array([row for rows_of_prompt in measured for row in rows_of_prompt])
        low, middle, high = np.nanquantile(each, (0.25, 0.5, 0.75), axis=0)
        rows.append(
            [name, str(len(prompts)), f"{middle[6]:.2f}"]
            + [f"{100 * middle[i]:.1f}% ({100 * low[i]:.1f} to {100 * high[i]:.1f})" for i in range(6)]
            + [f"{each[:, 7].mean():.1f}, {each[:, 8].mean():.1f}"]
            + [f"{middle[9]:.0f} ({low[9]:.0f} to {high[9]:.0f})"]
        )
        print(*rows[-1], sep="  ", flush=True)
    if arguments.smoke:
        return
    columns = ("largest pairs", "random pairs", "their writers", "random writers", "heads alone", "random heads")
    header = ["prompts", "number", "weight", *columns, "writers", "pairs for 90%"]
    write_results(
        "why.md",
        f"# Whether the pairs are what makes a head attend\n\n{machine()}; {date.today()}. {versions('numpy')}.\n\n"
        f"The share of the attended weight above uniform that goes, medians over {HEADS} heads of each prompt, in "
        "brackets the quartiles. Ten pairs are subtracted, of `induction` two; then their writers but the token "
        "embeddings are replaced in real runs, by their medians over the tokens. A random writer is of the same kind: "
        "a head of the same layer, a feed-forward layer near it; then the heads among both alone. The last columns "
        "have the mean numbers of writers and of random writers that were replaced, and how many of the largest pairs "
        "take away 90%. Against the other name a pair is of the difference of two scores, those of both names.\n\n"
        + markdown(header, rows),
    )


if __name__ == "__main__":
    main()
