"""The files that commands write: flag, suffixes, content and writer of each, and checks before anything is computed.

A new view with its flag is one entry of `OUTPUT_FILES`: the option, its help and its checks follow from it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write


class OutputFile(NamedTuple):
    """One kind of file that a command writes."""

    flag: str  # the option that names it; -o for kinds that differ by suffix
    suffixes: tuple[str, ...]
    content: str  # for --help, and for the line that says what was written unless `write` returns it
    write: Callable[[str, Any, argparse.Namespace], str | None]  # write(path, result of the command, arguments)
    steps: tuple[str, ...] | None = None  # required in the trace; None: all
    max_tokens: int | None = None  # of a text; of more it would take too long, or show nothing


class Shown(NamedTuple):
    """The result of ``show``: the trace of the run, and the map that is shown."""

    trace: Any
    view: Any


class Attributed(NamedTuple):
    """The result of ``attribute``: the attribution, and its rows as shown."""

    found: Any
    rows: Any


class Embedded(NamedTuple):
    """The result of ``embed``: texts with their line numbers, from 1, and their vectors, ``N E``."""

    lines: list[int]
    texts: list[str]
    vectors: Any


class Explored(NamedTuple):
    """What ``explore`` shows: the page's data, and the training run if it is one, with the text it is seen on."""

    exploration: Callable[[], Any]
    run: Any = None
    text: str | None = None


def _heatmap(path: str, shown: Shown, arguments: argparse.Namespace) -> None:
    from regard.plot import heatmap, picture, save
    from regard.views.patches import PatchView

    if isinstance(shown.view, PatchView):
        save(picture(shown.view, theme=arguments.theme).figure, path)
    elif arguments.width is not None:
        _save_figure(path, shown.trace, arguments, layer=shown.view.layer, head=arguments.head)
    else:
        save(heatmap(shown.view, theme=arguments.theme).figure, path)


def _head_grid(path: str, shown: Shown, arguments: argparse.Namespace) -> None:
    from regard.plot import head_grid, save

    if arguments.width is not None:
        _save_figure(path, shown.trace, arguments, head="all")
    else:
        save(head_grid(shown.trace, **_tokens_and_theme(arguments)), path)


def _save_figure(path: str, trace: Any, arguments: argparse.Namespace, **selection: Any) -> None:
    """Write a figure for print."""
    from regard.plot import figure, save

    options = {"width": arguments.width, "caption": arguments.caption, **_tokens_and_theme(arguments)}
    save(figure(trace, **selection, **options), path)


def _movement(path: str, shown: Shown, arguments: argparse.Namespace) -> None:
    from regard.plot import movement, save

    save(movement(shown.trace, **_tokens_and_theme(arguments)).figure, path)


def _movement_of_word(path: str, traces: Any, arguments: argparse.Namespace) -> None:
    from regard.plot import movement, save

    axes = movement(traces, merge_subwords=True, highlight=arguments.word, theme=arguments.theme)
    save(axes.figure, path)


def _attribution(path: str, attributed: Attributed, arguments: argparse.Namespace) -> None:
    from regard.plot import attribution, save

    save(attribution(attributed.found, merge_subwords=arguments.merge_subwords, theme=arguments.theme), path)


def _attribution_table(path: str, attributed: Attributed, _: argparse.Namespace) -> None:
    from regard.cli.tables import write_table

    columns = zip(*attributed.rows, strict=True) if attributed.rows else ((), (), ())
    write_table(path, dict(zip(("token", "score", "attended"), map(list, columns), strict=True)))


def _save(path: str, trace: Any, _: argparse.Namespace) -> None:
    trace.save(path)


def _page(path: str, explored: Explored, _: argparse.Namespace) -> None:
    from regard.explorer import write_page

    write_page(explored.exploration(), path)


def _training(path: str, explored: Explored, arguments: argparse.Namespace) -> None:
    from regard.plot import save, training

    if explored.run is None:
        raise RegardError(f"-o {path}: a picture is of a training run, whose folder is given; of a text: regard show")
    save(training(explored.run, explored.text, theme=arguments.theme), path)


def _head_table(path: str, metrics: Any, _: argparse.Namespace) -> str:
    from regard.cli.tables import write_table

    columns = metrics.to_columns()
    write_table(path, columns)
    return f"a row for each of {len(columns['layer'])} heads"


def _vectors(path: str, embedded: Embedded, _: argparse.Namespace) -> str:
    from regard.cli.tables import write_vectors

    write_vectors(path, *embedded)
    count, width = embedded.vectors.shape
    return f"{count} vector{'s' * (count != 1)} of {width} numbers"


def _tokens_and_theme(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "show_special_tokens": arguments.show_special_tokens,
        "merge_subwords": arguments.merge_subwords,
        "theme": arguments.theme,
    }


_PICTURES = (".png", ".svg", ".pdf")
_WEIGHTS, _VECTORS = ("blocks.*.attn.weights",), ("token_embeddings", "blocks.*.output")
_STEPS = "every step of the run"
_MAX_STEPS_BYTES = 1_000_000_000
_MAX_DRAWN_TOKENS = 2048

OUTPUT_FILES: dict[str, tuple[OutputFile, ...]] = {
    "show": (
        OutputFile("-o", _PICTURES, "the heat map", _heatmap, ()),
        OutputFile("-o", (".safetensors",), _STEPS, lambda path, shown, _: shown.trace.save(path)),
        OutputFile(
            "--head-grid", _PICTURES, "a grid of the maps of all heads", _head_grid, _WEIGHTS, _MAX_DRAWN_TOKENS
        ),
        OutputFile(
            "--movement", _PICTURES, "how the vector of each token moves", _movement, _VECTORS, _MAX_DRAWN_TOKENS
        ),
    ),
    "explain": (OutputFile("-o", (".safetensors",), _STEPS, _save),),
    "compare": (
        OutputFile("-o", _PICTURES, "how the vectors of the word move", _movement_of_word, _VECTORS, _MAX_DRAWN_TOKENS),
    ),
    "explore": (
        OutputFile("-o", (".html",), "the page as one file, which works offline", _page, max_tokens=_MAX_DRAWN_TOKENS),
        OutputFile("-o", _PICTURES, "the losses and heads of a training run", _training),
    ),
    "generate": (OutputFile("-o", (".safetensors",), "the attention of the whole text", _save),),
    "attribute": (
        OutputFile("-o", _PICTURES, "each token with its contribution", _attribution, max_tokens=200),
        OutputFile("-o", (".csv",), "a table of token, score, attended", _attribution_table),
    ),
    "heads": (
        OutputFile(
            "-o",
            (".parquet", ".csv"),
            "a table of layer, head and metrics, of --corpus with intervals; Parquet needs pyarrow",
            _head_table,
        ),
    ),
    "embed": (
        OutputFile(
            "-o", (".npy", ".parquet"), "the vectors; Parquet (pyarrow): a table of line, text, vector", _vectors
        ),
    ),
}
"""The files of each command, by its name."""


def check_output_files(arguments: argparse.Namespace) -> None:
    """Check that each requested file has a suffix of its flag, is named once, and can be written.

    The error names the option and the file.
    """
    flags: dict[str, str] = {}
    for kind, path in _requested(arguments):
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112, PTH113
            continue  # a device or a pipe: opening it could block
        other = flags.setdefault(os.path.realpath(path), kind.flag)
        if other != kind.flag:
            raise RegardError(f"{other} and {kind.flag} name the same file, {path}: give each its own")
        with suppress(_DiscardError), atomic_write(path):
            raise _DiscardError


def check_length(arguments: argparse.Namespace, model: Any, length: int) -> None:
    """Check before a run that the requested files can hold a text of `length` tokens.

    Raises
    ------
    RegardError
        The message names the option and the limit.
    """
    for kind, _ in _requested(arguments):
        if kind.max_tokens is not None and length > kind.max_tokens:
            raise RegardError(
                f"{kind.flag}, {kind.content}: at most {kind.max_tokens:,} tokens, this text has {length:,}"
            )
        if kind.content == _STEPS and length > 2:
            _check_steps(kind.flag, model, length)


def _check_steps(flag: str, model: Any, length: int) -> None:
    from regard._utils.memory import gigabytes
    from regard.models.memory import estimate_memory
    from regard.trace import Trace

    if (size := estimate_memory(model, 1, length, Trace(maps=True)).recorded) > _MAX_STEPS_BYTES:
        raise RegardError(
            f"{flag}, {_STEPS}: at most {gigabytes(_MAX_STEPS_BYTES)}, those of {length:,} tokens take "
            f"{gigabytes(size)}; record some in Python: regard.Trace(maps=True, only=...)"
        )


def write_output_files(result: Any, arguments: argparse.Namespace) -> None:
    """Write the requested files from the result of the command; name each on standard error."""
    from regard.views import escape

    for kind, path in list(_requested(arguments)):
        content = kind.write(path, result, arguments) or kind.content
        if sys.stderr is not None:
            print(f"wrote {escape(path)}: {content}", file=sys.stderr)


def required_steps(arguments: argparse.Namespace, *steps: str) -> list[str] | None:
    """Return the steps that a trace needs for these files, beside `steps`; None: all."""
    needed = dict.fromkeys(steps)
    for kind, _ in _requested(arguments):
        if kind.steps is None:
            return None
        needed |= dict.fromkeys(kind.steps)
    return list(needed)


class _DiscardError(Exception):
    """Raised to leave `atomic_write` without a file."""


def _requested(arguments: argparse.Namespace) -> Iterator[tuple[OutputFile, str]]:
    kinds = OUTPUT_FILES[arguments.command]
    for flag in dict.fromkeys(kind.flag for kind in kinds):
        by_suffix = {suffix: kind for kind in kinds if kind.flag == flag for suffix in kind.suffixes}
        for path in getattr(arguments, "output" if flag == "-o" else flag.strip("-").replace("-", "_")):
            if (suffix := Path(path).suffix.lower()) not in by_suffix:
                *most, last = by_suffix
                known = f"{', '.join(most)} or {last}" if most else last
                raise RegardError(f"{flag} {path or repr(path)} needs the name of a file that ends with {known}")
            yield by_suffix[suffix], path
