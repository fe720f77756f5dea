"""What a trace or plain weights show, as plain data for `plot`, `terminal` and the explorer. Runs no model."""

from regard.views.ablation import ProbabilityChange, changed_predictions, token_similarities
from regard.views.attribution import AttributionRow, attribution_rows
from regard.views.json import to_json
from regard.views.labels import escape, format_number, head_label
from regard.views.patches import PatchView, select_patches
from regard.views.projection import project
from regard.views.selection import AttentionView, every_head, find_rows, select, top_k
from regard.views.similarity import cosine, word_similarities

__all__ = [
    "AttentionView",
    "select",
    "every_head",
    "top_k",
    "find_rows",
    "escape",
    "head_label",
    "format_number",
    "word_similarities",
    "cosine",
    "project",
    "to_json",
    "ProbabilityChange",
    "token_similarities",
    "changed_predictions",
    "PatchView",
    "select_patches",
    "AttributionRow",
    "attribution_rows",
]
