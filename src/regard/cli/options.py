"""Options of a command, declared as the fields of a frozen dataclass. Imports nothing heavy.

`add_options` makes the arguments of a parser from the fields, and `read_options` an instance from what was parsed::

    @options
    class Options:
        name: str = argument("NAME", "a name from regard models")
        force: bool = flag("download again what is already there")
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, dataclass_transform

T = TypeVar("T")
Groups: TypeAlias = Callable[[str], argparse._ActionsContainer]  # from the title of a group; "" is the parser


class Command(NamedTuple):
    """What ``--help`` says of a command."""

    summary: str  # its line in ``regard --help``
    usage: str  # after the name of the command
    examples: str
    place: int = 1000  # in ``regard --help``, among those of the same place by name


class Declaration(Protocol):
    """What the field of a dataclass declares: arguments, and how its value is read from the parsed ones."""

    def add(self, name: str, groups: Groups) -> None:
        """Add the arguments of the field `name`."""

    def read(self, name: str, parsed: argparse.Namespace) -> Any:
        """Return the value of the field `name`."""


class _Option(NamedTuple):
    """An option or, without `flags`, a positional argument."""

    flags: tuple[str, ...] | None
    group: str
    settings: Mapping[str, Any]

    def add(self, name: str, groups: Groups) -> None:
        groups(self.group).add_argument(*self._names(name), **self.settings)

    def read(self, name: str, parsed: argparse.Namespace) -> Any:
        return getattr(parsed, self._names(name)[-1].lstrip("-").replace("-", "_"))

    def _names(self, name: str) -> tuple[str, ...]:
        if self.flags is None:
            return (name,)
        return self.flags or (f"--{name.replace('_', '-')}",)


class _Shared(NamedTuple):
    """The fields of another dataclass; `settings` has changes to those of its fields."""

    options: type
    group: str
    settings: Mapping[str, Mapping[str, Any]]

    def add(self, _: str, groups: Groups) -> None:
        fields = declarations(self.options)
        if unknown := [name for name in self.settings if not isinstance(fields.get(name), _Option)]:
            raise TypeError(f"{self.options.__name__} has no option {', '.join(unknown)} whose settings can change")
        for inner, declared in fields.items():
            if isinstance(declared, _Option):
                declared = declared._replace(settings={**declared.settings, **self.settings.get(inner, {})})
            if declared is not None:
                declared.add(inner, lambda title: groups(title or self.group))

    def read(self, _: str, parsed: argparse.Namespace) -> Any:
        return read_options(self.options, parsed)


def option(metavar: str | None, help: str, *, flags: tuple[str, ...] = (), group: str = "", **settings: Any) -> Any:
    """Declare an option with a value: ``--name-of-the-field METAVAR``, or `flags`, the long one last.

    Parameters
    ----------
    metavar : str or None
        Of the value; None: its choices.
    help : str
        Of the option.
    flags : tuple of str
        As they are typed, where the name of the field is not the option.
    group : str
        Title of its group in ``--help``.
    **settings
        Of `argparse.ArgumentParser.add_argument`.
    """
    return _Option(flags, group, {"metavar": metavar, "help": help, **settings})


def flag(help: str, *, flags: tuple[str, ...] = (), group: str = "") -> Any:
    """Declare an option without a value, as `option` does; the field is whether it was given."""
    return _Option(flags, group, {"action": "store_true", "help": help})


def argument(metavar: str | None, help: str, **settings: Any) -> Any:
    """Declare a positional argument."""
    return _Option(None, "", {"metavar": metavar, "help": help, **settings})


def shared(options: type, *, group: str = "", **settings: Mapping[str, Any]) -> Any:
    """Declare the options of another dataclass, in a group; `settings` has changes to those of its fields."""
    return _Shared(options, group, settings)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, flag, argument, shared))
def options(declared: type[T]) -> type[T]:
    """Make a class, with declarations in place of the defaults of its fields, a frozen dataclass.

    It becomes one when it is first instantiated: to make those of all commands would double the time of ``--help``.
    """
    fields = {name: vars(declared).get(name) for name in declared.__annotations__}
    for name in [name for name, declaration in fields.items() if declaration is not None]:
        if not hasattr(fields[name], "add"):
            raise TypeError(f"{name} is declared by option, flag, argument or shared, got {fields[name]!r}")
        delattr(declared, name)

    def first(self: T, **values: Any) -> None:
        from dataclasses import dataclass

        del declared.__init__
        dataclass(frozen=True, kw_only=True)(declared)
        declared.__init__(self, **values)

    declared.__init__ = first  # type: ignore[assignment]
    declared.__declarations__ = fields  # type: ignore[attr-defined]
    return declared


def declarations(options: type) -> dict[str, Declaration | None]:
    """Return the declaration of each field; None for one whose value is taken from the parsed arguments by its name."""
    declared: dict[str, Declaration | None] = options.__declarations__  # type: ignore[attr-defined]
    return declared


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Add the arguments that a dataclass declares."""
    titled: dict[str, argparse._ActionsContainer] = {"": parser}

    def groups(title: str) -> argparse._ActionsContainer:
        if title not in titled:
            titled[title] = parser.add_argument_group(title)
        return titled[title]

    for name, declared in declarations(options).items():
        if declared is not None:
            declared.add(name, groups)


def read_options(options: type[T], parsed: argparse.Namespace) -> T:
    """Return an instance of a dataclass of options from parsed arguments."""
    return options(
        **{
            name: getattr(parsed, name) if declared is None else declared.read(name, parsed)
            for name, declared in declarations(options).items()
        }
    )


def given_options(options: Any, *flags: str) -> list[str]:
    """Return those of `flags` that have a value in an instance of a dataclass."""
    values = dict(_values(options))
    return [each for each in flags if values[each] is not None and values[each] is not False]


def _values(options: Any) -> Iterator[tuple[str, Any]]:
    for name, declared in declarations(type(options)).items():
        value = getattr(options, name)
        if isinstance(declared, _Option):
            yield declared._names(name)[-1], value
        elif isinstance(declared, _Shared):
            yield from _values(value)


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
