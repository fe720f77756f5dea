"""Options that several commands share, and the types of their values. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, get_args

from regard._utils.errors import RegardError
from regard._utils.head_names import parse_head
from regard.cli.options import LazyChoices, argument, flag, option, options, shared


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
    if (named := parse_head(text)) is not None:
        return named
    raise argparse.ArgumentTypeError(f"expected a layer and a head such as L3H7, got {text!r}")


def head(text: str) -> int | tuple[int, int]:
    """Return the number of a head, or with its layer."""
    with suppress(ValueError):
        return layer_and_head(text) if text.upper().startswith("L") else int(text)
    raise argparse.ArgumentTypeError(f"expected a head such as 7 or L3H7, got {text!r}")


def head_or_mean(text: str) -> int | tuple[int, int] | None:
    """Return a head as `head` does; None for the mean over heads."""
    return None if text == "mean" else head(text)


@options
class TextSource:
    """TEXT and ``--file``."""

    text: Sequence[str] = argument("TEXT", "the text; - reads standard input", nargs="*")
    file: str | None = option("FILE", "read the text from a file")
    command: str
    literal: bool  # after --: a text that is like the name of something


def text_source(what: str = "the text") -> Any:
    """Declare `TextSource`."""
    return shared(TextSource, text={"help": f"{what}; - reads standard input"})


MODEL_NAMES = "a name from regard models, a folder, or org/name of the Hugging Face hub"
"""What ``--model`` takes."""


@options
class ModelChoice:
    """``--model`` and ``--ignore``."""

    model: str = option("NAME", f"{MODEL_NAMES} (%(default)s)")
    ignore: Sequence[str] | None = option(
        "FIELD", "an unknown field of its config.json that changes nothing", action="append"
    )


def model_choice(default: str) -> Any:
    """Declare `ModelChoice`."""
    return shared(ModelChoice, model={"default": default})


@options
class MapChoice:
    """``--layer`` and ``--head``: numbers from 0 or, of layers, from the end."""

    layer: int | None = option("N", "layer, from 0; -1 is the last", type=whole_number)
    head: int | None = option("N", "head, from 0; or L3H7 for layer and head")


def map_choice(
    kind: Callable[[str], Any], *, layer: str, head: str, default: int | None = None, group: str = ""
) -> Any:
    """Declare `MapChoice`, a head of `kind`; `layer` and `head` say in the help what the defaults are."""
    return shared(
        MapChoice,
        group=group,
        layer={"help": f"layer, from 0; -1 is the last ({layer})"},
        head={"help": f"head, from 0; or L3H7 for layer and head ({head})", "type": kind, "default": default},
    )


def choose_layer(parsed: argparse.Namespace) -> None:
    """Take the layer out of ``--head L3H7``; an error if ``--layer`` is given too."""
    if isinstance(getattr(parsed, "head", None), tuple) and hasattr(parsed, "layer"):
        if parsed.layer is not None:
            raise RegardError("--head L{}H{} names the layer too: leave out --layer".format(*parsed.head))
        parsed.layer, parsed.head = parsed.head


def _positions() -> Sequence[str]:
    from regard.models.toy import Positions

    return get_args(Positions)


@options
class ToyLayer:
    """``--toy`` and the options of the toy layer, None where they are not given."""

    enabled: bool = flag("one layer with random weights in place of a model", flags=("--toy",))
    seed: int | None = option("N", "seed of the random weights (42)", type=whole_number)
    embed_dim: int | None = option("E", "features of a token vector (8)", type=count)
    num_heads: int | None = option("H", "number of heads (1)", type=count)
    positions: str | None = option(
        "KIND", "position encoding: %(choices)s (sinusoidal)", choices=LazyChoices(_positions)
    )
    embeddings: str | None = option("FILE", "word vectors: GloVe or word2vec, plain or gzipped")

    def __bool__(self) -> bool:
        return self.enabled


TOY_SETTINGS = ("--seed", "--embed-dim", "--num-heads", "--positions", "--embeddings")


def toy_layer() -> Any:
    """Declare `ToyLayer`."""
    return shared(ToyLayer, group="toy layer")


@options
class CorpusRun:
    """Options of a run over a corpus into a folder."""

    out: str | None = option("FOLDER", "a Parquet file for each partition; the same command again computes the rest")
    column: str | None = option("NAME", "where the texts are in a table: Parquet, CSV or JSON lines (text)")
    workers: int | None = option("N", "start N processes (this one computes)", type=count)
    memory: str | None = option("SIZE", "of each of them, such as 2GB (its share of the machine)")
    dashboard: bool = flag("show Dask's dashboard of them to this machine")
    scheduler: str | None = option("ADDRESS", "use the workers of a scheduler of Dask (DASK_SCHEDULER_ADDRESS)")
    partition_tokens: int | None = option("N", "tokens of a partition (65536)", type=count)
    dry_run: bool = flag("print partitions, tokens, memory and time; write nothing")


def corpus_run(group: str = "a corpus, in partitions; needs regard[dask]", **settings: Any) -> Any:
    """Declare `CorpusRun`, in a group; `settings` as those of `shared`."""
    return shared(CorpusRun, group=group, **settings)


@options
class Server:
    """``--port`` and ``--no-browser``."""

    port: int | None = option("N", "the port, or the next free one (8765)", type=whole_number)
    no_browser: bool = flag("print the address, open no browser")

    def __bool__(self) -> bool:
        return self.port is not None or self.no_browser


def server() -> Any:
    """Declare `Server`."""
    return shared(Server)


def print_width(text: str) -> str | float:
    """Return the width of a figure for print: a name, or millimetres."""
    if text in ("column", "page"):
        return text
    with suppress(ValueError):
        return float(text)
    raise argparse.ArgumentTypeError(f"expected column, page or millimetres, got {text!r}")


def theme() -> Any:
    """Declare ``--theme``."""
    return option("THEME", "background of pictures: %(choices)s (light)", choices=("light", "dark"), default="light")


def json_flag(what: str) -> Any:
    """Declare ``--json``."""
    return flag(f"print {what} as JSON and nothing else")


def color() -> Any:
    """Declare ``--color``."""
    return option(
        "WHEN", "colour in the terminal: %(choices)s (auto)", choices=("auto", "always", "never"), default="auto"
    )


def merge_subwords(group: str = "") -> Any:
    """Declare ``--merge-subwords``."""
    return flag("merge sub-word tokens into words", group=group)
