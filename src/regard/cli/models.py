"""``regard models``: the names that work, and where the files of each are."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from regard.cli.console import screen
from regard.models.hub import resolve
from regard.views import readable


def run(arguments: argparse.Namespace) -> None:
    """Print a table of the models with a name."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("name", "what it is", "layers × heads", "licence", "where"):
        table.add_column(heading, overflow="fold")
    for entry, found in resolve.installed():
        where = Text(f"not here; regard pull {entry.name} fetches it" if found is None else readable(str(found)))
        table.add_row(entry.name, entry.summary, f"{entry.layers} × {entry.heads}", entry.licence, where)
    screen(arguments).print(table)
