"""``regard TEXT``: which word looks at which."""

from __future__ import annotations

import argparse
import json
import time

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import has_colour, introduce, screen
from regard.cli.input import no_word, read_model, read_text, run_model
from regard.cli.output import write
from regard.cli.output_files import check_targets
from regard.models import Model
from regard.terminal import terminal_heatmap, terminal_table
from regard.trace import Trace
from regard.views import AttentionView, matching, readable, select, to_json


def run(arguments: argparse.Namespace) -> None:
    """Run a model on a text and print, draw or save what its words look at."""
    start = time.perf_counter()
    text = read_text(arguments)
    check_targets(arguments)
    model = read_model(arguments, [text])
    trace = run_model(model, text, _needed(arguments))
    seconds = time.perf_counter() - start
    if all(trace.encodings[0].special_tokens_mask) and not arguments.keep_special:
        raise RegardError("the text has no token but the special ones, which --keep-special shows")
    view = select(
        trace,
        layer=arguments.layer,
        head=arguments.head,
        keep_special=arguments.keep_special,
        words=arguments.words,
    )
    if arguments.word is not None:
        try:
            view = view.rows(matching(view, arguments.word))
        except RegardError:
            raise no_word(arguments.word, trace.encodings[0]) from None
    _write_files(arguments, trace)
    if arguments.json:
        write(json.dumps(to_json(view, top=arguments.top), allow_nan=False))
    else:
        _print(arguments, model, trace, view, seconds)


def _needed(arguments: argparse.Namespace) -> list[str] | None:
    """Return the names to record: only what is shown, unless everything is to be saved."""
    if arguments.save_file is not None:
        return None
    vectors = ["token_embeddings", "blocks.*.output"] if arguments.movement_file is not None else []
    return ["blocks.*.attn.weights", *vectors]


def _write_files(arguments: argparse.Namespace, trace: Trace) -> None:
    chosen = {"keep_special": arguments.keep_special, "words": arguments.words}
    if arguments.save_file is not None:
        trace.save(arguments.save_file)
    for path, kind in ((arguments.png_file, "png"), (arguments.svg_file, "svg")):
        if path is not None:
            from regard.plot import heatmap, save

            axes = heatmap(trace, layer=arguments.layer, head=arguments.head, theme=arguments.theme, **chosen)
            save(axes.figure, path, kind)
    if arguments.heads_file is not None:
        from regard.plot import head_grid, save

        save(head_grid(trace, theme=arguments.theme, **chosen), arguments.heads_file)
    if arguments.movement_file is not None:
        from regard.plot import movement, save

        axes = movement(trace, theme=arguments.theme, **chosen)
        save(axes.figure, arguments.movement_file)


def _print(
    arguments: argparse.Namespace,
    model: Model,
    trace: Trace,
    view: AttentionView,
    seconds: float,
) -> None:
    console = screen(arguments)
    layers, heads = model.config.num_layers, model.config.num_heads
    sizes = f"{_counted(layers, 'layer')} × {_counted(heads, 'head')}"
    introduce(console, model, f" · {sizes} · {_counted(len(trace.encodings[0]), 'token')} · {seconds:.2f} s")
    if which := _choice(arguments, view):
        console.print(Text(which))
    console.print()
    console.print(terminal_table(view, top=arguments.top), soft_wrap=True)
    if view.hidden_keys:
        console.print(
            Text(
                f"hidden: what goes to {', '.join(map(readable, view.hidden_keys))}; --keep-special shows it",
                style="dim",
            )
        )
    console.print()
    console.print(terminal_heatmap(view, width=console.width, colour=has_colour(console)), soft_wrap=True)


def _choice(arguments: argparse.Namespace, view: AttentionView) -> str:
    """Return which map is shown and, where nothing was asked for, why; "" where there is only one."""
    which = view.describe
    if len(view.layers) * view.heads <= 1:
        return ""
    if arguments.layer is not None or arguments.head is not None:
        return which
    return f"{which}: the last layer makes the vectors that leave the model, no head speaks for all (--layer, --head)"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
