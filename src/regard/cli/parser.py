"""Parsing the command line. Runs nothing and imports nothing heavy."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.cli import commands
from regard.cli.options import Command, add_options, read_options
from regard.cli.output import writing
from regard.cli.shared_options import choose_layer

_DEFAULT_COMMAND = "show"
_OTHER_NAMES = {"help": "--help", "version": "--version", "list": "models", "download": "pull NAME"}
_EPILOG = """\
regard TEXT is short for regard show TEXT; regard show --help lists its options.
Each argument is one text: quote it. Put a text that starts with - or is like the name of a command after --:
regard -- TEXT.

examples:
  regard "The cat sat on the mat"
  regard "The animal was too tired" --word tired --head L3H7
  regard "The cat sat on the mat" -o cat.png
  regard explain "The cat sat" --word cat
  regard compare "She sat on the river bank" "She went to the bank for a loan" --word bank
  regard explore "The cat sat on the mat"
  regard generate "Once upon a time" --max-new-tokens 60
"""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 14  # commands, which are indented twice, on one line with their help


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are a `RegardError` of one line."""

    def error(self, message: str) -> NoReturn:
        raise RegardError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from difflib import get_close_matches

            from regard.cli.texts import is_file

            meant = get_close_matches(str(value).lower(), list(action.choices or ()), n=1)
            if not meant and "--file" in self._option_string_actions and is_file(str(value)):
                meant = [f"--file {shlex.quote(str(value))}"]
            error.message += "".join(f"; did you mean {each}?" for each in meant)
            raise

    def _print_message(self, message: str, file: Any = None) -> None:
        with writing():  # argparse ignores a full disk
            print(message, end="", file=file)


class Call(NamedTuple):
    """A command that was typed."""

    module: ModuleType  # of `regard.cli.commands`
    options: Any  # its `Options`
    verbose: bool


def parse(argv: Sequence[str]) -> Call:
    """Return the command with its options; an error if they are invalid.

    Without the name of a command the arguments are those of ``show``.
    """
    words, names = list(argv), command_names()
    if not words:
        raise RegardError('no text: try regard "The cat sat on the mat", regard - for standard input, or regard --help')
    if words[0] not in (*names, "-h", "--help", "--version"):
        _check_no_command_meant(words, names)
        words.insert(0, _DEFAULT_COMMAND)
    for word in takewhile(lambda word: word != "--", words):
        if re.match(r"-[^\W\d_]{2}", word):
            raise RegardError(f"unknown option {word}; put a text that starts with - after --: regard -- TEXT")
    parser, parsers = build([words[0]] if words[0] in names else names)
    parsed, rest = parser.parse_known_args(words)
    if rest and rest[0].startswith("-"):
        raise _unknown_option(rest[0], parsers[words[0]])
    if rest:
        raise RegardError(f"unexpected argument {' '.join(rest)!r}; quote each text")
    choose_layer(parsed)
    parsed.literal = "--" in words
    module = command_module(words[0])
    return Call(module, read_options(module.Options, parsed), parsed.verbose)


def command_names() -> list[str]:
    """Return the names of all commands: those of the modules in `regard.cli.commands`."""
    return [module.name for module in pkgutil.iter_modules(commands.__path__)]


def command_module(name: str) -> ModuleType:
    """Return the module of a command; what only its `run` imports is not imported yet."""
    return importlib.import_module(f"regard.cli.commands.{name}")


def _check_no_command_meant(words: Sequence[str], names: Sequence[str]) -> None:
    """Raise `RegardError` if the first argument, neither an option nor several words, is almost a command."""
    from difflib import get_close_matches

    if words[0].startswith("-") or words[0].split() != [words[0]]:
        return
    if (meant := _OTHER_NAMES.get(words[0].lower())) is not None:
        raise RegardError(
            f"there is no command {words[0]}: type regard {meant}. To use it as a text, put it after --: "
            f"regard -- {words[0]}"
        )
    if close := get_close_matches(words[0].lower(), names, n=1, cutoff=0.75):
        raise RegardError(
            f"unknown command {words[0]}; did you mean {close[0]}? To use it as a text, put it after --: "
            f"regard -- {words[0]}"
        )


def _unknown_option(option: str, parser: argparse.ArgumentParser) -> RegardError:
    from difflib import get_close_matches

    by_bare_name = {name.strip("-"): name for name in parser._option_string_actions}
    close = get_close_matches(option.strip("-"), by_bare_name, n=1)
    return RegardError(
        f"unknown option {option}; did you mean {by_bare_name[close[0]]}?"
        if close
        else f"unknown option {option}; see {parser.prog} --help"
    )


def build(names: Sequence[str]) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, with the commands of these names, and that of each command."""
    parser = _Parser(
        prog="regard",
        description="Self-attention you can see through: which word attends to which, and why.",
        usage="regard TEXT [options]\n       regard COMMAND ...",
        epilog=_EPILOG,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"regard {__version__}")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", prog="regard", parser_class=_Parser, required=True
    )
    modules = {name: command_module(name) for name in names}
    for name, module in sorted(modules.items(), key=lambda item: (item[1].COMMAND.place, item[0])):
        command: Command = module.COMMAND
        subparser = subparsers.add_parser(
            name,
            help=command.summary,
            usage=f"regard {name} {command.usage}",
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"examples:\n{command.examples}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        subparser.set_defaults(command=name)
        add_options(subparser, module.Options)
        subparser.add_argument("--verbose", action="store_true", help="print the details of an error too")
    return parser, subparsers.choices
