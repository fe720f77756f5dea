"""`attention` and `attention_weights`: axes of any size, positions, and what they leave alone."""

import numpy as np
import pytest

from attention_cases import PATHS, close, random_case, reference, small_sizes
from regard import AttentionMap, RegardError, attention, attention_partial, attention_vjp, attention_weights

B, H, G, T, S, D, DV = 2, 6, 3, 5, 7, 11, 13


def arrays(rng):
    return [rng.standard_normal((B, *shape)) for shape in ((H, T, D), (G, S, D), (G, S, DV))]


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
