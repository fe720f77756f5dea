"""Arguments that several commands share, and the types of their values. Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, get_args

from regard._utils.errors import RegardError
from regard.cli.output_files import OUTPUT_FILES

TOY_OPTIONS = ("seed", "embed_dim", "num_heads", "positions", "embeddings")


class LazyChoices(Collection[str]):
    """Choices that another module lists; it is imported when they are read, not when a parser is built."""

    def __init__(self, load: Callable[[], Sequence[str]]) -> None:
        self._load = load

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def add_text(parser: argparse.ArgumentParser, what: str = "the text") -> None:
    """Add TEXT and ``--file``."""
    parser.add_argument("text", metavar="TEXT", nargs="*", help=f"{what}; - reads standard input")
    parser.add_argument("--file", metavar="FILE", help="read the text from a file")


def add_model(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--model`` and ``--ignore``."""
    parser.add_argument(
        "--model", default=default, metavar="NAME", help=f"a name from regard models, or a folder ({default})"
    )
    parser.add_argument(
        "--ignore", action="append", metavar="FIELD", help="an unknown field of its config.json that changes nothing"
    )


def add_toy(parser: argparse.ArgumentParser) -> None:
    """Add ``--toy`` and the options of the toy layer."""
    toy = parser.add_argument_group("toy layer")
    toy.add_argument("--toy", action="store_true", help="one layer with random weights in place of a model")
    toy.add_argument("--seed", type=whole_number, metavar="N", help="seed of the random weights (42)")
    toy.add_argument("--embed-dim", type=count, metavar="E", help="features of a token vector (8)")
    toy.add_argument("--num-heads", type=count, metavar="H", help="number of heads (1)")
    toy.add_argument(
        "--positions",
        choices=LazyChoices(_positions),
        metavar="KIND",
        help="position encoding: %(choices)s (sinusoidal)",
    )
    toy.add_argument("--embeddings", metavar="FILE", help="word vectors: GloVe or word2vec, plain or gzipped")


def add_layer_and_head(
    group: argparse._ActionsContainer, kind: Callable[[str], Any], *, layer: str, head: str, default: int | None = None
) -> None:
    """Add ``--layer`` and ``--head``, a value of `kind`; `layer` and `head` say in the help what the defaults are."""
    group.add_argument("--layer", type=whole_number, metavar="N", help=f"layer, from 0; -1 is the last ({layer})")
    group.add_argument(
        "--head", type=kind, default=default, metavar="N", help=f"head, from 0; or L3H7 for layer and head ({head})"
    )


def add_output_files(parser: argparse.ArgumentParser, command: str, *, required: bool = False) -> None:
    """Add the options of the files that `command` can write."""
    group = parser.add_argument_group("files")
    kinds = OUTPUT_FILES[command]
    for flag in dict.fromkeys(kind.flag for kind in kinds):
        what = ", or ".join(f"{kind.content} ({' '.join(kind.suffixes)})" for kind in kinds if kind.flag == flag)
        names = ("-o", "--output") if flag == "-o" else (flag,)
        group.add_argument(*names, action="append", default=[], required=required, metavar="FILE", help=what)


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run over a corpus into a folder."""
    group = parser.add_argument_group("a corpus, in partitions; needs regard[dask]")
    group.add_argument(
        "--out", metavar="FOLDER", help="a Parquet file for each partition; the same command again computes the rest"
    )
    group.add_argument("--column", metavar="NAME", help="the texts in Parquet, CSV or JSON lines (of a corpus text)")
    group.add_argument("--workers", type=count, metavar="N", help="start N processes (this one computes)")
    group.add_argument("--memory", metavar="SIZE", help="of each of them, such as 2GB (its share of the machine)")
    group.add_argument("--dashboard", action="store_true", help="show Dask's dashboard of them to this machine")
    group.add_argument(
        "--scheduler", metavar="ADDRESS", help="use the workers of a scheduler of Dask (DASK_SCHEDULER_ADDRESS)"
    )
    group.add_argument("--partition-tokens", type=count, metavar="N", help="tokens of a partition (65536)")
    group.add_argument(
        "--dry-run", action="store_true", help="print partitions, tokens, memory and time; write nothing"
    )


def add_theme(parser: argparse.ArgumentParser) -> None:
    """Add ``--theme``."""
    parser.add_argument(
        "--theme",
        choices=("light", "dark"),
        default="light",
        metavar="THEME",
        help="background of pictures: %(choices)s (light)",
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add ``--port`` and ``--no-browser``."""
    parser.add_argument("--port", type=whole_number, metavar="N", help="the port, or the next free one (8765)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON and nothing else")


def add_color(parser: argparse.ArgumentParser) -> None:
    """Add ``--color``."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
        help="colour in the terminal: %(choices)s (auto)",
    )


def add_print(parser: argparse.ArgumentParser) -> None:
    """Add ``--width`` and ``--caption``."""
    parser.add_argument(
        "--width",
        type=print_width,
        metavar="WIDTH",
        help="pictures of maps for print: column (85 mm), page (170 mm), or millimetres",
    )
    parser.add_argument("--caption", action="store_true", help="with --width, write below what is shown")


def print_width(text: str) -> str | float:
    """Return the width of a figure for print: a name, or millimetres."""
    if text in ("column", "page"):
        return text
    with suppress(ValueError):
        return float(text)
    raise argparse.ArgumentTypeError(f"expected column, page or millimetres, got {text!r}")


def whole_number(text: str) -> int:
    """Return a whole number."""
    with suppress(ValueError):
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}")


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    with suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")


def layer_and_head(text: str) -> tuple[int, int]:
    """Return the numbers of a layer and a head, written ``L3H7``, in capitals or not."""
    if found := re.fullmatch(r"L([0-9]+)H([0-9]+)", text.upper()):
        return int(found[1]), int(found[2])
    raise argparse.ArgumentTypeError(f"expected a layer and a head such as L3H7, got {text!r}")


def head(text: str) -> int | tuple[int, int]:
    """Return the number of a head, or with its layer."""
    with suppress(ValueError):
        return layer_and_head(text) if text.upper().startswith("L") else int(text)
    raise argparse.ArgumentTypeError(f"expected a head such as 7 or L3H7, got {text!r}")


def head_or_mean(text: str) -> int | tuple[int, int] | None:
    """Return a head as `head` does; None for the mean over heads."""
    return None if text == "mean" else head(text)


def choose_layer(arguments: argparse.Namespace) -> None:
    """Take the layer out of ``--head L3H7``; an error if ``--layer`` is given too."""
    if isinstance(getattr(arguments, "head", None), tuple):
        if arguments.layer is not None:
            raise RegardError("--head L{}H{} names the layer too: leave out --layer".format(*arguments.head))
        arguments.layer, arguments.head = arguments.head


def _positions() -> Sequence[str]:
    from regard.models.toy import Positions

    return get_args(Positions)
