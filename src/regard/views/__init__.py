"""Views: what a trace, or plain weights, show, as plain data for `plot`, `terminal` and the explorer. No model runs here."""

from regard.views.ablation import Change, changed_predictions, changed_vectors
from regard.views.json import to_json
from regard.views.labels import head_label, readable
from regard.views.projection import project
from regard.views.selection import AttentionView, every_head, matching, select, strongest
from regard.views.similarity import cosine, similarities

__all__ = [
    "AttentionView",
    "select",
    "every_head",
    "strongest",
    "matching",
    "readable",
    "head_label",
    "similarities",
    "cosine",
    "project",
    "to_json",
    "Change",
    "changed_vectors",
    "changed_predictions",
]
