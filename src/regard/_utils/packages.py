"""Packages that are imported when they are used, and may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from regard._utils.errors import RegardError

_INSTALLED_AS = {"PIL": "pillow"}  # where the name differs


@contextmanager
def needed(what: str, install: str | None = None) -> Iterator[None]:
    """Turn the error that a package is missing into one that says which to install; a decorator of functions too.

    Parameters
    ----------
    what : str
        What needs the package: ``"a figure"``.
    install : str, optional
        What installs it. Default: the package itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (message := missing(error, what, install)) is None:
            raise
        raise RegardError(message) from error


def missing(error: ModuleNotFoundError, what: str, install: str | None = None) -> str | None:
    """Return the sentence that says which package to install; None if a module of regard itself is missing."""
    name = (error.name or "").partition(".")[0]
    name = _INSTALLED_AS.get(name, name)
    if name in ("", "regard"):
        return None
    return f"{what} needs {name}: pip install {install or name}"
