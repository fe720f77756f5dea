"""A real browser that drives the page; a test fails on any request beyond the page and on anything in the console."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import regard
from regard._encoding import Encoding
from regard.web import Exploration, write_page

sys.path.insert(0, str(Path(__file__).parent.parent / "web"))

TEXT = "The cat sat on the mat because it was tired, and the unbelievably friendly dog looked at it."
OTHER = "The dog sat on the mat because it was hungry, and the unbelievably friendly cat looked at it."
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eright to left",
    "x" * 10_000,
    "a\x00b",
    "</script><!--",
    "مرحبا",
    "漢字",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "the browser tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Return a function that opens an address and watches all that the page does."""
    wrong, contexts = [], []

    def open_it(address, *, selector=".rg-map[data-drawn]", **options):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        origin = address.split("#")[0] if address.startswith("file:") else "/".join(address.split("/")[:4])
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))

        def asked(request):
            if not request.url.startswith((origin, "data:", "blob:")):
                wrong.append(f"request: {request.url}")

        page.on("request", asked)
        page.goto(address)
        page.wait_for_selector(selector, state="attached")
        settled(page)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


def settled(page):
    """Wait until what was asked has come and is drawn."""
    page.wait_for_selector(":root:not(:has(.regard[aria-busy]))", state="attached")
    page.wait_for_timeout(150)


def explored(model, *texts):
    traces = []
    for text in texts:
        trace = regard.Trace(maps=True)
        model(text, trace=trace)
        traces.append(trace)
    return Exploration(*traces, models=[model] * len(texts), layer=2, head=3)


@contextlib.contextmanager
def served(exploration):
    """Serve an exploration from a thread, and yield the address of its page."""
    import uvicorn
    from regard.web._server import application, listen

    listening = listen(0)
    server = uvicorn.Server(uvicorn.Config(application(exploration, "token"), log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/token/"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@pytest.fixture(scope="session")
def one(minilm):
    return explored(minilm, TEXT)


@pytest.fixture(scope="session")
def two(minilm):
    return explored(minilm, TEXT, OTHER)


@pytest.fixture(scope="session")
def address(one):
    with served(one) as address:
        yield address


@pytest.fixture(scope="session")
def address_of_two(two):
    with served(two) as address:
        yield address


@pytest.fixture(scope="session")
def file_address(one, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "page.html"
    write_page(one, path)
    return path.as_uri()


def traced(tokens, heads=2, causal=False, seed=7):
    """Return a trace of one bare layer over some tokens."""
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.standard_normal((2, 1, heads, len(tokens), 8), dtype=np.float32)
    trace = regard.Trace(maps=True)
    with trace.scope("blocks.0.attn"):
        regard.attention(q, k, k, causal=causal, trace=trace)
    starts = np.cumsum([0, *(len(token) for token in tokens)])
    trace.encodings = (
        Encoding(
            text="".join(tokens),
            ids=np.arange(len(tokens)),
            tokens=tuple(tokens),
            special=(False,) * len(tokens),
            words=tuple(range(len(tokens))),
            spans=tuple((int(a), int(b)) for a, b in zip(starts[:-1], starts[1:], strict=True)),
        ),
    )
    return trace
