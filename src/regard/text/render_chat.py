"""Run as a script by `chat`: render a chat template in a process with limited memory and time."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

_MAX_MEMORY = 1 << 29  # bytes; Python and Jinja take a tenth
_MAX_SECONDS = 10
_MAX_CHARACTERS = 10_000_000  # characters


def main() -> None:
    """Read the template and its variables as JSON from standard input; write the text, or the error, as JSON."""
    request = json.load(sys.stdin)
    _limit()
    try:
        text = render(request["template"], request["variables"])
        answer = (
            {"text": text}
            if len(text) <= _MAX_CHARACTERS
            else {"error": f"it writes more than {_MAX_CHARACTERS:,} characters"}
        )
    except MemoryError:
        answer = {"error": "it exceeds the limit on memory"}
    except Exception as error:  # a template can raise anything
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    json.dump(answer, sys.stdout)


def render(template: str, variables: dict[str, Any]) -> str:
    """Render a template in Jinja's sandbox, with the extensions and functions that chat templates use."""
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks the model's answers for training; it has no effect here."""

        tags = {"generation"}  # noqa: RUF012 (as the library declares it)

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


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: list[str] | tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write plain JSON (Jinja's own filter escapes it for HTML), with the options that transformers has, and no others.

    Any other option, such as a function that is called with the values, would lead out of the sandbox.
    """
    for name, flag in (("ensure_ascii", ensure_ascii), ("sort_keys", sort_keys)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} of tojson must be true or false")
    if isinstance(indent, bool) or not isinstance(indent, int | str | None):
        raise TypeError("indent of tojson must be a number or a string")
    if separators is not None:
        if not isinstance(separators, list | tuple) or [isinstance(each, str) for each in separators] != [True, True]:
            raise TypeError("separators of tojson must be two strings")
        separators = (separators[0], separators[1])
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _limit() -> None:
    """Limit memory and time, if the system supports it."""
    with suppress(ImportError):
        import resource

        for what, most in ((resource.RLIMIT_AS, _MAX_MEMORY), (resource.RLIMIT_CPU, _MAX_SECONDS)):
            with suppress(ValueError, OSError):
                resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main()
