"""``regard models``: the known models and their folders."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from regard.cli.console import make_console
from regard.models.hub import resolve
from regard.views import escape


def run(arguments: argparse.Namespace) -> None:
    """Print a table of the known models."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("name", "description", "layers × heads", "licence", "folder"):
        table.add_column(heading, overflow="fold")
    for entry, found in resolve.installed():
        where = Text(f"not downloaded; run regard pull {entry.name}" if found is None else escape(str(found)))
        table.add_row(entry.name, entry.summary, f"{entry.layers} × {entry.heads}", entry.licence, where)
    make_console(arguments).print(table)
