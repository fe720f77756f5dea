"""``regard train TASK``: train a small model, or a loaded one."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import make_console
from regard.cli.texts import read_file_or_input
from regard.models import LanguageModel
from regard.training import Step, Task, Trainable, TrainingResult, checkpoints, make_task, text_task, train
from regard.training.objectives import MaskedWords, SequenceToSequence
from regard.training.options import known_options
from regard.training.run_folder import read_state
from regard.views import escape

if TYPE_CHECKING:
    from regard.cli.watch import Watch

_NUM_WATCHED = 30  # checkpoints of a run that is watched, beside the first
_TEXT_OPTIONS = ("bpe", "masked", "context", "model")
_OPTIONS = ("steps", "learning_rate", "warmup", "weight_decay", "dropout", "label_smoothing", "accumulate", "seed")


def run(arguments: argparse.Namespace) -> None:
    """Train a model on a task or on a text, and say where it was saved."""
    folder = Path(arguments.folder or f"regard-{_name(arguments)}")
    before = _resumed(folder) if arguments.resume else None
    if arguments.seed is None:
        arguments.seed = 0 if before is None else before["options"].get("seed", 0)
    task, model, data = _task_and_model(arguments, {} if before is None else before["data"])
    options = _options(arguments, task, None if before is None else before["options"])
    every = max(1, options["steps"] // 10)
    save_every = arguments.save_every or (max(1, options["steps"] // _NUM_WATCHED) if arguments.watch else every)
    if (arguments.port is not None or arguments.no_browser) and not arguments.watch:
        raise RegardError("--port and --no-browser are for the page of --watch")
    if not arguments.resume and checkpoints(folder):
        raise RegardError(f"{folder} has a run already: --resume continues it, --folder names another")
    console = make_console(arguments)
    console.print(
        Text.assemble(
            (escape(task.name), "bold"), f" · {task.summary} · {_size(model)} numbers, {_steps(options['steps'])}"
        )
    )
    console.print()

    def report(step: Step, left: float) -> None:
        if step.evaluation_loss is not None:
            console.print(
                Text(
                    f"step {step.step:>{len(str(options['steps']))}}   loss {step.loss:.4f}   "
                    f"held out {step.evaluation_loss:.4f}   {_rate(step)} tokens/s   {_clock(left)} left"
                )
            )

    with _watch(folder, options["steps"], arguments) as watch:
        with _progress(options["steps"]) as progress:

            def both(step: Step, left: float) -> None:
                if watch is not None:
                    watch.start()
                report(step, left)
                if progress is not None:
                    progress(step, left)

            result = train(
                model,
                task.batches(arguments.seed),
                folder=folder,
                evaluation=task.held_out(),
                evaluate_every=arguments.evaluate_every or every,
                save_every=save_every,
                save_start=arguments.watch,
                resume=arguments.resume,
                log=arguments.log,
                data=data,
                progress=both,
                **options,
            )
        console.print()
        console.print(Text(f"saved {escape(str(result.checkpoint))}"), soft_wrap=True)
        console.print(Text(f"next: {_next(result, folder)}"), soft_wrap=True)
        if result.interrupted:
            raise KeyboardInterrupt
        if watch is not None:
            watch.wait()


def _next(result: TrainingResult, folder: Path) -> str:
    """Return the command that goes on from a run: to what was left of it, or to what it made."""
    if result.interrupted:
        return "the same command with --resume continues"
    made = shlex.quote(str(folder))
    return (
        f'regard generate "…" --model {made}' if isinstance(result.model, LanguageModel) else f"regard explore {made}"
    )


def _watch(folder: Path, steps: int, arguments: argparse.Namespace) -> AbstractContextManager[Watch | None]:
    if not arguments.watch:
        return nullcontext()
    from regard.cli.watch import Watch

    return Watch(folder, steps, port=arguments.port, browser=not arguments.no_browser)


def _name(arguments: argparse.Namespace) -> str:
    """Return the name of the task; an error unless there is exactly one."""
    if (arguments.task is None) == (arguments.text is None):
        raise RegardError("give either a task, such as induction, or --text FILE")
    if arguments.task is None:
        return "masked" if arguments.masked else "text"
    for name in _TEXT_OPTIONS:
        if getattr(arguments, name):
            raise RegardError(f"--{name} is for --text FILE; a task has its own model")
    return str(arguments.task)


def _resumed(folder: Path) -> dict[str, Any] | None:
    """Return what the last checkpoint of a run has beside the model; None if there is none."""
    found = checkpoints(folder)
    return read_state(list(found.values())[-1]) if found else None


def _task_and_model(arguments: argparse.Namespace, before: Mapping[str, Any]) -> tuple[Task, Trainable, dict[str, Any]]:
    """Return the task, its model, and a description of the batches; what is not given is as before."""
    names = ("batch_size", *_TEXT_OPTIONS)
    data: dict[str, Any] = {name: getattr(arguments, name) or before.get(name) for name in names}
    if arguments.task is not None:
        data = {"task": arguments.task, "batch_size": data["batch_size"] or 64}
        task = make_task(arguments.task, batch_size=data["batch_size"])
        return task, task.new_model(arguments.seed), data
    text = read_file_or_input(arguments.text)
    data |= {"batch_size": data["batch_size"] or 32, "context": data["context"] or 64, "masked": bool(data["masked"])}
    if data["model"] and data["bpe"]:
        raise RegardError("--bpe is for a new model; that of --model has its tokenizer")
    if data["model"] and Path(data["model"]).exists():
        data["model"] = str(Path(data["model"]).resolve())  # so that the run can be resumed from any folder
    model = Trainable.of(data["model"], seed=arguments.seed) if data["model"] else None
    options = {name: data[name] for name in ("batch_size", "masked", "bpe", "context")}
    if model is not None:
        if data["context"] > model.model.max_length:
            raise RegardError(f"{data['model']} permits {model.model.max_length} tokens: give --context at most that")
        is_encoder = isinstance(model.objective, MaskedWords)
        if options["masked"] and not is_encoder:
            raise RegardError(f"{data['model']} does not predict masked words: leave out --masked")
        pairs = isinstance(model.objective, SequenceToSequence)
        options |= {"masked": is_encoder, "pairs": pairs, "tokenizer": model.tokenizer}
    task = text_task(text, **options)
    data = {"task": task.name, "text_sha256": hashlib.sha256(text.encode()).hexdigest(), **data}
    return task, model or task.new_model(arguments.seed), data


def _options(arguments: argparse.Namespace, task: Task, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of training: those given, and else those of the run that is resumed, or of the task."""
    given = {name: value for name in _OPTIONS if (value := getattr(arguments, name)) is not None}
    given |= {"checkpoint": True} if arguments.checkpoint else {}
    if before is not None:
        return {**known_options(before), **given}
    options = {**task.options, **given}
    return {**options, "warmup": given.get("warmup", min(options["warmup"], options["steps"] // 2))}


def _size(model: Trainable) -> str:
    return f"{sum(x.size for x in model.tensors.values()):,}"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _rate(step: Step) -> str:
    return f"{step.tokens_per_second:,.0f}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Step, float], None] | None]:
    """Yield a callback that draws a progress line on standard error; None where that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    shown = TextColumn("loss {task.fields[loss]}   {task.fields[rate]} tokens/s   {task.fields[left]} left")
    bar = Progress(BarColumn(), MofNCompleteColumn(), shown, console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task("", total=total, loss="", rate="", left="")

        def update(step: Step, left: float) -> None:
            bar.update(task, completed=step.step, loss=f"{step.loss:.4f}", rate=_rate(step), left=_clock(left))

        yield update
