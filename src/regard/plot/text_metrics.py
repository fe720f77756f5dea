"""Measuring and wrapping text before a figure has its size. Widths and heights in inches, type sizes in points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LINE = 1.3 / 72
"""Line height in inches per point."""


@dataclass(frozen=True)
class TextMetrics:
    """Sizes of text in font families."""

    families: tuple[str, ...]
    _sizes: dict[str, tuple[float, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def size(self, text: str, points: float) -> tuple[float, float]:
        """Return the width and the height of a line of `text`."""
        if text not in self._sizes:
            self._sizes[text] = self._size_of_one_point(text)
        width, height = self._sizes[text]
        return width * points, max(height, LINE) * points

    def width(self, text: str, points: float) -> float:
        """Return the width of a line of `text`."""
        return self.size(text, points)[0]

    def drawn_height(self, text: str) -> float:
        """Return the height of the characters of `text`, per point."""
        self.size(text, 1)
        return self._sizes[text][1]

    def max_width(self, texts: Sequence[str], points: float) -> float:
        """Return the width of the widest of `texts`; 0 for none."""
        return max((self.width(text, points) for text in texts), default=0.0)

    def fit(self, texts: Sequence[str], points: float, width: float) -> str:
        """Return the first of `texts` that fits into `width`, else the beginning of the last with ``…``."""
        for text in texts:
            if self.width(text, points) <= width:
                return text
        text = texts[-1]
        while text and self.width(f"{text}…", points) > width:
            text = text[:-1].rstrip()
        return f"{text}…"

    def _size_of_one_point(self, text: str) -> tuple[float, float]:
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(family=list(self.families), size=100)
        width, height, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
        return width / 7200, height / 7200

    def wrap(self, text: str, points: float, width: float) -> tuple[str, ...]:
        """Return the lines of `text` that fit into `width`, broken at spaces, and within a word that is wider."""
        lines: list[str] = []
        for paragraph in filter(None, text.split("\n")):
            line, *rest = paragraph.split(" ")
            for word in rest:
                if self.width(f"{line} {word}", points) <= width:
                    line = f"{line} {word}"
                else:
                    lines += self._pieces(line, points, width)
                    line = word
            lines += self._pieces(line, points, width)
        return tuple(lines)

    def _pieces(self, line: str, points: float, width: float) -> Iterator[str]:
        """Yield pieces of a line that fit into `width`, of at least one character."""
        while self.width(line, points) > width and len(line) > 1:
            lengths = range(2, len(line))
            count = 1 + bisect_right(lengths, width, key=lambda length: self.width(line[:length], points))
            yield line[:count]
            line = line[count:]
        yield line
