"""Memory of a capture: linear in the length of the text."""

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_models import captured, inputs

from regard.torch.masks import mask_of


def peak(work):
    """Return how many bytes more than at its beginning the process held at most while `work` ran."""
    status = Path("/proc/self/status")

    def held(field):
        return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith(field)).split()[1])

    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # free memory that is still held would be used again, and not be counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before = held("VmRSS")
    result = work()
    return result, held("VmHWM") - before


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the peak in Linux's way")
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_memory_grows_with_the_text_and_not_with_its_square(pair, kind):
    """One map of 8,192 tokens would be 1 GiB for its 4 heads; there are three of them."""
    model, _ = pair(kind)
    model = model.model  # without logits

    def look(length):
        return captured(model, {"input_ids": inputs(length=length)["input_ids"][:1]})

    look(64)  # what is loaded once
    sizes, peaks = [], []
    for length in (4096, 8192):
        trace, most = peak(lambda length=length: look(length))
        sizes.append(sum(trace.map(f"blocks.{i}.attn").nbytes for i in range(3)))
        peaks.append(most)
    assert sizes[1] == 2 * sizes[0] == 3 * 8192 * (4 * 24 + 2 * 24 + 16 * 4)  # q, k, and two numbers for each row
    assert peaks[1] < 60_000_000 < 8192**2, peaks  # not even one byte for each pair of tokens
    row = trace.map("blocks.2.attn")[0, 1, 8191]
    assert row.shape == (8192,)
    np.testing.assert_allclose(row.sum(), 1, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the peak in Linux's way")
def test_a_mask_leaves_no_holes_in_memory():
    """Whether small arrays of each block fragment the heap depends on its state: one of four lengths shows it."""

    def brought_down(length):
        keys = torch.arange(length)
        return mask_of(lambda rows: (keys <= keys[rows, None])[None, None], (1, 1), length, length)

    brought_down(64)
    peaks = []
    for length in (8192, 8092, 7992, 7892):
        rule, most = peak(lambda length=length: brought_down(length))
        peaks.append(most)
        np.testing.assert_array_equal(rule.last[-3:], [length - 2, length - 1, length])
    assert max(peaks) < 60_000_000 < length**2, peaks
