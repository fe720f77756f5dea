"""Figures for print from the command line: the width that is asked for, and no option that does nothing."""

from __future__ import annotations

import re

import pytest

from regard.cli import main

TEXT = ["the cat sat", "--toy", "--num-heads", "2"]


@pytest.mark.parametrize(("width", "millimetres"), [("column", 85), ("page", 170), ("100.5", 100.5)])
def test_a_picture_is_as_wide_as_asked(tmp_path, capsys, width, millimetres):
    one, every = str(tmp_path / "one.pdf"), str(tmp_path / "every.svg")
    files = ["-o", one, "--head-grid", every, "--width", width, "--caption"]
    assert main([*TEXT, "--head", "1", *files]) == 0
    box = re.search(rb"/MediaBox \[ ([\d. ]+) \]", (tmp_path / "one.pdf").read_bytes())[1].split()
    assert float(box[2]) * 25.4 / 72 == pytest.approx(millimetres, abs=0.01)
    width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', (tmp_path / "every.svg").read_bytes())[1]
    assert float(width) * 25.4 / 72 == pytest.approx(millimetres, abs=0.01)
