"""The files that commands write: the option and suffixes of each kind, and checks before anything is computed.

A command declares its kinds of files as a field, `output_files`, and writes them with `OutputFiles.write`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from regard._utils.errors import RegardError
from regard.cli.options import Groups


class OutputFile(NamedTuple):
    """One kind of file that a command writes."""

    flag: str  # the option that names it; -o for kinds that differ by suffix
    suffixes: tuple[str, ...]
    content: str  # for --help, and for the line that says what was written unless its writer returns it
    steps: tuple[str, ...] | None = None  # required in the trace; None: all
    max_tokens: int | None = None  # of a text; of more it would take too long, or show nothing


Writer: TypeAlias = Callable[[str], str | None]  # from a path

PICTURES = (".png", ".svg", ".pdf")
WEIGHTS, VECTORS = ("blocks.*.attn.weights",), ("token_embeddings", "blocks.*.output")
MAX_DRAWN_TOKENS = 2048
TRACE = OutputFile("-o", (".safetensors",), "every step of the run")
_MAX_STEPS_BYTES = 1_000_000_000
_ELSEWHERE = {
    ".html": "; regard explore TEXT -o FILE.html writes a page",
    ".json": "; where a command has --json, it prints its numbers",
}


def output_files(*kinds: OutputFile) -> Any:
    """Declare `OutputFiles`: an option for each flag of these kinds."""
    return _Declaration(kinds)


class _Declaration(NamedTuple):
    kinds: tuple[OutputFile, ...]

    def add(self, _: str, groups: Groups) -> None:
        for flag in self._flags():
            kinds = [kind for kind in self.kinds if kind.flag == flag]
            what = ", or ".join(f"{kind.content} ({' '.join(kind.suffixes)})" for kind in kinds)
            names = ("-o", "--output") if flag == "-o" else (flag,)
            groups("files").add_argument(*names, action="append", default=[], metavar="FILE", help=what)

    def read(self, _: str, parsed: argparse.Namespace) -> OutputFiles:
        names = {flag: "output" if flag == "-o" else flag.strip("-").replace("-", "_") for flag in self._flags()}
        return OutputFiles(self.kinds, {flag: tuple(getattr(parsed, name)) for flag, name in names.items()})

    def _flags(self) -> list[str]:
        return list(dict.fromkeys(kind.flag for kind in self.kinds))


class OutputFiles(NamedTuple):
    """The files that are requested: the paths of each flag."""

    kinds: tuple[OutputFile, ...]
    paths: Mapping[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        return any(self.paths.values())

    def has(self, *kinds: OutputFile) -> bool:
        """Tell whether a file of one of these kinds is requested."""
        return any(kind in kinds for kind, _ in self._requested())

    def check(self) -> None:
        """Check that each requested file has a suffix of its flag, is named once, and can be written.

        The error names the option and the file.
        """
        from regard._utils.files import atomic_write

        flags: dict[str, str] = {}
        for kind, path in self._requested():
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112, PTH113
                continue  # a device or a pipe: opening it could block
            other = flags.setdefault(os.path.realpath(path), kind.flag)
            if other != kind.flag:
                raise RegardError(f"{other} and {kind.flag} name the same file, {path}: give each its own")
            with suppress(_DiscardError), atomic_write(path):
                raise _DiscardError

    def check_length(self, model: Any, length: int) -> None:
        """Check before a run that the requested files can hold a text of `length` tokens.

        Raises
        ------
        RegardError
            The message names the option and the limit.
        """
        for kind, _ in self._requested():
            if kind.max_tokens is not None and length > kind.max_tokens:
                raise RegardError(
                    f"{kind.flag}, {kind.content}: at most {kind.max_tokens:,} tokens, this text has {length:,}"
                )
            if kind == TRACE and length > 2:
                _check_trace(model, length)

    def required_steps(self, *steps: str) -> list[str] | None:
        """Return the steps that a trace needs for these files, in addition to `steps`; None: all."""
        needed = dict.fromkeys(steps)
        for kind, _ in self._requested():
            if kind.steps is None:
                return None
            needed |= dict.fromkeys(kind.steps)
        return list(needed)

    def write(self, writers: Mapping[OutputFile, Writer]) -> None:
        """Write the requested files; name each on standard error."""
        from regard.views import escape

        if missing := [kind for kind in self.kinds if kind not in writers]:
            raise TypeError(f"nothing writes {missing[0].flag}, {missing[0].content}")
        for kind, path in list(self._requested()):
            content = writers[kind](path) or kind.content
            if sys.stderr is not None:
                print(f"wrote {escape(path)}: {content}", file=sys.stderr)

    def _requested(self) -> Iterator[tuple[OutputFile, str]]:
        from pathlib import PurePath

        for flag, paths in self.paths.items():
            by_suffix = {suffix: kind for kind in self.kinds if kind.flag == flag for suffix in kind.suffixes}
            for path in paths:
                if (suffix := PurePath(path).suffix.lower()) not in by_suffix:
                    *most, last = by_suffix
                    suffixes = f"{', '.join(most)} or {last}" if most else last
                    other = _ELSEWHERE.get(suffix, "")
                    raise RegardError(
                        f"{flag} {path or repr(path)} needs the name of a file that ends with {suffixes}{other}"
                    )
                yield by_suffix[suffix], path


def _check_trace(model: Any, length: int) -> None:
    from regard._utils.memory import gigabytes
    from regard.models.memory import estimate_memory
    from regard.trace import Trace

    if (size := estimate_memory(model, 1, length, Trace(maps=True, only="*")).recorded) > _MAX_STEPS_BYTES:
        raise RegardError(
            f"{TRACE.flag}, {TRACE.content}: at most {gigabytes(_MAX_STEPS_BYTES)}, those of {length:,} tokens take "
            f"{gigabytes(size)}; record some in Python: regard.Trace(maps=True, only=...)"
        )


class _DiscardError(Exception):
    """Raised to leave `atomic_write` without a file."""
