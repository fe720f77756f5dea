"""``regard heads TEXT``: what every head does."""

from __future__ import annotations

import argparse
import json

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import introduce, screen
from regard.cli.input import read_model, read_text, run_model
from regard.cli.output import write
from regard.metrics import head_metrics, repeated_tokens
from regard.terminal import heads_rows, heads_table


def run(arguments: argparse.Namespace) -> None:
    """Print the measures of each head, on a text or on random tokens that come twice."""
    if arguments.repeated is None:
        text = read_text(arguments)
        model = read_model(arguments, [text])
        measures = head_metrics(run_model(model, text, ["blocks.*.attn.weights"], maps=True))
        told_of = "on this text"
    else:
        if arguments.text or arguments.file is not None or arguments.random:
            raise RegardError("--repeated draws its tokens from a model's vocabulary: leave out the text and --random")
        model = read_model(arguments, [])
        measures = repeated_tokens(model, length=arguments.repeated)
        told_of = f"on {arguments.repeated} random tokens, twice"
    if arguments.json:
        rows = heads_rows(measures, sort=arguments.sort)
        write(json.dumps({"model": model.name, "repeated": arguments.repeated, "heads": rows}, allow_nan=False))
        return
    console = screen(arguments)
    introduce(console, model, f" · {measures.entropy[0].size} heads {told_of}")
    console.print()
    console.print(heads_table(measures, sort=arguments.sort), soft_wrap=True)
    console.print()
    console.print(
        Text(
            "entropy in nats, distance in tokens, the others shares of the weight; – where the text has no such case",
            style="dim",
        )
    )
