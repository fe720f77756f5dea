"""The page and its questions over HTTP, for one person on one machine.

It listens on loopback alone. Nothing is answered without the token in the path, nor to a browser that came here by
another name than that of this machine (DNS rebinding); what is answered may be shown in no other page.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard._utils.errors import RegardError
from regard.explorer.api import answer, fault
from regard.explorer.bundle import bundled, static, static_names, stylesheet
from regard.explorer.codec import json_bytes
from regard.explorer.exploration import Exploration

PORT = 8765
_PORTS = 100  # how many are tried
# Questions that are worked on at the same time; the others wait, and may be given up meanwhile. Those that take long
# have a place of their own, so that what is looked at never waits for them.
_AT_ONCE = 2
_LONG = ("thumbnails", "heads", "movement", "edit")
_LARGEST_EDIT = 100_000  # bytes of a request
_MOST_PARAMETERS = 32
_ENTRY = "app/main.js"  # comes with all that it imports: forty answers, one after the other, take a third of a second
_STYLE = "style.css"  # likewise
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HOSTS = ("127.0.0.1", "localhost", "[::1]")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class GivenUp(Exception):
    """Nobody waits for the answer any more."""


def application(exploration: Exploration, token: str, closing: threading.Event | None = None) -> Starlette:
    """Return the page and its questions as an ASGI application, everything under ``/TOKEN/``.

    Once `closing` is set, work is left off and no more is begun.
    """
    closing = closing or threading.Event()
    short, long = anyio.CapacityLimiter(_AT_ONCE), anyio.CapacityLimiter(1)

    async def page(request: Request) -> Response:
        return _checked(request, token) or _file("index.html")

    async def file(request: Request) -> Response:
        return _checked(request, token) or _file(request.path_params["name"])

    async def api(request: Request) -> Response:
        method = request.path_params["method"]
        if refused := _checked(request, token):
            return refused
        allowed = "POST" if method == "edit" else "GET"
        if request.method != allowed:
            return _response(405, b"", "text/plain", {"Allow": allowed})
        try:
            given = await _parameters(request)
            limiter = long if method in _LONG else short
            work = partial(answer, exploration, method, given)
            found = await _worked_out(request, limiter, closing, work)
        except RegardError as error:
            return _response(400, json_bytes({"error": str(error)}), "application/json")
        except MemoryError:
            return _response(400, json_bytes({"error": "not enough memory for that"}), "application/json")
        except GivenUp:
            return _response(499, b"", "text/plain")
        if isinstance(found, bytes):
            return _response(200, found, "application/octet-stream")
        return _response(200, json_bytes(found), "application/json")

    app = Starlette(
        routes=[
            Route("/{token}/", page, methods=["GET"]),
            Route("/{token}/static/{name:path}", file, methods=["GET"]),
            Route("/{token}/api/{method}", api, methods=["GET", "POST"]),
        ],
        exception_handlers={404: _no_page, 405: _no_method, Exception: _faulty},
    )
    app.router.redirect_slashes = False  # it would tell whether there is such a page
    return app


def serve(
    exploration: Exploration,
    *,
    port: int | None = None,
    browser: bool = True,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C, and open it in the browser.

    Parameters
    ----------
    port : int, optional
        From which on a free one is looked for; 8765 by default, 0 takes any.
    browser : bool
    tell : function
        Is told the address, and where there is no browser, that.
    """
    import uvicorn

    listening = listen(PORT if port is None else port)
    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
    closing = threading.Event()

    def check() -> None:
        if closing.is_set():
            raise GivenUp

    def prepare() -> None:
        with suppress(GivenUp, RegardError):  # what is wrong is said to the page that asks
            exploration.prepare(check)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            closing.set()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        application(exploration, token, closing),
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    server = Server(config)
    tell(f"{address}\nCtrl-C ends it")
    if browser:
        threading.Thread(target=_show, args=(address, tell), daemon=True).start()
    preparing = threading.Thread(target=prepare)  # while the browser starts
    preparing.start()
    try:
        with listening, suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        closing.set()
        preparing.join()


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback, on `port` or the next that is free.

    Raises
    ------
    RegardError
        There is no such port, or none is free.
    """
    if not 0 <= port <= 65535:
        raise RegardError(f"a port is a number from 0 to 65535, not {port}")
    for candidate in range(port, min(port + _PORTS, 65536)):
        # asyncio sends small pieces without delay where the protocol is named.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.bind(("127.0.0.1", candidate))
            listening.listen()
        except OSError:
            listening.close()
        else:
            return listening
    raise RegardError(f"none of the ports from {port} on is free: give another, --port N, or 0 for any")


def _show(address: str, tell: Callable[[str], None]) -> None:
    try:
        found = webbrowser.get()
        in_terminal = type(found) is webbrowser.GenericBrowser  # lynx and the like, which knows no modules
        shown = not in_terminal and found.open(address)
    except (webbrowser.Error, OSError):
        shown = False
    if not shown:
        with suppress(OSError):  # nobody can be told
            tell("no browser was found here: open the address above in one on this machine")


def _checked(request: Request, token: str) -> Response | None:
    """Return the refusal of a request that may not ask; None for one that may."""
    if re.sub(r":\d+$", "", request.headers.get("host", "")) not in _HOSTS:
        return _response(421, b"this page is at 127.0.0.1", "text/plain")
    given = request.path_params["token"].encode("utf-8", "surrogatepass")
    if not secrets.compare_digest(given, token.encode("ascii")):
        return _response(404, b"there is no such page: use the address that regard printed", "text/plain")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers['host']}":
        return _response(403, b"another page may not ask", "text/plain")
    return None


async def _parameters(request: Request) -> dict[str, Any]:
    if request.method == "GET":
        try:
            return dict(parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS))
        except ValueError:
            raise RegardError(f"a question has at most {_MOST_PARAMETERS} parameters") from None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_EDIT:
            raise RegardError("the request is too large")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"the request is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise RegardError("the request is an object with parameters")
    return given


async def _worked_out(
    request: Request, limiter: anyio.CapacityLimiter, closing: threading.Event, work: Callable[..., Any]
) -> Any:
    """Return what `work` returns, in a thread; it is told to leave off when the page that asked goes away."""
    gone = threading.Event()

    def check() -> None:
        if gone.is_set() or closing.is_set():
            raise GivenUp

    def start() -> Any:
        check()
        return work(check)

    async def watch() -> None:
        while not await request.is_disconnected():
            await anyio.sleep(0.05)
        gone.set()

    watching = asyncio.create_task(watch()) if request.method == "GET" else None  # else the request has been read
    try:
        return await anyio.to_thread.run_sync(start, limiter=limiter, abandon_on_cancel=True)
    finally:
        gone.set()
        if watching is not None:
            watching.cancel()


def _file(name: str) -> Response:
    if name not in static_names():
        return _response(404, b"there is no such file", "text/plain")
    text = bundled(name) if name == _ENTRY else stylesheet() if name == _STYLE else static(name)
    return _response(200, text.encode("utf-8"), _TYPES.get(name[name.rfind(".") :], "text/plain"))


def _response(status: int, body: bytes, media: str, headers: dict[str, str] | None = None) -> Response:
    kind = media if media == "application/octet-stream" else f"{media}; charset=utf-8"
    return Response(body, status, {**_HEADERS, **(headers or {}), "Content-Type": kind})


async def _no_page(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _response(404, b"there is no such page: use the address that regard printed", "text/plain")


async def _no_method(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _response(405, b"", "text/plain")


async def _faulty(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _response(500, json_bytes({"error": fault(error)}), "application/json")  # and the server writes what it was
