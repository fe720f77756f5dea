"""``regard models``: the known models and their folders."""

from __future__ import annotations

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, options
from regard.cli.shared_options import color

with deferred_imports():
    from rich.text import Text

    from regard.cli.console import make_console
    from regard.models.hub import resolve
    from regard.views import escape

COMMAND = Command(
    place=11,
    summary="list the known models and their folders",
    usage="[options]",
    examples="  regard models",
)


@options
class Options:
    """What is typed."""

    color: str = color()


def run(options: Options) -> None:
    """Print each known model, and where its files are."""
    entries = resolve.installed()
    width = max(len(entry.name) for entry, _ in entries) + 2
    page = Text()
    for entry, folder in entries:
        where = f"not downloaded; run regard pull {entry.name}" if folder is None else escape(str(folder))
        page.append(entry.name.ljust(width), style="bold").append(f"{entry.summary}\n")
        page.append(f"{' ' * width}{entry.layers} layers × {entry.heads} heads, {entry.licence}\n")
        page.append(f"{' ' * width}{where}\n\n", style="dim")
    page.rstrip()
    make_console(options.color).print(page, soft_wrap=True)  # a path is not broken
