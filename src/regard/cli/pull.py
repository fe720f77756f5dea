"""``regard pull NAME``: fetch a model's files."""

from __future__ import annotations

import argparse

from regard.cli.output import write
from regard.models.hub import resolve
from regard.views import readable


def run(arguments: argparse.Namespace) -> None:
    """Fetch the files of a model, unless they are here, and print the folder they are in."""
    write(readable(str(resolve.pull(arguments.name, force=arguments.force))))
