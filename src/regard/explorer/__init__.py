"""The explorer: a page with the attention of a text, served, exported as one HTML file, or shown in a notebook."""

from regard.explorer.exploration import Exploration
from regard.explorer.export_html import write_page
from regard.explorer.launch import explore, widget

__all__ = [
    "explore",
    "widget",
    "write_page",
    "Exploration",
]
