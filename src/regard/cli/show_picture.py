"""``regard PICTURE --model FOLDER``: which patches of a picture a token attends to."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import has_color, open_page
from regard.cli.input import resolve_map, run_picture
from regard.cli.options import given_options
from regard.cli.output import write_json
from regard.cli.output_files import Writer
from regard.cli.shared_options import MapChoice
from regard.models import ImageModel
from regard.terminal import terminal_heatmap
from regard.trace import Trace
from regard.views import AttentionView
from regard.views.patches import PatchView, select_patches

if TYPE_CHECKING:
    from regard.cli.commands.show import Options

_OF_TEXTS = ("--merge-subwords", "--show-special-tokens")


def show_picture(
    options: Options, model: ImageModel, path: str, write_files: Callable[[Trace, AttentionView, Writer], None]
) -> None:
    """Run a model on a picture; print, draw or save what one token attends to.

    `write_files` takes the trace, the map and what draws it.
    """
    start = time.perf_counter()
    for option in given_options(options, *_OF_TEXTS):
        raise RegardError(f"{option} is for texts: leave it out with a picture")
    choice = resolve_map(options.map, model)
    options.files.check_length(model, model.config.num_tokens)
    steps = options.files.required_steps("blocks.*.attn.weights", "picture")
    trace = run_picture(model, path, steps)
    seconds = time.perf_counter() - start
    view = select_patches(trace, query=options.word, layer=choice.layer, head=choice.head)
    write_files(trace, view.as_map(), partial(_draw, view, options.theme))
    if options.json:
        write_json(_to_json(view, path, choice))
        return
    layers, heads, (rows, columns) = model.config.num_layers, model.config.num_heads, model.config.grid
    sizes = f"{layers} layers × {heads} heads · {rows} × {columns} patches"
    console = open_page(options.color, model, f" · {sizes} · {seconds:.2f} s")
    console.print(Text(f"Attention of {view.query}: {view.describe}; --word, --layer and --head choose others"))
    console.print()
    console.print(Text(f"{view.query} attends most to {_most(view, options.top)}"))
    if view.others:
        console.print(Text(f"special: {view.rest:.2f} on {', '.join(view.others)}", style="dim"))
    console.print()
    console.print(terminal_heatmap(view.as_map(), width=console.width, color=has_color(console)), soft_wrap=True)


def _draw(view: PatchView, theme: str, path: str) -> None:
    from regard.plot import picture, save

    save(picture(view, theme=theme).figure, path)


def _most(view: PatchView, top: int) -> str:
    """Return the patches of largest weight, in words."""
    columns = view.values.shape[1]
    order = np.argsort(-view.values, axis=None, kind="stable")[:top].tolist()
    return ", ".join(f"{view.values.flat[i]:.2f} r{i // columns}c{i % columns}" for i in order)


def _to_json(view: PatchView, path: str, choice: MapChoice) -> dict[str, object]:
    return {
        "model": view.model,
        "picture": path,
        "query": view.query,
        "layer": choice.layer,
        "head": choice.head,
        "map": view.describe,
        "weights": view.values.tolist(),
        "special": view.rest,
    }
