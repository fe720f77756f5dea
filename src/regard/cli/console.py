"""The terminal: its colours and its width."""

from __future__ import annotations

from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.output import writing
from regard.models import ImageModel, Model, Toy
from regard.views import escape

_DEFAULT_WIDTH = 80
_WARNING = "#af5f00"  # readable on a light and on a dark background


class _Console(Console):
    """A console that raises when its reader closes the pipe or the disk is full."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        with writing():
            super().print(*objects, **options)


def make_console(color: str) -> Console:
    """Return the console for a value of ``--color``; ``auto``: a terminal without ``NO_COLOR`` or ``TERM=dumb``."""
    console = _Console(
        force_terminal=True if color == "always" else None,
        no_color=True if color == "never" else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    if console.width < 1:  # COLUMNS=0
        console.width = _DEFAULT_WIDTH
    return console


def open_page(color: str, model: Model | ImageModel, more: str = "") -> Console:
    """Return the console for a value of ``--color``, after the header of a model."""
    console = make_console(color)
    print_header(console, model, more)
    return console


def make_table(*headings: str) -> Table:
    """Return a table without lines; a heading that begins with ``>`` is of a column at the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")
    return table


def print_header(console: Console, model: Model | ImageModel, more: str = "") -> None:
    """Print the name of a model, `more` on the same line, and a warning if its weights are random."""
    console.print(Text.assemble((escape(model.name), "bold"), more))
    if isinstance(model, Toy):
        console.print(Text("Random weights: the attention pattern is meaningless.", style=_WARNING))


def has_color(console: Console) -> bool:
    """Return whether `console` has shades of colour: 256 or more; the 16 standard ones have no order."""
    return console.color_system in ("256", "truecolor", "windows") and not console.no_color
