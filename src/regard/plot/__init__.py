"""Figures of attention with matplotlib, on new figures or on axes of the caller."""

from __future__ import annotations

from regard._utils.lazy import attach

__getattr__, __dir__ = attach(__name__)
