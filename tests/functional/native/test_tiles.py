"""bfloat16 multiplied as bfloat16: where, and what stays true. Sizes and arguments are in test_attention.py."""

import ml_dtypes
import numpy as np
import pytest

from regard import Trace, attention, attention_partial, attention_vjp, explain_plan
from regard.functional import ALiBi, native

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = native.kernel().instruction_sets()[0] if native.kernel() else ""


def draw(rng, queries=130, keys=150, dim=40, width=24, heads=2):
    shapes = (heads, queries, dim), (heads, keys, dim), (heads, keys, width)
    return tuple(rng.standard_normal(shape).astype(BFLOAT16) for shape in shapes)


def computed_by(*arrays, **options):
    return explain_plan(*arrays, **options).instruction_set


def with_float32(compute):
    """Return what `compute` returns without products of bfloat16."""
    kernel = native.kernel()
    before = kernel.tiles()
    assert kernel.use_tiles("float32")
    found = compute()
    assert kernel.use_tiles(before)
    return found


def test_the_plan_tells_which_instructions_multiply(tiles, rng):
    q, k, v = draw(rng)
    assert computed_by(q, k, v) == tiles
    assert f"native ({tiles})" in str(explain_plan(q, k, v))
    sinks, some = np.ones(2), rng.random((130, 150)) < 0.5
    for options in ({"causal": True}, {"mask": some}, {"softcap": 5.0}, {"sinks": sinks}, {"key_lengths": 9}):
        assert computed_by(q, k, v, **options) == tiles
    others = (
        {"bias": np.ones((130, 150))},
        {"bias": ALiBi(np.ones(2))},
        {"dropout": 0.5, "rng": rng},
        {"scale": -1.0},
        {"scale": 1e30},
    )
    for options in others:
        assert computed_by(q, k, v, **options) == FLOAT32
    assert computed_by(*(x.astype(np.float16) for x in (q, k, v))) == FLOAT32
    assert computed_by(q[:, :3], k, v) == FLOAT32  # split-KV


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e-39, 1e-16, -1e13, 3e38])
@pytest.mark.parametrize("which", range(3))
def test_unusual_numbers_are_computed_in_float32(tiles, rng, number, which):
    arrays = draw(rng)
    arrays[which][-1, -1, -1] = number
    assert computed_by(*arrays) == FLOAT32
    ours = attention(*arrays, causal=True)
    assert ours.tobytes() == with_float32(lambda: attention(*arrays, causal=True)).tobytes()


@pytest.mark.parametrize(("small", "large"), [(2.0**-50, 2.0**-50), (2704, 2.0**40), (-2704, 2.0**40)])
def test_the_limits_belong_to_the_tiles(tiles, rng, small, large):
    """2,704 is the largest number below √(2²⁶ / (√40 · log₂ e))."""
    q, k, v = draw(rng)
    q[-1, -1, -1] = k[-1, -1, -1] = small
    v[-1, -1, -1] = large
    assert computed_by(q, k, v) == tiles
    assert np.isfinite(attention(q, k, v).astype(np.float32)).all()
    k[-1, -1, -1] *= 2 if abs(small) > 1 else 0.5
    assert computed_by(q, k, v) == FLOAT32


def test_large_scores_keep_the_weights(tiles, rng):
    """Rows of equal keys near the limit: all weights are the same, and the context is the mean."""
    q, k, v = draw(rng, 70, 200, 64)
    k[...] = q[...] = 2000
    np.testing.assert_allclose(
        attention(q, k, v).astype(np.float64),
        v.astype(np.float64).mean(1, keepdims=True).repeat(70, 1),
        rtol=2**-7,
        atol=2**-9,
    )


def test_nonfinite_padding_reaches_nothing(tiles, rng):
    q, k, v = draw(rng)
    clean = attention(q, k, v, key_lengths=100)
    k[:, 100:], v[:, 100:] = np.nan, np.inf
    padded = attention(q, k, v, key_lengths=100)
    np.testing.assert_allclose(padded.astype(np.float32), clean.astype(np.float32), rtol=2**-7, atol=2**-9)


def test_a_constant_value_is_kept(tiles, rng):
    """The weights are divided by the sum of the rounded ones."""
    q, k, v = draw(rng)
    v[...] = np.linspace(-3, 3, v.shape[-1]).astype(BFLOAT16)
    for options in ({}, {"causal": True}, {"softcap": 2.0}, {"mask": rng.random((130, 150)) < 0.5}):
        np.testing.assert_array_equal(attention(q, k, v, **options), np.broadcast_to(v[:, :1], (2, 130, 24)))


def test_rising_and_falling_scores(tiles, rng):
    """The context is rescaled when a maximum is exceeded by much; a weight may be above 1 until then."""
    q, k, v = draw(rng, keys=700)
    for slope in (-0.5, -0.05, 0.05, 0.5, 3.0):
        k[..., 0] = slope * np.arange(700)
        q[..., 0] = np.sqrt(40)  # each key's score differs by the slope
        exact = attention(*(x.astype(np.float64) for x in (q, k, v)), implementation="reference")
        ours = attention(q, k, v).astype(np.float64)
        assert np.abs(ours - exact).max() <= 2.0**-7 * np.abs(v.astype(np.float64)).max()


def test_recording_changes_no_bit(tiles, rng):
    q, k, v = draw(rng)
    for options in ({}, {"causal": True}):
        plain = attention(q, k, v, **options)
        for trace in (Trace(), Trace(maps=True, only="*"), Trace(only="context"), Trace(only="weights")):
            np.testing.assert_array_equal(attention(q, k, v, trace=trace, **options), plain)


def test_partial_results_and_gradients_stay_in_float32(tiles, rng):
    q, k, v = draw(rng)

    def compute():
        part = attention_partial(q, k, v, causal=True)
        output, pullback = attention_vjp(q, k, v, causal=True)
        gradients = pullback(output)
        return part.output, part.lse, output, gradients.q, gradients.k, gradients.v

    for ours, theirs in zip(compute(), with_float32(compute), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_implementations_agree_but_for_few_roundings(tiles, rng):
    """Their sums have other orders, so not to the last bit."""
    q, k, v = draw(rng, 200, 333, 96, 48)
    ours = attention(q, k, v, causal=True).astype(np.float32)
    assert native.kernel().use_tiles("C++")
    model = attention(q, k, v, causal=True).astype(np.float32)
    assert abs(ours - model).max() <= 2.0**-6
    assert (ours == model).mean() > 0.99
    wide = with_float32(lambda: attention(q, k, v, causal=True)).astype(np.float32)
    assert 0.5 < (ours == wide).mean() < 0.99  # the weights are rounded


def test_heads_of_one_key_are_broadcast(tiles, rng):
    q, k, v = draw(rng, heads=4)
    once = attention(q, np.broadcast_to(k[:1], k.shape), v)
    np.testing.assert_array_equal(once, attention(q, np.repeat(k[:1], 4, 0), v))


def test_names(tiles):
    kernel = native.kernel()
    names = kernel.tile_implementations()
    assert names[-2:] == ["C++", "float32"]
    assert kernel.tiles() == tiles
    assert not kernel.use_tiles("AMX2")
    assert kernel.tiles() == tiles
    assert kernel.use_tiles("auto")
    assert kernel.tiles() in names
    assert kernel.use_instruction_set("generic") or kernel.use_instruction_set("NEON")
    assert kernel.tiles() == "float32" or len(kernel.instruction_sets()) == 1
