"""``regard explain TEXT``: every step from token to output, with its numbers."""

from __future__ import annotations

import argparse

from regard._utils.errors import RegardError
from regard.cli.console import make_console, print_header
from regard.cli.input import choose_map, load_model, missing_word, read_text, run_model
from regard.cli.output_files import check_output_files, write_output_files
from regard.terminal import explain, explain_row
from regard.views import find_rows, select


def run(arguments: argparse.Namespace) -> None:
    """Print the steps of one head, or the arithmetic of one word's rows."""
    text = read_text(arguments)
    check_output_files(arguments)
    model = load_model(arguments, [text])
    choose_map(arguments, model)
    trace = run_model(model, text)
    console = make_console(arguments)
    chosen = {"layer": arguments.layer, "head": arguments.head, "width": console.width}
    if arguments.word is None:
        pages = [explain(trace, **chosen)]
    else:
        try:
            rows = find_rows(select(trace, show_special_tokens=True), arguments.word)
        except RegardError:
            raise missing_word(arguments.word, trace.encodings[0]) from None
        pages = [explain_row(trace, row, **chosen) for row in rows]
    write_output_files(trace, arguments)
    print_header(console, model)
    for page in pages:
        console.print()
        console.print(page, soft_wrap=True)
