"""Every family against transformers, live: tiny random models with each option that the family reads."""

from __future__ import annotations

import numpy as np
import pytest

import golden
import make_golden

CASES = [(family, case) for family, kind in make_golden.CASES.items() for case in kind.cases]


@pytest.mark.parametrize(("family", "case"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_the_numbers_of_transformers(transformers, tmp_path, family, case, dtype, tolerance):
    make_golden.write(family, case, tmp_path, dtype=np.dtype(dtype).name)
    golden.check(tmp_path, dtype=dtype, tolerance=tolerance)
