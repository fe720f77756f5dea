"""Explorations for the tests, a server for them, and waiting until a page is idle."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import threading
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from timing import HANGS

import regard
from regard.explorer import Exploration
from regard.text.encoding import Encoding

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
GOLDEN = Path(__file__).parent.parent / "models" / "golden"
CAUSAL = GOLDEN / "qwen2" / "plain"
SINKS = GOLDEN / "gpt_oss" / "plain"
TEXT = "The cat sat on the mat because it was tired, and the unbelievably friendly dog looked at it."
OTHER = "The dog sat on the mat because it was hungry, and the unbelievably friendly cat looked at it."
SEQUENCE = "qzkfbdqzk"  # after the second "k", as after the first, comes "f"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eright to left",
    "x" * 10_000,
    "a\x00b",
    "</script><!--",
    "مرحبا",
    "漢字",
    "\ufffe\x1b",
)


# Counts what a page is about to do: answers that it reads, frames, and what it put off for so short a time that it
# belongs to what was done: a query that is not busy yet has such a timer, but not what asks from time to time.
AT_REST = """
(() => {
  const SOON_MS = 200;
  const soon = new Set();
  const [timeout, frame, ask] = [setTimeout, requestAnimationFrame, fetch].map((native) => native.bind(window));
  const once = (name, schedule, cancel) => {
    const native = window[cancel].bind(window);
    window[cancel] = (id) => (soon.delete(name + id), native(id));
    return (action, ...others) => {
      const id = schedule((...given) => {
        soon.delete(name + id);
        action(...given);
      }, ...others);
      soon.add(name + id);
      return id;
    };
  };
  const short = once("timer", timeout, "clearTimeout");
  window.setTimeout = (action, ms, ...others) => (ms > SOON_MS ? timeout : short)(action, ms, ...others);
  window.requestAnimationFrame = once("frame", frame, "cancelAnimationFrame");
  window.fetch = async (...request) => {
    const asked = {};
    soon.add(asked);
    try {
      const response = await ask(...request);
      for (const name of ["json", "text", "arrayBuffer"]) {
        response[name] = () => Response.prototype[name].call(response).finally(() => soon.delete(asked));
      }
      return response;
    } catch (error) {
      soon.delete(asked);
      throw error;
    }
  };
  const moves = (motion) => motion.playState === "running" && isFinite(motion.effect.getComputedTiming().endTime);
  const isBusy = () => document.querySelector(".regard[aria-busy]");
  const turn = () => new Promise((done) => frame(() => timeout(done))); // a frame, and what it has led to
  window.settled = async ({ areHeld = false } = {}) => {
    do for (let n = 0; n < 2; n++) await turn();
    while (soon.size || document.getAnimations().some(moves) || (isBusy() && !areHeld)); // held answers do not come
  };
})();
"""


def settled(page):
    """Wait until the page has done all that it was asked, with what that led to: answers, drawing, motion, address."""
    page.evaluate("settled()")


def intercept(page, pattern, answer):
    """Let a function answer requests of a page that is open; return as soon as no request can pass it.

    Chromium tells the page's process of the first route by a message of its own, which a key pressed at once overtakes.
    """
    page.route(pattern, answer)
    page.route(lambda url: url.endswith("?intercepted"), lambda route: route.fulfill(body="yes"))
    while page.evaluate("fetch('?intercepted').then((response) => response.text())") != "yes":
        pass


def hold(page, pattern):
    """Hold requests back; return a function that lets the first go on, as soon as there is one."""
    held = []
    intercept(page, pattern, lambda route: held.append(route))

    def let_go():
        while not held:  # the page may show that it waits before its request has come here
            page.evaluate("new Promise(requestAnimationFrame)")
        held[0].continue_()

    return let_go


def expect(locator):
    """Return what waits for a locator to be as a test says."""
    from playwright.sync_api import expect  # on use: other sessions collect these files too

    expect.set_options(timeout=HANGS)
    return expect(locator)


def plain(locator):
    """Return the text of a locator without the marks that keep directions of text apart."""
    return locator.inner_text().replace("\u2068", "").replace("\u2069", "")


def readout(page):
    """Return what is said of the cell."""
    return plain(page.locator(".rg-readout"))


BY_COLORS = ("color-contrast", "link-in-text-block")  # the rules of axe-core that another theme can break


def show_in(page, theme):
    """Show a page in a theme: light, dark or forced."""
    forced = theme == "forced"
    page.emulate_media(color_scheme="light" if forced else theme, forced_colors="active" if forced else "none")
    settled(page)


def check_access(page, *widths, note="", height=900, themes=("dark",)):
    """Assert that axe-core finds nothing serious, and that nothing leaves the page, at each width and in each theme.

    The page is light; `themes` are others, by the rules that see colours.
    """
    for width in widths:
        page.set_viewport_size({"width": width, "height": height})
        settled(page)
        for theme in ("light", *themes):
            if themes:
                show_in(page, theme)
            assert serious(page, None if theme == "light" else BY_COLORS) == [], (note, width, theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (note, width, theme)


def serious(page, rules=None):
    """Return what axe-core finds serious, by all of its rules or by some."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(options) => axe.run(options).then(({ violations }) => violations)", options)
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def exact(page):
    """Return the value of the cell with all its digits."""
    return number(page.locator(".rg-readout").get_attribute("title"))


def weight_text(value):
    """Return a weight as the page writes it: three significant digits."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}".replace("-", "−")


def number(text):
    found = re.search(r"([−-]?\d+\.\d+)(?:·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    exponent = (found[2] or "⁰").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(found[1].replace("−", "-")) * 10.0 ** int(exponent)


def saved(page, kind):
    """Save what is seen, and return what the file holds."""
    page.get_by_text("Save", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name=f"As {kind}").click()
    return Path(download.value.path()).read_bytes()


def explored(model, *texts, layer=2, head=3):
    traces = []
    for text in texts:
        trace = regard.Trace(maps=True, only="*")
        model(text, trace=trace)
        traces.append(trace)
    return Exploration(*traces, models=[model] * len(texts), layer=layer, head=head)


@contextlib.contextmanager
def served(exploration):
    """Serve an exploration from a thread, and yield the address of its page."""
    import uvicorn

    from regard.explorer.server import application, listen

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            answers.set()

    answers = threading.Event()
    listening = listen(0)
    server = Server(uvicorn.Config(application(exploration, "token"), log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    answers.wait()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/token/"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def traced(tokens, heads=2, dim=8, causal=False, seed=7):
    """Return a trace of one bare layer over some tokens."""
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.standard_normal((2, 1, heads, len(tokens), dim), dtype=np.float32)
    trace = regard.Trace(maps=True, only="*")
    with trace.scope("blocks.0.attn"):
        regard.attention(q, k, k, causal=causal, trace=trace)
    starts = np.cumsum([0, *(len(token) for token in tokens)])
    trace.encodings = (
        Encoding(
            text="".join(tokens),
            ids=tuple(range(len(tokens))),
            tokens=tuple(tokens),
            special_tokens_mask=(False,) * len(tokens),
            word_ids=tuple(range(len(tokens))),
            offsets=tuple((int(a), int(b)) for a, b in pairwise(starts)),
        ),
    )
    return trace


def hostile():
    """Return an exploration of hostile tokens with all that a view shows of them."""
    trace = traced(HOSTILE)
    vectors = np.random.default_rng(7).standard_normal((4, 1, len(HOSTILE), 8), dtype=np.float32)
    trace("embeddings", vectors[0], "B T E")
    trace("blocks.0.attn.v", vectors[None, 2:, 0], "B G S Dv")
    trace("blocks.0.output", vectors[1], "B T E")
    return Exploration(trace)


def plane_of(page):
    """Return what is on the plane of movement, as it is saved: x and -y of the dots; x, y, size and text of labels."""
    circles, labels = [], []
    for node in ElementTree.fromstring(saved(page, "SVG").decode()).iter():
        if node.tag.endswith("}circle") and node.get("fill") != "none" and float(node.get("r")) > 2:
            circles.append((float(node.get("cx")), -float(node.get("cy"))))
        elif node.tag.endswith("}text") and node.get("font-size") == "13":
            labels.append((float(node.get("x")), float(node.get("y")), 13, "".join(node.itertext())))
    return circles, labels


def dots_of(page):
    """Return x and -y of the dots on the plane of movement."""
    return plane_of(page)[0]


def notebook(open_page, exploration, folder, width="auto"):
    """Open a page that stands for a notebook, with an exploration as the output of one of its cells."""
    from regard.explorer.notebook_widget import make_widget, reply

    widget = make_widget(exploration)
    page_file = folder / "notebook.html"
    page_file.write_text(
        '<!doctype html><html lang="en"><title>notebook</title><link rel="icon" href="data:,">'
        f'<style>{widget._css}</style><h1>A notebook</h1><div id=out style="width: {width}"></div>',
        encoding="utf-8",
    )
    page = open_page(page_file.as_uri(), selector="#out")

    def asked(message):
        head, buffers = reply(exploration, message)
        return json.dumps([head, [base64.b64encode(buffer).decode() for buffer in buffers]])

    page.expose_function("askKernel", asked)
    page.evaluate(
        """async ([module, markup]) => {
          const listeners = new Set();
          const model = {
            get: (name) => ({ markup })[name],
            on: (name, listener) => listeners.add(listener),
            off: (name, listener) => listeners.delete(listener),
            send: async (message) => {
              const [head, buffers] = JSON.parse(await askKernel(message));
              const bytesOf = (text) => Uint8Array.from(atob(text), (x) => x.charCodeAt(0));
              const bytes = buffers.map((text) => new DataView(bytesOf(text).buffer));
              for (const listener of listeners) listener(head, bytes);
            },
          };
          const address = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
          const { default: widget } = await import(address);
          window.endWidget = widget.render({ model, el: document.getElementById("out") });
        }""",
        [str(widget._esm), widget.markup],
    )
    page.wait_for_selector(".rg-map[data-drawn]", state="attached")
    settled(page)
    return page
