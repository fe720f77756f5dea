"""``regard train TASK``: train a small model, or a loaded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, LazyChoices, argument, flag, option, options
from regard.cli.shared_options import Server, color, count, server, whole_number

with deferred_imports():
    import hashlib
    import shlex
    from pathlib import Path

    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import make_console
    from regard.cli.progress import bar
    from regard.cli.texts import read_file_or_input
    from regard.models import LanguageModel
    from regard.training import Step, Task, Trainable, TrainingResult, checkpoints, make_task, text_task, train
    from regard.training.objectives import MaskedWords, SequenceToSequence
    from regard.training.options import known_options
    from regard.training.run_folder import read_state
    from regard.views import escape

if TYPE_CHECKING:
    from regard.cli.watch import Watch

COMMAND = Command(
    place=10,
    summary="train a small model on a task or a text",
    usage="TASK|--file FILE [options]",
    examples="""\
  regard train induction
  regard train induction --watch
  regard train addition --folder sums --log sums.csv
  regard train --file book.txt --bpe 500
  regard train --file book.txt --masked --dropout 0.1""",
)

_NUM_WATCHED = 30  # checkpoints of a run that is watched, beside the first
_TEXT_OPTIONS = ("bpe", "masked", "context", "model")
_OPTIONS = ("steps", "learning_rate", "warmup", "weight_decay", "dropout", "label_smoothing", "accumulate")
_TRAINING = "training, by default as the task has it"  # group of options


def _tasks() -> Sequence[str]:
    from regard.training.tasks import TASKS

    return tuple(TASKS)


@options
class Options:
    """What is typed."""

    task: str | None = argument("TASK", "one of %(choices)s", nargs="?", choices=LazyChoices(_tasks))
    file: str | None = option("FILE", "learn to continue the text of a file, in place of a task")
    masked: bool = flag("learn to fill in masked tokens of the text")
    bpe: int | None = option("N", "a vocabulary of N byte pairs (characters)", type=count)
    context: int | None = option("N", "tokens of a sequence of the text (64)", type=count)
    model: str | None = option("NAME", "train a loaded model, on what it is made for (a new GPT)")
    folder: str | None = option("FOLDER", "where checkpoints are written (regard-TASK)")
    resume: bool = flag("continue the run in the folder")
    watch: bool = flag("see it learn: loss, maps and heads in the browser")
    server: Server = server()
    log: str | None = option("FILE", "write each step to FILE, .csv or .jsonl")
    steps: int | None = option("N", "updates", group=_TRAINING, type=count)
    batch_size: int | None = option("N", "sequences of a batch", group=_TRAINING, type=count)
    learning_rate: float | None = option("X", "the largest; it falls along a cosine", group=_TRAINING, type=float)
    warmup: int | None = option("N", "steps in which the learning rate rises", group=_TRAINING, type=whole_number)
    weight_decay: float | None = option("X", "of matrices and tables", group=_TRAINING, type=float)
    dropout: float | None = option("P", "probability with which a number is dropped (0)", group=_TRAINING, type=float)
    label_smoothing: float | None = option(
        "P", "probability given to all tokens evenly (0)", group=_TRAINING, type=float
    )
    accumulate: int | None = option("N", "batches of an update (1)", group=_TRAINING, type=count)
    checkpoint: bool = flag("compute blocks twice, which takes less memory", group=_TRAINING)
    evaluate_every: int | None = option("N", "steps between losses on held-out batches", group=_TRAINING, type=count)
    save_every: int | None = option(
        "N", "steps between checkpoints (a tenth of all; with --watch a thirtieth)", group=_TRAINING, type=count
    )
    seed: int | None = option("N", "of weights and batches (0)", group=_TRAINING, type=whole_number)
    color: str = color()


def run(options: Options) -> None:
    """Train a model on a task or on a text, and say where it was saved."""
    folder = Path(options.folder or f"regard-{_name(options)}")
    before = _resumed(folder) if options.resume else None
    seed: int = options.seed if options.seed is not None else 0 if before is None else before["options"].get("seed", 0)
    task, model, data = _task_and_model(options, seed, {} if before is None else before["data"])
    settings = _settings(options, seed, task, None if before is None else before["options"])
    every = max(1, settings["steps"] // 10)
    save_every = options.save_every or (max(1, settings["steps"] // _NUM_WATCHED) if options.watch else every)
    if options.server and not options.watch:
        raise RegardError("--port and --no-browser are for the page of --watch")
    if not options.resume and checkpoints(folder):
        raise RegardError(f"{folder} has a run already: --resume continues it, --folder names another")
    console = make_console(options.color)
    console.print(
        Text.assemble(
            (escape(task.name), "bold"), f" · {task.summary} · {_size(model)} numbers, {_steps(settings['steps'])}"
        )
    )
    console.print()

    def report(step: Step, left: float) -> None:
        if step.evaluation_loss is not None:
            console.print(
                Text(
                    f"step {step.step:>{len(str(settings['steps']))}}   loss {step.loss:.4f}   "
                    f"held out {step.evaluation_loss:.4f}   {_rate(step)} tokens/s   {_clock(left)} left"
                )
            )

    with _watch(folder, settings["steps"], options) as watch:
        with _progress(settings["steps"]) as progress:

            def both(step: Step, left: float) -> None:
                if watch is not None:
                    watch.start()
                report(step, left)
                if progress is not None:
                    progress(step, left)

            result = train(
                model,
                task.batches(seed),
                folder=folder,
                evaluation=task.held_out(),
                evaluate_every=options.evaluate_every or every,
                save_every=save_every,
                save_start=options.watch,
                resume=options.resume,
                log=options.log,
                data=data,
                progress=both,
                **settings,
            )
        console.print()
        console.print(Text(f"saved {escape(str(result.checkpoint))}"), soft_wrap=True)
        console.print(Text(f"next: {_next(result, task, folder)}"), soft_wrap=True)
        if result.interrupted:
            raise KeyboardInterrupt
        if watch is not None:
            watch.wait()


def _next(result: TrainingResult, task: Task, folder: Path) -> str:
    """Return the command that continues a run: to what was left of it, or to what it made."""
    if result.interrupted:
        return "the same command with --resume continues"
    made = shlex.quote(str(folder))
    if not isinstance(result.model, LanguageModel):
        return f"regard explore {made}"
    return f"regard generate {shlex.quote(task.example() or '…')} --model {made}"


def _watch(folder: Path, steps: int, options: Options) -> AbstractContextManager[Watch | None]:
    if not options.watch:
        return nullcontext()
    from regard.cli.watch import Watch

    return Watch(folder, steps, port=options.server.port, browser=not options.server.no_browser)


def _name(options: Options) -> str:
    """Return the name of the task; an error unless there is exactly one."""
    if (options.task is None) == (options.file is None):
        raise RegardError("give either a task, such as induction, or --file FILE")
    if options.task is None:
        return "masked" if options.masked else "text"
    for name in _TEXT_OPTIONS:
        if getattr(options, name):
            raise RegardError(f"--{name} is for --file FILE; a task has its own model")
    return str(options.task)


def _resumed(folder: Path) -> dict[str, Any] | None:
    """Return what the last checkpoint of a run has beside the model; None if there is none."""
    stored = checkpoints(folder)
    return read_state(list(stored.values())[-1]) if stored else None


def _task_and_model(options: Options, seed: int, before: Mapping[str, Any]) -> tuple[Task, Trainable, dict[str, Any]]:
    """Return the task, its model, and a description of the batches; what is not given is as before."""
    names = ("batch_size", *_TEXT_OPTIONS)
    data: dict[str, Any] = {name: getattr(options, name) or before.get(name) for name in names}
    if options.task is not None:
        data = {"task": options.task, "batch_size": data["batch_size"] or 64}
        task = make_task(options.task, batch_size=data["batch_size"])
        return task, task.new_model(seed), data
    assert options.file is not None  # `_name` has checked it
    text = read_file_or_input(options.file)
    data |= {"batch_size": data["batch_size"] or 32, "context": data["context"] or 64, "masked": bool(data["masked"])}
    if data["model"] and data["bpe"]:
        raise RegardError("--bpe is for a new model; that of --model has its tokenizer")
    if data["model"] and Path(data["model"]).exists():
        data["model"] = str(Path(data["model"]).resolve())  # so that the run can be resumed from any folder
    model = Trainable.from_model(data["model"], seed=seed) if data["model"] else None
    settings = {name: data[name] for name in ("batch_size", "masked", "bpe", "context")}
    if model is not None:
        if data["context"] > model.model.max_length:
            raise RegardError(f"{data['model']} permits {model.model.max_length} tokens: give --context at most that")
        is_encoder = isinstance(model.objective, MaskedWords)
        if settings["masked"] and not is_encoder:
            raise RegardError(f"{data['model']} does not predict masked words: leave out --masked")
        pairs = isinstance(model.objective, SequenceToSequence)
        settings |= {"masked": is_encoder, "pairs": pairs, "tokenizer": model.tokenizer}
    task = text_task(text, **settings)
    data = {"task": task.name, "text_sha256": hashlib.sha256(text.encode()).hexdigest(), **data}
    return task, model or task.new_model(seed), data


def _settings(options: Options, seed: int, task: Task, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of training: those given, and else those of the run that is resumed, or of the task."""
    overrides = {name: value for name in _OPTIONS if (value := getattr(options, name)) is not None}
    overrides |= {"seed": seed, **({"checkpoint": True} if options.checkpoint else {})}
    if before is not None:
        return {**known_options(before), **overrides}
    settings = {**task.options, **overrides}
    return {**settings, "warmup": overrides.get("warmup", min(settings["warmup"], settings["steps"] // 2))}


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
    """Yield a callback that draws a progress line; None without a terminal."""
    fields = "loss {task.fields[loss]}   {task.fields[rate]} tokens/s   {task.fields[left]} left"
    with bar(lambda rich: (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TextColumn(fields))) as shown:
        task = shown and shown.add_task("", total=total, loss="", rate="", left="")

        def update(step: Step, left: float) -> None:
            shown.update(task, completed=step.step, loss=f"{step.loss:.4f}", rate=_rate(step), left=_clock(left))

        yield shown and update
