"""The explorer: a page where attention can be walked through, served, written to a file, or shown in a notebook."""

from regard.web._exploration import Exploration
from regard.web._explore import explore, widget
from regard.web._page import write_page

__all__ = [
    "explore",
    "widget",
    "write_page",
    "Exploration",
]
