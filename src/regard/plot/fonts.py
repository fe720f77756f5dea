"""Finding installed fonts for the characters of some labels, so that none is drawn as an empty box.

matplotlib's own DejaVu Sans draws Latin, Greek, Cyrillic, Hebrew, Arabic and more; others are looked for only when
a label needs them. What no font has is written as its code point.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.views.labels import readable

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

_FIRST = "DejaVu Sans"
_WITHOUT_INK = {" ", "\u00a0", "\u3000", "\u200c", "\u200d", *map(chr, range(0xFE00, 0xFE10))}


@dataclass(frozen=True)
class Lettering:
    """The fonts for a set of labels.

    Parameters
    ----------
    families : tuple of str
        Font families in the order in which matplotlib is to try them.
    missing : frozenset of str
        The characters that none of them has.
    """

    families: tuple[str, ...]
    missing: frozenset[str]

    def label(self, text: str, width: int | None = None) -> str:
        """Return `readable(text, width)` in characters that can be drawn."""
        return readable(text, width, self.missing)


def lettering(texts: Iterable[str]) -> Lettering:
    """Return the fonts that draw the labels of `texts`.

    Those that cover most of what is still missing come first; among equals a sans serif is taken.
    """
    missing = {character for text in texts for character in readable(text)}
    missing -= _drawn(_font(_FIRST), missing)
    families = [_FIRST]
    if missing:
        families += _covering(missing, _installed())
    if missing and (new := _newly_installed()):
        families += _covering(missing, new)
    return Lettering(tuple(families), frozenset(missing))


def _covering(missing: set[str], names: Iterable[str]) -> list[str]:
    """Return the fonts among `names` that draw what is missing, and take out of `missing` what they draw."""
    drawn = {name: _drawn(_font(name), missing) for name in names}
    families = []
    while drawn:
        best = min(drawn, key=lambda name: (-len(drawn[name] & missing), "Sans" not in name, name))
        if not drawn[best] & missing:
            break
        families.append(best)
        missing -= drawn.pop(best)
    return families


def _newly_installed() -> list[str]:
    """Make fonts known that matplotlib's list, kept since its first run, does not have; return their families."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    before = set(_installed())
    for path in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        with suppress(Exception):  # a file that is no font, whatever matplotlib's readers make of it
            fontManager.addfont(path)
    return sorted(set(_installed()) - before)


def _installed() -> list[str]:
    """Return the families with an upright face of normal weight, without those that matplotlib has for formulas."""
    import matplotlib
    from matplotlib.font_manager import fontManager

    own = matplotlib.get_data_path()
    return sorted(
        {
            entry.name
            for entry in fontManager.ttflist
            if (entry.style, entry.weight) == ("normal", 400) and not Path(entry.fname).is_relative_to(own)
        }
    )


def _font(family: str) -> FT2Font:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=[family])))


def _drawn(font: FT2Font, characters: Iterable[str]) -> set[str]:
    """Return the characters that `font` has an outline for; a font of pictures (emoji in colour) has none."""
    has = {character for character in characters if font.get_char_index(ord(character))}
    drawn = has & _WITHOUT_INK
    with suppress(RuntimeError):  # FreeType's word for a font without outlines, or a damaged one
        font.set_size(10, 72)
        for character in has - _WITHOUT_INK:
            font.load_char(ord(character))
            if len(font.get_path()[0]):
                drawn.add(character)
    return drawn
