"""Figures of attention with matplotlib, on new figures or on axes of the caller."""

from regard.plot.attribution import attribution
from regard.plot.figure import figure
from regard.plot.head_grid import head_grid
from regard.plot.heatmap import heatmap
from regard.plot.movement import movement
from regard.plot.patching import patching
from regard.plot.paths import paths
from regard.plot.picture import picture
from regard.plot.save import save
from regard.plot.style import get_style
from regard.plot.training import training

__all__ = [
    "heatmap",
    "head_grid",
    "figure",
    "picture",
    "movement",
    "attribution",
    "paths",
    "patching",
    "training",
    "save",
    "get_style",
]
