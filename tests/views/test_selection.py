"""Selecting one map: layer, head, labels, sums of rows, and errors that list what is available."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import regard
from fake_traces import encoding_of, softmaxed, trace_of
from regard import RegardError, Trace
from regard.views import every_head, find_rows, select, to_json, top_k

PIECES = st.lists(st.lists(st.sampled_from(["a", "bc", "def"]), min_size=1, max_size=4), min_size=1, max_size=6)


def test_the_default_is_the_last_layer_and_the_mean_of_its_heads(trace):
    view = select(trace, show_special_tokens=True)
    assert (view.layer, view.head, view.layers, view.heads) == (2, None, (0, 1, 2), 5)
    np.testing.assert_allclose(view.weights, trace["blocks.2.attn.weights"][0].mean(axis=0))


def test_layer_and_head_are_numbered_as_in_names(trace):
    view = select(trace, layer=1, head=4, show_special_tokens=True)
    np.testing.assert_array_equal(view.weights, trace["blocks.1.attn.weights"][0, 4])
    assert view.describe == "layer 1 of 0–2, head 4 of 0–4"


@pytest.mark.parametrize(
    "options",
    [{"head": "L1H4"}, {"head": "l1h4"}, {"layer": 1, "head": "L1H4"}, {"layer": -2, "head": "L1H4"}],
    ids=str,
)
def test_a_head_may_be_given_by_its_short_name(trace, options):
    view = select(trace, show_special_tokens=True, **options)
    np.testing.assert_array_equal(view.weights, trace["blocks.1.attn.weights"][0, 4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2, "head": "L1H4"}, "head='L1H4' is in layer 1, got layer=2 too: leave one out"),
        ({"layer": -1, "head": "L1H4"}, "head='L1H4' is in layer 1, got layer=-1 too: leave one out"),
        ({"layer": 7, "head": "L1H4"}, "no layer 7: choose from 0 to 2"),
        ({"head": "H4"}, "head must be a number or a name such as 'L3H7', got 'H4'"),
        ({"head": "L7H4"}, "7"),
    ],
)
def test_a_short_name_of_another_head_is_an_error(trace, options, message):
    with pytest.raises(RegardError, match=message):
        select(trace, **options)


def test_a_short_name_needs_layers(rng):
    with pytest.raises(RegardError, match="there are no layers, got head='L3H2': give the number of the head, 2"):
        select(softmaxed(rng, (4, 3, 3)), head="L3H2")


def test_negative_numbers_count_from_the_last(trace):
    assert select(trace, layer=-3, head=-1).describe == select(trace, layer=0, head=4).describe


def test_layers_that_were_not_recorded_are_not_counted(rng):
    trace = Trace(only=["blocks.4.*", "blocks.10.*"])
    for layer in (4, 10):
        trace(f"blocks.{layer}.attn.weights", softmaxed(rng, (2, 3, 3)), "H T S")
    assert select(trace, layer=-2).layer == 4
    assert select(trace).describe == "layer 10 of 4, 10, mean of 2 heads"
    with pytest.raises(RegardError, match="no layer 5: choose from 4, 10"):
        select(trace, layer=5)


def test_special_tokens_are_left_out_with_their_mass_reported(trace):
    weights = trace["blocks.2.attn.weights"][0].mean(axis=0)
    view = select(trace)
    assert view.queries == view.keys == ("the", "cat", "##s", "un", "##believ", "##ably", "sat")
    np.testing.assert_allclose(view.weights, weights[1:-1, 1:-1])
    np.testing.assert_allclose(view.special_mass, weights[1:-1, [0, -1]].sum(axis=1))
    assert view.special_tokens == ("[CLS]", "[SEP]")


def test_special_tokens_can_be_shown(trace):
    view = select(trace, show_special_tokens=True)
    assert view.queries[0] == "[CLS]"
    assert view.special_tokens == ()
    assert not view.special_mass.any()


def test_a_text_without_words_shows_its_special_tokens(rng):
    view = select(trace_of(rng, encoding_of([])))
    assert view.queries == ("[CLS]", "[SEP]")
    assert not view.special_mass.any()


def test_words_sum_over_keys_and_average_over_queries(trace):
    weights = trace["blocks.2.attn.weights"][0].mean(axis=0)
    view = select(trace, merge_subwords=True)
    assert view.queries == view.keys == ("the", "cats", "unbelievably", "sat")
    # "cats" is tokens 2 and 3, "unbelievably" 4 to 6.
    np.testing.assert_allclose(view.weights[1, 2], weights[2:4, 4:7].sum() / 2)
    np.testing.assert_allclose(view.special_mass[2], weights[4:7, [0, -1]].sum() / 3)


@given(PIECES, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_rows_and_special_mass_sum_to_one(pieces, merge_subwords, show_special_tokens, seed):
    trace = trace_of(np.random.default_rng(seed), encoding_of(pieces))
    view = select(trace, merge_subwords=merge_subwords, show_special_tokens=show_special_tokens)
    np.testing.assert_allclose(view.weights.sum(axis=1) + view.special_mass, 1, rtol=1e-12)


@given(PIECES, st.integers(0, 2**32 - 1))
def test_merging_words_of_one_piece_changes_nothing(pieces, seed):
    trace = trace_of(np.random.default_rng(seed), encoding_of([word[:1] for word in pieces]))
    np.testing.assert_allclose(select(trace, merge_subwords=True).weights, select(trace).weights, rtol=1e-12)


@given(PIECES, st.integers(0, 2**32 - 1))
def test_merging_words_of_equal_length_keeps_column_sums(pieces, seed):
    """The mean over queries weighs words, not sub-words: with two pieces in each word both agree."""
    trace = trace_of(np.random.default_rng(seed), encoding_of([[word[0], "x"] for word in pieces]))
    merged, apart = select(trace, merge_subwords=True).weights, select(trace).weights
    np.testing.assert_allclose(merged.sum(), apart.sum() / 2, rtol=1e-12)


def test_a_padded_batch_is_cut_to_the_text(rng):
    short, long = encoding_of([["a"]]), encoding_of([["b"], ["c"], ["d"]])
    weights = softmaxed(rng, (2, 3, 5, 5))
    weights[0, :, :, 3:] = 0
    weights[0] /= weights[0].sum(axis=-1, keepdims=True)
    trace = Trace()
    trace.set_metadata("", [short, long])
    trace("blocks.0.attn.weights", weights, "B H T S")
    view = select(trace, show_special_tokens=True)
    assert view.queries == ("[CLS]", "a", "[SEP]")
    np.testing.assert_allclose(view.weights.sum(axis=1), 1)
    assert select(trace, batch=-1).queries == ("b", "c", "d")


def test_a_trace_of_a_bare_layer(rng):
    weights = softmaxed(rng, (3, 2, 2))
    trace = Trace()
    trace("weights", weights, "H T S")
    view = select(trace, head=1)
    assert (view.layer, view.layers, view.queries) == (None, (), ("0", "1"))
    np.testing.assert_array_equal(view.weights, weights[1])
    assert view.describe == "head 1 of 0–2"


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 3, 4, 4)])
def test_arrays_with_their_tokens(rng, shape):
    weights = softmaxed(rng, shape)
    view = select(weights, list("abcd"))
    assert view.queries == view.keys == view.words == ("a", "b", "c", "d")
    expected = weights.reshape(-1, *shape[-3:]) if len(shape) == 4 else weights[None]
    np.testing.assert_allclose(view.weights, expected[0].mean(axis=0) if len(shape) > 2 else weights)


def test_queries_and_keys_of_cross_attention(rng):
    view = select(softmaxed(rng, (2, 3)), ["x", "y"], ["a", "b", "c"])
    assert (view.queries, view.keys) == (("x", "y"), ("a", "b", "c"))


def test_every_head_is_each_head_selected(trace):
    grid = every_head(trace, merge_subwords=True)
    assert [len(row) for row in grid] == [5, 5, 5]
    for layer, row in enumerate(grid):
        for head, view in enumerate(row):
            one = select(trace, layer=layer, head=head, merge_subwords=True)
            np.testing.assert_array_equal(view.weights, one.weights)
            assert view.describe == one.describe


def test_top_k_is_sorted_with_ties_in_text_order():
    view = select(np.array([[0.2, 0.5, 0.3], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]))
    assert top_k(view, 2) == (((1, 0.5), (2, 0.3)), ((1, 0.5), (0, 0.25)), ((2, 1.0), (0, 0.0)))
    assert [len(row) for row in top_k(view, 9)] == [3, 3, 3]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_top_k_are_the_largest(T, S, k, seed):
    view = select(softmaxed(np.random.default_rng(seed), (T, S)), [*"abcdefgh"[:T]], [*"abcdefgh"[:S]])
    for row, found in zip(view.weights, top_k(view, k), strict=True):
        assert [weight for _, weight in found] == sorted(row, reverse=True)[:k]
        assert all(row[key] == weight for key, weight in found)


def test_find_rows_returns_all_occurrences_and_sub_words_in_any_case(rng):
    trace = trace_of(rng, encoding_of([["Bank"], ["un", "believ", "ably"], ["bank"]]))
    view = select(trace)
    assert find_rows(view, "bANK") == (0, 4)
    assert find_rows(view, "bank:2") == (4,)
    assert find_rows(view, "unbelievably:1") == (1, 2, 3)
    with pytest.raises(RegardError, match="bank:3"):
        find_rows(view, "bank:3")
    assert find_rows(view, "unbelievably") == (1, 2, 3)
    assert find_rows(view, "##ably") == (3,)
    assert find_rows(select(trace, merge_subwords=True), "unbelievably") == (1,)


def test_an_unknown_word_is_an_error_that_lists_the_words(trace):
    with pytest.raises(RegardError, match=r"no word 'dog'; its words are the, cats, unbelievably, sat"):
        find_rows(select(trace), "dog")


NAN = np.full((2, 2), np.nan)


@pytest.mark.parametrize(
    ("weights", "given", "message"),
    [
        (np.eye(3), {"layer": 0}, "there are no layers, got layer=0"),
        (np.eye(3), {"head": 0}, r"shape \(3, 3\), T S, have no heads"),
        (np.eye(3), {"batch": 1}, "have no batch axis"),
        (np.eye(3)[None], {"head": 1}, "no head 1: choose from 0"),
        (np.eye(3)[None, None], {"batch": 1}, "no batch entry 1: choose from 0"),
        (np.eye(3), {"tokens": ["a", "b"]}, r"2 tokens and 2 keys do not fit weights of shape \(3, 3\)"),
        (np.eye(3)[:2], {"tokens": ["a", "b"]}, r"2 tokens and 2 keys do not fit weights of shape \(2, 3\)"),
        (np.eye(3), {"tokens": "abc"}, "list of labels, got one string, 'abc'"),
        (np.eye(3), {"merge_subwords": True}, "merge_subwords=True needs an Encoding"),
        (np.eye(3), {"tokens": ["a", "b", "c"], "merge_subwords": True}, "merge_subwords=True needs an Encoding"),
        (np.eye(3), {"tokens": []}, "no tokens to show"),
        (np.zeros((0, 0)), {}, "no tokens to show"),
        (np.zeros(3), {}, r"T S, H T S or B H T S, got float64, shape \(3,\)"),
        (np.array([["a"]]), {}, "weights must be numbers"),
        ([[1.0], [0.5, 0.5]], {}, "rows of one length"),
        (NAN, {}, "finite and not negative"),
        (-np.eye(2), {}, "softmax"),
        (np.ones((2, 2)), {}, "at most 1, got 2: apply softmax over S"),
    ],
)
def test_errors_name_the_invalid_argument(weights, given, message):
    with pytest.raises(RegardError, match=message):
        select(weights, **given)


def test_a_trace_without_weights_is_an_error():
    with pytest.raises(RegardError, match="holds no attention weights"):
        select(Trace())


def test_a_trace_of_other_texts_than_its_weights_is_an_error(rng):
    trace = Trace()
    trace.set_metadata("", [encoding_of([["a"]]), encoding_of([["b"]])])
    trace("blocks.0.attn.weights", softmaxed(rng, (1, 2, 3, 3)), "B H T S")
    with pytest.raises(RegardError, match="2 texts for values of a batch of 1"):
        select(trace)


def test_several_weights_outside_of_blocks_are_an_error_that_names_one(rng):
    trace = Trace()
    for name in ("self.weights", "cross.weights"):
        trace(name, softmaxed(rng, (2, 2)), "T S")
    with pytest.raises(RegardError, match=r"trace\['self.weights'\]"):
        select(trace)


def test_labels_are_not_cut_from_a_map_that_is_not_padded(rng):
    """In a batch, fewer tokens than columns are padding only where the weights are 0."""
    with pytest.raises(RegardError, match="do not fit"):
        select(softmaxed(rng, (2, 3, 5, 5)), ["a", "b", "c"])


CAUSAL = np.triu(np.ones((4, 4), bool), 1)


def causal_weights(rng, heads=2, length=4):
    exponentials = np.tril(np.exp(rng.standard_normal((heads, length, length))))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("recorded", ["maps", "every step", "weights"])
def test_masked_cells_are_those_of_the_mask(rng, recorded):
    q, k = rng.standard_normal((2, 2, 4, 3))
    trace = Trace(maps=recorded == "maps", only="weights" if recorded == "weights" else None)
    regard.attention(q, k, k, causal=True, trace=trace)
    view = select(trace, head=1)
    np.testing.assert_array_equal(view.masked, CAUSAL)
    assert view.is_causal
    assert view.rows([2]).masked.tolist() == [[False, False, False, True]]
    assert view.rows([2]).is_causal


@pytest.mark.parametrize("recorded", ["maps", "every step"])
def test_a_weight_of_0_is_not_masked_and_a_mask_need_not_be_causal(rng, recorded):
    q, k = rng.standard_normal((2, 1, 4, 3))
    trace = Trace(maps=recorded == "maps", only="*")
    regard.attention(q, k, k, causal=True, window=(1, 0), bias=-200.0 * np.eye(4), trace=trace)
    view = select(trace)
    assert view.weights[1, 1] < 1e-80
    np.testing.assert_array_equal(view.masked, CAUSAL | np.tril(np.ones((4, 4), bool), -2))
    assert not view.is_causal


def test_of_weights_alone_only_a_whole_triangle_of_zeros_is_causal(rng):
    assert select(causal_weights(rng)).is_causal
    for weights in (np.eye(4), np.full((4, 4), 0.25), np.zeros((4, 4)), np.ones((1, 1))):
        view = select(weights)
        assert not view.is_causal
        assert not view.masked.any()


def test_a_pair_of_words_is_masked_if_all_of_its_tokens_are(rng):
    trace = Trace()
    encoding = encoding_of([["a", "b"], ["c"], ["d"]])
    trace.set_metadata("made-up", [encoding])
    trace("blocks.0.attn.weights", causal_weights(rng, 2, len(encoding))[None], "B H T S")
    view = select(trace, merge_subwords=True)
    np.testing.assert_array_equal(view.masked, np.triu(np.ones((3, 3), bool), 1))
    assert view.is_causal


def test_the_largest_weights_are_of_keys_that_can_be_attended_to(rng):
    found = top_k(select(causal_weights(rng)), 3)
    assert [len(row) for row in found] == [1, 2, 3, 3]
    assert all(key <= query for query, row in enumerate(found) for key, _ in row)


def test_json_says_what_is_masked(rng):
    assert to_json(select(causal_weights(rng)))["masked"] == CAUSAL.tolist()
    assert to_json(select(np.full((2, 2), 0.5)))["masked"] is None
