"""Laws that attention obeys, whatever the numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_cases import PATHS, cut_into_blocks, random_case, reference
from regard import (
    AttentionMap,
    RegardError,
    Trace,
    attention,
    attention_partial,
    attention_vjp,
    attention_weights,
    merge_partials,
)
from regard.functional import (
    ALiBi,
    Bias,
    Causal,
    DenseMask,
    DistanceBias,
    KeyLengths,
    KeyRangeMask,
    SegmentMask,
    SlidingWindow,
    alibi_slopes,
    blockwise,
)

seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def one_head(seed, queries=6, keys=7, dim=4):
    rng = np.random.default_rng(seed)
    return rng, *(rng.standard_normal((n, dim)) for n in (queries, keys, keys))


@given(seeds)
def test_rows_sum_to_one_less_what_the_sink_gets(seed):
    case = random_case(seed)
    weights = attention_weights(case.q, case.k, **case.options)
    some = case.seen.any(-1)
    if case.sinks is None:
        close(weights.sum(-1), some)
    else:
        *_, lse = reference(case)
        sinks = case.sinks[:, None] if case.q.ndim > 2 else case.sinks
        close(weights.sum(-1), 1 - np.exp(sinks - lse))


@given(seeds)
def test_permuting_keys_permutes_weights(seed):
    rng, q, k, _ = one_head(seed)
    order = rng.permutation(len(k))
    mask = rng.random((len(q), len(k))) < 0.7
    shuffled = attention_weights(q, k[order], mask=mask[:, order])
    close(shuffled, attention_weights(q, k, mask=mask)[:, order])


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


@given(seeds)
def test_parts_merge_to_the_whole_in_any_split_and_order(seed):
    case = random_case(seed)
    rng = np.random.default_rng(seed)
    if case.k.ndim < 3 or set(case.options) - {"scale", "softcap", "sinks"}:
        case.options = {name: case.options[name] for name in case.options.keys() & {"scale", "softcap"}}
    whole = attention_partial(case.q, case.k, case.v, **case.options)
    keys = case.k.shape[-2]
    cuts = [0, *sorted(rng.integers(0, keys + 1, 3)), keys]
    parts = []
    for a, b in itertools.pairwise(cuts):
        parts.append(attention_partial(case.q, case.k[..., a:b, :], case.v[..., a:b, :], **case.options))
        case.options.pop("sinks", None)  # counts once, with any of the parts
    shuffled = [parts[i] for i in rng.permutation(4)]
    for merged in (
        merge_partials(*parts),
        merge_partials(*shuffled),
        merge_partials(merge_partials(shuffled[0], shuffled[1]), merge_partials(shuffled[2], shuffled[3])),
        merge_partials(shuffled[0], merge_partials(shuffled[1], merge_partials(*shuffled[2:]))),
    ):
        close(merged.output, whole.output)
        close(merged.lse, whole.lse)
    one, other = merge_partials(parts[0], parts[3]), merge_partials(parts[3], parts[0])
    assert one.output.tobytes() == other.output.tobytes()
    assert one.lse.tobytes() == other.lse.tobytes()


@given(seeds)
def test_a_part_of_the_keys_takes_the_offset_of_its_first_key(seed):
    rng, q, k, v = one_head(seed)
    cut, offset = int(rng.integers(0, 8)), int(rng.integers(-2, 5))
    window, bias = (3, 1), ALiBi(alibi_slopes(1))
    parts = [
        attention_partial(q, k[a:b], v[a:b], causal=True, window=window, bias=bias, query_offset=offset - a)
        for a, b in ((cut, 7), (0, cut))
    ]
    whole = attention_partial(q, k, v, causal=True, window=window, bias=bias, query_offset=offset)
    close(merge_partials(*parts).output, whole.output)
    close(merge_partials(*parts).lse, whole.lse)


def test_an_empty_part_is_the_identity():
    _, q, k, v = one_head(0)
    part = attention_partial(q, k, v)
    empty = attention_partial(q, k[:0], v[:0])
    assert (empty.output == 0).all()
    assert (empty.lse == -np.inf).all()
    for merged in (merge_partials(part), merge_partials(part, empty), merge_partials(empty, part, empty)):
        np.testing.assert_array_equal(merged.output, part.output)
        np.testing.assert_array_equal(merged.lse, part.lse)
    assert np.array_equal(merge_partials(empty, empty).output, empty.output)
    assert np.array_equal(merge_partials(empty, empty).lse, empty.lse)


def test_a_sink_is_a_part_of_its_own():
    _, q, k, v = one_head(1)
    sink = attention_partial(q, k[:0], v[:0], sinks=np.array([0.7]))
    merged = merge_partials(attention_partial(q, k, v), sink)
    whole = attention_partial(q, k, v, sinks=np.array([0.7]))
    close(merged.output, whole.output)
    close(merged.lse, whole.lse)


def test_parts_of_float32_merge_exactly_where_scores_are_large():
    """With the log-sum-exp of 1e4 in float32, parts would count wrongly by a thousandth."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((64, 8)).astype(np.float32) for _ in range(3))
    q[:, 0] = k[:, 0] = 168.0  # every score is 1e4 and a little
    whole = attention_partial(q, k, v)
    merged = merge_partials(*(attention_partial(q, k[a : a + 16], v[a : a + 16]) for a in (32, 0, 48, 16)))
    assert np.abs(whole.lse).min() > 9e3
    np.testing.assert_allclose(merged.output, whole.output, rtol=0, atol=2e-6)


def test_only_parts_of_the_same_queries_merge():
    _, q, k, v = one_head(0)
    part = attention_partial(q, k, v)
    with pytest.raises(RegardError, match=r"same queries and heads: output \(6, 4\).*output \(5, 4\)"):
        merge_partials(part, attention_partial(q[:5], k, v))
    for mistake in ((), (part.output,), ([part, part],), (part, None)):
        with pytest.raises(RegardError, match="merge_partials takes parts"):
            merge_partials(*mistake)


@pytest.mark.parametrize("path", PATHS)
def test_a_window_that_covers_all_is_no_window(path):
    _, q, k, v = one_head(3)
    plain = attention(q, k, v, implementation=path)
    for window in [(7, 7), (None, None), (None, 7), (7, None)]:
        assert np.array_equal(attention(q, k, v, window=window, implementation=path), plain)
    causal = attention(q, k, v, causal=True, implementation=path)
    assert np.array_equal(attention(q, k, v, window=(None, 0), implementation=path), causal)
    close(attention(q, k, v, mask=np.ones(7, bool), implementation=path), plain)
    close(attention(q, k, v, key_lengths=7, implementation=path), plain)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e308])
@given(seed=seeds)
def test_what_is_hidden_never_shows(path, poison, seed):
    """Not in the output, not in the weights, and not in the gradient of anything else."""
    rng, q, k, v = one_head(seed)
    hidden = rng.random((6, 7)) < 0.4
    hidden[:, 2] = True
    d_output = rng.standard_normal((6, 4))
    bias = rng.standard_normal((6, 7))
    options = {"mask": ~hidden, "implementation": path}
    if seed % 2:
        options["softcap"] = 2.0
    clean = attention(q, k, v, bias=bias, **options)
    weights = attention_weights(q, k, bias=bias, **options)
    gradients = attention_vjp(q, k, v, bias=bias, **options)[1](d_output)
    k[2], v[2] = poison, poison
    bias[hidden] = poison
    assert np.array_equal(attention(q, k, v, bias=bias, **options), clean)
    assert np.array_equal(attention_weights(q, k, bias=bias, **options), weights)
    for ours, theirs in zip(attention_vjp(q, k, v, bias=bias, **options)[1](d_output), gradients, strict=True):
        assert ours is None or np.array_equal(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"bias": ALiBi(alibi_slopes(1))}])
def test_a_key_that_is_not_finite_and_seen_by_some_spares_the_gradients_of_the_others(options):
    _, q, k, v = one_head(4, 7, 7)
    k[5], v[5] = np.nan, np.inf
    clean = attention_vjp(q[:5], k[:5], v[:5], causal=True, **options)[1](np.ones((5, 4)))
    output, pullback = attention_vjp(q, k, v, causal=True, **options)
    assert np.isfinite(output[:5]).all()
    assert np.isnan(output[5:]).all()
    close(pullback(np.ones((7, 4))).q[:5], clean.q)


@given(seeds)
def test_translation_of_scores_leaves_weights_unchanged(seed):
    rng, q, k, _ = one_head(seed)
    shift = rng.standard_normal((6, 1)) * 100
    close(attention_weights(q, k, bias=np.broadcast_to(shift, (6, 7))), attention_weights(q, k))


@pytest.mark.parametrize("path", PATHS)
def test_scaling_v_scales_the_output(path):
    _, q, k, v = one_head(5)
    out = attention(q, k, 4 * v, causal=True, implementation=path)
    assert np.array_equal(out, 4 * attention(q, k, v, causal=True, implementation=path))


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


def test_an_infinity_of_a_part_shows_in_the_whole_however_small_its_share():
    q, k, v = np.ones((1, 1)), np.array([[0.0], [2000.0]]), np.array([[np.inf], [1.0]])
    parts = [attention_partial(q, k[i : i + 1], v[i : i + 1]) for i in range(2)]
    assert merge_partials(*parts).output == attention(q, k, v) == np.inf


def test_infinities_of_both_signs_in_different_parts_are_nan_in_the_whole():
    q, k, v = np.ones((1, 1)), np.zeros((2, 1)), np.array([[np.inf], [-np.inf]])
    assert np.isnan(merge_partials(*(attention_partial(q, k[i : i + 1], v[i : i + 1]) for i in range(2))).output)


@pytest.mark.parametrize("path", PATHS)
def test_masks_and_biases_of_one_axis_and_none(path):
    _, q, k, v = one_head(8)
    row = np.array([True, False, True, True, False, True, True])
    expected = attention(q, k, v, mask=np.broadcast_to(row, (6, 7)), implementation=path)
    k[1], v[4] = np.nan, np.inf  # hidden
    for options in ({"mask": row}, {"mask": DenseMask(row)}, {"bias": np.where(row, 0.0, -np.inf)}):
        assert np.array_equal(attention(q, k, v, **options, implementation=path), expected)
        gradients = attention_vjp(q, k, v, **options)[1](np.ones((6, 4)))
        assert all(np.isfinite(g).all() for g in gradients if g is not None)
    assert (attention(q, k, v, mask=np.array(False), implementation=path) == 0).all()


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


def test_what_contradicts_or_would_go_unheard_is_told():
    _, q, k, v = one_head(12)
    for options, message in [
        ({"mask": Causal(0), "query_offset": 3}, "nothing here asks for it"),
        ({"bias": np.zeros((6, 7)), "query_offset": 3}, "nothing here asks for it"),
        (
            {"implementation": "blockwise", "trace": Trace(edit={"weights": lambda w: w})},
            "has no whole map",
        ),
        ({"implementation": "fast"}, "implementation must be auto"),
        ({"trace": True}, "trace is a recorder"),
    ]:
        with pytest.raises(RegardError, match=message):
            attention(q, k, v, **options)
    with pytest.raises(TypeError, match="attention has no argument 'is_causal'; its options are mask, bias, causal"):
        attention_weights(q, k, is_causal=True)
    attention(q, k, v, mask=Causal(0) & SlidingWindow(3, 3), query_offset=3)  # the window asks


def test_a_gradient_is_of_real_numbers_and_of_rules_that_have_one():
    class Towards(Bias):
        def tile(self, grid, rows, cols):
            return -abs(grid.cols(cols) - grid.rows(rows)) / 1.0

    _, q, k, v = one_head(13)
    close(attention(q, k, v, bias=Towards()), attention(q, k, v, bias=ALiBi(np.ones(1)), query_offset=0))
    output, pullback = attention_vjp(q, k, v, bias=Towards())
    with pytest.raises(RegardError, match="Towards has no gradient"):
        pullback(output)
    with pytest.raises(RegardError, match="real numbers, got an array of complex128"):
        attention_vjp(q, k, v)[1](output * 1j)


def test_masks_combine_as_logic_does():
    rng = np.random.default_rng(6)
    q, k = rng.standard_normal((2, 9, 3))
    ids = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    tri, same = np.tri(9, dtype=bool), ids[:, None] == ids
    near = np.abs(np.subtract.outer(np.arange(9), np.arange(9))) <= 1
    for rule, dense in [
        (Causal() & SegmentMask(ids), tri & same),
        (Causal() | SegmentMask(ids), tri | same),
        (SegmentMask(ids) & same.T & (Causal() | SlidingWindow(1, 1)), same & (tri | near)),
        (KeyRangeMask(np.zeros(9, int), np.arange(1, 10)) & near, tri & near),
        (near | (Causal() & KeyLengths(3)), near | (tri & (np.arange(9) < 3))),
    ]:
        for path in PATHS:
            ours = attention(q, k, k, mask=rule, implementation=path)
            close(ours, attention(q, k, k, mask=dense, implementation="reference"))


def test_blocks_that_are_ruled_out_are_never_read(monkeypatch):
    """With a causal window of 2, packed documents and padding, the blocks read are counted by hand."""
    read = []
    score = blockwise.score
    monkeypatch.setattr(
        blockwise, "score", lambda p, rows, cols, **o: read.append((rows, cols)) or score(p, rows, cols, **o)
    )
    cut_into_blocks(monkeypatch, 4, 4)
    q = k = v = np.random.default_rng(7).standard_normal((16, 3))
    ids = np.repeat([0, 1], 8)
    for options, blocks in [
        ({}, 16),
        ({"causal": True}, 10),
        ({"window": (2, 0)}, 7),
        ({"window": (2, 2)}, 10),
        ({"mask": SegmentMask(ids)}, 8),
        ({"mask": SegmentMask(ids) & Causal()}, 6),
        ({"mask": KeyRangeMask(np.zeros(16, int), np.repeat([4, 8, 0, 16], 4))}, 7),
        ({"key_lengths": 5}, 8),
        ({"mask": np.zeros((16, 16), bool)}, 0),
        ({"mask": ids == 1}, 8),
        ({"bias": ALiBi(alibi_slopes(1))}, 16),
    ]:
        read.clear()
        attention(q, k, v, **options, implementation="blockwise")
        assert len(read) == blocks, options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mask": KeyRangeMask(np.zeros(3, int), np.ones(3, int))},
            r"shape \(3,\) for scores \(4, 5\): 4 queries need",
        ),
        ({"mask": KeyRangeMask(np.zeros(4), np.ones(4, int))}, "integer arrays, got float64 for first"),
        (
            {"mask": KeyRangeMask(np.zeros(4, int), np.full(4, 6))},
            r"last of KeyRangeMask must lie between 0 and the 5 keys, got \(6",
        ),
        (
            {"bias": DistanceBias(np.zeros(7), -4)},
            r"those from -4 to 2, but scores \(4, 5\) have distances from -4 to 3",
        ),
        ({"bias": DistanceBias(np.zeros((3, 8)), -4)}, r"of shape \(3, 8\) are not those of scores"),
    ],
)
def test_spans_and_numbers_of_distances_fit_the_scores(options, message):
    with pytest.raises(RegardError, match=message):
        attention(np.zeros((4, 3)), np.zeros((5, 3)), np.zeros((5, 3)), **options)
