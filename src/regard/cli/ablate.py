"""``regard ablate TEXT --head 3.7``: what a text becomes without some heads."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.cli.console import introduce, screen
from regard.cli.input import read_model, read_text
from regard.cli.output import write
from regard.models import Model, Output
from regard.trace import Trace
from regard.trace.edits import ablate
from regard.views import changed_predictions, changed_vectors, readable


def run(arguments: argparse.Namespace) -> None:
    """Print how the vectors of a text, or the tokens expected behind it, change."""
    text = read_text(arguments)
    model = read_model(arguments, [text])
    edit = ablate(*arguments.head, by="mean" if arguments.mean else "zero")
    with np.errstate(all="ignore"):
        before, after = model(text), model(text, trace=Trace(only=(), edit=edit))
    found = _predictions(model, before, after, arguments.top) if before.head else _vectors(before, after)
    named = [f"{layer}.{head}" for layer, head in arguments.head]
    if arguments.json:
        told = {"model": model.name, "text": text, "heads": named, "by": "mean" if arguments.mean else "zero"}
        write(json.dumps(told | found, allow_nan=False))
        return
    console = screen(arguments)
    heads = f"head{'s' * (len(named) > 1)} {', '.join(named)}"
    introduce(console, model, f" · without {heads}" + (", by the mean over tokens" if arguments.mean else ""))
    console.print()
    console.print(_table(found), soft_wrap=True)


def _vectors(before: Output, after: Output) -> dict[str, Any]:
    length = len(before.encodings[0])
    alike = changed_vectors(before.hidden[0, :length], after.hidden[0, :length])
    tokens = zip(before.encodings[0].tokens, alike.tolist(), strict=True)
    return {"cosines": [{"token": token, "cosine": cosine} for token, cosine in tokens]}


def _predictions(model: Model, before: Output, after: Output, top: int) -> dict[str, Any]:
    assert before.head is not None
    assert after.head is not None
    logits = before.head(before.hidden[0, -1]), after.head(after.hidden[0, -1])
    changes = changed_predictions(*logits, model.tokenizer, top=top)
    return {"next": [{"token": c.token, "before": c.before, "after": c.after} for c in changes]}


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if "cosines" in found:
        table.add_column("token")
        table.add_column("cosine of its vector with and without", justify="right")
        for row in found["cosines"]:
            table.add_row(Text(readable(row["token"], 24)), f"{row['cosine']:.4f}")
        return table
    for heading in ("next token", "with", "without", "change"):
        table.add_column(heading, justify="left" if heading == "next token" else "right")
    for row in found["next"]:
        change = row["after"] - row["before"]
        table.add_row(Text(readable(row["token"], 24)), f"{row['before']:.4f}", f"{row['after']:.4f}", f"{change:+.4f}")
    return table
