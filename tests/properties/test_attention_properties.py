"""Laws that attention obeys, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from attention_cases import PATHS, close, cut_into_blocks, one_head
from regard import (
    AttentionMap,
    RegardError,
    Trace,
    attention,
    attention_vjp,
    attention_weights,
)
from regard.functional import (
    ALiBi,
    Bias,
    Causal,
    SlidingWindow,
    alibi_slopes,
)

seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


@pytest.mark.parametrize("path", PATHS)
@given(seeds)
def test_a_change_in_the_future_leaves_the_past_unchanged(path, seed):
    rng, q, k, v = one_head(seed, 7, 7)
    now = int(rng.integers(0, 7))
    options = {"causal": True, "implementation": path}
    before = attention(q, k, v, **options)
    for x in (k, v):
        x[now:] = rng.choice([np.nan, np.inf, -np.inf, 1e300])
    assert np.array_equal(attention(q, k, v, **options)[:now], before[:now])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e308])
@given(seed=seeds)
def test_masked_values_never_show(path, poison, seed):
    """Not in the output, not in the weights, and not in the gradient of anything else.

    Beside finite numbers as large as this everything is computed in a wider dtype, and so rounded once.
    """

    def same(one, other):
        return np.allclose(one, other, rtol=1e-12, atol=1e-13) if np.isfinite(poison) else np.array_equal(one, other)

    rng, q, k, v = one_head(seed)
    masked = rng.random((6, 7)) < 0.4
    masked[:, 2] = True
    d_output = rng.standard_normal((6, 4))
    bias = rng.standard_normal((6, 7))
    options = {"mask": ~masked, "implementation": path}
    if seed % 2:
        options["softcap"] = 2.0
    clean = attention(q, k, v, bias=bias, **options)
    weights = attention_weights(q, k, bias=bias, **options)
    gradients = attention_vjp(q, k, v, bias=bias, **options)[1](d_output)
    k[2], v[2] = poison, poison
    bias[masked] = poison
    assert same(attention(q, k, v, bias=bias, **options), clean)
    assert same(attention_weights(q, k, bias=bias, **options), weights)
    for ours, theirs in zip(attention_vjp(q, k, v, bias=bias, **options)[1](d_output), gradients, strict=True):
        assert ours is None or same(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"bias": ALiBi(alibi_slopes(1))}])
def test_a_key_that_is_not_finite_and_attended_by_some_spares_the_gradients_of_the_others(options):
    _, q, k, v = one_head(4, 7, 7)
    k[5], v[5] = np.nan, np.inf
    clean = attention_vjp(q[:5], k[:5], v[:5], causal=True, **options)[1](np.ones((5, 4)))
    output, pullback = attention_vjp(q, k, v, causal=True, **options)
    assert np.isfinite(output[:5]).all()
    assert np.isnan(output[5:]).all()
    close(pullback(np.ones((7, 4))).q[:5], clean.q)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_plus_infinity_share_all_the_weight(path, dtype):
    bias = np.array([[0, np.inf, 1, np.inf], [0, 1, 2, -np.inf]], dtype)
    q, k, v = np.zeros((2, 1), dtype), np.zeros((4, 1), dtype), np.array([[1], [2], [3], [4]], dtype)
    out = attention(q, k, v, bias=bias, implementation=path)
    np.testing.assert_allclose(out[0], 3)
    assert np.isfinite(out).all()
    np.testing.assert_array_equal(attention_weights(q, k, bias=bias)[0], [0, 0.5, 0, 0.5])
    np.testing.assert_array_equal(attention_weights(q, k, bias=bias, rows=0), [0, 0.5, 0, 0.5])


@np.errstate(over="ignore")  # two of them may be farther apart than the largest number
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_of_scores_that_are_nearly_infinite_takes_all_the_weight(path, dtype):
    far = np.finfo(dtype).max
    bias = np.array([[far / 4, far / 2, -far, 0], [-far, far, 0, -np.inf], [-far, -far, -np.inf, -far / 2]], dtype)
    bias = np.repeat(bias, 40, axis=0)
    q, k, v = np.zeros((120, 1), dtype), np.zeros((4, 1), dtype), np.array([[1], [2], [3], [4]], dtype)
    expected = np.repeat([2, 2, 4], 40)[:, None]
    np.testing.assert_array_equal(attention(q, k, v, bias=bias, implementation=path), expected)
    np.testing.assert_array_equal(attention(q[:1], k, v, bias=bias[:1], implementation=path), expected[:1])
    np.testing.assert_array_equal(attention_weights(q, k, bias=bias, implementation=path) @ v, expected)
    _, pullback = attention_vjp(q, k, v, bias=bias, implementation=path)
    gradients = pullback(np.ones((120, 1), dtype))
    np.testing.assert_array_equal(gradients.v[:, 0], [0, 80, 0, 40])
    assert not gradients.bias.any()
    assert np.isfinite(AttentionMap(q, k, bias=bias, implementation=path).entropy()).all()


@pytest.mark.parametrize("path", PATHS)
def test_a_visible_nan_shows_wherever_it_is(path):
    q, k, v = np.ones((1, 2)), np.ones((2, 2)), np.array([[1.0], [5.0]])
    assert np.isnan(attention(q, k, v, bias=np.array([[0, np.nan]]), implementation=path)).all()
    assert np.isnan(attention(q, np.array([[1, 1], [np.nan, 1]]), v, implementation=path)).all()
    assert np.isnan(attention(q, k, np.array([[1.0], [np.nan]]), implementation=path)).all()


@pytest.mark.parametrize("path", PATHS)
def test_a_visible_infinity_counts_however_small_its_weight(path):
    q, k, v = np.array([[1e4]]), np.array([[1.0], [-1.0]]), np.array([[1.0], [np.inf]])
    for options in ({}, {"mask": np.ones((1, 2), bool)}, {"bias": np.zeros((1, 2))}):
        assert attention(q, k, v, **options, implementation=path) == np.inf


@pytest.mark.parametrize("path", PATHS)
def test_infinities_and_nan_of_different_blocks_all_show(path):
    q, k, v = np.zeros((1, 2)), np.zeros((8, 2)), np.zeros((8, 5))
    v[0, 0], v[0, 1], v[7, 1], v[7, 2], v[5, 3] = np.nan, np.inf, -np.inf, -np.inf, np.inf
    out = attention(q, k, v, implementation=path)
    np.testing.assert_array_equal(out, [[np.nan, np.nan, -np.inf, np.inf, 0]])


@pytest.mark.parametrize("path", PATHS)
def test_values_may_have_leading_axes_of_their_own(path):
    rng = np.random.default_rng(9)
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 3, 6, 4), (2, 3, 7, 4), (5, 2, 3, 7, 2)))
    options = {"causal": True, "key_lengths": np.array([5, 0]), "sinks": np.ones(3)}
    out = attention(q, k, v, **options, implementation=path)
    assert out.shape == (5, 2, 3, 6, 2)
    for i in range(5):
        close(out[i], attention(q, k, v[i], **options))
    dropping = {"dropout": 0.5, "rng": np.random.default_rng(1)}
    weights = attention_weights(q, k, **options, **dropping)
    dropping["rng"] = np.random.default_rng(1)
    close(attention(q, k, v, **options, **dropping, implementation=path), weights @ v)
    d_output = rng.standard_normal(out.shape)
    gradients = attention_vjp(q, k, v, **options)[1](d_output)
    alone = [attention_vjp(q, k, v[i], **options)[1](d_output[i]) for i in range(5)]
    close(gradients.q, sum(g.q for g in alone))
    close(gradients.k, sum(g.k for g in alone))
    close(gradients.v, np.stack([g.v for g in alone]))
    close(gradients.sinks, sum(g.sinks for g in alone))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "u8"])
def test_rows_columns_and_offsets_of_any_integers(dtype):
    rng = np.random.default_rng(10)
    q, k = rng.standard_normal((2, 120, 4))
    rows, cols = np.array([5, 100]), np.array([0, 1, 110])
    options = {"window": (100, 2), "bias": ALiBi(alibi_slopes(1)), "query_offset": 3}
    expected = attention_weights(q, k, **options)[rows[:, None], cols]
    close(attention_weights(q, k, **options, rows=rows.astype(dtype), cols=cols.astype(dtype)), expected)
    options["query_offset"] = np.array([3], dtype)
    close(attention_weights(q[None, None], k[None, None], **options)[0, 0][rows[:, None], cols], expected)
    assert attention_weights(q, k, rows=[], cols=cols).shape == (0, 3)


def test_a_bias_too_large_for_the_precision_is_not_a_mask():
    q, k = np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)
    for number in (np.finfo(np.float64).min, np.finfo(np.float64).max):
        weights = attention_weights(q, k, bias=np.full((1, 2), number))
        np.testing.assert_array_equal(weights, [[0.5, 0.5]])


def test_a_softcap_beyond_all_numbers_caps_nothing():
    _, q, k, v = one_head(11)
    short = [x.astype(np.float32) for x in (q, k, v)]
    assert np.array_equal(attention(*short, softcap=1e39), attention(*short))
    np.testing.assert_allclose(attention(*short, softcap=1e30), attention(*short), atol=1e-6)


def test_contradictory_or_ignored_arguments_are_errors():
    _, q, k, v = one_head(12)
    for options, message in [
        ({"mask": Causal(0), "query_offset": 3}, "no argument depends on positions"),
        ({"bias": np.zeros((6, 7)), "query_offset": 3}, "no argument depends on positions"),
        (
            {"implementation": "blockwise", "trace": Trace(edit={"weights": lambda w: w})},
            "holds no whole map",
        ),
        ({"implementation": "fast"}, "implementation must be one of auto"),
        ({"trace": True}, "trace must be a recorder"),
    ]:
        with pytest.raises(RegardError, match=message):
            attention(q, k, v, **options)
    with pytest.raises(TypeError, match="attention has no argument 'is_causal'; its options are mask, bias, causal"):
        attention_weights(q, k, is_causal=True)
    attention(q, k, v, mask=Causal(0) & SlidingWindow(3, 3), query_offset=3)  # the window depends on positions


def test_a_gradient_is_of_real_numbers_and_of_rules_that_have_one():
    class Towards(Bias):
        def values(self, grid, rows, cols):
            return -abs(grid.key_indices(cols) - grid.query_indices(rows)) / 1.0

    _, q, k, v = one_head(13)
    close(attention(q, k, v, bias=Towards()), attention(q, k, v, bias=ALiBi(np.ones(1)), query_offset=0))
    output, pullback = attention_vjp(q, k, v, bias=Towards())
    with pytest.raises(RegardError, match="Towards has no gradient"):
        pullback(output)
    with pytest.raises(RegardError, match="real numbers, got complex128"):
        attention_vjp(q, k, v)[1](output * 1j)
