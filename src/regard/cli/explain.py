"""``regard explain TEXT``: every step from token to output, with its numbers."""

from __future__ import annotations

import argparse

from regard._utils.errors import RegardError
from regard.cli.console import introduce, screen
from regard.cli.input import no_word, read_model, read_text, run_model
from regard.cli.output_files import check_targets
from regard.terminal import explain, follow
from regard.views import matching, select


def run(arguments: argparse.Namespace) -> None:
    """Print the steps of one head, or follow one word through it."""
    text = read_text(arguments)
    check_targets(arguments)
    model = read_model(arguments, [text])
    trace = run_model(model, text)
    chosen = {"layer": arguments.layer, "head": arguments.head}
    if arguments.word is None:
        pages = [explain(trace, **chosen)]
    else:
        try:
            rows = matching(select(trace, keep_special=True), arguments.word)
        except RegardError:
            raise no_word(arguments.word, trace.encodings[0]) from None
        pages = [follow(trace, row, **chosen) for row in rows]
    if arguments.save_file is not None:
        trace.save(arguments.save_file)
    console = screen(arguments)
    introduce(console, model)
    for page in pages:
        console.print()
        console.print(page, soft_wrap=True)
