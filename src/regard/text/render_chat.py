"""Run as a script by `_chat`: render a chat template, in a process of its own so that it can be held in bounds."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

_MEMORY = 1 << 29  # bytes, of which Python and Jinja take a tenth
_SECONDS = 10
_LONGEST = 10_000_000  # characters


def main() -> None:
    """Read the template and its variables as JSON from the standard input; write the text, or what is wrong."""
    request = json.load(sys.stdin)
    _limit()
    try:
        text = render(request["template"], request["variables"])
        answer = {"text": text} if len(text) <= _LONGEST else {"error": f"it writes more than {_LONGEST:,} characters"}
    except MemoryError:
        answer = {"error": "it needs more memory than it may have"}
    except Exception as error:  # a template can raise anything: it is somebody's program
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    json.dump(answer, sys.stdout)


def render(template: str, variables: dict[str, Any]) -> str:
    """Return the text that a template writes, in Jinja's sandbox and with what templates of chats rely on."""
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what the model said, which is of use in training only."""

        tags = {"generation"}  # noqa: RUF012 (so the library declares it)

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template).render(**variables)


def _as_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    """Write JSON as it is: Jinja's own filter would escape it for a page."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **options)


def _limit() -> None:
    """Take no more memory and time than any template needs, where the system can hold us to it."""
    with suppress(ImportError):
        import resource

        for what, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS)):
            with suppress(ValueError, OSError):
                resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main()
