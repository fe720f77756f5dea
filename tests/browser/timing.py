"""How long a page takes in a browser, as the page itself sees it, and what it and its server hold.

For the benchmark of the explorer; the tests hold only sizes to a bound.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIZE = {"width": 1440, "height": 900}
HANGS = 300_000  # ms: what has not come by then never comes
SHARP = ".rg-map[data-drawn][data-waiting='0']"

# When the frame is over that had the first map, and when the first that had all of its tiles.
_FIRST_IMAGE = """
performance.setResourceTimingBufferSize(10000);
const seen = {};
const watch = (name, selector) => {
  if (seen[name] || !document.querySelector(selector)) return;
  seen[name] = true;
  requestAnimationFrame(() => setTimeout(() => (window[name] = performance.now())));
};
new MutationObserver(() => {
  watch("drawnAt", ".rg-map[data-drawn]");
  watch("sharpAt", ".rg-map[data-drawn][data-waiting='0']");
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


# Goes to a view, and waits for the frame in which it is drawn: the page heard of the address before this does.
_GO = """
(view) => new Promise((done) => {
  addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(done)), { once: true });
  location.hash = location.hash.replace(/&z=[^&]*/, "") + `&z=${view}`;
})
"""


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """Yield a Chromium without a window."""
    from playwright.sync_api import sync_playwright

    names = (
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    )  # the first has no windows: a third of the work
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        raise RuntimeError("the explorer is driven in Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """Yield a page that has its first map with all of its tiles, in a context of its own."""
    context = browser.new_context(viewport=SIZE, **options)
    context.set_default_timeout(HANGS)
    page = context.new_page()
    page.add_init_script(_FIRST_IMAGE)
    page.goto(address)
    page.wait_for_selector(SHARP, state="attached")
    page.evaluate("async () => { while (!window.sharpAt) await new Promise(requestAnimationFrame); }")
    try:
        yield page
    finally:
        context.close()


def first_picture(browser: Any, address: str, **options: Any) -> float:
    """Return after how many seconds of its life a page has painted a map."""
    with opened(browser, address, **options) as page:
        return float(page.evaluate("window.drawnAt")) / 1e3


def looked_at(page: Any, view: str) -> None:
    """Go to a view, ``x_y_k``, and wait until all of its tiles are there."""
    page.evaluate(_GO, view)
    page.wait_for_selector(SHARP, state="attached")


def tile_seconds(page: Any) -> list[float]:
    """Return how long each tile took that the page asked for, from asking to the last byte."""
    took = page.evaluate(
        "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/api/tile'))"
        ".map(({ duration }) => duration)"
    )
    return [each / 1e3 for each in took]


def page_memory(browser: Any, page: Any) -> tuple[float, float]:
    """Return the bytes of a page's JavaScript, and of the largest process that shows pages."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    shown = [resident(int(each["id"])) for each in processes if each["type"] == "renderer"]
    return metrics["JSHeapUsedSize"], max(shown)


def resident(process: int, field: str = "VmRSS") -> int:
    """Return the bytes of a process in memory, or with ``VmHWM`` at its largest; Linux tells."""
    said = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    return 1024 * int(said[1]) if said else 0


@contextlib.contextmanager
def command_serving(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run ``regard explore`` as a person does; yield the address that it prints, and the number of its process."""
    command = [sys.executable, "-m", "regard", "explore", *arguments, "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (process.stdout.readline().strip() if process.stdout else ""), process.pid
        finally:
            process.terminate()
