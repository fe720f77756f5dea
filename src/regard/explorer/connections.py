"""Connections to the explorer's server: how many, and how long they may take to send a request.

uvicorn waits for a request without end, and asyncio accepts connections until no file can be opened.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64  # a browser opens 6 for a page
REQUEST_SECONDS = 10.0  # for a complete request
_MAX_CLASS_CONNECTIONS = 192  # 32 pupils
_MAX_PUPIL_CONNECTIONS = 12
_ANSWER_SECONDS = 30.0  # for a pupil's page to take an answer
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class BoundedProtocol(H11Protocol):
    """HTTP, of which each connection must send a complete request in time, and go on taking its last answer.

    Where there are too many connections, the oldest of those that wait for a request is closed for a new one.
    """

    max_connections = MAX_CONNECTIONS

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and make room for it."""
        if not self._make_room(self._others(), self.max_connections):
            transport.abort()
            return
        super().connection_made(transport)
        self._watch()

    def _others(self) -> list[BoundedProtocol]:
        return [each for each in self.server_state.connections if isinstance(each, BoundedProtocol)]

    @staticmethod
    def _make_room(others: list[BoundedProtocol], limit: int) -> bool:
        """Close the oldest connection that waits, if there are too many; tell whether there is room."""
        if len(others) < limit:
            return True
        waiting = [each for each in others if each._timer]
        if waiting:
            min(waiting, key=lambda each: each._timer.when() if each._timer else 0).close()
        return bool(waiting)

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
        """Wait for a complete request, or for the last bytes to be taken, from now on if this is not waited for yet."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            self._stop()
        elif self._timer is None:
            self._wait()

    def _wait(self, queued: float = math.inf) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._expire, queued, self._wait)

    def _expire(self, before: float, wait: Callable[[float], None]) -> None:
        """Close the connection, unless some of the `before` bytes that waited to be sent have been taken since."""
        queued = self.transport.get_write_buffer_size()
        if 0 < queued < before:
            wait(queued)
        else:
            self.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ClassProtocol(BoundedProtocol):
    """The same for a class: more connections, few of each client, and answers that are taken in time."""

    max_connections = _MAX_CLASS_CONNECTIONS

    _answering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection of a client that has few."""
        client = _address_of(transport)
        own = [each for each in self._others() if _address_of(each.transport) == client]
        if not self._make_room(own, _MAX_PUPIL_CONNECTIONS):
            transport.abort()
            return
        super().connection_made(transport)

    def on_response_complete(self) -> None:
        """Wait for the next request, or answer one that was sent ahead."""
        self._stop_answering()
        super().on_response_complete()

    def _watch(self) -> None:
        super()._watch()
        if self._timer is None and self._answering is None and not self.transport.is_closing():
            self._wait_for_answer()

    def _wait_for_answer(self, queued: float = math.inf) -> None:
        self._answering = self.loop.call_later(_ANSWER_SECONDS, self._expire, queued, self._wait_for_answer)

    def _stop(self) -> None:
        super()._stop()
        if self.transport is None or self.transport.is_closing():
            self._stop_answering()

    def _stop_answering(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None


def _address_of(transport: asyncio.BaseTransport) -> Any:
    return (transport.get_extra_info("peername") or [None])[0]


class Server(uvicorn.Server):
    """A server that logs once that no connection can be accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        asyncio.get_running_loop().set_exception_handler(log_once())
        await super().startup(sockets)


def configuration(app: Starlette, protocol: type[BoundedProtocol]) -> uvicorn.Config:
    """Return how an application is served."""
    # From the beginning: a second server would let the first one log what it does, until its own level is set.
    loggers = {name: {**each, "level": "ERROR"} for name, each in LOGGING_CONFIG["loggers"].items()}
    return uvicorn.Config(
        app,
        log_config={**LOGGING_CONFIG, "loggers": loggers},
        access_log=False,
        lifespan="off",
        http=protocol,
        ws="none",
        backlog=protocol.max_connections,  # asyncio accepts as many at a time, before any can be closed
        timeout_graceful_shutdown=5,
    )


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
