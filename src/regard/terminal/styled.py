"""Text with styles, as rich has it; where rich is not installed, its characters alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.style import Style as Style
    from rich.text import Text as Text
else:
    try:
        from rich.style import Style
        from rich.text import Text
    except ModuleNotFoundError:

        class Text:
            """Characters that are put together."""

            def __init__(self, plain: str = "", style: Any = None) -> None:  # noqa: ARG002
                self.plain = plain

            def append(self, text: Any, style: Any = None) -> Text:  # noqa: ARG002
                """Add a text at the end."""
                self.plain += str(text)
                return self

            append_text = append

            def rstrip(self) -> None:
                """Remove white space at the end."""
                self.plain = self.plain.rstrip()

            def __str__(self) -> str:
                return self.plain

            __repr__ = __str__

        def Style(**_: Any) -> None:
            """Return no style."""
