"""A figure as a file: written atomically, with fonts embedded, and with equal bytes for equal figures."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard._utils.packages import needed
from regard.plot.fonts import has_postscript_outlines

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

# Without dates, which would change the bytes of every run.
_METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_MIN_DOTS_PER_INCH = 200


@needed("a figure")
def save(figure: Figure | SubFigure, path: str | os.PathLike[str], kind: str | None = None) -> None:
    """Write a figure as PNG (200 dots per inch, or those of the figure if it has more), SVG or PDF.

    No file depends on installed fonts. SVG text is drawn as outlines, so that a label cannot act as markup either; each
    label is also a comment beside its outlines. PDF text stays text, with the glyphs that it uses embedded, as TrueType
    or, if one of its fonts has PostScript outlines, as Type 3.

    Parameters
    ----------
    figure : Figure
        Such as ``heatmap(trace).figure``.
    path : path
        Written atomically.
    kind : {"png", "svg", "pdf"}, optional
        Default: the suffix of `path`.

    Raises
    ------
    RegardError
        The kind is unknown, or the file cannot be written.
    """
    suffix = Path(path).suffix[1:] if kind is None else kind
    if suffix.lower() not in _METADATA:
        raise RegardError(f"cannot save a figure to {path}: the suffix must be .{', .'.join(_METADATA)}")
    drawn = encode(figure, suffix.lower())
    with atomic_write(path) as stream:
        stream.write(drawn)


def encode(figure: Figure | SubFigure, kind: str) -> bytes:
    """Return what `save` writes, for a kind of ``png``, ``svg`` or ``pdf``."""
    import matplotlib
    from matplotlib.text import Text

    whole = figure.get_figure(root=True)
    assert whole is not None
    families = dict.fromkeys(family for text in whole.findobj(Text) for family in text.get_fontfamily())
    drawn = io.BytesIO()
    with matplotlib.rc_context(
        {
            "pdf.fonttype": 3 if kind == "pdf" and any(map(has_postscript_outlines, families)) else 42,
            "savefig.bbox": None,
            "savefig.facecolor": "auto",
            "savefig.transparent": False,
            "svg.fonttype": "path",
            "svg.hashsalt": "regard",
        }
    ):
        whole.savefig(drawn, format=kind, dpi=max(_MIN_DOTS_PER_INCH, whole.dpi), metadata=_METADATA[kind])
    return drawn.getvalue()
