"""The ``regard`` command: one module for each subcommand, over the Python API."""

from regard.cli.main import main

__all__ = ["main"]
