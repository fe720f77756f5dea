"""Every family against numbers of transformers that are kept here, so that no transformers is needed."""

from __future__ import annotations

import numpy as np
import pytest

import golden


@pytest.mark.parametrize("case", golden.KEPT)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_the_numbers_of_transformers(case, dtype, tolerance):
    golden.check(golden.FOLDER / case, dtype=dtype, tolerance=tolerance)
