"""Attention as plain text: tables, heat maps of characters, the arithmetic of one row."""

from regard.terminal.attribution import attribution_table
from regard.terminal.head_metrics import heads_rows, heads_summary, heads_table
from regard.terminal.tables import terminal_heatmap, terminal_table
from regard.terminal.walkthrough import explain, explain_row

__all__ = [
    "terminal_table",
    "terminal_heatmap",
    "explain",
    "explain_row",
    "heads_summary",
    "heads_table",
    "heads_rows",
    "attribution_table",
]
