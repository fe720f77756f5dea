"""Functions of higher layers that lower ones call, set by the package root."""

from __future__ import annotations

TYPE_CHECKING = False  # the import of `typing` takes longer than all others of `import regard`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

explorer_widget: Callable[..., Any]
metrics: Callable[[], Any]
"""Returns `regard.metrics`, of which a trace has functions as methods."""
frameworks: dict[str, Callable[[], Any]]
"""For a library of arrays, by the name of its module, what imports its `regard.functional.frameworks.Framework`."""
