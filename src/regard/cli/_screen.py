"""Writing to the terminal: with colour or without, as wide as it is."""

from __future__ import annotations

import argparse
from typing import NoReturn

from rich.console import Console


class _Screen(Console):
    """A console that leaves it to the command to end when nobody reads it any more."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def screen(arguments: argparse.Namespace) -> Console:
    """Return the console that a command prints to, as its ``--colour`` says.

    Standard output that is no terminal, ``NO_COLOR`` and ``TERM=dumb`` mean no colour under ``auto``.
    """
    wanted = arguments.colour
    return _Screen(
        force_terminal=True if wanted == "always" else None,
        no_color=True if wanted == "never" else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def has_colour(console: Console) -> bool:
    """Tell whether `console` shows shades of colour: 256 or more, for the 16 old ones have no order."""
    return console.color_system in ("256", "truecolor", "windows") and not console.no_color
