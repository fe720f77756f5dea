"""The page for a class over HTTP: to look at, on the local network, with a code.

Another server than the teacher's, which stays on loopback with its secret: on a port of its own, and with fewer
queries (`regard.explorer.classroom`). It rejects requests without the code in the path, with another host than the
address that was told (DNS rebinding), and from other origins. Codes are tried slowly, by client and in all; a client
has bounded requests, connections and computations, and what is kept is bounded in all.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import json
import secrets
import socket
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import zip_longest
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from regard._utils.errors import RegardError
from regard.explorer.classroom import Classroom, code_of
from regard.explorer.exploration import Exploration
from regard.explorer.query import QUERIES
from regard.explorer.rates import Rates
from regard.explorer.responses import (
    encoded,
    failure,
    method_not_allowed,
    parameters,
    refusal,
    response,
)
from regard.explorer.server import PORT, listen, page_file, serve

MAX_KEPT_BYTES = 64 << 20
"""Bytes of answers that are kept."""
MAX_CLIENTS = 1024  # whose entry is remembered
_MAX_BODY_BYTES = 4_000
_MAX_DELAY = 2.0  # seconds that a request waits for its turn; a later one is refused
_ENTRY_BYTES = 500  # of Python's around a kept answer
_MAX_COMPUTED = 2  # at the same time
_MAX_WAITING = 32  # questions of a client that wait to be computed: those of its connections, and what it left
_INK, _PLAIN = "\x1b[38;5;16;48;5;231m", "\x1b[0m"
_ENTER = ("enter.html", "enter.js", "enter.css")
_PAGE = ("index.html", "app/main.js", "style.css")


class Answers:
    """Encoded answers to what pupils ask, each computed once, and the last that fit into `limit` bytes.

    A client computes one at a time; clients that ask the same wait for one computation.
    """

    def __init__(self, classroom: Classroom, limit: int = MAX_KEPT_BYTES) -> None:
        self._classroom, self._limit = classroom, limit
        self._kept: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._coming: dict[str, asyncio.Task[tuple[bytes, str]]] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._threads = anyio.CapacityLimiter(_MAX_COMPUTED)
        self.nbytes = 0

    async def get(self, request: Request, name: str, params: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the body and the type of an answer.

        Raises
        ------
        RegardError
            The class may not ask it, or the client waits for too many others.
        ClientDisconnect
            The client left before its turn.
        """
        self._classroom.check(name, params)
        key = f"{name} {json.dumps(params, sort_keys=True)}"
        if key in self._kept or key in self._coming:
            return await self._wait(key)
        async with self._turn(client_of(request)):
            if await request.is_disconnected():
                raise ClientDisconnect
            if key not in self._kept and key not in self._coming:
                self._coming[key] = asyncio.create_task(self._compute(key, name, params))
            return await self._wait(key)

    async def _wait(self, key: str) -> tuple[bytes, str]:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        return await asyncio.shield(self._coming[key])

    async def _compute(self, key: str, name: str, params: Mapping[str, Any]) -> tuple[bytes, str]:
        try:
            work = functools.partial(self._encoded, name, params)
            answer = await anyio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            del self._coming[key]
        self._kept[key] = answer
        self.nbytes += _size(key, answer)
        while self.nbytes > self._limit:
            self.nbytes -= _size(*self._kept.popitem(last=False))
        return answer

    def _encoded(self, name: str, params: Mapping[str, Any]) -> tuple[bytes, str]:
        return encoded(self._classroom.dispatch(name, params))

    @asynccontextmanager
    async def _turn(self, client: str) -> AsyncIterator[None]:
        if self._waiting[client] >= _MAX_WAITING:
            raise RegardError("too many questions at once: wait a moment")
        self._waiting[client] += 1
        try:
            async with self._turns.setdefault(client, asyncio.Lock()):
                yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client], self._turns[client]


def _size(key: str, answer: tuple[bytes, str]) -> int:
    return len(key) + len(answer[0]) + _ENTRY_BYTES


class Door:
    """Who may come in: with the right code, as often as is usual."""

    def __init__(self, classroom: Classroom, host: str, now: Callable[[], float] = time.monotonic) -> None:
        self._code = classroom.code.encode("ascii")
        self._host = host
        self._requests = Rates(40, 60, now=now)
        self._wrong = Rates(0.1, 5, now=now)  # codes of a client
        self._all_wrong = Rates(1, 60, now=now)
        self._entered: OrderedDict[str, None] = OrderedDict()  # clients that gave the right code

    async def refuse(self, request: Request) -> Response | None:
        """Return the response that refuses a request before its code is read; None if it may go on, in its turn."""
        host = request.headers.get("host")
        if host != self._host:
            return refusal(421, f"wrong host: use http://{self._host}/".encode("ascii"))
        if request.headers.get("origin", f"http://{host}") != f"http://{host}":
            return refusal(403, b"cross-origin request refused")
        client = client_of(request)
        delay = self._requests.delay(client)
        if delay > _MAX_DELAY:
            return _too_many(b"too many requests: wait a moment", delay)
        self._requests.take(client)
        if delay > 0:
            await anyio.sleep(delay)
        return None

    def refuse_code(self, request: Request) -> Response | None:
        """Return the response that refuses the code of a request; None if it is right."""
        client = client_of(request)
        code = code_of(request.path_params["code"])
        if code is None:
            return _no_such_page()
        if client not in self._entered:
            delay = max(self._wrong.delay(client), self._all_wrong.delay(""))
            if delay > 0:
                return _too_many(b"too many wrong codes: wait some seconds", delay)
        if not secrets.compare_digest(code.encode("ascii"), self._code):
            self._wrong.take(client)
            if client not in self._entered:
                self._all_wrong.take("")
            return _no_such_page()
        self._entered[client] = None
        self._entered.move_to_end(client)
        while len(self._entered) > MAX_CLIENTS:
            self._entered.popitem(last=False)
        return None


def class_application(classroom: Classroom, host: str, now: Callable[[], float] = time.monotonic) -> Starlette:
    """Return the page for a class and its API as an ASGI application, everything under ``/CODE/``.

    `host` is the only one that requests may name, with its port; `now` is the clock, in seconds.
    """
    door, answers = Door(classroom, host, now), Answers(classroom)
    manifest = encoded(classroom.manifest())

    async def enter(request: Request) -> Response:
        return await door.refuse(request) or page_file(_ENTER[0])

    async def enter_file(request: Request) -> Response:
        name = request.path_params["name"]
        return await door.refuse(request) or (page_file(name) if name in _ENTER[1:] else _no_such_page())

    async def page(request: Request) -> Response:
        return await door.refuse(request) or door.refuse_code(request) or page_file(_PAGE[0])

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        refused = await door.refuse(request) or door.refuse_code(request)
        return refused or (page_file(name) if name in _PAGE[1:] else _no_such_page())

    async def api(request: Request) -> Response:
        if refused := await door.refuse(request) or door.refuse_code(request):
            return refused
        name = request.path_params["method"]
        try:
            params = await parameters(request, _MAX_BODY_BYTES)
            if name == "manifest":
                return response(200, *manifest)
            if name == "progress":
                return response(200, *encoded({}))
            if name == "follow":
                QUERIES[name].check(params)
                return response(200, *encoded(classroom.follow(**params)))
            return response(200, *await answers.get(request, name, params))
        except RegardError as error:
            return failure(400, classroom.without_folders(str(error)))
        except MemoryError:
            return failure(400, "not enough memory for this request")
        except ClientDisconnect:
            return response(499, b"", "text/plain")

    async def nothing(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return await door.refuse(request) or _no_such_page()

    async def other_method(request: Request, error: Exception) -> Response:
        return await door.refuse(request) or await method_not_allowed(request, error)

    async def hidden_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return failure(500, "internal error of regard")  # whose details are the teacher's: uvicorn logs them

    app = Starlette(
        routes=[
            Route("/", enter, methods=["GET"]),
            Route("/static/{name}", enter_file, methods=["GET"]),
            Route("/{code}/", page, methods=["GET"]),
            Route("/{code}/static/{name:path}", file, methods=["GET"]),
            Route("/{code}/api/{method}", api, methods=["POST"]),
        ],
        exception_handlers={404: nothing, 405: other_method, Exception: hidden_error},
    )
    app.router.redirect_slashes = False  # a redirect would reveal whether a code is right
    app.state.answers = answers
    return app


def serve_with_class(
    exploration: Exploration,
    *,
    address: str | None = None,
    port: int | None = None,
    browser: bool = True,
    view: str = "",
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the teacher's page as `serve` does, and that for the class, until Ctrl-C.

    `address` is that of this machine in the local network, by default the one that the system would take. The port for
    the class is the next free one after `port`.
    """
    with sharing(exploration, address, port) as classroom:
        tell(notice(classroom, in_terminal=sys.stdout is not None and sys.stdout.isatty()))
        serve(exploration, port=port, browser=browser, view=view, tell=tell)


@contextmanager
def sharing(exploration: Exploration, address: str | None = None, port: int | None = None) -> Iterator[Classroom]:
    """Serve the page for a class from a thread, while something else runs; see `serve_with_class`."""
    from regard.explorer.connections import ClassProtocol, Server, configuration

    if port == 2**16 - 1:
        raise RegardError(f"--share serves the class at the port after --port: give at most {port - 1}")
    host = network_address() if address is None else own_address(address)
    first = (PORT if port is None else port) + 1 if port != 0 else 0
    with listen(first, host) as listening:
        number = listening.getsockname()[1]
        place = host if number == 80 else f"{host}:{number}"  # as browsers name it
        classroom = Classroom(exploration, f"http://{place}/")
        server = Server(configuration(class_application(classroom, place), ClassProtocol))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        exploration.classroom = classroom
        thread.start()
        try:
            yield classroom
        finally:
            server.should_exit = True
            thread.join()
            exploration.classroom = None


def notice(classroom: Classroom, *, in_terminal: bool = False) -> str:
    """Return what the teacher reads: where the class goes, and who can see what; with a QR code in a terminal."""
    lines = [
        "Your class looks at this page, and changes nothing in it:",
        "",
        f"    {classroom.address}",
        f"    code {classroom.code}",
        "",
        *([_qr_text(classroom.page()["qr"])] if in_terminal else []),
        *([lacking] if (lacking := classroom.lacking()) else []),
        "Everybody in this network who has the code can read the text and the model's numbers.",
        "What is sent is not encrypted. Your own page, on this machine only:",
        "",
    ]
    return "\n".join(lines)


def network_address() -> str:
    """Return the address of this machine in the local network: that from which the system would send; nothing is sent.

    Raises
    ------
    RegardError
        There is no network, or the address is one of the Internet.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of the examples in documents
            address: str = probe.getsockname()[0]
        except OSError:
            raise RegardError(
                "--share finds no network: connect to one, or give this machine's address in it, --address A"
            ) from None
    if not ipaddress.ip_address(address).is_private:
        raise RegardError(
            f"{address} is an address of the Internet, where others might reach it: if the network keeps them out, "
            f"give it, --address {address}"
        )
    return address


def own_address(address: str) -> str:
    """Return an address of this machine as it is written; an error for another, and for one that stands for several."""
    try:
        own = ipaddress.IPv4Address(address)
        with socket.socket() as probe:
            probe.bind((str(own), 0))
    except ValueError:
        message = f"--address is an IPv4 address of this machine, as 192.168.1.5, not {address!r}"
        raise RegardError(message) from None
    except OSError:
        raise RegardError(f"--address {address}: this machine has no such address") from None
    if own.is_unspecified or own.is_multicast or own.is_reserved:
        raise RegardError(f"--address {address}: give one address of this machine")
    return str(own)


def client_of(request: Request) -> str:
    """Return the address from which a request comes."""
    return request.client.host if request.client else ""


def _qr_text(code: list[str]) -> str:
    """Return a QR code in half blocks, black on white whatever the colours of the terminal."""
    margin = 4
    rows = ["0" * (len(code[0]) + 2 * margin)] * margin
    rows = [*rows, *(f"{row:0^{len(row) + 2 * margin}}" for row in code), *rows]
    blocks = {"00": " ", "01": "▄", "10": "▀", "11": "█"}
    lines = (zip(upper, lower, strict=True) for upper, lower in zip_longest(rows[::2], rows[1::2], fillvalue=rows[0]))
    return "\n".join(f"{_INK}{''.join(blocks[a + b] for a, b in line)}{_PLAIN}" for line in lines) + "\n"


def _no_such_page() -> Response:
    """Let another code be typed."""
    return page_file(_ENTER[0], 404, {"Connection": "close"})


def _too_many(message: bytes, delay: float) -> Response:
    return refusal(429, message, {"Retry-After": str(int(delay) + 1)})
