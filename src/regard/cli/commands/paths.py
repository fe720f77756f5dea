"""``regard paths TEXT --to " Mary" --versus " John"``: the paths through which a prediction comes from the tokens."""

from __future__ import annotations

from typing import Literal

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, option, options
from regard.cli.output_files import PICTURES, OutputFile, OutputFiles, output_files

with deferred_imports():
    from rich.table import Table
    from rich.text import Text

    from regard.cli.console import make_table, open_page
    from regard.cli.input import announce_memory, read_input
    from regard.cli.output import write_json
    from regard.cli.progress import waiting
    from regard.metrics import PredictionPaths
    from regard.metrics.attribution_target import require_decoder
    from regard.metrics.paths import paths
    from regard.trace import Trace
    from regard.views import escape, format_number

COMMAND = Command(
    place=8,
    summary="print the paths through heads and feed-forward layers behind a prediction",
    usage='TEXT --to " Mary" [--versus " John"] [--corrupted TEXT] [options]',
    examples="""\
  regard paths qzkfqz --to k --versus f --corrupted qxkfqz --model induction --edges 12
  regard paths qzkfqz --to k --versus f --corrupted qxkfqz --model induction -o paths.svg""",
)

_PICTURE = OutputFile("-o", PICTURES, "the graph of the paths")

_LITTLE = 0.5  # of the difference
_KEEPS_LITTLE = (
    "these edges keep little: give --corrupted, a text of as many tokens that lacks what decides, or more --edges"
)
_FOOTER = "…: its inputs are listed above. Effects are estimates; the two shares are measured by runs"


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    to: str = option("TEXT", 'the next token, such as " Mary"', required=True)
    versus: str | None = option("TEXT", "a second one, whose logit is subtracted")
    corrupted: str | None = option("TEXT", "a text of as many tokens that lacks what decides")
    baseline: Literal["mean", "zero"] | None = option(
        "NAME", "without --corrupted, what cut edges carry: %(choices)s (mean)", choices=("mean", "zero")
    )
    edges: int = option("N", "the most edges of the graph (30)", type=shared.count, default=30)
    model: shared.ModelChoice = shared.model_choice("smollm2")
    files: OutputFiles = output_files(_PICTURE)
    theme: str = shared.theme()
    json: bool = shared.json_flag("the graph")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print the graph behind a prediction as a tree, from the logits to the tokens."""
    options.files.check()
    text, model, encoding = read_input(options.source, options.model, options.toy)
    require_decoder(model)
    announce_memory(model, len(encoding), Trace(only="*.weights"))
    with waiting("paths"):
        graph = paths(
            model,
            encoding,
            options.to,
            options.versus,
            corrupted=options.corrupted,
            baseline=options.baseline,
            edges=options.edges,
        )
    notes = [_KEEPS_LITTLE] if graph.corrupted is None and graph.faithfulness < _LITTLE else []
    if options.json:
        write_json({"model": model.name, "text": text, "notes": notes} | graph.to_dict())
    else:
        console = open_page(options.color, model, " · paths")
        console.print()
        console.print(Text(escape(graph.summary()).replace("-", "−")))
        for note in notes:
            console.print(Text(note))
        console.print()
        console.print(_table(graph), soft_wrap=True)
        console.print()
        console.print(Text(_FOOTER, style="dim"))
    options.files.write({_PICTURE: lambda path: _draw(path, graph, options)})


def _table(graph: PredictionPaths) -> Table:
    """Return the tree: the effect of each node on what reads it, with its own inputs below it."""
    table = make_table(">effect", "from", "read by")
    for depth, edge, repeats in graph.tree():
        node = f"{'  ' * depth}{edge.writer.label} at {escape(edge.token, 24)!r}{' …' * repeats}"
        table.add_row(format_number(edge.score, "+.3f"), Text(node), Text(edge.reader.label))
    return table


def _draw(path: str, graph: PredictionPaths, options: Options) -> None:
    from regard import plot

    plot.save(plot.paths(graph, theme=options.theme), path)
