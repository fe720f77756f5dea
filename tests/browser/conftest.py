"""A real browser; a test fails on any request to elsewhere and on any message of the console."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from pages import AT_REST, OTHER, SEQUENCE, TEXT, explored, served, settled
from timing import HANGS, launched

import regard
from regard.explorer import write_page


@pytest.fixture(scope="session")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture
def serve():
    """Return a function that serves an exploration while the test runs, and returns the address of its page."""
    with contextlib.ExitStack() as servers:
        yield lambda exploration: servers.enter_context(served(exploration))


@pytest.fixture
def open_page(browser, serve):  # its pages close before the servers
    """Return a function that opens an address and watches all that the page does; `allow` is what a console may say.

    With `origin`, that of a notebook, requests to it are not fault, and of what the console says only errors are.
    """
    wrong, contexts = [], []

    def open_it(address, *, selector=".rg-map[data-drawn]", allow=None, origin=None, **options):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        context.set_default_timeout(HANGS)
        if origin is None:  # a notebook is never at rest
            context.add_init_script(AT_REST)
        page = context.new_page()
        own = origin or (address.split("#")[0] if address.startswith("file:") else "/".join(address.split("/")[:4]))

        def said(message):
            if origin is not None and message.type != "error":
                return
            if allow is None or allow not in message.text:
                wrong.append(f"console: {message.text}")

        page.on("console", said)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))

        def asked(request):
            if not request.url.startswith((own, "data:", "blob:")):
                wrong.append(f"request: {request.url}")

        page.on("request", asked)
        page.goto(address)
        page.wait_for_selector(selector, state="attached")
        if origin is None:
            settled(page)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def one(minilm):
    return explored(minilm, TEXT)


@pytest.fixture(scope="session")
def weights(minilm):
    """Return the weights of every head in the text, L H T S."""
    trace = regard.Trace()
    minilm(TEXT, trace=trace)
    return np.stack([trace[f"blocks.{n}.attn.weights"][0] for n in range(6)])


@pytest.fixture(scope="session")
def two(minilm):
    return explored(minilm, TEXT, OTHER)


@pytest.fixture(scope="session")
def deep(minilm):
    """Return a model of 12 layers × 12 heads: MiniLM, one upon the other."""
    return replace(minilm, config=replace(minilm.config, num_layers=12), blocks=minilm.blocks * 2)


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


@pytest.fixture(scope="session")
def induction():
    return regard.load("induction")


@pytest.fixture(scope="session")
def sequence(induction):
    return explored(induction, SEQUENCE, layer=1, head=0)


@pytest.fixture(scope="session")
def sequence_address(sequence):
    with served(sequence) as address:
        yield address


@pytest.fixture(scope="session")
def sequence_file(sequence, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "induction.html"
    write_page(sequence, path)
    return path.as_uri()
