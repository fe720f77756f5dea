"""``regard explain TEXT``: every step from token to output, with its numbers."""

from __future__ import annotations

import argparse

from rich.text import Text

from regard.cli._input import read_model, read_text, warning
from regard.cli._screen import screen
from regard.trace import Trace
from regard.views import explain, follow, matching, select


def run(arguments: argparse.Namespace) -> None:
    """Print the steps of one head, or follow one word through it."""
    text = read_text(arguments)
    model = read_model(arguments, [text])
    trace = Trace()
    model(text, trace=trace)
    chosen = {"layer": arguments.layer, "head": arguments.head}
    if arguments.word is None:
        pages = [explain(trace, **chosen)]
    else:
        rows = matching(select(trace, keep_special=True), arguments.word)
        pages = [follow(trace, row, **chosen) for row in rows]
    if arguments.save_file:
        trace.save(arguments.save_file)
    console = screen(arguments)
    console.print(Text.assemble((model.name, "bold")))
    if said := warning(model):
        console.print(Text(said, style="yellow"))
    for page in pages:
        console.print()
        console.print(page, soft_wrap=True)
