"""Functions of higher layers that lower ones call, set by the package root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

explorer_widget: Callable[..., Any]
