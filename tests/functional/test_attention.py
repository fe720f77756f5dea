"""`attention` and `attention_weights` against exact arithmetic, and the laws they obey."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracle import exact_attention, naive_attention

from attention_cases import PATHS, random_case, small_sizes
from regard import RegardError, Trace, attention, attention_partial, attention_vjp, attention_weights

B, H, G, T, S, D, DV = 2, 6, 3, 5, 7, 11, 13


def arrays(rng, dtype=np.float64, *, heads=H, groups=G, queries=T, keys=S):
    return (
        rng.standard_normal((B, heads, queries, D)).astype(dtype),
        rng.standard_normal((B, groups, keys, D)).astype(dtype),
        rng.standard_normal((B, groups, keys, DV)).astype(dtype),
    )


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_batched_heads_agree_with_exact_arithmetic_head_by_head(rng, dtype):
    q, k, v = arrays(rng, dtype)
    ours = attention(q, k, v)
    assert ours.dtype == dtype
    assert ours.shape == (B, H, T, DV)
    for b in range(B):
        for h in range(H):
            kv = h // (H // G)  # each key/value head serves consecutive query heads
            exact, _ = exact_attention(q[b, h], k[b, kv], v[b, kv])
            # float16 is rounded once at the end: half an ulp of it, and nothing of the way there.
            rounding = np.finfo(dtype).eps / 2 * np.abs(exact) + 8 * np.finfo(np.promote_types(dtype, "f4")).eps
            assert (np.abs(ours[b, h] - exact) <= rounding * 1.01).all()


def test_bfloat16_stays_bfloat16(rng):
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in arrays(rng))
    ours = attention(q, k, v)
    wide = attention(*(x.astype(np.float64) for x in (q, k, v)))
    assert ours.dtype == ml_dtypes.bfloat16
    assert np.abs(ours.astype(np.float64) - wide).max() <= 2**-8 * np.abs(wide).max()


def test_integers_become_float64():
    out = attention(np.eye(3, dtype=int), np.eye(3, dtype=int), np.eye(3, dtype=np.int8))
    assert out.dtype == np.float64


def test_two_axes_are_one_head(rng):
    q, k, v = (x[0, 0] for x in arrays(rng))
    assert np.array_equal(attention(q, k, v), attention(q[None], k[None], v[None])[0])


def test_leading_axes_broadcast(rng):
    q, k, v = arrays(rng)
    ours = attention(np.stack([q, q + 1, q - 1]), k[:1], v[1])
    assert ours.shape == (3, B, H, T, DV)
    np.testing.assert_allclose(ours[0, 1], attention(q[1], k[0], v[1]), rtol=1e-13)


def test_rows_sum_to_one(rng):
    q, k, _ = arrays(rng)
    np.testing.assert_allclose(attention_weights(q, k).sum(-1), 1, rtol=1e-14)


def test_permuting_keys_permutes_weights(rng):
    q, k, _ = arrays(rng)
    order = rng.permutation(S)
    shuffled = attention_weights(q, k[..., order, :])
    np.testing.assert_allclose(shuffled, attention_weights(q, k)[..., order], rtol=1e-12)


def test_mask_that_allows_all_changes_nothing(rng):
    q, k, v = arrays(rng)
    mask = np.ones((T, S), bool)
    assert np.array_equal(attention(q, k, v, mask=mask), attention(q, k, v))


def test_masked_keys_are_as_if_absent(rng):
    q, k, v = arrays(rng)
    mask = np.arange(S) % 3 != 1
    np.testing.assert_allclose(
        attention(q, k, v, mask=mask), attention(q, k[..., mask, :], v[..., mask, :]), rtol=1e-12
    )


def test_mask_may_differ_by_batch_entry(rng):
    q, k, v = arrays(rng)
    mask = np.ones((B, 1, 1, S), bool)
    mask[1, ..., 4:] = False
    ours = attention(q, k, v, mask=mask)
    np.testing.assert_allclose(ours[0], attention(q, k, v)[0], rtol=1e-12)
    np.testing.assert_allclose(ours[1], attention(q, k[..., :4, :], v[..., :4, :])[1], rtol=1e-12)


@pytest.mark.parametrize("nothing", ["mask", "bias"])
def test_row_without_keys_is_zero(rng, nothing):
    q, k, v = arrays(rng)
    mask = np.ones((T, S), bool)
    mask[2] = False
    given = {"mask": mask} if nothing == "mask" else {"bias": np.where(mask, 0.0, -np.inf)}
    ours = attention(q, k, v, **given)
    assert (ours[..., 2, :] == 0).all()
    assert np.isfinite(ours).all()
    assert (attention_weights(q, k, **given)[..., 2, :] == 0).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("where", "by"),
    [(where, by) for where in ("k", "v", "bias") for by in ("mask", "causal")] + [("k", "bias"), ("v", "bias")],
)
def test_what_masked_keys_hold_never_shows(rng, poison, where, by):
    q, k, v = arrays(rng, queries=S)
    bias = rng.standard_normal((S, S))
    masked = np.zeros((S, S), bool)
    masked[:, S - 2] = True  # only the last two attend to this key
    if by == "causal":
        masked = ~np.tri(S, dtype=bool)
        given = {"causal": True}
    elif by == "mask":
        given = {"mask": ~masked}
    else:
        given = {}
        bias = np.where(masked, -np.inf, bias)
    clean = attention(q, k, v, bias=bias, **given)
    if where == "bias":
        bias = np.where(masked, poison, bias)
    else:
        (k if where == "k" else v)[..., S - 2, :] = poison
    ours = attention(q, k, v, bias=bias, **given)
    masked_rows = masked[:, S - 2] if where != "bias" else np.ones(S, bool)
    assert np.array_equal(ours[..., masked_rows, :], clean[..., masked_rows, :])


def test_visible_infinity_and_nan_show(rng):
    q, k, v = arrays(rng)
    mask = np.ones((T, S), bool)
    mask[0, :2] = False
    v[..., 0, 0], v[..., 1, 0], v[..., 0, 1], v[..., 1, 2] = np.inf, -np.inf, np.inf, np.nan
    ours = attention(q, k, v, mask=mask)
    assert np.isfinite(ours[..., 0, :]).all()
    assert np.isnan(ours[..., 1:, 0]).all()
    assert (ours[..., 1:, 1] == np.inf).all()
    assert np.isnan(ours[..., 1:, 2]).all()


def test_scores_of_ten_thousand_do_not_overflow(rng):
    q, k, v = np.float32([[100.0]]), np.float32([[1000.0], [-1000.0]]), np.float32([[3.0], [5.0]])
    assert attention(q, k, v) == 3


@pytest.mark.parametrize(("queries", "keys"), [(0, S), (T, 0), (0, 0)])
def test_zero_lengths(rng, queries, keys):
    q, k, v = arrays(rng, queries=queries, keys=keys)
    for causal in (False, True):
        out = attention(q, k, v, causal=causal)
        assert out.shape == (B, H, queries, DV)
        assert (out == 0).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("empty", ["batch", "queries", "keys", "dim", "width"])
@pytest.mark.parametrize("seed", range(12))
def test_any_size_may_be_zero(seed, empty, path):
    """With any arguments: context, weights, partial results and gradients."""
    rng = np.random.default_rng(seed)
    given = small_sizes(rng)._replace(lead=(2,), groups=2, repeats=2)
    given = given._replace(lead=(0,)) if empty == "batch" else given._replace(**{empty: 0})
    case = random_case(rng, sizes=given, spread=1.0)
    options = {**case.options, "implementation": path}
    shape = (*given.lead, 4, given.queries, given.width)
    assert attention(case.q, case.k, case.v, **options).shape == shape
    assert attention_weights(case.q, case.k, **options).shape == (*shape[:-1], given.keys)
    part = attention_partial(case.q, case.k, case.v, **options)
    assert (part.output.shape, part.lse.shape) == (shape, shape[:-1])
    gradients = attention_vjp(case.q, case.k, case.v, **options)[1](np.ones(shape))
    for name in "qkv":
        assert getattr(gradients, name).shape == getattr(case, name).shape


def test_one_key_gets_all_the_weight(rng):
    q, k, v = arrays(rng, keys=1)
    assert (attention_weights(q, k) == 1).all()
    np.testing.assert_array_equal(attention(q, k, v), np.repeat(np.repeat(v, H // G, 1), T, 2))


@pytest.mark.parametrize(("queries", "keys"), [(T, S), (S, T), (S, S)])
@pytest.mark.parametrize("offset", [None, 0, 2, -3])
def test_causal_shows_keys_up_to_the_position_of_the_query(rng, queries, keys, offset):
    q, k, _ = arrays(rng, queries=queries, keys=keys)
    weights = attention_weights(q, k, causal=True, query_offset=offset)
    shift = keys - queries if offset is None else offset
    for i in range(queries):
        for j in range(keys):
            assert (weights[..., i, j] > 0).all() == (j <= i + shift)


def test_query_offset_for_each_batch_entry(rng):
    q, k, v = arrays(rng)
    ours = attention(q, k, v, causal=True, query_offset=np.array([0, 3]))
    np.testing.assert_allclose(ours[0], attention(q, k, v, causal=True, query_offset=0)[0], rtol=1e-12)
    np.testing.assert_allclose(ours[1], attention(q, k, v, causal=True, query_offset=3)[1], rtol=1e-12)


def test_causal_and_mask_both_apply(rng):
    q, k, v = arrays(rng, queries=S)
    mask = rng.random((S, S)) < 0.5
    both = attention(q, k, v, mask=mask, causal=True)
    np.testing.assert_array_equal(both, attention(q, k, v, mask=mask & np.tri(S, dtype=bool)))


def test_a_change_in_the_future_leaves_the_past_unchanged(rng):
    q, k, v = arrays(rng, queries=S)
    before = attention(q, k, v, causal=True)
    k[..., 4:, :] += 1
    v[..., 4:, :] -= 1
    assert np.array_equal(attention(q, k, v, causal=True)[..., :4, :], before[..., :4, :])


def test_inputs_are_left_alone(rng):
    q, k, v = arrays(rng)
    copies = [x.copy() for x in (q, k, v)]
    for x in (q, k, v):
        x.flags.writeable = False
    attention(q, k, v, causal=True, bias=np.zeros((T, S)))
    assert all(np.array_equal(x, c) for x, c in zip((q, k, v), copies, strict=True))


def test_tracing_changes_nothing_and_names_each_step(rng):
    q, k, v = arrays(rng)
    trace = Trace()
    traced = attention(q, k, v, causal=True, trace=trace)
    assert np.array_equal(traced, attention(q, k, v, causal=True))
    assert trace.names() == ("scores", "biased", "weights", "context")
    np.testing.assert_allclose(trace["scores"], q @ np.repeat(k, H // G, 1).swapaxes(-1, -2) / np.sqrt(D), rtol=1e-12)
    assert np.array_equal(trace["weights"], attention_weights(q, k, causal=True))
    assert trace.axes("weights") == "B H T S"


def test_an_edit_of_the_weights_is_computed_on(rng):
    q, k, v = arrays(rng)

    def only_first_key(weights):
        weights[...] = 0
        weights[..., 0] = 1
        return weights

    ours = attention(q, k, v, trace=Trace(edit={"weights": only_first_key}))
    np.testing.assert_array_equal(ours, np.broadcast_to(np.repeat(v, H // G, 1)[:, :, :1], ours.shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": np.zeros((T, S))}, r"mask must be boolean.*float64.*bias="),
        ({"mask": np.ones((T, S), int)}, r"mask must be boolean"),
        ({"bias": np.ones((T, S), bool)}, r"bias is boolean.*mask="),
        ({"bias": np.ones((T, S), int)}, r"bias must be floating"),
        ({"mask": np.ones((S, T), bool)}, r"mask \(7, 5\) does not broadcast .*\(2, 6, 5, 7\)"),
        ({"bias": np.ones((3, B, H, T, S))}, r"bias .* does not broadcast"),
        ({"query_offset": 1}, r"give causal=True"),
        ({"scale": "1"}, r"scale must be a finite number, got '1'"),
        ({"scale": float("nan")}, r"scale must be a finite number"),
        ({"causal": True, "query_offset": 1.5}, r"query_offset must be an integer"),
        ({"causal": True, "query_offset": np.array([0, 1, 2])}, r"query_offset \(3,\) must have one entry"),
    ],
)
def test_wrong_arguments_say_what_to_do(rng, arguments, message):
    with pytest.raises(RegardError, match=message):
        attention(*arrays(rng), **arguments)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((T, D), (S, D + 1), (S, DV)), r"q \(5, 11\) and k \(7, 12\) need the same head dimension"),
        (((T, D), (S, D), (S + 1, DV)), r"same number of positions"),
        (((4, T, D), (3, S, D), (3, S, DV)), r"4 query heads cannot share 3 heads of k"),
        (((6, T, D), (3, S, D), (4, S, DV)), r"6 query heads cannot share 4 heads of v"),
        (((2, 1, T, D), (3, 1, S, D), (1, S, DV)), r"do not broadcast: q \(2, 1, 5, 11\), k \(3, 1, 7, 11\)"),
        (((D,), (S, D), (S, DV)), r"q \(11,\) needs at least two axes"),
    ],
)
def test_wrong_shapes_are_named(shapes, message):
    with pytest.raises(RegardError, match=message):
        attention(*(np.zeros(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 4), bool), "real numbers, got bool"),
        (np.zeros((3, 4), complex), "real numbers, got complex128"),
        ([["a", "b"]], "q must be an array of numbers, got <U1"),
        (np.array([["a", "b"]]), "q must be an array of numbers, got <U1"),
        (np.array([[{}]]), "q must be an array of numbers, got object"),
        (np.ma.masked_array(np.zeros((3, 4))), "q must be a plain array, got a MaskedArray"),
        (np.zeros((3, 4), ml_dtypes.float8_e4m3fn), "q must be an array of numbers, got float8"),
        ([[1.0], [1.0, 2.0]], "q is not a rectangular array"),
    ],
)
def test_only_real_numbers(bad, message):
    with pytest.raises(RegardError, match=message):
        attention(bad, bad, bad)


def test_float16_and_bfloat16_have_no_common_dtype():
    x = np.zeros((3, 4))
    with pytest.raises(RegardError, match="have no common floating dtype"):
        attention(x.astype(np.float16), x.astype(ml_dtypes.bfloat16), x.astype(np.float16))


@pytest.mark.parametrize("offset", [10**30, 2**62, -(2**40), True, 1.5, "1", [[0, 1]]])
def test_an_invalid_offset_is_an_error(rng, offset):
    with pytest.raises(RegardError, match="query_offset"):
        attention(*arrays(rng), causal=True, query_offset=offset)


def test_the_score_of_a_masked_key_is_its_own_whatever_another_holds(rng):
    q, k, _ = arrays(rng)
    attends = np.ones((T, S), bool)
    attends[:, [1, 4]] = False
    clean = attention_weights(q, k, mask=attends, stage="scores")
    k[..., 4, :] = np.nan
    others = [0, 1, 2, 3, 5, 6]
    scores = attention_weights(q, k, mask=attends, stage="scores")  # by another product: equal to rounding
    np.testing.assert_allclose(scores[..., others], clean[..., others], rtol=1e-12, atol=1e-14)


def test_other_array_libraries_get_their_own_arrays_back(rng):
    import array_api_strict as xp

    q, k, v = arrays(rng)
    mask = rng.random((T, S)) < 0.7
    v[..., 0, :] = np.nan
    ours = attention(*(xp.asarray(x) for x in (q, k, v)), mask=xp.asarray(mask), causal=True)
    assert type(ours) is type(xp.asarray(q))
    np.testing.assert_allclose(np.asarray(ours), attention(q, k, v, mask=mask, causal=True), rtol=1e-12)


def test_sinks_without_heads_are_one_number(rng):
    q, k, v = rng.standard_normal((3, 5, 4))
    with pytest.raises(RegardError, match=r"sinks \(2,\) must have one number for each of the 1 heads"):
        attention(q, k, v, sinks=np.zeros(2))
    assert attention(q, k, v, sinks=np.zeros(1)).shape == (5, 4)


@pytest.mark.parametrize("offset", [2**29, np.array([2**29]), -(2**29)])
def test_the_largest_position_is_one_that_is_accepted(rng, offset):
    q, k, v = rng.standard_normal((3, 1, 1, 5, 4))
    expected = attention(q, k, v) if np.all(np.asarray(offset) > 0) else np.zeros_like(v)
    np.testing.assert_array_equal(attention(q, k, v, causal=True, query_offset=offset), expected)
    with pytest.raises(RegardError, match="out of range: positions are at most 536870912"):
        attention(q, k, v, causal=True, query_offset=offset + np.sign(offset))
