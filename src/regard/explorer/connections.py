"""Connections to the explorer's server: how many, and how long they may take to send a request.

uvicorn waits for a request without end, and asyncio accepts connections until no file can be opened.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64  # a browser opens 6 for a page
REQUEST_SECONDS = 10.0  # for a complete request
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class BoundedProtocol(H11Protocol):
    """HTTP, of which each connection must send a complete request in time.

    Where there are too many connections, the oldest of those that wait for a request is closed for a new one.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and make room for it."""
        waiting = [each for each in self.server_state.connections if isinstance(each, BoundedProtocol) and each._timer]
        if len(self.server_state.connections) >= MAX_CONNECTIONS:
            if not waiting:
                transport.abort()
                return
            min(waiting, key=lambda each: each._timer.when() if each._timer else 0).close()
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self._stop()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def close(self) -> None:
        """Close the connection at once."""
        self._stop()
        self.server_state.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        """Wait for a complete request, from now on if none is waited for yet."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def log_once() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an exception handler that logs once that no connection can be accepted; asyncio does so without end."""
    logged = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_FILES:
            loop.default_exception_handler(context)
        elif not logged:
            logged = True
            logging.getLogger("uvicorn.error").error(f"cannot accept a connection: {error.strerror}")

    return handle
