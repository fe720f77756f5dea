"""``regard completion SHELL``: a completion script for a shell."""

from __future__ import annotations

import argparse
from typing import Any

import shtab

from regard.cli.output import write
from regard.cli.parser import build
from regard.models.hub.registry import KNOWN


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    write(shtab.complete(_completable(), shell=arguments.shell))


def _completable() -> argparse.ArgumentParser:
    """Return the parser with completions of files and model names, and the options of ``show`` at the top."""
    parser, commands = build()
    for action in [action for command in commands.values() for action in command._actions]:
        completed: Any = action
        if action.metavar == "FILE":
            completed.complete = shtab.FILE
        elif action.metavar == "NAME":
            completed.choices = tuple(KNOWN)
    for action in commands["show"]._actions:
        if action.option_strings and action.dest != "help":
            parser._add_action(action)
    return parser
