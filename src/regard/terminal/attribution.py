"""What mattered, compared with what was attended to, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from regard._utils.cells import cell_len
from regard.terminal.styled import Style, Text
from regard.terminal.tables import ljust
from regard.views.attribution import AttributionRow
from regard.views.labels import escape, format_number

_INK = "#101010"
_NEUTRAL, _MORE, _LESS = (140, 140, 140), (222, 92, 20), (70, 140, 215)  # about equally light, as those of weights
_FAINT = 0.1  # of the largest score; smaller ones keep the background of the terminal
_LABEL, _NUMBER = 24, 9  # columns
_MIN_BAR, _MAX_BAR = 4, 24


def attribution_table(rows: Sequence[AttributionRow], *, width: int = 80, color: bool = False) -> Text:
    """Return a line for each token: its contribution with a bar of + or −, and the weight that it receives.

    Parameters
    ----------
    rows : sequence of AttributionRow
    width : int
        Columns of the terminal.
    color : bool
        Shade the tokens too: vermilion for +, blue for −, the stronger the larger the contribution.

    Returns
    -------
    rich.text.Text
    """
    labels = [escape(row.label, _LABEL) for row in rows]
    longest = max(len("token"), *map(cell_len, labels))
    bar = min(_MAX_BAR, max(_MIN_BAR, (width - longest - 2 * _NUMBER - 6) // 2))
    largest = max((abs(row.score) for row in rows), default=0) or 1.0
    most = max((row.attended for row in rows), default=0) or 1.0
    decimals = 2 if largest >= 0.1 else 4
    heads = (ljust("contribution", _NUMBER + 1 + bar), "attended to")
    lines = Text(f"{ljust('token', longest)} {heads[0]}  {heads[1]}", style="bold")
    lines = Text().append_text(lines)
    for label, row in zip(labels, rows, strict=True):
        share = row.score / largest
        shade = Style(color=_INK, bgcolor=_shade(share)) if color and abs(share) >= _FAINT else Style()
        lines.append("\n").append(label, style=shade).append(" " * (longest - cell_len(label) + 1))
        lines.append(f"{format_number(row.score, f'+.{decimals}f'):>{_NUMBER}} ")
        mark = "+" if share > 0 else "−"
        lines.append(ljust(mark * round(abs(share) * bar), bar), style=Style(color=_shade(share)) if color else Style())
        lines.append(f"  {row.attended:.2f} {'█' * round(row.attended / most * (bar - 2))}".rstrip())
    return lines


def _shade(share: float) -> str:
    """Return the colour of a share of the largest score, −1 … 1."""
    end = _MORE if share > 0 else _LESS
    strength = abs(share) ** 0.5
    return "rgb({},{},{})".format(*(round(n + strength * (e - n)) for n, e in zip(_NEUTRAL, end, strict=True)))
