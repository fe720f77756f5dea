"""The page and its API over HTTP, for one person on one machine.

The server listens on loopback only. It rejects requests without the token in the path, with a host name other than this
machine's (DNS rebinding), and from other origins; no other page may embed its responses.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from regard._utils.errors import RegardError
from regard.explorer.bundle import bundle_module, bundle_styles, door_page, frontend_file, frontend_files
from regard.explorer.exploration import Exploration
from regard.explorer.query import QUERIES, dispatch
from regard.explorer.responses import (
    answer_fault,
    encoded,
    failure,
    method_not_allowed,
    not_found,
    parameters,
    refusal,
    response,
)

PORT = 8765
_MAX_PORTS = 100  # tried
_SEND_BYTES = 1 << 15  # that the system keeps of an answer: it takes more where a third of them has been read
# Requests computed at the same time; the others wait, and may be cancelled meanwhile. Slow queries have their own
# limit, so that tiles never wait for them.
_MAX_CONCURRENT = 2
_MAX_BODY_BYTES = 100_000
# Bundled: forty files, one after the other, take a third of a second.
_ENTRY = "app/main.js"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Cancelled(Exception):
    """The page that sent the request is gone, or the server shuts down."""


def application(exploration: Exploration, token: str, closing: threading.Event | None = None) -> Starlette:
    """Return the page and its API as an ASGI application, everything under ``/TOKEN/``.

    Once `closing` is set, running requests are cancelled and new ones refused.
    """
    closing = closing or threading.Event()
    fast, slow = anyio.CapacityLimiter(_MAX_CONCURRENT), anyio.CapacityLimiter(1)

    async def page(request: Request) -> Response:
        return _checked(request, token) or page_file("index.html")

    async def file(request: Request) -> Response:
        return _checked(request, token) or page_file(request.path_params["name"])

    async def api(request: Request) -> Response:
        method = request.path_params["method"]
        if refused := _checked(request, token):
            return refused
        try:
            params = await parameters(request, _MAX_BODY_BYTES)
            limiter = slow if method in QUERIES and QUERIES[method].slow else fast
            work = partial(dispatch, exploration, method, params)
            result = await _run_cancellable(request, limiter, closing, work)
        except RegardError as error:
            return failure(400, str(error))
        except MemoryError:
            return failure(400, "not enough memory for this request")
        except (Cancelled, ClientDisconnect):
            return response(499, b"", "text/plain")
        return response(200, *encoded(result))

    app = Starlette(
        routes=[
            Route("/{token}/", page, methods=["GET"]),
            Route("/{token}/static/{name:path}", file, methods=["GET"]),
            Route("/{token}/api/{method}", api, methods=["POST"]),
        ],
        exception_handlers={404: not_found, 405: method_not_allowed, Exception: answer_fault},
    )
    app.router.redirect_slashes = False  # a redirect would reveal whether a token is right
    return app


def serve(
    exploration: Exploration,
    *,
    port: int | None = None,
    browser: bool = True,
    view: str = "",
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C, and open it in the browser.

    `port` is the first port to try, 8765 by default; 0 takes any free one. `view` is what follows # in its address.
    `tell` is called with the address, and with a message if no browser opens.
    """
    listening = listen(PORT if port is None else port)

    def tell_address(address: str) -> None:
        tell(f"{address}\nCtrl-C ends it")

    with _prepared(exploration, listening, browser, tell_address, tell, view) as run:
        run()


@contextmanager
def serving(
    exploration: Exploration,
    listening: socket.socket,
    *,
    browser: bool = True,
    tell: Callable[[str], None] = print,
) -> Iterator[threading.Thread]:
    """Serve the page from a thread, which is yielded, while something else runs.

    `listening` is a socket of `listen`; the other parameters are those of `serve`.
    """
    with _prepared(exploration, listening, browser, tell, tell) as run:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            run.stop()
            thread.join()


class _Run:
    """Runs a server until it is told to stop."""

    def __init__(self, server: Any, listening: socket.socket, closing: threading.Event) -> None:
        self._server, self._listening, self._closing = server, listening, closing

    def __call__(self) -> None:
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        """End it from another thread."""
        self._closing.set()
        self._server.should_exit = True


@contextmanager
def _prepared(
    exploration: Exploration,
    listening: socket.socket,
    browser: bool,
    tell_address: Callable[[str], None],
    tell: Callable[[str], None],
    view: str = "",
) -> Iterator[_Run]:
    """Open the browser, and yield what runs the server."""
    from regard.explorer.connections import BoundedProtocol, Server, configuration

    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/{'#' * bool(view)}{view}"
    closing = threading.Event()
    files = ExitStack()

    def check() -> None:
        if closing.is_set():
            raise Cancelled

    def prepare() -> None:
        with suppress(Cancelled, RegardError):  # the page will get the error with its own request
            exploration.prepare(check)

    class PageServer(Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            files.close()  # now: after a SIGTERM nothing runs once the server has ended
            await super().shutdown(sockets)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            closing.set()
            super().handle_exit(sig, frame)

    server = PageServer(configuration(application(exploration, token, closing), BoundedProtocol))
    tell_address(address)
    preparing = threading.Thread(target=prepare)  # while the browser starts
    with files:
        if browser:
            redirect = files.enter_context(redirect_file(address))
            threading.Thread(target=_show, args=(redirect.as_uri(), tell), daemon=True).start()
        preparing.start()
        try:
            with listening:
                yield _Run(server, listening, closing)
        finally:
            closing.set()
            preparing.join()


@contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """Write a page that leads to `address` and that only this user can read; it is removed at the end.

    The browser is started with its path, because everyone on the machine can read the arguments of a process, and the
    address has the token.
    """
    with tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:  # mode 0700
        path = Path(folder) / "open.html"
        link = escape(address)
        page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={link}"><a href="{link}">regard</a>'
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(page)
        yield path


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that listens on loopback, or another address of this machine, on `port` or the next free one.

    An error if the port is invalid, or if none is free.
    """
    if not 0 <= port <= 65535:
        raise RegardError(f"port is a number from 0 to 65535, not {port}")
    for candidate in range(port, min(port + _MAX_PORTS, 65536)):
        # asyncio sends small packets without delay only if the protocol is named.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # of its connections
            listening.bind((host, candidate))
            listening.listen()
        except OSError:
            listening.close()
        else:
            return listening
    raise RegardError(f"no free port from {port} on: give another, --port N, or 0 for any")


def _show(address: str, tell: Callable[[str], None]) -> None:
    try:
        browser = webbrowser.get()
        in_terminal = type(browser) is webbrowser.GenericBrowser  # lynx and the like have no JavaScript modules
        shown = not in_terminal and browser.open(address)
    except (webbrowser.Error, OSError):
        shown = False
    if not shown:
        with suppress(OSError):  # no terminal
            tell("no browser found: open the address above in a browser on this machine")


def _checked(request: Request, token: str) -> Response | None:
    """Return the response that refuses a request; None if it is allowed."""
    if re.sub(r":\d+$", "", request.headers.get("host", "")) not in _HOSTS:
        return refusal(421, b"wrong host: use 127.0.0.1")
    path_token = request.path_params["token"].encode("utf-8", "surrogatepass")
    if not secrets.compare_digest(path_token, token.encode("ascii")):
        return refusal(404, b"no such page: use the address that regard printed")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers['host']}":
        return refusal(403, b"cross-origin request refused")
    return None


async def _run_cancellable(
    request: Request, limiter: anyio.CapacityLimiter, closing: threading.Event, work: Callable[..., Any]
) -> Any:
    """Run `work` in a thread; its `check` raises when the client disconnects or the server shuts down."""
    gone = threading.Event()

    def check() -> None:
        if gone.is_set() or closing.is_set():
            raise Cancelled

    def start() -> Any:
        check()
        return work(check)

    async def watch() -> None:
        while not await request.is_disconnected():
            await anyio.sleep(0.05)
        gone.set()

    watching = asyncio.create_task(watch())
    try:
        return await anyio.to_thread.run_sync(start, limiter=limiter, abandon_on_cancel=True)
    finally:
        gone.set()
        watching.cancel()


def page_file(name: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return one of the page's files; the script and a style sheet have all modules and sheets in one."""
    if name not in frontend_files():
        return response(404, b"no such file", "text/plain")
    return response(status, _file_bytes(name), _TYPES.get(name[name.rfind(".") :], "text/plain"), headers)


@cache
def _file_bytes(name: str) -> bytes:
    if name == _ENTRY:
        return bundle_module(name).encode("utf-8")
    if name == "enter.html":
        return door_page().encode("utf-8")
    return (bundle_styles(name) if name.endswith(".css") else frontend_file(name)).encode("utf-8")
