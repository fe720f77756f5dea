"""Rotary positions: which features rotate, by which angle, and the effect on scores."""

import numpy as np
import pytest

from regard.functional import apply_rotary, rotary, rotary_frequencies, rotary_pairs

LAYOUTS = pytest.mark.parametrize("interleaved", [False, True])


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_pair_is_a_complex_number_that_is_rotated(rng):
    x, positions = rng.standard_normal((2, 3, 5, 8)), rng.integers(0, 1000, (2, 1, 5))
    rotation = np.exp(1j * positions[..., None] * 500.0 ** -(np.arange(4) / 4))
    halves = (x[..., :4] + 1j * x[..., 4:]) * rotation
    close(rotary(x, positions, base=500.0), np.concatenate([halves.real, halves.imag], -1))
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * rotation
    close(rotary(x, positions, base=500.0, interleaved=True), np.stack([pairs.real, pairs.imag], -1).reshape(x.shape))


@LAYOUTS
def test_the_norm_of_each_pair_is_kept(rng, interleaved):
    x = rng.standard_normal((3, 9, 8))
    rotated = rotary(x, np.arange(100, 109), interleaved=interleaved)
    for a, b in rotary_pairs(8, interleaved=interleaved):
        close(np.hypot(rotated[..., a], rotated[..., b]), np.hypot(x[..., a], x[..., b]))


def test_positions_count_from_zero_by_default(rng):
    x = rng.standard_normal((2, 3, 7, 4))
    np.testing.assert_array_equal(rotary(x), rotary(x, np.arange(7)))


@LAYOUTS
def test_features_after_the_rotary_dim_stay(rng, interleaved):
    x = rng.standard_normal((2, 5, 11))
    rotated = rotary(x, rotary_dim=6, interleaved=interleaved)
    np.testing.assert_array_equal(rotated[..., 6:], x[..., 6:])
    np.testing.assert_array_equal(rotated[..., :6], rotary(x[..., :6], interleaved=interleaved))


def test_float16_is_computed_wide_and_rounded_once(rng):
    x = rng.standard_normal((2, 300, 8)).astype(np.float16)
    rotated = rotary(x)
    assert rotated.dtype == np.float16
    exact = rotary(x.astype(np.float64))
    # Half a unit in the last place of float16, and what float32 adds before.
    assert (np.abs(rotated - exact) <= 0.5001 * np.spacing(np.abs(exact).astype(np.float16)).astype(float) + 1e-6).all()


def test_float32_at_a_far_position_has_the_angle_of_float64(rng):
    x = rng.standard_normal((1, 8)).astype(np.float32)
    far = np.array([1_000_003])
    rotated = rotary(x, far)
    assert rotated.dtype == np.float32
    np.testing.assert_allclose(rotated, rotary(x.astype(np.float64), far), rtol=0, atol=4e-7)


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}


def test_dynamic_scaling_takes_the_length_from_the_positions(rng):
    x = rng.standard_normal((3, 8))
    np.testing.assert_array_equal(rotary(x, np.array([0, 3, 7]), scaling=DYNAMIC), rotary(x, np.array([0, 3, 7])))
    frequencies, _ = rotary_frequencies(8, scaling=DYNAMIC, length=21)
    angles = np.array([0, 3, 20])[:, None] * frequencies
    close(rotary(x, np.array([0, 3, 20]), scaling=DYNAMIC), apply_rotary(x, np.cos(angles), np.sin(angles)))
    assert rotary_frequencies(2, scaling=DYNAMIC, length=100) == (1, 1)  # a single pair is not stretched
    for scaling in (None, DYNAMIC):
        assert rotary(np.ones((3, 0, 4)), scaling=scaling).shape == (3, 0, 4)


def test_the_magnitude_of_yarn_is_on_the_features_that_rotate(rng):
    x = rng.standard_normal((3, 8))
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.5}
    rotated = rotary(x, rotary_dim=4, scaling=scaling)
    close(np.linalg.norm(rotated[:, :4], axis=-1), 1.5 * np.linalg.norm(x[:, :4], axis=-1))
    np.testing.assert_array_equal(rotated[:, 4:], x[:, 4:])


@pytest.mark.parametrize("kind", ["type", "rope_type"])
def test_both_spellings_of_the_type_are_accepted(kind):
    slower, _ = rotary_frequencies(8, scaling={kind: "linear", "factor": 4.0, "rope_theta": 1e4})
    close(slower, rotary_frequencies(8)[0] / 4)
