"""The short name of a head, ``L3H7``: head 7 of layer 3, both from 0."""

from __future__ import annotations

import re


def parse_head(name: str) -> tuple[int, int] | None:
    """Return the layer and the head of a short name, in capitals or not; None if it is none."""
    match = re.fullmatch(r"[Ll]([0-9]{1,9})[Hh]([0-9]{1,9})", name)
    return None if match is None else (int(match[1]), int(match[2]))
