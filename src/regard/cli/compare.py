"""``regard compare TEXT TEXT --word WORD``: the vectors of one word in two texts."""

from __future__ import annotations

import argparse
import json

from rich.table import Table
from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import make_console, print_header
from regard.cli.input import check_word, load_model, run_model
from regard.cli.output import write
from regard.cli.output_files import check_length, check_output_files, required_steps, write_output_files
from regard.cli.texts import check_no_file
from regard.views import escape, format_number
from regard.views.similarity import similarities, word_vectors


def run(arguments: argparse.Namespace) -> None:
    """Print the cosine similarity of the word's vectors in both texts: embedding, then each layer."""
    texts = [text.strip() for text in arguments.texts]
    if not all(texts):
        raise RegardError('compare needs two texts: regard compare "the river bank" "the bank manager" --word bank')
    for text in [] if arguments.literal else texts:
        check_no_file(text, None)
    check_output_files(arguments)
    model = load_model(arguments, texts)
    outputs = (f"blocks.{n}.output" for n in range(model.config.num_layers))
    steps = required_steps(arguments, "token_embeddings", *outputs)
    encodings = [model.tokenizer(text) for text in texts]
    for name, encoding in zip(("the first text", "the second text"), encodings, strict=True):
        check_length(arguments, model, len(encoding))
        check_word(arguments.word, encoding, name, show_special_tokens=True, merge_subwords=True)
    traces, vectors = [], []
    for encoding in encodings:
        trace = run_model(model, encoding, steps)
        vectors.append(word_vectors(trace, arguments.word))
        traces += [trace] * bool(arguments.output)  # otherwise only the vectors of the word stay
        del trace
    found = similarities(*vectors)
    write_output_files(traces, arguments)
    if arguments.json:
        shown = {"model": model.name, "word": arguments.word, "texts": texts, "similarities": dict(found)}
        write(json.dumps(shown, allow_nan=False))
        return
    console = make_console(arguments)
    print_header(console, model, f" · {escape(arguments.word, 40)!r} in two texts")
    for mark, text in zip("AB", texts, strict=True):
        console.print(Text(f"  {mark}  {escape(text, 200)}"))
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("vector")
    table.add_column("cosine similarity", justify="right")
    table.add_column("")
    for name, similarity in found:
        table.add_row(name, format_number(similarity, ".3f"), "█" * round(30 * max(0.0, similarity)))
    console.print(table)
    console.print()
    console.print(Text(_conclusion(found[0][1], found[-1][1])))


def _conclusion(original: float, contextual: float) -> str:
    start, end = format_number(original, ".3f"), format_number(contextual, ".3f")
    if contextual < original and start != end:
        return f"The contexts move the vectors of the word apart: from {start} to {end}."
    return f"The vectors of the word start at similarity {start} and end at {end}."
