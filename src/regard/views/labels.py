"""Labels of tokens, which may be hostile text: visible characters only, without effect on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from regard._utils.cells import cell_len

_JOINERS = "\u200c\u200d"
_JOINABLE = {"Lo", "Mn", "Mc", "So", "Sk"}
_INVISIBLE = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MAX_MARKS = 3  # on one letter


def code_point(character: str) -> str:
    """Return the code point of a character: ``⟨U+202E⟩``."""
    return f"⟨U+{ord(character):04X}⟩"


def escape(text: str, width: int | None = None, missing: Collection[str] = ()) -> str:
    """Return `text` as one line of visible characters without control characters.

    Control characters become their pictures (``␛``); direction marks, zero-width characters, lone surrogates and
    unassigned characters become code points (``⟨U+202E⟩``). Spaces become ``␣`` in a text of spaces only. Letters of
    every script are unchanged, with the joiners that Persian, Indic scripts and emoji need. Combining marks on one
    letter are counted after the third.

    Parameters
    ----------
    text : str
    width : int, optional
        Maximum number of terminal columns (an East Asian wide character takes two). The middle of a longer text
        becomes ``…``.
    missing : collection of str
        Other characters to show as code points, such as those that no font draws.
    """
    clusters = _clusters(text, missing)
    if width is None or sum(map(cell_len, clusters)) <= width:
        return "".join(clusters)
    tail = _take_columns(clusters[::-1], (width - 1) // 2)[::-1]
    head = _take_columns(clusters, width - 1 - sum(map(cell_len, tail)))
    return "".join([*head, "…", *tail])


def format_number(value: float, spec: str = ".2f") -> str:
    """Return a number with a minus sign (U+2212) in place of a hyphen."""
    return format(value, spec).replace("-", "−")


def head_label(layer: int, head: int) -> str:
    """Return the short name of a head: ``L3H7`` is head 7 of layer 3, both from 0."""
    return f"L{layer}H{head}"


def _clusters(text: str, missing: Collection[str]) -> list[str]:
    """Split into units of display: a letter with its marks, a joined emoji, an escape."""
    blank = not text.strip()
    clusters: list[str] = []
    marks = 0
    joined = False  # whether the previous character is a joiner in use
    for at, character in enumerate(text):
        category = unicodedata.category(character)
        is_mark = category in ("Mn", "Me") and character not in _INVISIBLE and character not in missing
        marks = marks + 1 if is_mark else 0
        if character in _JOINERS and _joins(text, at):
            clusters[-1] += character
            joined = True
            continue
        if is_mark and marks > _MAX_MARKS:
            if marks == _MAX_MARKS + 1:
                clusters.append(f"⟨+{_run_of_marks(text, at)} marks⟩")
        elif is_mark and (not clusters or clusters[-1] == " " or clusters[-1].startswith("⟨")):
            clusters.append("◌" + character)
        elif is_mark or (joined and character not in missing):
            clusters[-1] += character
        else:
            shown = _visible(character, category, blank)
            clusters.append(code_point(character) if shown in missing else shown)
        joined = False
    return clusters


def _visible(character: str, category: str, blank: bool) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if character == " ":
        return "␣" if blank else " "
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or character in _INVISIBLE:
        return code_point(character)
    return code_point(character) if blank else character


def _joins(text: str, at: int) -> bool:
    """Return whether the joiner at this index belongs to the spelling, as in Persian, Indic scripts and emoji."""
    neighbours = text[at - 1 : at] + text[at + 1 : at + 2]
    return len(neighbours) == 2 and all(
        unicodedata.category(c) in _JOINABLE and c not in _INVISIBLE for c in neighbours
    )


def _run_of_marks(text: str, start: int) -> int:
    end = start
    while end < len(text) and unicodedata.category(text[end]) in ("Mn", "Me"):
        end += 1
    return end - start


def _take_columns(clusters: list[str], width: int) -> list[str]:
    kept: list[str] = []
    for cluster in clusters:
        width -= cell_len(cluster)
        if width < 0:
            break
        kept.append(cluster)
    return kept
