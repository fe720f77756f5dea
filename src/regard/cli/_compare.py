"""``regard compare TEXT TEXT --word WORD``: what one word becomes in two texts."""

from __future__ import annotations

import argparse
import json

from rich.table import Table
from rich.text import Text

from regard._errors import RegardError
from regard.cli._input import read_model, warning
from regard.cli._screen import screen
from regard.trace import Trace
from regard.views import readable, similarities


def run(arguments: argparse.Namespace) -> None:
    """Print how alike the vectors of a word are in both texts, from the embedding through each layer."""
    texts = [text.strip() for text in arguments.texts]
    if not all(texts):
        raise RegardError('compare needs two texts: regard compare "the river bank" "the bank manager" --word bank')
    model = read_model(arguments, texts)
    traces = []
    for text in texts:
        trace = Trace(only=["token_embeddings", "blocks.*.output"])
        model(text, trace=trace)
        traces.append(trace)
    found = similarities(traces[0], traces[1], arguments.word)
    if arguments.movement_file:
        from regard.views import movement, save

        axes = movement(traces, words=True, highlight=arguments.word, theme=arguments.theme)
        save(axes.figure, arguments.movement_file)
    if arguments.json:
        print(json.dumps({"model": model.name, "word": arguments.word, "texts": texts, "similarities": dict(found)}))
        return
    console = screen(arguments)
    console.print(Text.assemble((model.name, "bold"), f" · {readable(arguments.word, 40)!r} in two texts"))
    if said := warning(model):
        console.print(Text(said, style="yellow"))
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
    return (
        f"The same word starts from the same vector ({original:.3f}); "
        f"what stands around it moves the two apart, to {contextual:.3f}."
        if contextual < original
        else f"The vectors start at {original:.3f} and end at {contextual:.3f}."
    )
