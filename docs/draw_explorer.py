"""Take pictures of the explorer's views in a browser: light, dark, and on a phone.

    python docs/draw_explorer.py

writes ``docs/images/explorer-*.png``. Needs MiniLM, the package ``playwright`` and Chromium (on the path, or named by
``CHROMIUM``). `docs/make.py` does not run it, for a browser is not on every machine; the browser's tests tell whether
the pictures are current.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import regard
from regard.explorer import Exploration, write_page
from regard.explorer.training import TrainingExploration
from regard.training import TrainingRun, make_task

IMAGES = Path(__file__).resolve().parent / "images"
sys.path.insert(0, str(IMAGES.parents[1] / "tests" / "browser"))
pages: Any = import_module("pages")  # when the tests take a page to be drawn
TEXT = "The animal did not cross the street because it was too tired"
OTHER = "The animal did not cross the street because it was too wide"
HEAD = "l=3&h=1&i=9&j=2"  # where "it" attends to "animal"

# name, address, theme, width, height
ONE = (
    ("head", f"v=head&{HEAD}&special=0&arcs=1", "light", 1440, 900),
    ("head-dark", f"v=head&{HEAD}&special=0&arcs=1", "dark", 1440, 900),
    ("heads", f"v=heads&{HEAD}", "light", 1440, 1000),
    ("heads-dark", f"v=heads&{HEAD}&o=metric&m=previous_token", "dark", 1440, 900),
    ("cell", f"v=cell&{HEAD}&special=0", "light", 1440, 1000),
    ("cell-dark", f"v=cell&{HEAD}&special=0", "dark", 1440, 1000),
    ("movement", "v=movement&l=3&h=1&i=9&special=0", "light", 1440, 900),
    ("movement-dark", "v=movement&l=3&h=1&i=9&special=0", "dark", 1440, 900),
    ("lines", f"v=lines&{HEAD}&special=0&lh=3.1_3.4_3.9", "light", 1440, 780),
    ("phone", f"v=head&{HEAD}&special=0", "light", 390, 1060),
    ("phone-dark", f"v=cell&{HEAD}&special=0", "dark", 390, 1060),
    ("phone-heads", f"v=heads&{HEAD}", "light", 390, 860),
    ("phone-movement", "v=movement&l=3&h=1&i=9&special=0", "dark", 390, 860),
)
TWO = (
    ("compare", f"v=head&{HEAD}&special=0&s=diff&arcs=1", "light", 1440, 900),
    ("compare-dark", f"v=head&{HEAD}&special=0&s=diff&arcs=1", "dark", 1440, 900),
)
SIMILAR = "The cat sat on the mat", "A kitten rested on a rug"
MATTERED = (
    ("attribution", "v=head&l=3&h=1&g=1", "light", 1440, 900),
    ("attribution-dark", "v=head&l=3&h=1&g=1&i=2&j=2", "dark", 1440, 900),
    ("phone-attribution", "v=head&l=3&h=1&g=1", "light", 390, 1660),
)
SEQUENCE = "qzkfbdqzk"
INDUCED = (
    ("attribution-induction", "v=head&l=1&h=0&i=8&j=3&g=1", "light", 1440, 900),
    ("paths", "v=paths&l=1&h=0&i=8&j=3", "light", 1440, 900),
)
TRAINING = (
    ("training", "v=head&l=1&h=0&step=120", "light", 1440, 900),
    ("training-dark", "v=heads&l=0&h=1&step=120", "dark", 1440, 900),
    ("phone-training", "v=head&l=1&h=0&step=120", "light", 390, 1060),
)


def explored(model: Any, *texts: str, layer: int = 3, head: int = 1) -> Exploration:
    traces = []
    for text in texts:
        trace = regard.Trace(maps=True, only="*")
        model(text, trace=trace)
        traces.append(trace)
    return Exploration(*traces, models=[model] * len(texts), layer=layer, head=head)


def trained(folder: Path) -> Exploration:
    task = make_task("induction")
    options = {**task.options, "steps": 160, "save_every": 10, "evaluate_every": 10, "save_start": True}
    regard.train(task.new_model(seed=0), task.batches(seed=0), folder=folder, evaluation=task.held_out(), **options)
    return TrainingExploration(TrainingRun(folder))


def draw(browser: Any, model: Any, images: Path) -> None:
    """Draw all views into a folder."""
    induced = explored(regard.load("induction"), SEQUENCE, layer=1, head=0)
    induced.paths(0)
    with tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "page.html"
        for exploration, shots in (
            (explored(model, TEXT), ONE),
            (explored(model, TEXT, OTHER), TWO),
            (explored(model, *SIMILAR), MATTERED),
            (induced, INDUCED),
            (trained(Path(folder) / "induction"), TRAINING),
        ):
            write_page(exploration, page_file)
            for name, view, theme, width, height in shots:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
                context.add_init_script(pages.AT_REST)
                page = context.new_page()
                page.goto(f"{page_file.as_uri()}#{view}")
                page.wait_for_selector(".rg-map[data-drawn]", state="attached")
                pages.settled(page)
                page.screenshot(path=images / f"explorer-{name}.png")
                context.close()


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """Yield a Chromium without a window."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def main() -> None:
    with launched() as browser:
        draw(browser, regard.load("minilm"), IMAGES)


if __name__ == "__main__":
    main()
