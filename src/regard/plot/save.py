"""Writing a figure to a file, atomically, with equal bytes for equal figures."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

# Without dates, which would change the bytes of every run.
_METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_DOTS_PER_INCH = 200


def save(figure: Figure | SubFigure, path: str | os.PathLike[str], kind: str | None = None) -> None:
    """Write a figure as PNG (200 dots per inch), SVG or PDF.

    SVG text is drawn as outlines, so that the picture does not depend on installed fonts and a label cannot act as
    markup; each label is also a comment beside its outlines. PDF text stays text.

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
    import matplotlib

    given = Path(path).suffix[1:] if kind is None else kind
    if given.lower() not in _METADATA:
        raise RegardError(f"cannot save a figure to {path}: the suffix must be .{', .'.join(_METADATA)}")
    kind = given.lower()
    drawn = io.BytesIO()
    with matplotlib.rc_context(
        {
            "pdf.fonttype": 3,  # 42 loses the glyphs of OpenType fonts with PostScript outlines: Noto CJK
            "savefig.bbox": None,
            "savefig.facecolor": "auto",
            "savefig.transparent": False,
            "svg.fonttype": "path",
            "svg.hashsalt": "regard",
        }
    ):
        whole = figure.get_figure(root=True)
        assert whole is not None
        whole.savefig(drawn, format=kind, dpi=_DOTS_PER_INCH, metadata=_METADATA[kind])
    with atomic_write(path) as stream:
        stream.write(drawn.getvalue())
