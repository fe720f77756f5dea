"""Views: a trace, or plain weights, as a table, a heat map, a figure, JSON. Nothing here runs a model."""

from regard.views._ablation import Change, changed_predictions, changed_vectors
from regard.views._head_grid import head_grid
from regard.views._heads import heads_rows, heads_table
from regard.views._heatmap import heatmap
from regard.views._json import to_json
from regard.views._labels import readable
from regard.views._movement import movement
from regard.views._projection import project
from regard.views._save import save
from regard.views._selection import AttentionView, every_head, matching, select, strongest
from regard.views._similarity import cosine, similarities
from regard.views._terminal import terminal_heatmap, terminal_table
from regard.views._walkthrough import explain, follow

__all__ = [
    "AttentionView",
    "select",
    "every_head",
    "strongest",
    "matching",
    "readable",
    "terminal_table",
    "terminal_heatmap",
    "explain",
    "follow",
    "similarities",
    "cosine",
    "heatmap",
    "head_grid",
    "movement",
    "project",
    "save",
    "to_json",
    "heads_table",
    "heads_rows",
    "Change",
    "changed_vectors",
    "changed_predictions",
]
