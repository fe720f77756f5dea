"""The page in a notebook: requests and responses as messages between Python and the browser.

The page sends ``{id, method, params}``. The response is ``{id, result}``, or ``{id, error}``; a binary one is ``{id,
type}``, "bytes" or "float32", with its content as the buffer of the message.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer.bundle import bundle_module, bundle_styles, page_markup
from regard.explorer.exploration import Exploration
from regard.explorer.query import dispatch, internal_error

# Shown where a notebook is read without a kernel.
_TEXT = (
    "<regard's explorer: run this cell to see it; regard.explore(trace, html=PATH) writes a page that needs no kernel>"
)


def make_widget(exploration: Exploration) -> Any:
    """Return a widget that shows an exploration; an error if anywidget is not installed."""
    try:
        from anywidget import AnyWidget
        from traitlets import Unicode
    except ImportError:
        raise RegardError(
            "a notebook needs anywidget: pip install 'regard[notebook]'; in a script regard.explore opens the browser"
        ) from None
    page = {
        "_esm": f"{bundle_module('app/widget.js')}export default {{ render: $entry.render }};\n",
        "_css": bundle_styles(),
        "markup": Unicode(page_markup()).tag(sync=True),
        "__repr__": lambda _: _TEXT,
    }
    shown = type("Explorer", (AnyWidget,), page)()

    def on_message(_: Any, message: Any, __: Any) -> None:
        try:
            shown.send(*reply(exploration, message))
        except BaseException as error:  # an interrupt of the kernel too: the page waits for a response
            number = message.get("id") if isinstance(message, dict) else None
            shown.send({"id": number, "error": f"the kernel did not respond: {type(error).__name__} {error}".strip()})
            raise

    shown.on_msg(on_message)
    return shown


def reply(exploration: Exploration, message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Return the response to a message of the page, and its buffers."""
    if not isinstance(message, dict):
        return {"id": None, "error": "a message must be an object with id, method and params"}, []
    number = message.get("id")
    try:
        params = message.get("params") or {}
        if not isinstance(params, dict):
            raise RegardError("params must be an object")
        result = dispatch(exploration, str(message.get("method")), params)
    except RegardError as error:
        return {"id": number, "error": str(error)}, []
    except MemoryError:
        return {"id": number, "error": "not enough memory for that"}, []
    except Exception as error:
        logging.getLogger(__name__).exception("a request of the page failed")
        return {"id": number, "error": internal_error(error)}, []
    if isinstance(result, bytes):
        return {"id": number, "type": "bytes"}, [result]
    if isinstance(result, np.ndarray):
        return {"id": number, "type": "float32"}, [result.tobytes()]
    return {"id": number, "result": result}, []
