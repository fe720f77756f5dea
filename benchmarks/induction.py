"""How well and how fast the model `induction` is learned, from ten seeds.

python benchmarks/induction.py            ten seeds, and the table in benchmarks/results/induction.md
python benchmarks/induction.py --smoke    one seed and 20 steps, nothing written
python benchmarks/induction.py --check    train the packaged model again, and compare
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from _measure import machine, write_results

from regard import Trace, load, training
from regard.metrics import head_metrics
from regard.training.tasks import make_task, repeated_sequences

LENGTH, COUNT = 24, 32  # of the held-out sequences


def scores(model: object) -> tuple[float, float]:
    """Return the induction and previous-token measure of the heads that have most of them, on held-out sequences."""
    ids = repeated_sequences(np.random.default_rng([0, 1 << 33]), COUNT, LENGTH)
    trace = Trace(maps=True, only="*attn.weights")
    model(ids, trace=trace)  # type: ignore[operator]
    metrics = head_metrics(trace)
    return float(metrics.induction.mean(0).max()), float(metrics.previous_token.mean(0).max())


def head_scores(model: object) -> np.ndarray:
    """Return the induction measure of each head on held-out sequences, ``L H``."""
    ids = repeated_sequences(np.random.default_rng([0, 1 << 33]), COUNT, LENGTH)
    trace = Trace(maps=True, only="*attn.weights")
    model(ids, trace=trace)  # type: ignore[operator]
    return np.asarray(head_metrics(trace).induction.mean(0))


def check() -> None:
    """Train the packaged model again; its best head must do as well, and the best heads be alike."""
    task = make_task("induction")
    run = training.train(task.new_model(), task.batches(), evaluation=task.held_out(), **task.options)
    ours, again = head_scores(load("induction", download=False)), head_scores(run.model)
    loss = run.steps[-1].evaluation_loss
    print(f"best head {ours.max():.3f}, again {again.max():.3f}; {loss} nats")
    if loss is None or loss > 0.05 or min(ours.max(), again.max()) < 0.95 or abs(ours.max() - again.max()) > 0.03:
        raise SystemExit("the packaged model is not what its command makes")


def measure(seed: int, steps: int) -> list[float]:
    task = make_task("induction")
    model = task.new_model(seed)
    visible, spent = float("nan"), 0.0  # measuring is not part of the time

    def progress(step: training.Step, _: float) -> None:
        nonlocal visible, spent
        if step.step % 25 == 0 and np.isnan(visible):
            began = time.perf_counter()
            if scores(model.model)[0] >= 0.4:
                visible = step.seconds - spent
            spent += time.perf_counter() - began

    options = {**task.options, "steps": steps}
    run = training.train(model, task.batches(seed), evaluation=task.held_out(), progress=progress, **options)
    loss = run.steps[-1].evaluation_loss
    assert loss is not None
    return [*scores(run.model), loss, visible, run.steps[-1].seconds - spent]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one seed and 20 steps; writes nothing")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="compare the packaged model with one trained again")
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    smoke = arguments.smoke
    steps = int(make_task("induction").options["steps"])
    rows = []
    for seed in range(1 if smoke else arguments.seeds):
        rows.append(measure(seed, 20 if smoke else steps))
        print(seed, *(f"{x:.4f}" for x in rows[-1]), flush=True)
    if smoke:
        return
    lines = [
        f"| seed | induction | previous token | loss, nats | visible after, s | {steps} steps, s |",
        "|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {seed} | {a:.3f} | {b:.3f} | {loss:.4f} | {seen:.1f} | {all_:.1f} |"
            for seed, (a, b, loss, seen, all_) in enumerate(rows)
        ),
    ]
    worst = f"Least induction **{min(r[0] for r in rows):.3f}**, largest loss **{max(r[2] for r in rows):.4f}** nats."
    heading = f"# Learning the induction heads\n\n{str(__doc__).splitlines()[0]} {machine()}."
    write_results("induction.md", "\n\n".join([heading, "\n".join(lines), worst]))


if __name__ == "__main__":
    main()
