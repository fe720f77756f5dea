"""``regard models``: the known models and their folders."""

from __future__ import annotations

import argparse

from rich.text import Text

from regard.cli.console import make_console
from regard.models.hub import resolve
from regard.views import escape


def run(arguments: argparse.Namespace) -> None:
    """Print each known model, and where its files are."""
    found = resolve.installed()
    width = max(len(entry.name) for entry, _ in found) + 2
    page = Text()
    for entry, folder in found:
        where = f"not downloaded; run regard pull {entry.name}" if folder is None else escape(str(folder))
        page.append(entry.name.ljust(width), style="bold").append(f"{entry.summary}\n")
        page.append(f"{' ' * width}{entry.layers} layers × {entry.heads} heads, {entry.licence}\n")
        page.append(f"{' ' * width}{where}\n\n", style="dim")
    page.rstrip()
    make_console(arguments).print(page, soft_wrap=True)  # a path is not broken
