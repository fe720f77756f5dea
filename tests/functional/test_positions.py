"""Positional encodings, those of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard import functional as F
from regard.functional import relative_position_buckets


def test_sinusoidal_positions_are_those_of_the_paper():
    table = F.sinusoidal_positions(11, 6)
    for position in range(11):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-15)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-15)


def test_sinusoidal_positions_of_an_odd_width_end_with_a_sine():
    np.testing.assert_array_equal(F.sinusoidal_positions(3, 5)[:, 4], np.sin(np.arange(3) / 10000 ** (4 / 5)))


def test_learned_positions_take_rows_from_an_offset(rng):
    table = rng.standard_normal((7, 3))
    np.testing.assert_array_equal(F.learned_positions(table, 2, offset=5), table[5:])


def test_slopes_of_other_numbers_of_heads_take_every_second_one_of_twice_as_many():
    np.testing.assert_allclose(F.alibi_slopes(6), [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8], rtol=1e-15)


@given(
    st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]),
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([(32, 128), (300, 1000), (4, 3)]),
)
def test_buckets_of_every_integer_are_those_of_wide_ones(dtype, values, bidirectional, sizes):
    info = np.iinfo(dtype)
    relative = np.array([min(max(x, info.min), info.max) for x in values], dtype)
    options = dict(zip(("num_buckets", "max_distance"), sizes, strict=True), bidirectional=bidirectional)
    near = np.array([min(max(int(x), -(10**6)), 10**6) for x in relative])
    np.testing.assert_array_equal(
        relative_position_buckets(relative, **options), relative_position_buckets(near, **options)
    )
