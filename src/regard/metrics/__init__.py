"""Metrics of a run: what each head does, how information flows through all layers, and which tokens mattered.

Computed in float64 from the trace of a run, in blocks of rows; a whole map is never held. Rows of padding do not
count. Each names its paper, and is imported on first use.
"""

from __future__ import annotations

from regard._utils.lazy import attach

__getattr__, __dir__ = attach(__name__)
