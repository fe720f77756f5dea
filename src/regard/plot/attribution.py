"""What mattered beside what was attended to, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard.metrics import ATTRIBUTION_METHODS, Attribution
from regard.plot.fonts import find_fonts
from regard.plot.heading import MARGIN, Heading
from regard.plot.style import get_style
from regard.views.attribution import attribution_rows
from regard.views.labels import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches, type sizes in points.
_ROW, _BAR, _GAP, _NUMBER = 0.25, 1.9, 0.18, 0.55
_TYPE, _SMALL, _HEADER = 10.0, 8.5, 0.3
_MAX_ROWS = 200


def attribution(found: Attribution, *, merge_subwords: bool = False, theme: str = "light") -> Figure:
    """Draw each token, shaded by its contribution, with bars of its contribution and of the weight that it receives.

    Parameters
    ----------
    found : Attribution
        Of `regard.metrics.attribute`.
    merge_subwords : bool
        One row for each word: the sums over its tokens.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        Positive contributions are vermilion bars to the right with a +, negative ones blue bars to the left with a −.

    Raises
    ------
    RegardError
        There is no such theme, or the text has more than 200 tokens.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    from regard.plot.notebook import NotebookFigure

    style = get_style(theme)
    rows = attribution_rows(found.encoding, found.scores, found.attended, merge_subwords=merge_subwords)
    if len(rows) > _MAX_ROWS:
        raise RegardError(f"the figure of an attribution has at most {_MAX_ROWS} tokens, this text has {len(rows)}")
    fonts = find_fonts([*(row.label for row in rows), found.metric])
    labels = [fonts.label(row.label, 30) for row in rows]
    names = fonts.metrics.max_width(labels, _TYPE) + 0.2
    across = names + _GAP + _BAR + 2 * _NUMBER + _GAP + _BAR + _NUMBER
    note = (
        f"{ATTRIBUTION_METHODS[found.method].title}: {fonts.label(found.metric)}, {format_number(found.value, '.4g')}"
    )
    heading = Heading.wrap("What mattered, and what was attended to", note, across, fonts.metrics)
    W, H = across + 2 * MARGIN, heading.height + _HEADER + _ROW * len(rows) + 2 * MARGIN
    with style.rc_context():
        figure = NotebookFigure(figsize=(W, H))
        heading.draw(figure, fonts.metrics, style)
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, W), ylim=(0, H))
        ax.axis("off")
        largest = max(abs(row.score) for row in rows) or 1.0
        most = max(row.attended for row in rows) or 1.0
        has_less = any(row.score < 0 for row in rows)
        scores_at = MARGIN + names + _GAP + _NUMBER
        zero = scores_at + _BAR / 2 if has_less else scores_at - _NUMBER
        full = _BAR / 2 if has_less else _BAR
        attended_at = scores_at + _BAR + _NUMBER + _GAP
        top = H - MARGIN - heading.height - _HEADER
        decimals = 2 if largest >= 0.1 else 4
        kwargs: dict[str, Any] = {"va": "center_baseline", "family": list(fonts.families), "parse_math": False}
        for x, title in ((zero if not has_less else scores_at, "contribution"), (attended_at, "attended to")):
            ax.text(x, top + _HEADER / 2, title, size=_SMALL, color=style.muted, **kwargs)
        background = np.array(to_rgb(style.background))
        for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
            y = top - (i + 0.5) * _ROW
            share, color = row.score / largest, style.contextual if row.score > 0 else style.original
            shade = background + 0.6 * abs(share) * (np.array(to_rgb(color)) - background)
            box: dict[str, Any] = {"height": _ROW * 0.86, "linewidth": 0}
            ax.add_patch(Rectangle((MARGIN, y - _ROW * 0.43), names, facecolor=tuple(shade), **box))
            ax.text(MARGIN + 0.1, y, label, size=_TYPE, color=style.foreground, **kwargs)
            bar: dict[str, Any] = {"height": _ROW * 0.56, "linewidth": 0}
            ax.add_patch(Rectangle((zero, y - _ROW * 0.28), share * full, facecolor=color, **bar))
            number = format_number(row.score, f"+.{decimals}f")
            x, side = zero + share * full + (0.06 if row.score >= 0 else -0.06), "left" if row.score >= 0 else "right"
            ax.text(x, y, number, size=_SMALL, color=style.muted, ha=side, **kwargs)
            width = row.attended / most * _BAR
            ax.add_patch(Rectangle((attended_at, y - _ROW * 0.28), width, facecolor=style.bar, **bar))
            ax.text(attended_at + width + 0.06, y, f"{row.attended:.2f}", size=_SMALL, color=style.muted, **kwargs)
        ax.plot([zero, zero], [top - len(rows) * _ROW, top], color=style.faint, linewidth=0.8)
    return figure
