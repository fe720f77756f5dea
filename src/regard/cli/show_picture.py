"""``regard PICTURE --model FOLDER``: which patches of a picture a token attends to."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import has_color, make_console, print_header
from regard.cli.input import choose_map, run_picture
from regard.cli.output import write
from regard.cli.output_files import Shown, check_length, required_steps, write_output_files
from regard.models import ImageModel
from regard.terminal import terminal_heatmap
from regard.views.patches import PatchView, select_patches

_OF_TEXTS = ("merge_subwords", "show_special_tokens")


def show_picture(arguments: argparse.Namespace, model: ImageModel, path: str) -> None:
    """Run a model on a picture; print, draw or save what one token attends to."""
    start = time.perf_counter()
    for option in _OF_TEXTS:
        if getattr(arguments, option):
            raise RegardError(f"--{option.replace('_', '-')} is for texts: leave it out with a picture")
    choose_map(arguments, model)
    check_length(arguments, model, model.config.num_tokens)
    steps = required_steps(arguments, "blocks.*.attn.weights", "picture")
    trace = run_picture(model, path, steps)
    seconds = time.perf_counter() - start
    view = select_patches(trace, query=arguments.word, layer=arguments.layer, head=arguments.head)
    write_output_files(Shown(trace, view), arguments)
    if arguments.json:
        write(json.dumps(_to_json(view, path, arguments), allow_nan=False))
        return
    console = make_console(arguments)
    layers, heads, (rows, columns) = model.config.num_layers, model.config.num_heads, model.config.grid
    print_header(console, model, f" · {layers} layers × {heads} heads · {rows} × {columns} patches · {seconds:.2f} s")
    console.print(Text(f"Attention of {view.query}: {view.describe}; --word, --layer and --head choose others"))
    console.print()
    console.print(Text(f"{view.query} attends most to {_most(view, arguments.top)}"))
    if view.others:
        console.print(Text(f"special: {view.rest:.2f} on {', '.join(view.others)}", style="dim"))
    console.print()
    console.print(terminal_heatmap(view.as_map(), width=console.width, color=has_color(console)), soft_wrap=True)


def _most(view: PatchView, top: int) -> str:
    """Return the patches of largest weight, in words."""
    columns = view.values.shape[1]
    order = np.argsort(-view.values, axis=None, kind="stable")[:top].tolist()
    return ", ".join(f"{view.values.flat[i]:.2f} r{i // columns}c{i % columns}" for i in order)


def _to_json(view: PatchView, path: str, arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "model": view.model,
        "picture": path,
        "query": view.query,
        "layer": arguments.layer,
        "head": arguments.head,
        "map": view.describe,
        "weights": view.values.tolist(),
        "special": view.rest,
    }
