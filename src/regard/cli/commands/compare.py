"""``regard compare TEXT TEXT --word WORD``: the vectors of one word in two texts."""

from __future__ import annotations

from collections.abc import Sequence

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, argument, option, options
from regard.cli.output_files import MAX_DRAWN_TOKENS, PICTURES, VECTORS, OutputFile, OutputFiles, output_files
from regard.cli.shared_options import ModelChoice, ToyLayer, color, json_flag, model_choice, theme, toy_layer

with deferred_imports():
    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import make_table, open_page
    from regard.cli.input import check_word, load_model, run_model, tokenize
    from regard.cli.output import write_json
    from regard.cli.texts import check_no_file
    from regard.trace import Trace
    from regard.views import escape, format_number
    from regard.views.similarity import similarities, word_vectors

COMMAND = Command(
    place=3,
    summary="compare the vectors of one word in two texts",
    usage="TEXT TEXT --word WORD [options]",
    examples="""\
  regard compare "She sat on the river bank" "She went to the bank for a loan" --word bank
  regard compare "a bat flew" "a bat hit the ball" --word bat -o bat.png""",
)

_MOVEMENT = OutputFile("-o", PICTURES, "how the vectors of the word move", VECTORS, MAX_DRAWN_TOKENS)


@options
class Options:
    """What is typed."""

    texts: Sequence[str] = argument("TEXT", "the two texts", nargs="*")
    literal: bool  # after --: texts that are like the names of something
    word: str = option("WORD", "a word of both texts", required=True)
    model: ModelChoice = model_choice("minilm")
    files: OutputFiles = output_files(_MOVEMENT)
    theme: str = theme()
    json: bool = json_flag("the similarities")
    color: str = color()
    toy: ToyLayer = toy_layer()


def run(options: Options) -> None:
    """Print the cosine similarity of the word's vectors in both texts: embedding, then each layer."""
    texts = [text.strip() for text in options.texts]
    if len(texts) != 2 or not all(texts):
        problem = "one is empty" if len(texts) == 2 else f"got {len(texts)}"
        example = 'regard compare "the river bank" "the bank manager" --word bank'
        raise RegardError(f"compare takes two texts, {problem}: {example}")
    for text in [] if options.literal else texts:
        check_no_file(text, None)
    options.files.check()
    model = load_model(options.model, options.toy, texts)
    outputs = (f"blocks.{n}.output" for n in range(model.config.num_layers))
    steps = options.files.required_steps("token_embeddings", *outputs)
    encodings = [tokenize(model, text) for text in texts]
    times = []  # that the word occurs in each
    for name, encoding in zip(("the first text", "the second text"), encodings, strict=True):
        options.files.check_length(model, len(encoding))
        times.append(len(check_word(options.word, encoding, name, show_special_tokens=True, merge_subwords=True)))
    traces, vectors = [], []
    for encoding in encodings:
        trace = run_model(model, encoding, steps)
        vectors.append(word_vectors(trace, options.word))
        traces += [trace] * bool(options.files)  # otherwise only the vectors of the word stay
        del trace
    cosines = similarities(*vectors)
    options.files.write({_MOVEMENT: lambda path: _draw(path, traces, options)})
    if options.json:
        shown = {"model": model.name, "word": options.word, "texts": texts, "similarities": dict(cosines)}
        write_json(shown)
        return
    console = open_page(options.color, model, f" · {escape(options.word, 40)!r} in two texts")
    for mark, text in zip("AB", texts, strict=True):
        console.print(Text(f"  {mark}  {escape(text, 200)}"))
    console.print()
    table = make_table("vector", ">cosine similarity", "")
    for name, similarity in cosines:
        table.add_row(name, format_number(similarity, ".3f"), "█" * round(30 * max(0.0, similarity)))
    console.print(table)
    console.print()
    console.print(Text(_conclusion(cosines[0][1], cosines[-1][1])))
    for mark, count in zip("AB", times, strict=True):
        if count > 1:
            console.print(Text(f"In {mark} the word occurs {count} times: its vectors are averaged.", style="dim"))


def _draw(path: str, traces: Sequence[Trace], options: Options) -> None:
    from regard.plot import movement, save

    axes = movement(traces, merge_subwords=True, highlight=options.word, theme=options.theme)
    save(axes.figure, path)


def _conclusion(original: float, contextual: float) -> str:
    start, end = format_number(original, ".3f"), format_number(contextual, ".3f")
    if contextual < original and start != end:
        return f"Context moves the word's vectors apart: similarity falls from {start} to {end}."
    return f"The word's two vectors start at similarity {start} and end at {end}."
