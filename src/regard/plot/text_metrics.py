"""Measuring text before a figure has its size, and breaking it into lines that fit. Inches and points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LINE = 1.3 / 72
"""The height of a line, in inches for each point of its type."""


@dataclass(frozen=True)
class Ruler:
    """Sizes of text in a list of font families."""

    families: tuple[str, ...]
    _measured: dict[str, tuple[float, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def size(self, text: str, points: float) -> tuple[float, float]:
        """Return the width and the height of a line of `text` set in `points`, in inches."""
        if text not in self._measured:
            self._measured[text] = self._of_one_point(text)
        width, height = self._measured[text]
        return width * points, max(height, LINE) * points

    def width(self, text: str, points: float) -> float:
        """Return the width of `text` set in `points`, in inches."""
        return self.size(text, points)[0]

    def widest(self, texts: Sequence[str], points: float) -> float:
        """Return the width of the widest of `texts`; 0 of none."""
        return max((self.width(text, points) for text in texts), default=0.0)

    def fitting(self, texts: Sequence[str], points: float, width: float) -> str:
        """Return the first of `texts` that takes at most `width` inches, else of the last what does, and ``…``."""
        for text in texts:
            if self.width(text, points) <= width:
                return text
        text = texts[-1]
        while text and self.width(f"{text}…", points) > width:
            text = text[:-1].rstrip()
        return f"{text}…"

    def _of_one_point(self, text: str) -> tuple[float, float]:
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(family=list(self.families), size=100)
        width, height, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
        return width / 7200, height / 7200

    def wrapped(self, text: str, points: float, width: float) -> tuple[str, ...]:
        """Return the lines of `text`, broken at spaces to at most `width` inches; a longer word stays whole."""
        lines: list[str] = []
        for paragraph in filter(None, text.split("\n")):
            line, *rest = paragraph.split(" ")
            for word in rest:
                if self.width(f"{line} {word}", points) <= width:
                    line = f"{line} {word}"
                else:
                    lines.append(line)
                    line = word
            lines.append(line)
        return tuple(lines)
