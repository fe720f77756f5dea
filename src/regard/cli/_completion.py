"""``regard completion SHELL``: a script that completes regard's words."""

from __future__ import annotations

import argparse

from regard.cli._parser import build


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    print(shtab.complete(build(), shell=arguments.shell))
