"""The training loop."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional import native
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models import TextModel
from regard.nn import value_and_gradients
from regard.training.batches import IGNORED, Batch, Batches, check_batches, from_batch
from regard.training.dropout import DropoutRecorder
from regard.training.log import Log, Step
from regard.training.objectives import count_tokens
from regard.training.optimizer import AdamW, clip_scale, global_norm
from regard.training.options import TrainingOptions, check_options, check_same_run, describe_run
from regard.training.run_folder import checkpoints, load_checkpoint, open_losses, read_state, save_checkpoint
from regard.training.run_lock import locked
from regard.training.schedules import Schedule
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
    trainable : Trainable
        What can be trained on: the model, of an encoder with its head.
    """

    model: TextModel
    steps: tuple[Step, ...]
    checkpoint: Path | None
    interrupted: bool
    trainable: Trainable


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
    data: Mapping[str, Any] | None = None,
    log: str | os.PathLike[str] | None = None,
    progress: Callable[[Step, float], None] | None = None,
) -> TrainingResult:
    """Train a model with AdamW.

    Ctrl-C ends after the current step, and saves; a second one ends at once.

    Parameters
    ----------
    model
        A new model of `regard.training.new_model`, or a loaded one, or the name or folder of one, which is copied in
        float32. A decoder learns to predict the next token, an encoder masked words, an encoder-decoder its target.
    batches
        An iterable of batches, or a function from the number of a batch, from 0, to the batch. A batch is an array of
        ids, ``B T``; a list of texts; a pair of ids and targets, ``B T`` each, where the target −100 does not count; or
        a `regard.training.Batch`. For an encoder it is what `mask_words` returns, of an encoder-decoder a pair of
        sources and targets, each ids or texts.
    steps : int
        How many updates the whole run has. It ends earlier where an iterable ends; batches that do not fill an update
        are left out.
    folder
        Where checkpoints are written, and the loss of every step in ``losses.csv``; without it nothing is.
        `TrainingRun` reads it. One run is in a folder at a time.
    learning_rate : float
        The largest.
    schedule : {"cosine", "constant"}
        How it continues after `warmup` steps in which it rises linearly; a cosine falls to `floor` × `learning_rate`.
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
        interrupted. For an iterable the batches before it are passed over. What determines the numbers, from `steps` to
        `checkpoint`, `seed` and `data`, is that of the run; only one whose steps are all done may continue with more.
    seed : int
        Of dropout.
    data : mapping, optional
        What the batches are, such as the name of a data set: stored in each checkpoint, so that no run is resumed with
        others.
    log
        A file to which each step is written, ``.csv`` or ``.jsonl``.
    progress : function, optional
        Called after each step with the step and the seconds that are left.

    Raises
    ------
    RegardError
        An argument is invalid; the model cannot be trained; there is no batch; `folder` has a run and `resume` is not
        set, or a run with other options, of other data or another model, or one that is training now; or a loss is not
        finite.

    References
    ----------
    Loshchilov and Hutter (2019), https://arxiv.org/abs/1711.05101, for AdamW; Pascanu et al. (2013),
    https://arxiv.org/abs/1211.5063, for clipping.
    """
    options = check_options(
        steps=steps,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup=warmup,
        floor=floor,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        max_norm=max_norm,
        accumulate=accumulate,
        dropout=dropout,
        label_smoothing=label_smoothing,
        checkpoint=checkpoint,
        seed=seed,
    )
    run = describe_run(options, data)
    every = {"evaluate_every": evaluate_every, "save_every": save_every}
    evaluate_every, save_every = (
        options.steps if value is None else whole_number(name, value, 1) for name, value in every.items()
    )
    check_batches(batches)
    run_folder = None if folder is None else Path(folder)
    if folder is not None and (os.fspath(folder) == "" or "\0" in str(folder)):
        raise RegardError(f"folder is the name of a folder, got {folder!r}")
    if resume and run_folder is None:
        raise RegardError("resume needs the folder of the run")

    trainable = Trainable.from_model(model, seed=options.seed)
    held_out = _held_out(evaluation, trainable)
    constants: dict[str, Any] = {**run, "held_out": _first_text(held_out[0])} if held_out else {**run}
    optimizer = AdamW(
        trainable.values.size,
        trainable.decayed,
        trainable.values.dtype,
        betas=options.betas,
        eps=options.eps,
        weight_decay=options.weight_decay,
    )

    def save(step: int, **more: float) -> Path | None:
        if run_folder is None:
            return None
        return save_checkpoint(run_folder, trainable, optimizer, {"step": step, **constants, **more})

    writers: list[Log] = []
    done: list[Step] = []
    with nullcontext() if run_folder is None else locked(run_folder):
        start, saved = _start(run_folder, run, trainable, optimizer, resume=resume)
        updates = _updates(from_batch(batches, start * options.accumulate), options.accumulate, options.steps - start)
        first = list(islice(updates, 1))
        if not first and start == 0:
            raise RegardError(f"there are no batches: an update needs {options.accumulate}")
        try:
            if log is not None:
                writers.append(Log(log, start))
            if run_folder is not None:
                writers.append(open_losses(run_folder, start))
            if save_start and start == 0:
                saved = save(0)
            began, tokens = time.perf_counter(), 0
            with _interrupts() as interrupted, native.kept_buffers():
                for step, (items, ends) in enumerate(chain(first, updates), start):
                    parts = [_to_batch(item, trainable) for item in items]
                    loss, norm = _update(trainable, optimizer, options, step, parts)
                    num_tokens = sum(count_tokens(trainable.objective, part) for part in parts)
                    tokens, seconds = tokens + num_tokens, time.perf_counter() - began
                    is_last = ends or bool(interrupted)
                    evaluates = held_out and (is_last or (step + 1) % evaluate_every == 0)
                    evaluation_loss = evaluate(trainable, held_out) if evaluates else None
                    _check_finite(step, {"the held-out loss": evaluation_loss})
                    if is_last and not evaluates:  # of a diverged step only the next loss shows it
                        _check_finite(step, {"the loss after it": evaluate(trainable, parts)})
                    done.append(
                        Step(
                            step=step + 1,
                            loss=loss,
                            evaluation_loss=evaluation_loss,
                            learning_rate=options.rate(step),
                            gradient_norm=norm,
                            tokens=num_tokens,
                            seconds=seconds,
                            tokens_per_second=tokens / seconds,
                        )
                    )
                    for writer in writers:
                        writer.write(done[-1])
                    if progress is not None:
                        progress(done[-1], done[-1].seconds / len(done) * (options.steps - step - 1))
                    if is_last or (step + 1) % save_every == 0:
                        saved = save(step + 1, loss=loss)
                    if interrupted:
                        break
                last = done[-1].step if done else start
                if run_folder is not None and last not in checkpoints(run_folder):  # Ctrl-C came late
                    saved = save(last)
        finally:
            for writer in writers:
                writer.close()
    return TrainingResult(trainable.model, tuple(done), saved, bool(interrupted), trainable)


def _start(
    folder: Path | None, run: Mapping[str, Any], trainable: Trainable, optimizer: AdamW, *, resume: bool
) -> tuple[int, Path | None]:
    """Return the step after which a run continues, and its checkpoint, which is read; 0 and None for a new one."""
    stored = {} if folder is None else checkpoints(folder)
    if folder is None or not stored:
        return 0, None
    if not resume:
        raise RegardError(f"{folder} has a run already: resume it, or give another folder")
    step, path = list(stored.items())[-1]
    check_same_run(folder, read_state(path), run)
    load_checkpoint(path, trainable, optimizer)
    return step, path


def _to_batch(item: Any, trainable: Trainable) -> Batch:
    return trainable.objective.as_batch(item)


def _held_out(evaluation: Sequence[Any], trainable: Trainable) -> list[Batch]:
    """Return the batches of an evaluation; an error if there is nothing to predict in one."""
    if isinstance(evaluation, str) or not isinstance(evaluation, Iterable):
        raise RegardError(f"evaluation must be a sequence of batches, got {evaluation!r:.80}")
    held_out = [_to_batch(item, trainable) for item in evaluation]
    empty = [str(i) for i, batch in enumerate(held_out) if not batch.num_targets]
    if empty:
        raise RegardError(f"the evaluation has no targets in batch {', '.join(empty)}: leave it out")
    return held_out


def _updates(items: Iterator[Any], accumulate: int, count: int) -> Iterator[tuple[list[Any], bool]]:
    """Yield the batches of each of at most `count` updates, and whether it is the last: one more is looked at."""
    following = list(islice(items, accumulate)) if count > 0 else []
    for left in reversed(range(count)):
        parts, following = following, list(islice(items, accumulate)) if left else []
        if len(parts) < accumulate:
            return
        yield parts, len(following) < accumulate


def _update(
    trainable: Trainable, optimizer: AdamW, options: TrainingOptions, step: int, parts: Sequence[Batch]
) -> tuple[float, float]:
    """Update a model, and return the loss before and the norm of its gradient."""
    traces: Iterable[Recorder] = (
        DropoutRecorder(options.dropout, (options.seed, step, i), embeddings=trainable.objective.embeddings_tap)
        if options.dropout
        else NULL_RECORDER
        for i in range(len(parts))
    )
    loss = _add_gradients(trainable, parts, traces, options.label_smoothing, options.checkpoint)
    norm = global_norm(trainable.gradient)
    _check_finite(step, {"the loss": loss, "the norm of the gradient": norm})
    optimizer.step(trainable.values, trainable.gradient, options.rate(step), scale=clip_scale(norm, options.max_norm))
    trainable.update_computed()
    return loss, norm


def _check_finite(step: int, values: Mapping[str, float | None]) -> None:
    wrong = [f"{name} is {x}" for name, x in values.items() if x is not None and not math.isfinite(x)]
    if wrong:
        raise RegardError(f"in step {step + 1} {' and '.join(wrong)}: lower the learning rate")


def evaluate(trainable: Trainable, batches: Sequence[Batch]) -> float:
    """Return the mean cross-entropy of all targets, in nats."""
    total, count = 0.0, 0
    for batch in (each for each in batches if each.num_targets):
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
