"""The page in a notebook: the same questions and answers as messages between Python and the browser.

The page sends ``{id, method, params}``; the answer is ``{id, result}``, with the bytes of a binary one as its buffer
and null in ``result``, or ``{id, error}``.
"""

from __future__ import annotations

import logging
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer.api import answer, fault
from regard.explorer.bundle import bundled, stylesheet
from regard.explorer.exploration import Exploration

# What a notebook shows of a widget where it is read without a kernel.
_UNSEEN = "<regard's explorer: run this cell to see it; regard.explore(trace, html=PATH) is a page without a kernel>"


def make_widget(exploration: Exploration) -> Any:
    """Return a widget that shows an exploration.

    Raises
    ------
    RegardError
        anywidget is not installed.
    """
    try:
        from anywidget import AnyWidget
    except ImportError:
        raise RegardError(
            "a notebook needs anywidget: pip install 'regard[notebook]'; in a script regard.explore opens the browser"
        ) from None
    page = {
        "_esm": f"{bundled('app/widget.js')}export default {{ render: $entry.render }};\n",
        "_css": stylesheet(),
        "__repr__": lambda _: _UNSEEN,
    }
    shown = type("Explorer", (AnyWidget,), page)()

    def heard(_: Any, message: Any, __: Any) -> None:
        try:
            shown.send(*reply(exploration, message))
        except BaseException as error:  # an interrupt of the kernel too: the page waits for an answer
            number = message.get("id") if isinstance(message, dict) else None
            shown.send({"id": number, "error": f"the kernel did not answer: {type(error).__name__} {error}".strip()})
            raise

    shown.on_msg(heard)
    return shown


def reply(exploration: Exploration, message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer to a message of the page, and its buffers."""
    if not isinstance(message, dict):
        return {"id": None, "error": "a message is an object with id, method and params"}, []
    number = message.get("id")
    try:
        params = message.get("params") or {}
        if not isinstance(params, dict):
            raise RegardError("params is an object")
        found = answer(exploration, str(message.get("method")), params)
    except RegardError as error:
        return {"id": number, "error": str(error)}, []
    except MemoryError:
        return {"id": number, "error": "not enough memory for that"}, []
    except Exception as error:
        logging.getLogger(__name__).exception("a question of the page failed")
        return {"id": number, "error": fault(error)}, []
    return (
        ({"id": number, "result": None}, [found]) if isinstance(found, bytes) else ({"id": number, "result": found}, [])
    )
