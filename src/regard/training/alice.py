"""A text to train on."""

from __future__ import annotations

from importlib.resources import files


def alice() -> str:
    """Return *Alice's Adventures in Wonderland*, 143,000 characters, to train a small model on.

    Lewis Carroll published it in 1865; it is in the public domain. The text is the edition of Project Gutenberg called
    "Millennium Fulcrum 2.9", as the file ``alice29.txt`` of the Canterbury corpus has it, without its title page, its
    rows of asterisks, its indentation, and two notes on later editions.

    Examples
    --------
    >>> alice().splitlines()[4]
    'Alice was beginning to get very tired of sitting by her sister'
    """
    return files("regard.training").joinpath("alice.txt").read_text(encoding="utf-8")
