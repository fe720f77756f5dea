"""``regard explain TEXT``: every step from token to output, with its numbers."""

from __future__ import annotations

import argparse

from regard._utils.errors import RegardError
from regard.cli.console import make_console, print_header
from regard.cli.input import check_word, choose_map, load_model, run_model
from regard.cli.output_files import check_length, check_output_files, required_steps, write_output_files
from regard.cli.texts import read_text
from regard.terminal import explain, explain_row

_MAX_TOKENS = 1024


def run(arguments: argparse.Namespace) -> None:
    """Print the steps of one head, or the arithmetic of one word's rows."""
    text = read_text(arguments)
    check_output_files(arguments)
    model = load_model(arguments, [text])
    choose_map(arguments, model)
    encoding = model.tokenizer(text)
    if len(encoding) > _MAX_TOKENS:
        raise RegardError(
            f"explain prints every number: at most {_MAX_TOKENS:,} tokens, this text has {len(encoding):,}"
        )
    check_length(arguments, model, len(encoding))
    console, layer = make_console(arguments), arguments.layer or 0
    chosen = {"layer": layer, "head": arguments.head, "width": console.width}
    rows = None if arguments.word is None else check_word(arguments.word, encoding, show_special_tokens=True)
    before = f"blocks.{layer - 1}.output"  # of layer 0 there is none
    block = f"blocks.{layer}"
    before_rotation = [f"{block}.attn.projected_q", f"{block}.attn.projected_k"]
    steps = ["*embeddings", before, f"{block}.attn_norm", f"{block}.attn.*", *before_rotation]
    needed = required_steps(arguments, *steps)
    last = f"{block}.attn.output" if needed == steps else None
    trace = run_model(model, encoding, needed, stop=last)
    pages = [explain(trace, **chosen)] if rows is None else [explain_row(trace, row, **chosen) for row in rows]
    write_output_files(trace, arguments)
    print_header(console, model)
    for page in pages:
        console.print()
        console.print(page, soft_wrap=True)
