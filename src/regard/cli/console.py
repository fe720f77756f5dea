"""Writing to the terminal: with colour or without, as wide as it is."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from regard.cli.output import writing
from regard.models import Model, Toy
from regard.views import readable

_WIDTH = 80  # where the terminal does not say


class _Screen(Console):
    """A console that leaves it to the command to end when nobody reads it any more."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        with writing():
            super().print(*objects, **options)


def screen(arguments: argparse.Namespace) -> Console:
    """Return the console that a command prints to, as its ``--colour`` says.

    Standard output that is no terminal, ``NO_COLOR`` and ``TERM=dumb`` mean no colour under ``auto``.
    """
    wanted = arguments.colour
    console = _Screen(
        force_terminal=True if wanted == "always" else None,
        no_color=True if wanted == "never" else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    if console.width < 1:  # COLUMNS=0
        console.width = _WIDTH
    return console


def introduce(console: Console, model: Model, more: str = "") -> None:
    """Print the name of a model, `more` on the same line, and a warning where its weights mean nothing."""
    console.print(Text.assemble((readable(model.name), "bold"), more))
    if isinstance(model, Toy):
        console.print(Text("Its weights are random: what looks at what means nothing.", style="yellow"))


def has_colour(console: Console) -> bool:
    """Tell whether `console` shows shades of colour: 256 or more, for the 16 old ones have no order."""
    return console.color_system in ("256", "truecolor", "windows") and not console.no_color
