"""Font fallback: installed fonts for the characters of labels, so that none is drawn as an empty box.

DejaVu Sans of matplotlib draws Latin, Greek, Cyrillic, Hebrew, Arabic and more; other fonts are searched only if a
label needs them. A character without a font is written as its code point.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from regard.plot.text_metrics import TextMetrics
from regard.views.labels import escape

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

_DEFAULT = "DejaVu Sans"
_WITHOUT_INK = {" ", "\u00a0", "\u3000", "\u200c", "\u200d", *map(chr, range(0xFE00, 0xFE10))}


@dataclass(frozen=True)
class FontFallback:
    """Font families for a set of labels."""

    families: tuple[str, ...]  # in the order in which matplotlib tries them
    missing: frozenset[str]  # the characters that none of them draws

    @cached_property
    def metrics(self) -> TextMetrics:
        """The sizes of text in these families."""
        return TextMetrics(self.families)

    def label(self, text: str, width: int | None = None) -> str:
        """Return `escape(text, width)`, with missing characters as code points."""
        return escape(text, width, self.missing)


def find_fonts(texts: Iterable[str]) -> FontFallback:
    """Return the fonts that draw the labels of `texts`.

    The font that draws most of the missing characters comes first; ties go to a sans serif.
    """
    missing = {character for text in texts for character in escape(text)}
    missing -= _drawn(_font(_DEFAULT), missing)
    families = [_DEFAULT]
    if missing:
        families += _covering(missing, _installed())
    if missing and (new := _newly_installed()):
        families += _covering(missing, new)
    return FontFallback(tuple(families), frozenset(missing))


def has_postscript_outlines(family: str) -> bool:
    """Tell whether a font is OpenType with PostScript outlines, such as Noto Sans CJK: a PDF loses it as TrueType."""
    from fontTools.ttLib import TTFont
    from matplotlib.font_manager import FontProperties, findfont

    with TTFont(findfont(FontProperties(family=[family])), fontNumber=0, lazy=True) as font:
        return "CFF " in font or "CFF2" in font


def _covering(missing: set[str], names: Iterable[str]) -> list[str]:
    """Return the fonts among `names` that draw missing characters, and remove those from `missing`."""
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
    """Add fonts that are absent from matplotlib's cached list, and return their families."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    before = set(_installed())
    for path in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        with suppress(Exception):  # an invalid font file may raise anything
            fontManager.addfont(path)
    return sorted(set(_installed()) - before)


def _installed() -> list[str]:
    """Return the families with an upright face of normal weight, without matplotlib's own, which include math fonts."""
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
    """Return the characters for which `font` has an outline; a bitmap font (colour emoji) has none."""
    has = {character for character in characters if font.get_char_index(ord(character))}
    drawn = has & _WITHOUT_INK
    with suppress(RuntimeError):  # raised by FreeType for a font without outlines, or a damaged one
        font.set_size(10, 72)
        for character in has - _WITHOUT_INK:
            font.load_char(ord(character))
            if len(font.get_path()[0]):
                drawn.add(character)
    return drawn
