"""``regard ablate TEXT --head L3H7``: a run with and without some heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, option, options

with deferred_imports():
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from regard.cli.console import make_table, open_page
    from regard.cli.input import announce_memory, read_input
    from regard.cli.output import write_json
    from regard.models import Model, Output
    from regard.text.token_labels import token_labels
    from regard.trace import Trace
    from regard.trace.edits import ablate
    from regard.views import changed_predictions, escape, format_number, head_label, token_similarities
    from regard.views.trace_access import resolve_index

COMMAND = Command(
    place=7,
    summary="show what changes without some heads",
    usage="TEXT --head L3H7 [options]",
    examples="""\
  regard ablate "The cat sat on the mat" --head L3H7
  regard ablate "The cat sat on the mat" --head L3H7 --head L5H0 --by mean""",
)


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("minilm")
    heads: Sequence[tuple[int, int]] = option(
        "L3H7",
        "a head to ablate; may be repeated",
        flags=("--head",),
        action="append",
        required=True,
        type=shared.layer_and_head,
    )
    by: Literal["zero", "mean"] = option(
        None, "replace by zero or the mean over tokens (zero)", choices=("zero", "mean"), default="zero"
    )
    top: int = option("N", "how many next tokens to show (10)", type=shared.count, default=10)
    json: bool = shared.json_flag("the changes")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print how the next-token probabilities change, or the token vectors of a model without them."""
    text, model, encoding = read_input(options.source, options.model, options.toy)
    for layer, head in options.heads:
        resolve_index("layer", layer, range(model.config.num_layers))
        resolve_index("head", head, range(model.config.num_heads))
    trace = Trace(only=(), edit=ablate(*options.heads, by=options.by))
    announce_memory(model, len(encoding), trace)
    with np.errstate(all="ignore"):
        before, after = model(encoding), model(encoding, trace=trace)
    effects = _predictions(model, before, after, options.top) if before.head else _vectors(before, after)
    heads = [head_label(layer, head) for layer, head in options.heads]
    if options.json:
        choice = {"model": model.name, "text": text, "heads": heads, "by": options.by}
        write_json(choice | effects)
        return
    replaced = "the mean over tokens" if options.by == "mean" else "zero"
    console = open_page(options.color, model, f" · {', '.join(heads)} ablated by {replaced}")
    console.print()
    console.print(_table(effects), soft_wrap=True)


def _vectors(before: Output, after: Output) -> dict[str, Any]:
    length = len(before.encodings[0])
    cosines = token_similarities(before.hidden[0, :length], after.hidden[0, :length]).tolist()
    rows = zip(token_labels(before.encodings[0]), cosines, strict=True)
    return {"cosines": [{"token": token, "cosine": cosine} for token, cosine in rows]}


def _predictions(model: Model, before: Output, after: Output, top: int) -> dict[str, Any]:
    assert before.head is not None
    assert after.head is not None
    logits = before.head(before.hidden[0, -1]), after.head(after.hidden[0, -1])
    changes = changed_predictions(*logits, model.tokenizer, top=top)
    return {"next": [{"token": c.token, "before": c.before, "after": c.after} for c in changes]}


def _table(effects: dict[str, Any]) -> Table:
    if "cosines" in effects:
        table = make_table("token", ">cosine similarity with and without")
        for row in effects["cosines"]:
            table.add_row(Text(escape(row["token"], 24)), format_number(row["cosine"], ".4f"))
        return table
    table = make_table("next token", ">with", ">without", ">change")
    for row in effects["next"]:
        change = format_number(row["after"] - row["before"], "+.4f")
        table.add_row(Text(escape(row["token"], 24)), f"{row['before']:.4f}", f"{row['after']:.4f}", change)
    return table
