"""The address of a page, which says what it shows and of which text: another machine opens the same."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard.models.hub.registry import KNOWN

_MAX_CHARACTERS = 20_000
_MAX_PARTS = 64
_MODELS = ("model", "model_b")


class Address(NamedTuple):
    """What an address names."""

    text: str | None  # of A; None too where it was too long for an address
    text_b: str | None
    models: tuple[str, ...]  # none, one, or two
    view: str  # the rest of the fragment, as the page takes it


def read_address(address: str) -> Address:
    """Return what an address names, or one in a file: ``http://127.0.0.1:8765/…/#v=head&text=…``, or what follows #.

    Only the part after # is read: nothing is requested. An error if it names no view, a model of B
    alone or an unknown one, or says the same twice.
    """
    if "#" not in address and _is_file(address):
        address = _read(Path(address))
    _, separator, fragment = address.strip().partition("#")
    if len(address) > _MAX_CHARACTERS:
        raise RegardError(f"an address has at most {_MAX_CHARACTERS:,} characters, this one {len(address):,}")
    try:
        pairs = parse_qsl(fragment, keep_blank_values=True, max_num_fields=_MAX_PARTS)
    except ValueError:
        pairs = []
    parts = dict(pairs)
    if not separator or "v" not in parts:
        raise RegardError(
            f"{address[:60]!r} is not an address of the explorer: copy it from the page, with all after its #"
        )
    if len(parts) < len(pairs):
        raise RegardError("the address says the same twice: copy it from the page again")
    if "model_b" in parts and "model" not in parts:
        raise RegardError("the address names the model of B and not that of A: copy it from the page again")
    text, text_b = parts.pop("text", None), parts.pop("text_b", None)
    models = tuple(parts.pop(key) for key in _MODELS if key in parts)
    if unknown := [name for name in models if name not in KNOWN]:
        raise RegardError(f"the address is of the model {unknown[0]!r}, which has no name here: give it with --model")
    return Address(text, text_b, models, urlencode(parts))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False


def _read(path: Path) -> str:
    try:
        with open_regular(path, "utf-8") as file:
            return file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"cannot read an address from {path}: {getattr(error, 'strerror', None) or error}") from error
