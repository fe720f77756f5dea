"""How large a page in a file is, and how much memory a long text takes.

How long they take is measured by `benchmarks/explorer.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pages import traced
from timing import command_serving, looked_at, opened, page_memory, resident

import regard
from regard.explorer import Exploration, write_page

LESSON = Path(__file__).parents[2] / "docs" / "lesson.md"
LONG = 32_768
ZOOMS = (0.05, 0.15, 0.5, 1.5, 5, 20, 40)  # pixels of a token along a side
MB = 1_000_000


@pytest.mark.parametrize(("tokens", "most_bytes"), [(128, 2 * MB), (512, 16 * MB)])
def test_a_file_of_144_heads_is_small(open_page, deep, tmp_path, tokens, most_bytes):
    encoding = deep.tokenizer(LESSON.read_text(encoding="utf-8")[:6000])
    trace = regard.Trace(maps=True, only="*")
    deep(np.array([*encoding.ids[: tokens - 1], encoding.ids[-1]]), trace=trace)
    exploration = Exploration(trace, models=[deep])
    assert exploration.modes == ("raw", "rollout", "norms")
    path = tmp_path / "page.html"
    write_page(exploration, path)
    assert path.stat().st_size <= most_bytes
    page = open_page(f"{path.as_uri()}#v=heads&i=7&j=3", offline=True)
    assert page.locator(".rg-head").count() == 144
    for key, there in (("3", "[data-step=output]"), ("4", ".rg-plane[data-drawn]")):
        page.keyboard.press(key)
        page.wait_for_selector(there)


def test_a_long_text_is_seen_in_bounded_memory(browser, tmp_path):
    path = tmp_path / "run.safetensors"
    traced([f"w{i}" for i in range(LONG)], heads=3, dim=64, causal=True).save(path)
    rng = np.random.default_rng(0)
    with command_serving("--trace", str(path)) as (address, process):
        with opened(browser, address) as page:
            for k in np.repeat(ZOOMS, 8):
                looked_at(page, f"{rng.integers(LONG)}_{rng.integers(LONG)}_{k}")
            heap, renderer = page_memory(browser, page)
            page.get_by_text("Memory", exact=True).click()
            page.wait_for_selector(".rg-memory p:has-text('Python holds')")
            told = page.locator(".rg-memory p").inner_text()
        server = resident(process, "VmHWM")
    assert heap < 150 * MB
    assert renderer < 600 * MB
    assert server < 700 * MB
    assert "at most 268 MB; the peak of its process is" in told
    assert "The maps on the page hold" in told
