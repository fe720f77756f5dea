"""The ``regard`` command: thin, one module for each subcommand; everything it shows can be had from Python."""

from regard.cli.main import main

__all__ = ["main"]
