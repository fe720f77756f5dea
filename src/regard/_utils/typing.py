"""Shared types."""

from __future__ import annotations

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""An array of any library that follows the Python array API standard; shapes are in the docstrings."""
