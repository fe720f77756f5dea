"""Every family against numbers of transformers that are kept here, so that no transformers is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import golden
from regard.models import FAMILIES


@pytest.mark.parametrize("case", golden.KEPT)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_the_numbers_of_transformers(case, dtype, tolerance):
    # What greedy decoding appends in float64: test_decoder.py, by `generate`.
    golden.check(golden.FOLDER / case, dtype=dtype, tolerance=tolerance, greedy=dtype is np.float32)


def test_every_family_is_kept_and_stands_on_the_page_on_models():
    assert {case.split("/")[0] for case in golden.KEPT} == set(FAMILIES)
    page = (Path(__file__).parents[2] / "docs/models.md").read_text("utf-8")
    assert [family for family in FAMILIES if page.count(f"`{family}`") < 2] == []  # what it reads, how exact it is
