"""How soon a page in a file and a long text are visible, and how much memory they take.

The bounds are what is promised at the median, of a machine that does nothing else meanwhile: what others take of it is
allowed for. How long it takes is measured by `benchmarks/explorer.py`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pages import traced
from timing import (
    alone,
    command_serving,
    first_picture,
    looked_at,
    opened,
    page_memory,
    resident,
    tile_seconds,
)

import regard
from regard.explorer import Exploration, write_page

LESSON = Path(__file__).parents[2] / "docs" / "lesson.md"
LONG = 32_768
ZOOMS = (0.05, 0.15, 0.5, 1.5, 5, 20, 40)  # pixels of a token along a side
MB = 1_000_000


def tiles_in_views(page, rng, k, views=8) -> list[float]:
    """Return the seconds of all tiles that some views of a zoom ask for, anywhere on the map."""
    page.evaluate("performance.clearResourceTimings()")
    for _ in range(views):
        looked_at(page, f"{rng.integers(LONG)}_{rng.integers(LONG)}_{k}")
    return tile_seconds(page)


@pytest.mark.parametrize(("tokens", "most_bytes", "most_seconds"), [(128, 2 * MB, 1), (512, 16 * MB, 2)])
def test_a_file_of_144_heads_is_small_and_soon_seen(browser, deep, tmp_path, tokens, most_bytes, most_seconds):
    encoding = deep.tokenizer(LESSON.read_text(encoding="utf-8")[:6000])
    trace = regard.Trace(maps=True)
    deep(np.array([*encoding.ids[: tokens - 1], encoding.ids[-1]]), trace=trace)
    exploration = Exploration(trace, models=[deep])
    assert exploration.modes == ("raw", "rollout", "norms")
    path = tmp_path / "page.html"
    write_page(exploration, path)
    assert path.stat().st_size <= most_bytes
    with opened(browser, f"{path.as_uri()}#v=heads&i=7&j=3", offline=True) as page:
        assert page.locator(".rg-head").count() == 144
        for key, there in (("3", "[data-step=output]"), ("4", ".rg-plane[data-drawn]")):
            page.keyboard.press(key)
            page.wait_for_selector(there)
    assert alone(lambda: [first_picture(browser, path.as_uri(), offline=True) for _ in range(3)]) < most_seconds


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "run.safetensors"
    traced([f"w{i}" for i in range(LONG)], heads=3, dim=64, causal=True).save(path)
    return path


def test_a_long_text_is_soon_seen_and_its_tiles_come_at_once_in_bounded_memory(browser, long_run):
    with command_serving("--trace", str(long_run)) as (address, process):
        overview = alone(lambda: [first_picture(browser, f"{address}#h={head}") for head in range(3)])
        with opened(browser, address) as page:
            rng = np.random.default_rng(0)
            tiles = {k: alone(partial(tiles_in_views, page, rng, k)) for k in ZOOMS}
            heap, renderer = page_memory(browser, page)
            page.get_by_text("Memory", exact=True).click()
            page.wait_for_selector(".rg-memory p:has-text('Python holds')")
            told = page.locator(".rg-memory p").inner_text()
        server = resident(process, "VmHWM")
    assert overview < 2
    assert max(tiles.values()) < 0.1, tiles
    assert heap < 150 * MB
    assert renderer < 600 * MB
    assert server < 700 * MB
    assert "at most 268 MB; the peak of its process is" in told
    assert "The maps on the page hold" in told
