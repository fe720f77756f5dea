"""``regard compare TEXT TEXT --word WORD``: what one word becomes in two texts."""

from __future__ import annotations

import argparse
import json

from rich.table import Table
from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import introduce, screen
from regard.cli.input import no_word, read_model, run_model
from regard.cli.output import write
from regard.cli.output_files import check_targets
from regard.views import readable, similarities


def run(arguments: argparse.Namespace) -> None:
    """Print how alike the vectors of a word are in both texts, from the embedding through each layer."""
    texts = [text.strip() for text in arguments.texts]
    if not all(texts):
        raise RegardError('compare needs two texts: regard compare "the river bank" "the bank manager" --word bank')
    check_targets(arguments)
    model = read_model(arguments, texts)
    traces = [run_model(model, text, ["token_embeddings", "blocks.*.output"]) for text in texts]
    for name, trace in zip(("the first text", "the second text"), traces, strict=True):
        try:
            similarities(trace, trace, arguments.word)
        except RegardError:
            raise no_word(arguments.word, trace.encodings[0], name) from None
    found = similarities(traces[0], traces[1], arguments.word)
    if arguments.movement_file is not None:
        from regard.plot import movement, save

        axes = movement(traces, words=True, highlight=arguments.word, theme=arguments.theme)
        save(axes.figure, arguments.movement_file)
    if arguments.json:
        told = {"model": model.name, "word": arguments.word, "texts": texts, "similarities": dict(found)}
        write(json.dumps(told, allow_nan=False))
        return
    console = screen(arguments)
    introduce(console, model, f" · {readable(arguments.word, 40)!r} in two texts")
    for mark, text in zip("AB", texts, strict=True):
        console.print(Text(f"  {mark}  {readable(text, 200)}"))
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("vector")
    table.add_column("cosine similarity", justify="right")
    table.add_column("")
    for name, similarity in found:
        table.add_row(name, f"{similarity:.3f}", "█" * round(30 * max(0.0, similarity)))
    console.print(table)
    console.print()
    console.print(Text(_verdict(found[0][1], found[-1][1])))


def _verdict(original: float, contextual: float) -> str:
    start, end = f"{original:.3f}", f"{contextual:.3f}"
    if contextual < original and start != end:
        return (
            f"The same word starts from the same vector ({start}); what stands around it moves the two apart, to {end}."
        )
    return f"The vectors start at {start} and end at {end}."
