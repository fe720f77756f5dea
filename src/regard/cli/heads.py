"""``regard heads TEXT``: the metrics of every head."""

from __future__ import annotations

import argparse
import json

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import make_console, print_header
from regard.cli.input import load_model, read_text, run_model
from regard.cli.output import write
from regard.metrics import head_metrics, repeated_tokens
from regard.metrics.registry import listed_metrics
from regard.terminal import heads_rows, heads_summary, heads_table


def run(arguments: argparse.Namespace) -> None:
    """Print the strongest heads, or the metrics of each head, on a text or on repeated random tokens."""
    if arguments.repeated_tokens is None:
        text = read_text(arguments)
        model = load_model(arguments, [text])
        metrics = head_metrics(run_model(model, model.tokenizer(text), ["blocks.*.attn.weights"]))
        source = "on this text"
    else:
        if arguments.text or arguments.file is not None or arguments.toy:
            raise RegardError("--repeated-tokens samples from a model's vocabulary: leave out the text and --toy")
        model = load_model(arguments, [])
        metrics = repeated_tokens(model, length=arguments.repeated_tokens)
        source = f"on {arguments.repeated_tokens} random tokens, twice"
    if arguments.json:
        rows = heads_rows(metrics, sort=arguments.sort or "layer")
        shown = {"model": model.name, "repeated_tokens": arguments.repeated_tokens, "heads": rows}
        write(json.dumps(shown, allow_nan=False))
        return
    console = make_console(arguments)
    print_header(console, model, f" · {metrics.entropy[0].size} heads {source}")
    console.print()
    if not arguments.all and arguments.sort is None:
        console.print(Text("The strongest heads by each metric", style="bold"))
        console.print()
        console.print(heads_summary(metrics, width=console.width))
        console.print(Text("--all prints the table of all heads, --sort METRIC the largest first", style="dim"))
        return
    console.print(heads_table(metrics, sort=arguments.sort or "layer", width=console.width), soft_wrap=True)
    console.print()
    units = ", ".join(f"{entry.name} in {entry.unit}" for entry in listed_metrics() if entry.unit != "share")
    console.print(Text(f"{units}, the others fractions of the weight; –: not defined on this text", style="dim"))
