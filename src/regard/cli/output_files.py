"""The files that a command is to write: what would fail at the end is told before anything is read or computed."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from pathlib import Path

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write

_PICTURES = (".png", ".svg", ".pdf")
_VECTORS = (".npy", ".parquet")
_ENDINGS = {
    "out": _VECTORS,
    "png": (".png",),
    "svg": (".svg",),
    "heads": _PICTURES,
    "movement": _PICTURES,
    "save": (),
    "html": (".html",),
}


def check_targets(arguments: argparse.Namespace) -> None:
    """Make sure that each file of the options can be written, and that they are different ones.

    Raises
    ------
    RegardError
        A name has the wrong ending or is given twice; or nothing can be written there.
    """
    named: dict[str, str] = {}
    for option, endings in _ENDINGS.items():
        target = getattr(arguments, f"{option}_file", None)
        if target is None:
            continue
        _check_name(option, target, endings)
        if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):  # noqa: PTH110, PTH112, PTH113
            continue  # a device or a pipe: to open it could wait for ever
        other = named.setdefault(os.path.realpath(target), option)
        if other != option:
            raise RegardError(f"--{other} and --{option} name the same file, {target}: give each its own")
        with suppress(_LeaveOffError), atomic_write(target):
            raise _LeaveOffError


class _LeaveOffError(Exception):
    """Writing was possible, and ends here: nothing is left behind."""


def _check_name(option: str, target: str, endings: tuple[str, ...]) -> None:
    if not target:
        raise RegardError(f"--{option} needs the name of a file")
    ending = Path(target).suffix.lower()
    # Where the option alone says what is written, any ending will do that does not say something else.
    if endings and ending not in endings and (endings in (_PICTURES, _VECTORS) or ending in _PICTURES):
        meant = f"; for the number of heads: --num-heads {target}" if option == "heads" and target.isdigit() else ""
        raise RegardError(f"--{option} {target} needs the ending {' or '.join(endings)}{meant}")
