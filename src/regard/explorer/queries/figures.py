"""Figures for print of what the page shows, and the Python that makes them again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from regard._utils.errors import RegardError
from regard.explorer.display_modes import MAX_WHOLE_TOKENS
from regard.explorer.query import Exploration, query
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


@query(slow=True)
def figure(
    exploration: Exploration,
    sides: Sequence[tuple[int, int, Side]],  # run, layer and head: one, or A and B; "all": the maps of all heads
    *,
    format: str = "pdf",  # or "svg", "png", or "py": the Python that writes the figure as PDF
    mode: str = "raw",  # the display mode; no other has figures
    special: bool = True,  # show special tokens
    words: bool = False,  # merge the tokens of words
    first: int = 0,  # the first token that is shown
    end: int | None = None,  # the first one after it that is not
    width: str = "column",  # or "page"
    caption: bool = False,
) -> bytes:
    """Return a figure for print of one map, of A, B and A − B, or of all heads.

    An error if there is no such run, layer, head, format or width; the run has no trace; or more than 2,048 tokens
    would be shown.
    """
    run_sides = [
        (exploration.run(run), layer, head)
        for run, layer, head in dict.fromkeys((run, layer, head) for run, layer, head in sides)
    ]
    for run, layer, head in run_sides:
        run.layer_map(layer, 0 if head == "all" else head)
    runs = [run for run, _, _ in run_sides]
    check_format(format)
    if not 1 <= len(runs) <= 2:
        raise RegardError(f"a figure is of one side or of two, not of {len(runs)}")
    if any(run.block(0) is not None for run in runs):
        raise RegardError("a figure is of one sequence, not of a text and its target: regard.plot draws their maps")
    if mode != "raw":
        raise RegardError("figures are of weights: choose Weights as the display mode")
    first, end = max((first, run.length if end is None else min(end, run.length)) for run in runs)
    selection = {"show_special_tokens": special, "merge_subwords": words, "width": width}
    selection = {name: value for name, value in selection.items() if value}
    arguments = {**_place(run_sides, first, end), **selection, **_caption(runs, caption)}
    if format == "py":
        return _script(run_sides, arguments, exploration.load_expression).encode()
    if end - first > MAX_WHOLE_TOKENS:
        raise RegardError(
            f"a figure shows at most {MAX_WHOLE_TOKENS:,} tokens, not {end - first:,}: choose some under Display"
        )
    from regard import plot
    from regard.plot.save import encode

    with DRAWING:
        drawn = plot.figure(*map(_shown_trace, runs), batch=[run.batch for run in runs], **arguments)
        return encode(drawn, format)


def _place(sides: Sequence[tuple[Run, int, Side]], first: int, end: int) -> dict[str, Any]:
    """Return the arguments of `regard.plot.figure` that say what is drawn."""
    heads = [head for _, _, head in sides]
    if "all" in heads:
        return {"head": "all"}
    place: dict[str, Any] = {"layer": _one_or_each([run.number(layer) for run, layer, _ in sides])}
    if (head := _one_or_each([None if head == "mean" else head for head in heads])) is not None:
        place["head"] = head
    if (first, end) != (0, max(run.length for run, _, _ in sides)):
        place["span"] = (first, end)
    return place


def _caption(runs: Sequence[Run], caption: bool) -> dict[str, Any]:
    """Return the arguments that say whether there is a caption, and its notes."""
    notes = tuple(run.title for run in runs)
    return {"caption": True, **({"notes": notes} if any(notes) else {})} if caption else {}


def _one_or_each(values: list[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else tuple(values)


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
