"""``regard completion SHELL``: a completion script for a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, argument, options

if TYPE_CHECKING:
    from argparse import ArgumentParser

with deferred_imports():
    import shtab

    from regard.cli.output import write
    from regard.cli.parser import build, command_names
    from regard.models.hub.registry import KNOWN

COMMAND = Command(
    place=14,
    summary="print a completion script for a shell",
    usage="{bash,zsh,tcsh}",
    examples="""\
  regard completion bash > ~/.local/share/bash-completion/completions/regard
  regard completion zsh > ~/.zfunc/_regard    (with fpath+=~/.zfunc before compinit)
  regard completion tcsh > ~/.regard.tcsh     (and source it in ~/.tcshrc)""",
)


@options
class Options:
    """What is typed."""

    shell: str = argument(None, "the shell", choices=("bash", "zsh", "tcsh"))


def run(options: Options) -> None:
    """Print the script."""
    write(shtab.complete(_completable(), shell=options.shell))


def _completable() -> ArgumentParser:
    """Return the parser with completions of files and model names, and the options of ``show`` at the top."""
    parser, commands = build(command_names())
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
