"""``regard pull NAME``: fetch a model's files."""

from __future__ import annotations

import argparse

from regard.models import _sources


def run(arguments: argparse.Namespace) -> None:
    """Fetch the files of a model, unless they are here, and print the folder they are in."""
    print(_sources.pull(arguments.name, force=arguments.force))
