"""The explorer: a page where attention can be walked through, served, written to a file, or shown in a notebook."""

from regard.explorer.exploration import Exploration
from regard.explorer.export_html import write_page
from regard.explorer.launch import explore, widget

__all__ = [
    "explore",
    "widget",
    "write_page",
    "Exploration",
]
