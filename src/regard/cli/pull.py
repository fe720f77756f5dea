"""``regard pull NAME``: download a model."""

from __future__ import annotations

import argparse

from regard.cli.output import write
from regard.models.hub import resolve
from regard.views import escape


def run(arguments: argparse.Namespace) -> None:
    """Download a model unless it is there already, and print its folder."""
    write(escape(str(resolve.pull(arguments.name, force=arguments.force))))
