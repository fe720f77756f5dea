"""``regard explain TEXT``: every step from token to output, with its numbers."""

from __future__ import annotations

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, option, options
from regard.cli.output_files import TRACE, OutputFiles, output_files

with deferred_imports():
    from regard._utils.errors import RegardError
    from regard.cli.console import make_console, print_header
    from regard.cli.input import check_word, layers_with_maps, read_input, resolve_map, run_model
    from regard.cli.output import write_json
    from regard.terminal import explain, explain_row
    from regard.views.head_steps import head_steps
    from regard.views.json import head_to_json

COMMAND = Command(
    place=2,
    summary="print every step from token to output with its numbers",
    usage="TEXT [options]",
    examples="""\
  regard explain "The cat sat" --toy --seed 42 --embed-dim 4 --num-heads 2
  regard explain "The cat sat" --toy --embeddings glove.6B.50d.txt --word cat
  regard explain "The cat sat on the mat" --head L2H5 --word sat
  regard explain "The cat sat" --json""",
)

_MAX_TOKENS = 1024


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("minilm")
    map: shared.MapChoice = shared.map_choice(shared.head, layer="0", head="0", default=0)
    word: str | None = option("WORD", "only the row of this word, with the arithmetic written out")
    files: OutputFiles = output_files(TRACE)
    json: bool = shared.json_flag("the numbers")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print the steps of one head, or the arithmetic of one word's rows."""
    options.files.check()
    text, model, encoding = read_input(options.source, options.model, options.toy)
    choice = resolve_map(options.map, model)
    if len(encoding) > _MAX_TOKENS:
        raise RegardError(
            f"explain prints every number: at most {_MAX_TOKENS:,} tokens, this text has {len(encoding):,}"
        )
    options.files.check_length(model, len(encoding))
    console = make_console(options.color)
    layer = layers_with_maps(model)[0] if choice.layer is None else choice.layer
    settings = {"layer": layer, "head": choice.head or 0}
    rows = None if options.word is None else check_word(options.word, encoding, show_special_tokens=True)
    before = f"blocks.{layer - 1}.output"  # of layer 0 there is none
    block = f"blocks.{layer}"
    before_rotation = [f"{block}.attn.projected_q", f"{block}.attn.projected_k"]
    steps = ["*embeddings", before, f"{block}.attn_norm", f"{block}.attn.*", *before_rotation]
    needed = options.files.required_steps(*steps)
    last = f"{block}.attn.output" if needed == steps else None
    trace = run_model(model, encoding, needed, stop=last)
    if options.json:
        word = {} if options.word is None else {"word": options.word}
        shown = {"model": model.name, "text": text, **word, **head_to_json(head_steps(trace, **settings), rows)}
        options.files.write({TRACE: trace.save})
        write_json(shown)
        return
    settings["width"] = console.width
    pages = [explain(trace, **settings)] if rows is None else [explain_row(trace, row, **settings) for row in rows]
    options.files.write({TRACE: trace.save})
    print_header(console, model)
    for page in pages:
        console.print()
        console.print(page, soft_wrap=True)
