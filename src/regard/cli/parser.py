"""What can be typed: commands, options, their help. Runs nothing and imports nothing heavy."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.cli.output import writing

_COMMANDS = (
    "look",
    "explain",
    "compare",
    "explore",
    "generate",
    "heads",
    "ablate",
    "embed",
    "models",
    "pull",
    "info",
    "completion",
)
_POSITIONS = ("sinusoidal", "table", "none")
_MEASURES = ("entropy", "distance", "sink", "previous_token", "duplicate_token", "induction")
_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")
_SHELLS = ("bash", "zsh", "tcsh")


_EPILOG = """\
regard TEXT is short for regard look TEXT: regard look --help lists its options (--model, --layer, --head, --png, …).
A text that is the name of a command, or begins with -, stands behind --: regard -- TEXT.

examples:
  regard "The cat sat on the mat"
  regard "The animal was too tired" --word tired --layer 3 --head 7
  regard explain "The cat sat" --word cat
  regard compare "She sat on the river bank" "She went to the bank for a loan" --word bank
  regard generate "Once upon a time" --max-new-tokens 60
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are ours: one line, with the way to help."""

    def error(self, message: str) -> NoReturn:
        raise RegardError(f"{message}; see {self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        with writing():  # argparse itself would keep silent of a full disk
            print(message, end="", file=file)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of one command, with ``run``, the function that carries it out.

    Words that begin with no command are a text to look at: ``regard TEXT`` is ``regard look TEXT``.

    Raises
    ------
    RegardError
        The arguments are none that a command takes.
    """
    words = list(argv)
    if not words:
        raise RegardError('there is no text to look at: try regard "The cat sat on the mat", or regard --help')
    if words[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        words.insert(0, "look")
    for word in takewhile(lambda word: word != "--", words):
        if re.match(r"-[^\W\d_]{2}", word):
            raise RegardError(f"there is no option {word}; a text that begins with - stands behind --: regard -- TEXT")
    arguments, rest = build().parse_known_args(words)
    if rest and rest[0].startswith("-"):
        raise RegardError(f"unrecognized arguments: {' '.join(rest)}; see regard {words[0]} --help")
    if rest:
        raise RegardError(f"{' '.join(rest)!r} stands apart: give each text in one piece, in quotes")
    return arguments


def build() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="regard",
        description="Self-attention you can see through: which word looks at which, and why.",
        usage="regard TEXT [options]   or   regard COMMAND …   (regard COMMAND --help tells more)",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"regard {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", prog="regard", parser_class=_Parser, required=True
    )

    look = _command(
        commands,
        "look",
        "show which word looks at which",
        """
        regard "The cat sat on the mat"
        regard "The animal was too tired" --word tired --layer 3 --head 7
        regard --file letter.txt --words --png letter.png
        echo "The cat sat" | regard - --json
        """,
    )
    _text(look)
    _model(look, heads=("--num-heads",))
    _map(look)
    look.add_argument("--word", metavar="WORD", help="print only the rows of this word; pictures show all")
    look.add_argument("--top", type=_count, default=3, metavar="N", help="how many words to name for each (3)")
    _files(
        look,
        ("--png", "the heat map as a PNG picture"),
        ("--svg", "the heat map as an SVG drawing"),
        ("--heads", "a grid with the map of every layer and head (.png, .svg or .pdf)"),
        ("--movement", "a plot of each word from its original to its contextual vector"),
        ("--save", "everything that was computed, as one safetensors file"),
    )
    _theme(look)
    look.add_argument("--json", action="store_true", help="print the map as JSON and nothing else")
    _colour(look)

    explain = _command(
        commands,
        "explain",
        "print every step from token to output with its numbers",
        """
        regard explain "The cat sat" --random --seed 42 --embed-dim 4 --heads 2
        regard explain "The cat sat" --random --embeddings glove.6B.50d.txt --word cat
        regard explain "The cat sat on the mat" --layer 2 --head 5 --word sat
        """,
    )
    _text(explain)
    _model(explain, heads=("--heads", "--num-heads"))
    explain.add_argument("--layer", type=int, metavar="N", help="which layer, from 0; -1 is the last (0)")
    explain.add_argument("--head", type=int, default=0, metavar="N", help="which head, from 0 (0)")
    explain.add_argument("--word", metavar="WORD", help="follow the row of this word, with the arithmetic written out")
    _files(explain, ("--save", "everything that was computed, as one safetensors file"))
    _colour(explain)

    compare = _command(
        commands,
        "compare",
        "compare what one word becomes in two texts",
        """
        regard compare "She sat on the river bank" "She went to the bank for a loan" --word bank
        regard compare "a bat flew" "a bat hit the ball" --word bat --movement bat.png
        """,
    )
    compare.add_argument("texts", metavar="TEXT", nargs=2, help="the two texts")
    compare.add_argument("--word", metavar="WORD", required=True, help="a word that is in both")
    _model(compare, heads=("--num-heads",))
    _files(compare, ("--movement", "a plot of both words, from original to contextual vector, on one basis"))
    _theme(compare)
    compare.add_argument("--json", action="store_true", help="print the similarities as JSON and nothing else")
    _colour(compare)

    explore = _command(
        commands,
        "explore",
        "open a page where attention can be walked through",
        """
        regard explore "The animal did not cross the street because it was too tired"
        regard explore "the bat flew" "the bat broke"
        regard explore --file letter.txt --html letter.html
        """,
    )
    _text(explore)
    _model(explore, heads=("--num-heads",))
    explore.set_defaults(model=None)  # where it is not given, a text is read by minilm, and a saved run by none
    explore.add_argument(
        "--other-model", metavar="NAME", help="a second model, which reads the same text, or the second of two"
    )
    explore.add_argument(
        "--trace", metavar="FILE", nargs="+", help="one run, or two, that --save wrote, in place of a text"
    )
    explore.add_argument("--layer", type=int, metavar="N", help="the layer to open with, from 0; -1 is the last")
    explore.add_argument("--head", type=int, metavar="N", help="the head to open with, from 0")
    explore.add_argument("--port", type=int, metavar="N", help="the port, or the next that is free (8765)")
    explore.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    _files(explore, ("--html", "write the page as one file, which works offline"))

    generate = _command(
        commands,
        "generate",
        "go on with a text",
        """
        regard generate "Once upon a time" --max-new-tokens 60
        regard generate "The capital of France is" --temperature 0.7 --top-p 0.9 --seed 1
        regard generate "What is the capital of France?" --chat
        regard generate --file letter.txt --stop . --save letter.safetensors
        """,
    )
    _text(generate)
    generate.add_argument(
        "--model", default="smollm2", metavar="NAME", help="a name that regard models lists, or a folder (smollm2)"
    )
    generate.add_argument(
        "--max-new-tokens", type=_count, default=128, metavar="N", help="the most tokens to add (128)"
    )
    generate.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this; may be given several times"
    )
    drawing = generate.add_argument_group("how the next token is chosen")
    drawing.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest (0)")
    drawing.add_argument("--top-k", type=_count, metavar="K", help="draw among the K likeliest only")
    drawing.add_argument("--top-p", type=float, metavar="P", help="draw among the fewest that have this share together")
    drawing.add_argument("--seed", type=int, metavar="N", help="what the draws start from")
    generate.add_argument(
        "--chat", action="store_true", help="take the text as a question, and write it as the model's chats are written"
    )
    _files(generate, ("--save", "what was looked at, for the whole text, as one safetensors file"))
    heads = _command(
        commands,
        "heads",
        "print a table of what every head does",
        """
        regard heads "The cat sat on the mat, and the cat slept"
        regard heads "The cat sat on the mat" --sort previous_token
        regard heads --repeated 50 --sort induction
        """,
    )
    _text(heads)
    _model(heads, heads=("--num-heads",))
    heads.add_argument("--sort", choices=("layer", *_MEASURES), default="layer", help="by what, largest first (layer)")
    heads.add_argument(
        "--repeated", type=_count, metavar="N", help="in place of a text, N random tokens that come twice"
    )
    heads.add_argument("--json", action="store_true", help="print the measures as JSON and nothing else")
    _colour(heads)

    ablate = _command(
        commands,
        "ablate",
        "show what changes without some heads",
        """
        regard ablate "The cat sat on the mat" --head 3.7
        regard ablate "The cat sat on the mat" --head 3.7 --head 5.0 --mean
        """,
    )
    _text(ablate)
    _model(ablate, heads=("--num-heads",))
    ablate.add_argument(
        "--head",
        action="append",
        required=True,
        type=_layer_and_head,
        metavar="L.H",
        help="layer and head, from 0: 3.7; may be given several times",
    )
    ablate.add_argument("--mean", action="store_true", help="put the mean over the tokens in its place, not zero")
    ablate.add_argument("--top", type=_count, default=10, metavar="N", help="how many next tokens to show (10)")
    ablate.add_argument("--json", action="store_true", help="print the changes as JSON and nothing else")
    _colour(ablate)

    embed = _command(
        commands,
        "embed",
        "write the vector of each line of a text",
        """
        regard embed sentences.txt --out vectors.npy
        regard embed sentences.txt --out vectors.parquet --truncate
        cat sentences.txt | regard embed - --out vectors.npy
        regard embed --text "The cat sat." --text "A dog ran." --out vectors.npy
        """,
    )
    embed.add_argument("file", metavar="FILE", nargs="?", help="a file with a text on each line; - is standard input")
    embed.add_argument("--text", action="append", metavar="TEXT", dest="texts", help="a text, in place of a file")
    embed.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        dest="out_file",
        help="where to: .npy, or .parquet with the texts beside",
    )
    embed.add_argument(
        "--model", default="minilm", metavar="NAME", help="a name that regard models lists, or a folder (minilm)"
    )
    embed.add_argument(
        "--pooling", choices=_POOLINGS, help="how the vectors of tokens become one (as the model's configuration says)"
    )
    embed.add_argument("--batch-size", type=_count, default=32, metavar="N", help="lines that are run together (32)")
    embed.add_argument("--truncate", action="store_true", help="cut lines that are too long, in place of an error")
    embed.add_argument("--skip-empty", action="store_true", help="leave out empty lines, in place of an error")

    models = _command(commands, "models", "list the models with a name, and where each is", "regard models")
    _colour(models)
    pull = _command(commands, "pull", "fetch a model's files", "regard pull minilm\n        regard pull minilm --force")
    pull.add_argument("name", metavar="NAME", help="a name that regard models lists")
    pull.add_argument("--force", action="store_true", help="fetch again what is there already")
    info = _command(commands, "info", "print versions, threads, and what is available", "regard info")
    _colour(info)
    completion = _command(
        commands,
        "completion",
        "print a script that completes regard's words in a shell",
        """
        regard completion bash > ~/.local/share/bash-completion/completions/regard
        regard completion zsh > ~/.zfunc/_regard    (with fpath+=~/.zfunc before compinit)
        regard completion tcsh > ~/.regard.tcsh     (and source it in ~/.tcshrc)
        """,
    )
    completion.add_argument("shell", choices=_SHELLS, help="which shell")
    return parser


def _command(commands: Any, name: str, summary: str, examples: str) -> argparse.ArgumentParser:
    lines = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=_runner(name))
    return command


def _runner(name: str) -> Callable[[argparse.Namespace], None]:
    """Return what carries out a command; its module is imported only when it runs."""

    def run(arguments: argparse.Namespace) -> None:
        importlib.import_module(f"regard.cli.{name}").run(arguments)

    return run


def _text(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text")
    group.add_argument("text", metavar="TEXT", nargs="*", help="the text; - reads standard input")
    group.add_argument("--file", metavar="FILE", help="read the text from a file")


def _model(parser: argparse.ArgumentParser, *, heads: tuple[str, ...]) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", default="minilm", metavar="NAME", help="a name that regard models lists, or a folder (minilm)"
    )
    group.add_argument("--random", action="store_true", help="a toy layer with random weights, which mean nothing")
    toy = parser.add_argument_group("toy layer, with --random")
    toy.add_argument("--seed", type=int, metavar="N", help="what the random numbers start from (42)")
    toy.add_argument("--embed-dim", type=_count, metavar="E", help="numbers in a token's vector (8)")
    toy.add_argument(*heads, type=_count, metavar="H", dest="num_heads", help="number of heads (1)")
    toy.add_argument("--positions", choices=_POSITIONS, help="how a word's place is told (sinusoidal)")
    toy.add_argument("--embeddings", metavar="FILE", help="word vectors: GloVe or word2vec, plain or gzipped")


def _map(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which map")
    group.add_argument("--layer", type=int, metavar="N", help="which layer, from 0; -1 is the last (the last)")
    group.add_argument("--head", metavar="N", type=_head, help="which head, from 0; mean for their mean (mean)")
    group.add_argument("--words", action="store_true", help="merge sub-words into words")
    group.add_argument("--keep-special", action="store_true", help="show special tokens such as [CLS] too")


def _files(parser: argparse.ArgumentParser, *options: tuple[str, str]) -> None:
    group = parser.add_argument_group("files")
    for option, what in options:
        group.add_argument(option, metavar="FILE", help=what, dest=f"{option.strip('-')}_file")


def _theme(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="background of pictures (light)")


def _colour(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--colour", "--color", choices=("auto", "always", "never"), default="auto", help="colour in the terminal (auto)"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _head(text: str) -> int | None:
    return None if text == "mean" else int(text)


def _layer_and_head(text: str) -> tuple[int, int]:
    layer, head = text.split(".")
    if not (layer + head).isascii():
        raise ValueError
    return _from_zero(layer), _from_zero(head)


def _from_zero(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


_layer_and_head.__name__ = "layer.head"
_count.__name__ = "number"
_head.__name__ = "head"
