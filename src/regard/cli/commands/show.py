"""``regard TEXT``: which words each word attends to."""

from __future__ import annotations

from typing import Any

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, flag, option, options
from regard.cli.output_files import (
    MAX_DRAWN_TOKENS,
    PICTURES,
    TRACE,
    VECTORS,
    WEIGHTS,
    OutputFile,
    OutputFiles,
    Writer,
    output_files,
)

with deferred_imports():
    import time
    from dataclasses import replace
    from functools import partial

    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import has_color, open_page
    from regard.cli.input import check_word, layers_with_maps, load_model, resolve_map, run_model, tokenize
    from regard.cli.output import write_json
    from regard.cli.show_picture import show_picture
    from regard.cli.tables import write_map
    from regard.cli.texts import read_text
    from regard.models import ImageModel, Model
    from regard.terminal import terminal_heatmap, terminal_table
    from regard.trace import Trace
    from regard.views import AttentionView, escape, select, to_json
    from regard.views.trace_access import format_range

COMMAND = Command(
    place=1,
    summary="show which words each word attends to",
    usage="TEXT [options]",
    examples="""\
  regard "The cat sat on the mat"
  regard "The animal was too tired" --word tired --head L3H7
  regard --file letter.txt --merge-subwords -o letter.png
  regard "The cat sat" --head L3H7 -o weights.csv
  echo "The cat sat" | regard - --json""",
)

_HEAT_MAP = OutputFile("-o", PICTURES, "the heat map", ())
_TABLE = OutputFile("-o", (".csv",), "a table of its weights", (), MAX_DRAWN_TOKENS)
_HEAD_GRID = OutputFile("--head-grid", PICTURES, "a grid of the maps of all heads", WEIGHTS, MAX_DRAWN_TOKENS)
_MOVEMENT = OutputFile("--movement", PICTURES, "how the vector of each token moves", VECTORS, MAX_DRAWN_TOKENS)
_MAP = "attention map"  # group of options
_MAX_JSON_TOKENS = 2048
_MAX_ROWS = 40  # of the table for a longer text
_BYTES_PER_WEIGHT = 12  # of a view: a weight in float64, whether it is masked, and a picture or the largest of a row


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("minilm")
    map: shared.MapChoice = shared.map_choice(shared.head_or_mean, layer="the last", head="mean", group=_MAP)
    merge_subwords: bool = shared.merge_subwords(_MAP)
    show_special_tokens: bool = flag("show special tokens such as [CLS]", group=_MAP)
    word: str | None = option(
        "WORD",
        "print only the rows of this word (to:2: its second place), files show all; of a picture a patch, r2c5",
        group=_MAP,
    )
    top: int = option("N", "how many keys to name for each query (3)", group=_MAP, type=shared.count, default=3)
    all_rows: bool = flag("print a row for each word of a long text too", group=_MAP)
    truncate: bool = flag("cut a text that is too long for the model")
    quiet: bool = flag("print nothing, only write files")
    files: OutputFiles = output_files(_HEAT_MAP, _TABLE, TRACE, _HEAD_GRID, _MOVEMENT)
    width: str | float | None = option(
        "WIDTH", "pictures of maps for print: column (85 mm), page (170 mm), or millimetres", type=shared.print_width
    )
    caption: bool = flag("with --width, write below what is shown")
    theme: str = shared.theme()
    json: bool = shared.json_flag("the map")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Run a model on a text; print, draw or save its attention."""
    start = time.perf_counter()
    text = read_text(options.source)
    options.files.check()
    _check_print(options)
    model = load_model(options.model, options.toy, [text], pictures=True)
    if isinstance(model, ImageModel):
        if options.width is not None:
            raise RegardError("--width is for maps of texts: leave it out for a picture")
        show_picture(options, model, text, partial(_write_files, options=options))
        return
    choice = resolve_map(options.map, model)
    encoding = tokenize(model, text, truncate=options.truncate)
    tokens = _token_settings(options)
    if len(encoding) and all(encoding.special_tokens_mask) and not options.show_special_tokens:
        raise RegardError("the text has only special tokens: --show-special-tokens shows them")
    options.files.check_length(model, len(encoding))
    rows = None if options.word is None else check_word(options.word, encoding, **tokens)
    if options.json and rows is None and len(encoding) > _MAX_JSON_TOKENS:
        raise RegardError(
            f"--json prints every weight of at most {_MAX_JSON_TOKENS:,} tokens, this text has {len(encoding):,}: "
            "--word WORD prints those of one word"
        )
    layers = layers_with_maps(model)
    layer = layers[-1] if choice.layer is None else choice.layer
    size = _BYTES_PER_WEIGHT * len(encoding) ** 2
    weights = f"blocks.{layer}.attn.weights"
    steps = options.files.required_steps(weights)
    trace = run_model(model, encoding, steps, shown=size, stop=weights if steps == [weights] else None)
    seconds = time.perf_counter() - start
    view = replace(select(trace, layer=layer, head=choice.head, **tokens), layers=tuple(layers))
    _write_files(trace, view, partial(_draw, trace, view, choice.head, options), options)
    shown = view if rows is None else view.rows(rows)
    if options.json:
        write_json(to_json(shown, top=options.top))
    elif not options.quiet:
        _print(options, choice, model, trace, shown, seconds)


def _write_files(trace: Trace, view: AttentionView, draw: Writer, options: Options) -> None:
    """Write the requested files; `draw` writes the heat map of the view."""
    writers: dict[OutputFile, Writer] = {
        _HEAT_MAP: draw,
        _TABLE: lambda path: write_map(path, view),
        TRACE: trace.save,
        _HEAD_GRID: lambda path: _draw_heads(trace, options, path),
        _MOVEMENT: lambda path: _draw_movement(trace, options, path),
    }
    options.files.write(writers)


def _draw(trace: Trace, view: AttentionView, head: int | None, options: Options, path: str) -> None:
    from regard.plot import figure, heatmap, save

    if options.width is not None:
        save(figure(trace, layer=view.layer, head=head, **_print_settings(options)), path)
    else:
        save(heatmap(view, theme=options.theme).figure, path)


def _draw_heads(trace: Trace, options: Options, path: str) -> None:
    from regard.plot import figure, head_grid, save

    if options.width is not None:
        save(figure(trace, head="all", **_print_settings(options)), path)
    else:
        save(head_grid(trace, **_token_settings(options), theme=options.theme), path)


def _draw_movement(trace: Trace, options: Options, path: str) -> None:
    from regard.plot import movement, save

    save(movement(trace, **_token_settings(options), theme=options.theme).figure, path)


def _token_settings(options: Options) -> dict[str, Any]:
    return {"show_special_tokens": options.show_special_tokens, "merge_subwords": options.merge_subwords}


def _print_settings(options: Options) -> dict[str, Any]:
    settings = {"width": options.width, "caption": options.caption, "theme": options.theme}
    return settings | _token_settings(options)


def _check_print(options: Options) -> None:
    if options.caption and options.width is None:
        raise RegardError("--caption is for pictures for print: give --width too")
    if options.quiet and not (options.files.paths["-o"] or options.files.paths["--head-grid"]):
        raise RegardError("--quiet prints nothing: give a file to write too, -o FILE")
    if options.width is not None and not options.files.has(_HEAT_MAP, _HEAD_GRID):
        raise RegardError("--width is for pictures of maps: give -o FILE or --head-grid FILE too")


def _print(
    options: Options,
    choice: shared.MapChoice,
    model: Model,
    trace: Trace,
    view: AttentionView,
    seconds: float,
) -> None:
    layers, heads = model.config.num_layers, model.config.num_heads
    sizes = f"{_counted(layers, 'layer')} × {_counted(heads, 'head')}"
    tokens = _counted(len(trace.encodings[0]), "token")
    console = open_page(options.color, model, f" · {sizes} · {tokens} · {seconds:.2f} s")
    if len(view.layers) * view.heads > 1:
        console.print(Text(_chosen(choice, view)))
    if hasattr(model, "encode"):
        console.print(Text('Of the encoder; regard explore "TEXT → TARGET" shows the decoder and cross-attention.'))
    if view.is_causal:
        console.print(Text("Causal: each word attends to itself and to earlier words only."))
    console.print()
    count = len(view.queries)
    table = view if options.all_rows or count <= _MAX_ROWS else view.rows(range(_MAX_ROWS))
    console.print(terminal_table(table, top=options.top, width=console.width), soft_wrap=True)
    if len(table.queries) < count:
        more = f"the first {_MAX_ROWS} of {count:,} rows; --all-rows prints all, --word WORD those of a word"
        console.print(Text(more, style="dim"), soft_wrap=True)
    if view.special_tokens:
        names = ", ".join(map(escape, view.special_tokens))
        console.print(Text(f"special: weight on {names}; --show-special-tokens shows them", style="dim"))
    console.print()
    console.print(terminal_heatmap(view, width=console.width, color=has_color(console)), soft_wrap=True)


def _chosen(choice: shared.MapChoice, view: AttentionView) -> str:
    """Return a sentence that says which layer and head are shown, and how to choose others if nothing was chosen."""
    if choice.layer is not None or choice.head is not None:
        return f"{view.describe[0].upper()}{view.describe[1:]}"
    if len(view.layers) <= 1:
        return f"Averaged over {view.heads} heads; --head chooses one"
    last = f"Last layer ({view.layer} of {format_range(view.layers)})"
    if view.heads <= 1:
        return f"{last}; --layer chooses another"
    return f"{last}, averaged over {view.heads} heads; --layer and --head choose others"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
