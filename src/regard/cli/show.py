"""``regard TEXT``: which words each word attends to."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import has_color, make_console, print_header
from regard.cli.input import check_word, choose_map, load_model, run_model
from regard.cli.output import write
from regard.cli.output_files import Shown, check_length, check_output_files, required_steps, write_output_files
from regard.cli.show_picture import show_picture
from regard.cli.texts import read_text
from regard.models import ImageModel, Model
from regard.terminal import terminal_heatmap, terminal_table
from regard.trace import Trace
from regard.views import AttentionView, escape, select, to_json
from regard.views.trace_access import format_range

_MAX_JSON_TOKENS = 2048
_BYTES_PER_WEIGHT = 12  # of a view: a weight in float64, whether it is masked, and a picture or the largest of a row


def run(arguments: argparse.Namespace) -> None:
    """Run a model on a text; print, draw or save its attention."""
    start = time.perf_counter()
    text = read_text(arguments)
    check_output_files(arguments)
    _check_print(arguments)
    model = load_model(arguments, [text], pictures=True)
    if isinstance(model, ImageModel):
        if arguments.width is not None:
            raise RegardError("--width is for maps of texts: leave it out for a picture")
        show_picture(arguments, model, text)
        return
    choose_map(arguments, model)
    encoding = model.tokenizer(text)
    if arguments.truncate and len(encoding) > (most := getattr(model, "max_length", len(encoding))):
        encoding = encoding.truncated(most)
    options = {"show_special_tokens": arguments.show_special_tokens, "merge_subwords": arguments.merge_subwords}
    if len(encoding) and all(encoding.special_tokens_mask) and not arguments.show_special_tokens:
        raise RegardError("the text has only special tokens: --show-special-tokens shows them")
    check_length(arguments, model, len(encoding))
    rows = None if arguments.word is None else check_word(arguments.word, encoding, **options)
    if arguments.json and rows is None and len(encoding) > _MAX_JSON_TOKENS:
        raise RegardError(
            f"--json prints every weight of at most {_MAX_JSON_TOKENS:,} tokens, this text has {len(encoding):,}: "
            "--word WORD prints those of one word"
        )
    layers = range(model.config.num_layers)
    layer = layers[-1] if arguments.layer is None else arguments.layer
    shown = _BYTES_PER_WEIGHT * len(encoding) ** 2
    weights = f"blocks.{layer}.attn.weights"
    steps = required_steps(arguments, weights)
    trace = run_model(model, encoding, steps, shown=shown, stop=weights if steps == [weights] else None)
    seconds = time.perf_counter() - start
    view = replace(select(trace, layer=layer, head=arguments.head, **options), layers=tuple(layers))
    write_output_files(Shown(trace, view), arguments)
    view = view if rows is None else view.rows(rows)
    if arguments.json:
        write(json.dumps(to_json(view, top=arguments.top), allow_nan=False))
    elif not arguments.quiet:
        _print(arguments, model, trace, view, seconds)


def _check_print(arguments: argparse.Namespace) -> None:
    if arguments.caption and arguments.width is None:
        raise RegardError("--caption is for pictures for print: give --width too")
    if arguments.quiet and not (arguments.output or arguments.head_grid):
        raise RegardError("--quiet prints nothing: give a file to write too, -o FILE")
    if arguments.width is not None and not (arguments.output or arguments.head_grid):
        raise RegardError("--width is for pictures of maps: give -o FILE or --head-grid FILE too")


def _print(
    arguments: argparse.Namespace,
    model: Model,
    trace: Trace,
    view: AttentionView,
    seconds: float,
) -> None:
    console = make_console(arguments)
    layers, heads = model.config.num_layers, model.config.num_heads
    sizes = f"{_counted(layers, 'layer')} × {_counted(heads, 'head')}"
    print_header(console, model, f" · {sizes} · {_counted(len(trace.encodings[0]), 'token')} · {seconds:.2f} s")
    if len(view.layers) * view.heads > 1:
        console.print(Text(_chosen(arguments, view)))
    if view.is_causal:
        console.print(Text("Causal: each word attends to itself and to earlier words only."))
    console.print()
    console.print(terminal_table(view, top=arguments.top, width=console.width), soft_wrap=True)
    if view.special_tokens:
        names = ", ".join(map(escape, view.special_tokens))
        console.print(Text(f"special: weight on {names}; --show-special-tokens shows them", style="dim"))
    console.print()
    console.print(terminal_heatmap(view, width=console.width, color=has_color(console)), soft_wrap=True)


def _chosen(arguments: argparse.Namespace, view: AttentionView) -> str:
    """Return a sentence that says which layer and head are shown, and how to choose others if nothing was chosen."""
    if arguments.layer is not None or arguments.head is not None:
        return f"{view.describe[0].upper()}{view.describe[1:]}"
    if len(view.layers) <= 1:
        return f"Averaged over {view.heads} heads; --head chooses one"
    last = f"Last layer ({view.layer} of {format_range(view.layers)})"
    if view.heads <= 1:
        return f"{last}; --layer chooses another"
    return f"{last}, averaged over {view.heads} heads; --layer and --head choose others"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
