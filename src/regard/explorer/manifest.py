"""The description of an exploration that the page loads first."""

from __future__ import annotations

from collections.abc import Sequence

from regard._version import __version__
from regard.explorer.run import Run
from regard.functional import native


def title_of(run: Run) -> str:
    """Return the beginning of a run's text, or the name of its model."""
    text = " ".join((run.encoding.text if run.encoding else "").split())
    return (text if len(text) <= 60 else f"{text[:59]}…") or run.trace.model or "attention"


def provenance_of(runs: Sequence[Run]) -> str:
    """Return the precision of the weights, and what computed them; for recorded weights that is not known."""
    kernel = native.kernel()
    backend = "NumPy" if kernel is None else f"native · {kernel.instruction_set()}"
    sources = {
        f"{layer.tile(0, [0], [0]).dtype} · "
        + (f"from recorded q and k by {backend} · regard {__version__}" if layer.is_map else "as recorded")
        for run in runs
        for layer in run.layers
    }
    return "; ".join(sorted(sources))
