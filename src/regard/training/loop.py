"""The training loop."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional import native
from regard.functional.dropout import check_rate
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.nn import value_and_gradients
from regard.training.batches import IGNORED, Batch, Batches, as_batch, check_batches, from_batch
from regard.training.dropout import DropoutRecorder
from regard.training.log import Log, Step
from regard.training.optimizer import AdamW, clip_scale, global_norm
from regard.training.run_folder import checkpoints, load_checkpoint, open_losses, save_checkpoint
from regard.training.schedules import Schedule, schedule_factor
from regard.training.trainable import Trainable


@dataclass(frozen=True)
class TrainingResult:
    """A finished or interrupted run of training.

    Parameters
    ----------
    model : TextModel
        The trained model.
    steps : tuple of Step
        Those of this call: a resumed run has the steps after its checkpoint.
    checkpoint : path, optional
        The last checkpoint, a folder that `regard.load` and transformers load.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    model: TextModel
    steps: tuple[Step, ...]
    checkpoint: Path | None
    interrupted: bool


def train(
    model: Trainable | TextModel | str | os.PathLike[str],
    batches: Batches,
    *,
    steps: int,
    folder: str | os.PathLike[str] | None = None,
    learning_rate: float = 3e-4,
    schedule: Schedule = "cosine",
    warmup: int = 0,
    floor: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    max_norm: float | None = 1.0,
    accumulate: int = 1,
    dropout: float = 0.0,
    label_smoothing: float = 0.0,
    checkpoint: bool = False,
    evaluation: Sequence[Any] = (),
    evaluate_every: int | None = None,
    save_every: int | None = None,
    save_start: bool = False,
    resume: bool = False,
    seed: int = 0,
    log: str | os.PathLike[str] | None = None,
    progress: Callable[[Step, float], None] | None = None,
) -> TrainingResult:
    """Train a model with AdamW.

    Ctrl-C ends after the current step, and saves; a second one ends at once.

    Parameters
    ----------
    model
        A new model of `regard.training.new_model`, or a loaded one, or the name or folder of one, which is copied in
        float32. A decoder learns to predict the next token, a BERT with its head masked words.
    batches
        An iterable of batches, or a function from the number of a batch, from 0, to the batch. A batch is an array of
        ids, ``B T``; a list of texts; a pair of ids and targets, ``B T`` each, where the target −100 does not count; or
        a `regard.training.Batch`.
    steps : int
        How many updates the whole run has. It ends earlier where an iterable ends.
    folder
        Where checkpoints are written, and the loss of every step in ``losses.csv``; without it nothing is.
        `TrainingRun` reads it.
    learning_rate : float
        The largest.
    schedule : {"cosine", "constant"}
        How it goes on after `warmup` steps in which it rises linearly; a cosine falls to `floor` × `learning_rate`.
    betas, eps, weight_decay
        Of `AdamW`. Biases and norms do not decay.
    max_norm : float, optional
        The gradient is scaled down to this Euclidean norm; None: never.
    accumulate : int
        Batches of one update: the loss is that of one large batch, the mean over all of their targets.
    dropout : float
        The probability with which embeddings, attention weights, and what attention and feed-forward add, are dropped.
    label_smoothing : float
        As `regard.functional.cross_entropy` takes it; not in the evaluation.
    checkpoint : bool
        Compute each block again for its gradient in place of keeping what it computes.
    evaluation : sequence of batches
        Held-out batches, whose loss is computed every `evaluate_every` steps and after the last.
    save_every : int, optional
        Steps between checkpoints; there is one after the last step in any case.
    save_start : bool
        Save the model before its first step too.
    resume : bool
        Continue from the last checkpoint in `folder`, if there is one: the run then has the bits of one that was not
        interrupted. Of an iterable the batches before it are passed over.
    seed : int
        Of dropout.
    log
        A file to which each step is written, ``.csv`` or ``.jsonl``.
    progress : function, optional
        Called after each step with the step and the seconds that are left.

    Raises
    ------
    RegardError
        An argument is invalid; the model cannot be trained; `folder` has a run and `resume` is not set, or a run of
        another model; or the loss is not finite.

    References
    ----------
    Loshchilov and Hutter (2019), https://arxiv.org/abs/1711.05101, for AdamW; Pascanu et al. (2013),
    https://arxiv.org/abs/1211.5063, for clipping.
    """
    steps, accumulate = whole_number("steps", steps, 1), whole_number("accumulate", accumulate, 1)
    warmup, seed = whole_number("warmup", warmup, 0), whole_number("seed", seed, 0)
    every = {"evaluate_every": evaluate_every, "save_every": save_every}
    evaluate_every, save_every = (
        steps if value is None else whole_number(name, value, 1) for name, value in every.items()
    )
    for name, value in {"learning_rate": learning_rate, "weight_decay": weight_decay, "floor": floor}.items():
        if finite_number(name, value) < 0:
            raise RegardError(f"{name} must be at least 0, got {value!r}")
    check_rate(dropout)
    check_batches(batches)
    schedule_factor(0, steps=steps, schedule=schedule)
    run_folder = None if folder is None else Path(folder)
    if resume and run_folder is None:
        raise RegardError("resume needs the folder of the run")

    trainable = Trainable.of(model)
    optimizer = AdamW(
        trainable.values.size,
        trainable.decayed,
        trainable.values.dtype,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
    )
    start, saved = 0, None
    found = {} if run_folder is None else checkpoints(run_folder)
    if found and not resume:
        raise RegardError(f"{run_folder} has a run already: resume it, or give another folder")
    if found:
        start, saved = list(found.items())[-1]
        state = load_checkpoint(saved, trainable, optimizer)
        if (state["accumulate"], state["seed"]) != (accumulate, seed):
            raise RegardError(f"the run in {run_folder} has accumulate={state['accumulate']} and seed={state['seed']}")

    def to_batch(item: Any) -> Batch:
        return as_batch(item, trainable.tokenizer, trainable.model.max_length)

    held_out = [to_batch(item) for item in evaluation]
    source = map(to_batch, from_batch(batches, start * accumulate)) if start < steps else iter(())
    embeddings = "normed_embeddings" if hasattr(trainable.model, "embedding_norm") else "embeddings"
    constants: dict[str, Any] = {"steps": steps, "accumulate": accumulate, "seed": seed}
    if held_out:
        constants["held_out"] = _first_text(held_out[0])

    def save(step: int, **more: float) -> Path | None:
        if run_folder is None:
            return None
        return save_checkpoint(run_folder, trainable, optimizer, {"step": step, **constants, **more})

    writers = [] if log is None else [Log(log, start)]
    if run_folder is not None:
        writers.append(open_losses(run_folder, start))
    if save_start and start == 0:
        saved = save(0)
    done: list[Step] = []
    began, tokens = time.perf_counter(), 0
    try:
        with _interrupts() as interrupted, native.kept_buffers():
            for step in range(start, steps):
                parts = list(islice(source, accumulate))
                if len(parts) < accumulate:
                    break
                rate = learning_rate * schedule_factor(step, steps=steps, warmup=warmup, schedule=schedule, floor=floor)
                traces: Iterable[Recorder] = (
                    DropoutRecorder(dropout, (seed, step, i), embeddings=embeddings) if dropout else NULL_RECORDER
                    for i in range(accumulate)
                )
                loss = _add_gradients(trainable, parts, traces, label_smoothing, checkpoint)
                norm = global_norm(trainable.gradient)
                if not (math.isfinite(loss) and math.isfinite(norm)):
                    raise RegardError(
                        f"the loss of step {step + 1} is {loss}, its gradient {norm}: lower the learning rate"
                    )
                optimizer.step(trainable.values, trainable.gradient, rate, scale=clip_scale(norm, max_norm))
                tokens, seconds = tokens + sum(part.ids.size for part in parts), time.perf_counter() - began
                is_last = step + 1 == steps or bool(interrupted)
                evaluates = held_out and (is_last or (step + 1) % evaluate_every == 0)
                done.append(
                    Step(
                        step=step + 1,
                        loss=loss,
                        evaluation_loss=evaluate(trainable, held_out) if evaluates else None,
                        learning_rate=rate,
                        gradient_norm=norm,
                        tokens=sum(part.ids.size for part in parts),
                        seconds=seconds,
                        tokens_per_second=tokens / seconds,
                    )
                )
                for writer in writers:
                    writer.write(done[-1])
                if progress is not None:
                    progress(done[-1], done[-1].seconds / len(done) * (steps - step - 1))
                if is_last or (step + 1) % save_every == 0:
                    saved = save(step + 1, loss=loss)
                if interrupted:
                    break
            last = done[-1].step if done else start
            if run_folder is not None and last not in checkpoints(run_folder):  # the batches ended, or Ctrl-C came late
                saved = save(last)
    finally:
        for writer in writers:
            writer.close()
    return TrainingResult(trainable.model, tuple(done), saved, bool(interrupted))


def evaluate(trainable: Trainable, batches: Sequence[Batch]) -> float:
    """Return the mean cross-entropy of all targets, in nats."""
    total, count = 0.0, 0
    for batch in batches:
        logits, targets = trainable.objective(batch)
        total += float(F.cross_entropy(logits, targets, reduction="sum"))
        count += batch.num_targets
    return total / max(count, 1)


def _first_text(batch: Batch) -> list[int]:
    """Return the ids of the first text of a batch, without padding."""
    is_text = batch.targets[0] != IGNORED if batch.mask is None else batch.mask[0]
    (places,) = is_text.nonzero()
    return [int(i) for i in batch.ids[0, : places[-1] + 1]] if len(places) else []


def _add_gradients(
    trainable: Trainable, parts: Sequence[Batch], traces: Iterable[Recorder], label_smoothing: float, checkpoint: bool
) -> float:
    """Make the gradient of the mean loss of all targets, and return that loss."""
    trainable.zero_gradient()
    count = sum(part.num_targets for part in parts)
    if not count:
        raise RegardError("a step has no targets: nothing can be learned from its batches")
    loss = 0.0
    for batch, trace in zip(parts, traces, strict=True):

        def compute(objective: Any, batch: Batch = batch, trace: Recorder = trace) -> Any:
            logits, targets = objective(batch, trace=trace)
            summed = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
            return summed / np.asarray(count, trainable.values.dtype)

        if batch.num_targets:
            part, gradients = value_and_gradients(trainable.objective, compute, checkpoint=checkpoint)
            trainable.add_gradients(gradients)
            loss += part
    return loss


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Yield a list to which the first Ctrl-C is added; a second one does what Ctrl-C did before."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: Any) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    if before in (signal.SIG_IGN, None):
        yield seen
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
