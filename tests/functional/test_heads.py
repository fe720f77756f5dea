"""Splitting and merging heads."""

from __future__ import annotations

import numpy as np

from regard import functional as F


def test_heads_split_and_merge(rng):
    x = rng.standard_normal((2, 5, 3 * 7))
    heads = F.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    np.testing.assert_array_equal(heads[:, 1], x[..., 7:14])
    np.testing.assert_array_equal(F.merge_heads(heads), x)
