"""Figures for print of what the page shows, and the Python that makes them again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard.explorer.display_modes import MAX_WHOLE_TOKENS
from regard.explorer.run import Run
from regard.trace import Trace

Side: TypeAlias = int | Literal["mean", "all"]
FORMATS = ("pdf", "svg", "png", "py")


def check_format(format: str) -> None:
    """Raise `RegardError` for a format that a figure has not."""
    if format not in FORMATS:
        raise RegardError(f"format is one of {', '.join(FORMATS)}, not {format[:40]!r}")


DRAWING = threading.Lock()
"""Held while a figure is drawn: matplotlib is of one thread."""


@dataclass(frozen=True)
class FigureOptions:
    """How a figure is drawn; see `Exploration.figure`."""

    mode: str
    special: bool
    words: bool
    first: int
    end: int | None
    width: str
    caption: bool


def draw_figure(
    sides: Sequence[tuple[Run, int, Side]],
    format: str,
    options: FigureOptions,
    load_expression: Callable[[Any], str],
) -> bytes:
    """Return the file of a figure, or with the format "py" the Python that writes it; see `Exploration.figure`.

    `load_expression` returns the Python that loads a model.
    """
    check_format(format)
    if not 1 <= len(sides) <= 2:
        raise RegardError(f"a figure is of one side or of two, not of {len(sides)}")
    if any(run.block(0) is not None for run, _, _ in sides):
        raise RegardError("a figure is of one sequence, not of a text and its target: regard.plot draws their maps")
    if options.mode != "raw":
        raise RegardError("figures are of weights: choose Weights as the display mode")
    arguments = _arguments(sides, options)
    if format == "py":
        return _script(sides, arguments, load_expression).encode()
    shown = max(_span(run, options)[1] - _span(run, options)[0] for run, _, _ in sides)
    if shown > MAX_WHOLE_TOKENS:
        raise RegardError(
            f"a figure shows at most {MAX_WHOLE_TOKENS:,} tokens, not {shown:,}: choose some under Display"
        )
    from regard.plot.figure import figure
    from regard.plot.save import encode

    with DRAWING:
        drawn = figure(
            *(_shown_trace(run) for run, _, _ in sides), batch=[run.batch for run, _, _ in sides], **arguments
        )
        return encode(drawn, format)


def _arguments(sides: Sequence[tuple[Run, int, Side]], options: FigureOptions) -> dict[str, Any]:
    """Return the arguments of `regard.plot.figure` that are not defaults, but for its sources and their batch."""
    arguments: dict[str, Any] = {}
    all_heads = any(head == "all" for _, _, head in sides)
    if all_heads:
        arguments["head"] = "all"
    else:
        arguments["layer"] = _one_or_each([run.number(layer) for run, layer, _ in sides])
        arguments["head"] = _one_or_each([None if head == "mean" else head for _, _, head in sides])
    first, end = max(_span(run, options) for run, _, _ in sides)
    if not all_heads and (first, end) != (0, max(run.length for run, _, _ in sides)):
        arguments["span"] = (first, end)
    notes = [run.title for run, _, _ in sides]
    selection = {"show_special_tokens": options.special, "merge_subwords": options.words, "width": options.width}
    return {
        **{name: value for name, value in arguments.items() if value is not None},
        **{name: value for name, value in selection.items() if value},
        **({"caption": True} if options.caption else {}),
        **({"notes": tuple(notes)} if options.caption and any(notes) else {}),
    }


def _one_or_each(values: list[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else tuple(values)


def _span(run: Run, options: FigureOptions) -> tuple[int, int]:
    return options.first, run.length if options.end is None else min(options.end, run.length)


def _scope(run: Run) -> str:
    """Return the part of the trace that is shown: "encoder" of an encoder-decoder, "" of another model."""
    return run.layers[0].name.partition("blocks.")[0].rstrip(".") if "blocks." in run.layers[0].name else ""


def _shown_trace(run: Run) -> Trace:
    return run.trace.subtrace(_scope(run)) if _scope(run) else run.trace


def _script(
    sides: Sequence[tuple[Run, int, Side]], arguments: dict[str, Any], load_expression: Callable[[Any], str]
) -> str:
    """Return the Python that draws a figure with these arguments."""
    runs = list({id(run): run for run, _, _ in sides}.values())
    traces = {id(run): name for run, name in zip(runs, ["trace"] if len(runs) == 1 else ["a", "b"], strict=True)}
    loaded = {run.model.name: load_expression(run.model) for run in runs if run.can_ablate}
    models = dict(zip(loaded, ["model"] if len(loaded) == 1 else ["model_a", "model_b"], strict=False))
    lines = ["import regard", "from regard.plot import figure, save", ""]
    lines += [f"{variable} = {loaded[name]}" for name, variable in models.items()]
    for run in runs:
        name = traces[id(run)]
        if run.can_ablate:
            edited = ", ".join(repr((run.layers[layer].name, head)) for layer, head in run.ablated)
            edit = f", edit=regard.edits.ablate({edited})" if edited else ""
            lines.append(f'{name} = regard.Trace(maps=True, only="*attn.weights"{edit})')
            lines.append(f"{models[run.model.name]}({run.encoding.text if run.encoding else ''!r}, trace={name})")
        else:
            lines.append(f'{name} = regard.Trace.load("run.safetensors")  # the trace that is explored')
        if _scope(run):
            lines.append(f"{name} = {name}.subtrace({_scope(run)!r})")
    sources = [traces[id(run)] for run, _, _ in sides]
    batches = _one_or_each([0 if run.can_ablate else run.batch for run, _, _ in sides])
    keywords = {**arguments, **({"batch": batches} if batches else {})}
    written = ", ".join([*sources, *(f"{name}={value!r}" for name, value in keywords.items())])
    return "\n".join([*lines, f"drawn = figure({written})", 'save(drawn, "attention.pdf")', ""])
