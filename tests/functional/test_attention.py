"""`attention` and `attention_weights` against exact arithmetic, and the laws they obey."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracle import exact_attention, naive_attention

from attention_cases import PATHS, close, random_case, reference, small_sizes
from regard import AttentionMap, RegardError, attention, attention_partial, attention_vjp, attention_weights

B, H, G, T, S, D, DV = 2, 6, 3, 5, 7, 11, 13


def arrays(rng):
    return [rng.standard_normal((B, *shape)) for shape in ((H, T, D), (G, S, D), (G, S, DV))]


@st.composite
def small_cases(draw):
    """Draw sizes, a spread of scores up to ±1e4, and a mask in which every row may be anything."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, keys, dim, width = (draw(st.integers(1, top)) for top in (5, 7, 5, 3))
    spread = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0, 1e4]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((queries, dim), (keys, dim), (keys, width)))
    q *= dtype(spread)
    attends = rng.random((queries, keys)) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    bias = rng.standard_normal((queries, keys)).astype(dtype) if draw(st.booleans()) else None
    scale = draw(st.sampled_from([1 / np.sqrt(q.shape[1]), 0.5]))
    return q, k, v, attends, bias, scale


@given(small_cases())
def test_error_is_at_most_twice_that_of_the_naive_formula(case):
    q, k, v, attends, bias, scale = case
    exact, exact_weights = exact_attention(q, k, v, attends=attends, bias=bias, scale=scale)
    ours = attention(q, k, v, mask=attends, bias=bias, scale=scale)
    weights = attention_weights(q, k, mask=attends, bias=bias, scale=scale)
    some = attends.any(-1)
    assert (ours[~some] == 0).all()
    assert (weights[~some] == 0).all()
    naive, naive_weights = naive_attention(
        q[some], k, v, attends=attends[some], bias=None if bias is None else bias[some], scale=scale
    )
    if some.any():
        # Of a few numbers the naive formula may hit the truth by luck. Rounding each score once moves a weight by eps/2
        # of the score, up or down.
        scores = np.abs(q.astype(np.float64) @ k.T.astype(np.float64) * scale) + (0 if bias is None else np.abs(bias))
        luck = np.finfo(q.dtype).eps * (1 + np.max(scores, initial=0, where=attends & np.isfinite(scores)))
        naive_error = np.abs(naive - exact[some]).max()
        assert np.abs(ours[some] - exact[some]).max() <= 2 * naive_error + luck * np.abs(v).max()
        naive_error = np.abs(naive_weights - exact_weights[some]).max()
        assert np.abs(weights[some] - exact_weights[some]).max() <= 2 * naive_error + luck


def test_leading_axes_broadcast(rng):
    q, k, v = arrays(rng)
    ours = attention(np.stack([q, q + 1, q - 1]), k[:1], v[1])
    assert ours.shape == (3, B, H, T, DV)
    np.testing.assert_allclose(ours[0, 1], attention(q[1], k[0], v[1]), rtol=1e-13)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("empty", ["batch", "queries", "keys", "dim", "width"])
@pytest.mark.parametrize("seed", range(12))
def test_any_size_may_be_zero(seed, empty, path):
    """With any arguments: context, weights, partial results, statistics of the map, and gradients."""
    rng = np.random.default_rng(seed)
    given = small_sizes(rng)._replace(lead=(2,), groups=2, repeats=2)
    given = given._replace(lead=(0,)) if empty == "batch" else given._replace(**{empty: 0})
    case = random_case(rng, sizes=given, spread=1.0)
    context, weights, lse = reference(case)
    options = {**case.options, "implementation": path}
    part, look = attention_partial(case.q, case.k, case.v, **options), AttentionMap(case.q, case.k, **options)
    for ours, theirs in (
        (attention(case.q, case.k, case.v, **options), context), (part.output, context), (part.lse, lse),
        (attention_weights(case.q, case.k, **options), weights), (look.received(), weights.sum(-2)), (look.lse, lse),
    ):  # fmt: skip
        assert ours.shape == theirs.shape
        close(ours, theirs)
    assert look.entropy().shape == look.distance().shape == look.top(2).keys.shape[:-1] == lse.shape
    for how in ("max", "mean"):
        cells = tuple(min(2, size) for size in weights.shape[-2:])
        assert look.pooled((2, 2), how).shape == (*weights.shape[:-2], *cells)
    gradients = attention_vjp(case.q, case.k, case.v, **options)[1](np.ones(context.shape))
    for name in "qkv":
        assert getattr(gradients, name).shape == getattr(case, name).shape


def test_inputs_are_left_alone(rng):
    q, k, v = arrays(rng)
    copies = [x.copy() for x in (q, k, v)]
    for x in (q, k, v):
        x.flags.writeable = False
    attention(q, k, v, causal=True, bias=np.zeros((T, S)))
    assert all(np.array_equal(x, c) for x, c in zip((q, k, v), copies, strict=True))


def test_the_score_of_a_masked_key_is_its_own_whatever_another_holds(rng):
    q, k, _ = arrays(rng)
    attends = np.ones((T, S), bool)
    attends[:, [1, 4]] = False
    clean = attention_weights(q, k, mask=attends, stage="scores")
    k[..., 4, :] = np.nan
    others = [0, 1, 2, 3, 5, 6]
    scores = attention_weights(q, k, mask=attends, stage="scores")  # by another product: equal to rounding
    np.testing.assert_allclose(scores[..., others], clean[..., others], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("offset", [2**29, np.array([2**29]), -(2**29)])
def test_the_largest_position_is_one_that_is_accepted(rng, offset):
    q, k, v = rng.standard_normal((3, 1, 1, 5, 4))
    expected = attention(q, k, v) if np.all(np.asarray(offset) > 0) else np.zeros_like(v)
    np.testing.assert_array_equal(attention(q, k, v, causal=True, query_offset=offset), expected)
    with pytest.raises(RegardError, match="out of range: positions are at most 536870912"):
        attention(q, k, v, causal=True, query_offset=offset + np.sign(offset))
