"""What mattered, compared with what was attended to, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.metrics import ATTRIBUTION_METHODS, Attribution
from regard.plot.fonts import find_fonts
from regard.plot.page import Page
from regard.plot.style import Look, get_style
from regard.views.attribution import attribution_rows
from regard.views.labels import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_ROW, _BAR, _GAP, _NUMBER, _HEADER = 0.25, 1.9, 0.18, 0.55, 0.3
_MAX_ROWS = 200


@needed("a figure")
def attribution(attributed: Attribution, *, merge_subwords: bool = False, theme: str = "light") -> Figure:
    """Draw each token, shaded by its contribution, with bars of its contribution and of the weight that it receives.

    Parameters
    ----------
    attributed : Attribution
        Of `regard.metrics.attribute`.
    merge_subwords : bool
        One row for each word: the sums over its tokens.
    theme : {"light", "dark"}

    Returns
    -------
    Figure
        Positive contributions are blue bars to the right with a +, negative ones brown bars to the left with a −.

    Raises
    ------
    RegardError
        There is no such theme, or the text has more than 200 tokens.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    style = get_style(theme)
    rows = attribution_rows(attributed.encoding, attributed.scores, attributed.attended, merge_subwords=merge_subwords)
    if len(rows) > _MAX_ROWS:
        raise RegardError(f"the figure of an attribution has at most {_MAX_ROWS} tokens, this text has {len(rows)}")
    fonts = find_fonts([*(row.label for row in rows), attributed.metric])
    look, labels = Look(fonts, style), [fonts.label(row.label, 30) for row in rows]
    names = fonts.metrics.max_width(labels, look.medium.label) + 0.2
    title = ATTRIBUTION_METHODS[attributed.method].title
    note = f"{title}: {fonts.label(attributed.metric)}, {format_number(attributed.value, '.4g')}"
    largest, most = max(abs(row.score) for row in rows) or 1.0, max(row.attended for row in rows) or 1.0
    has_less, decimals = any(row.score < 0 for row in rows), 2 if largest >= 0.1 else 4
    scores_at = names + _GAP + _NUMBER
    zero, full = (scores_at + _BAR / 2, _BAR / 2) if has_less else (scores_at - _NUMBER, _BAR)
    attended_at = scores_at + _BAR + _NUMBER + _GAP
    W, top = attended_at + _BAR + _NUMBER, _ROW * len(rows)
    background = np.array(to_rgb(style.background))
    with look.rc_context():
        title = "What mattered, and what was attended to"
        page = Page.new((W, top + _HEADER), look, title=title, note=note)
        ax = page.axes(0, 0, W, top + _HEADER, xlim=(0, W), ylim=(0, top + _HEADER))
        ax.axis("off")

        def box(x: float, y: float, width: float, share: float, color: Any) -> None:
            height = share * _ROW
            ax.add_patch(Rectangle((x, y - height / 2), width, height, facecolor=color, linewidth=0))

        text: dict[str, Any] = {"color": style.muted, "va": "center_baseline"}
        for x, title in ((scores_at if has_less else zero, "contribution"), (attended_at, "attended to")):
            ax.text(x, top + _HEADER / 2, title, **text)
        for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
            y = top - (i + 0.5) * _ROW
            share, color = row.score / largest, (style.sequential if row.score > 0 else style.negative)[5]
            box(0, y, names, 0.86, background + 0.6 * abs(share) * (np.array(to_rgb(color)) - background))
            ax.text(0.1, y, label, **{**text, "size": look.medium.label, "color": style.foreground})
            box(zero, y, share * full, 0.56, color)
            side, gap = ("left", 0.06) if row.score >= 0 else ("right", -0.06)
            ax.text(zero + share * full + gap, y, format_number(row.score, f"+.{decimals}f"), ha=side, **text)
            width = row.attended / most * _BAR
            box(attended_at, y, width, 0.56, style.bar)
            ax.text(attended_at + width + 0.06, y, f"{row.attended:.2f}", **text)
        ax.plot([zero, zero], [0, top], color=style.faint, linewidth=look.medium.line)
    return page.figure
