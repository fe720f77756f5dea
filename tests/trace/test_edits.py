"""Ready-made edits, against what the arrays say."""

import numpy as np
import pytest

import regard
from fake_traces import recorded
from regard import RegardError, Trace
from regard.trace.edits import (
    Edits,
    ablate,
    add,
    force_pattern,
    freeze,
    mean_ablate,
    patch,
    resample_ablate,
    scale,
)

TEXT = "the cat sat"


@pytest.fixture
def model(write_bert):
    return regard.load(write_bert())


def run(model, text=TEXT, edit=None):
    trace = Trace(edit=edit)
    return model(text, trace=trace).hidden, trace


@pytest.fixture
def plain(model):
    return recorded(model, TEXT)


@pytest.fixture
def other(model):
    return recorded(model, "a cat sat")


def test_a_head_that_is_ablated_adds_nothing_to_the_output(model, plain):
    trace, name = recorded(model, TEXT, edit=ablate((0, 1))), "blocks.0.attn.output"
    given = plain["blocks.0.attn.context"][:, 1] @ model.blocks[0].attn.o_proj.weight.reshape(3, 4, 12)[1]
    np.testing.assert_allclose(trace[name], plain[name] - given, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["L0H1", "l0h1"])
def test_a_head_may_be_given_by_its_short_name(model, name):
    other = run(model, "sat cat the")[1]
    for by_name, by_numbers in (
        (ablate(name), ablate((0, 1))),
        (force_pattern("first", name), force_pattern("first", (0, 1))),
        (scale(2, name), scale(2, (0, 1))),
        (patch(other, name), patch(other, (0, 1))),
        (freeze(other, "*.attn.context", but=name), freeze(other, "*.attn.context", but=[(0, 1)])),
    ):
        np.testing.assert_array_equal(run(model, edit=by_name)[0], run(model, edit=by_numbers)[0])
    with pytest.raises(RegardError, match=r"a head is given as \(layer, head\) or 'L3H7', got 'L0'"):
        ablate("L0")


def test_a_head_that_is_ablated_by_its_mean_gives_every_token_the_same(model, plain):
    context, name = plain["blocks.1.attn.context"].copy(), "blocks.1.attn.context"
    context[:, [0, 2]] = context[:, [0, 2]].mean(2, keepdims=True)
    trace = recorded(model, TEXT, edit=ablate((1, 0), (1, 2), by="mean"))
    np.testing.assert_allclose(trace[name], context, rtol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "weights"),
    [
        ("uniform", np.full((5, 5), 0.2)),
        ("self", np.eye(5)),
        ("previous", np.eye(5)[[0, 0, 1, 2, 3]]),
        ("first", np.eye(5)[[0] * 5]),
    ],
)
def test_a_head_that_is_made_to_look_by_a_pattern(model, plain, pattern, weights):
    trace = recorded(model, TEXT, edit=force_pattern(pattern, (1, 2))).subtrace("blocks.1.attn")
    plain = plain.subtrace("blocks.1.attn")
    np.testing.assert_allclose(trace["weights"][0, 2], weights, rtol=1e-6)
    np.testing.assert_allclose(trace["context"][0, 2], weights @ plain["v"][0, 2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trace["weights"][0, :2], plain["weights"][0, :2], rtol=1e-6)


def test_uniform_leaves_out_what_is_hidden_and_rows_without_weight(model):
    edit, name = force_pattern("uniform", (0, 0)), "blocks.0.attn.weights"
    weights = recorded(model, ["the cat sat", "a"], edit=edit)[name][1, 0]
    np.testing.assert_allclose(weights, np.tile([1 / 3] * 3 + [0, 0], (5, 1)), rtol=1e-6)
    weights = Trace(edit=edit)(name, np.array([[[[0.0, 0.0], [0.9, 0.1]]]]), "B H T S")
    np.testing.assert_array_equal(weights, [[[[0, 0], [0.5, 0.5]]]])


def test_patching_the_output_of_a_block_gives_the_other_run(model):
    hidden, other = run(model, "a cat sat")
    patched, _ = run(model, edit=patch(other, "blocks.0.output"))
    np.testing.assert_array_equal(patched, hidden)
    assert not np.allclose(run(model)[0], hidden)


def test_edits_of_different_steps_join(model):
    trace = recorded(model, TEXT, edit=ablate((0, 0)) | force_pattern("self", (1, 1)))
    assert not trace["blocks.0.attn.context"][:, 0].any()
    np.testing.assert_array_equal(trace["blocks.1.attn.weights"][0, 1], np.eye(5))


def test_patching_some_heads_and_positions_leaves_the_others(model, plain, other):
    name = "blocks.1.attn.context"
    for positions, heads in ((None, [0, 2]), ([1, -1], None), ([1, 3], [0, 2]), (2, 1)):
        at = np.ix_([0], np.arange(3) if heads is None else np.atleast_1d(heads),
                    np.arange(5) if positions is None else np.atleast_1d(positions))  # fmt: skip
        expected = plain[name].copy()
        expected[at] = other[name][at]
        trace = recorded(model, TEXT, edit=patch(other, name, positions=positions, heads=heads))
        np.testing.assert_array_equal(trace[name], expected)
    np.testing.assert_array_equal(recorded(model, TEXT, edit=patch(other, (1, 1), positions=2))[name], expected)


def test_one_text_is_patched_into_each_of_a_batch(model, other):
    edit, name = patch(other, "blocks.0.mlp.output", positions=2), "blocks.0.mlp.output"
    for row in recorded(model, ["the cat sat", "sat the cat"], edit=edit)[name]:
        np.testing.assert_array_equal(row[2], other[name][0, 2])


def test_frozen_patterns_stay_whatever_enters_the_block(model, plain, other):
    trace = recorded(model, TEXT, edit=patch(other, "blocks.0.output") | freeze(plain, "blocks.*.attn.weights"))
    np.testing.assert_array_equal(trace["blocks.*.attn.weights"], plain["blocks.*.attn.weights"])
    np.testing.assert_array_equal(trace["blocks.1.attn.v"], other["blocks.1.attn.v"])


def test_what_is_left_free_is_not_frozen(model, plain, other):
    free = [(1, 2), "blocks.0.attn.context"]
    edit = patch(other, "blocks.0.output") | freeze(plain, "blocks.*.attn.context", but=free)
    assert list(edit) == ["blocks.0.output", "blocks.1.attn.context"]
    context = recorded(model, TEXT, edit=edit)["blocks.1.attn.context"]
    np.testing.assert_array_equal(context[:, :2], plain["blocks.1.attn.context"][:, :2])
    np.testing.assert_array_equal(context[:, 2], other["blocks.1.attn.context"][:, 2])
    for but in (["blocks.0.attn.contxt"], [(5, 1)], [(0, 99)], "blocks.0.mlp.output"):
        with pytest.raises(RegardError, match="which is not among what is frozen"):
            freeze(plain, "blocks.*.attn.context", but=but)


def test_adding_and_scaling_are_what_they_say(model, plain, rng):
    vector = rng.standard_normal(12).astype(np.float32)
    trace = recorded(model, TEXT, edit=add(vector, "blocks.0.output", positions=[0, 2]) | scale(3, (1, 0)))
    expected = plain["blocks.0.output"].copy()
    expected[:, [0, 2]] += vector
    np.testing.assert_array_equal(trace["blocks.0.output"], expected)
    tripled = recorded(model, TEXT, edit=scale(3, (1, 0)))
    np.testing.assert_array_equal(tripled["blocks.1.attn.context"][:, 0], 3 * plain["blocks.1.attn.context"][:, 0])
    np.testing.assert_array_equal(run(model, edit=scale(1, (1, 0)))[0], run(model)[0])
    np.testing.assert_array_equal(run(model, edit=scale(0, (1, 0)))[0], run(model, edit=ablate((1, 0)))[0])


def test_edits_of_the_same_step_apply_in_turn(model, plain):
    for first in (scale(2, "blocks.0.output"), {"blocks.0.output": lambda x: 2 * x}):
        both = first | add(np.ones(12), "blocks.0.output")
        assert isinstance(both, Edits)
        trace = recorded(model, TEXT, edit=both)
        np.testing.assert_array_equal(trace["blocks.0.output"], 2 * plain["blocks.0.output"] + 1)


TEXTS = ["the cat sat", "a cat", "cat sat the a"]


def test_a_mean_over_texts_leaves_padding_out(model, plain):
    batch, traces = recorded(model, TEXTS), [recorded(model, text) for text in TEXTS]
    expected, name = plain["blocks.1.attn.context"][0, 2].copy(), "blocks.1.attn.context"
    expected[1:3] = np.concatenate([t[name][0, 2].astype(np.float64) for t in traces]).mean(0)
    for reference in (batch, traces, enumerate(traces), iter(traces)):
        trace = recorded(model, TEXT, edit=mean_ablate(reference, (1, 2), positions=[1, 2]))
        np.testing.assert_allclose(trace[name][0, 2], expected, rtol=1e-6)


def test_a_mean_by_position_is_over_the_texts(model):
    reference, name = recorded(model, ["the cat sat", "a cat sat", "sat the a"]), "blocks.0.mlp.output"
    trace = recorded(model, TEXT, edit=mean_ablate(reference, name, by_position=True))
    np.testing.assert_allclose(trace[name][0], reference[name].mean(0, dtype=np.float64), rtol=1e-5)
    with pytest.raises(RegardError, match="texts of the same number of tokens"):
        mean_ablate([recorded(model, text) for text in TEXTS], (0, 0), by_position=True)


def test_each_text_of_a_batch_is_resampled_from_one_text(model):
    reference = recorded(model, ["the cat sat", "a cat sat", "sat the a", "cat cat cat", "sat a sat"])
    edit = resample_ablate(reference, (0, 1), "blocks.1.mlp.output", seed=3)
    trace = recorded(model, ["the the the", "a a a"], edit=edit)
    drawn = (5 * np.random.default_rng(3).random(2)).astype(int)
    for name, at in (("blocks.0.attn.context", (slice(None), 1)), ("blocks.1.mlp.output", ...)):
        np.testing.assert_array_equal(trace[name][at], reference[name][drawn][at])
    scales = recorded(model, "the cat sat", only="*.scale")
    for replacing in (mean_ablate, resample_ablate):
        with pytest.raises(RegardError, match=r"mlp_norm.scale has the axes B T: a reference is of vectors or maps"):
            replacing(scales, "blocks.1.mlp_norm.scale")


def test_a_pattern_of_a_reference_is_each_of_its_steps(model):
    batch, names = (
        recorded(model, ["the cat sat", "a cat sat", "sat the a"]),
        [f"blocks.{i}.attn.context" for i in (0, 1)],
    )
    for reference in ([batch], [recorded(model, text) for text in TEXTS]):
        for replacing in (mean_ablate, resample_ablate):
            expected = recorded(model, "a cat", edit=replacing(reference, *names))
            edit = replacing(iter(reference), "blocks.*.attn.context")
            assert list(edit) == names
            trace = recorded(model, "a cat", edit=edit)
            np.testing.assert_array_equal(trace["blocks.1.output"], expected["blocks.1.output"])
    with pytest.raises(RegardError, match=r"the trace has no 'blocks.\*.attn.contxt'; did you mean"):
        mean_ablate(batch, "blocks.*.attn.contxt")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: ablate(), "no heads given"),
        (lambda t: ablate(3), r"as \(layer, head\) or 'L3H7', got 3"),
        (lambda t: ablate((0, -1)), "a head must be a whole number of at least 0"),
        (lambda t: ablate((0, 3)), "head 3 of blocks.0.attn.context is out of range: it has 3"),
        (lambda t: ablate((7, 0)), r"'blocks\.7\.attn\.context' \(did you mean"),
        (lambda t: ablate((0, 0), by="noise"), "by must be zero or mean, got 'noise'"),
        (lambda t: force_pattern("next", (0, 0)), "one of uniform, self, previous, first, got 'next'"),
        (lambda t: patch(t), r"no site given.* a head, \(3, 7\) or 'L3H7'"),
        (lambda t: patch(t, "blocks.9.*"), r"has no 'blocks.9.\*'"),
        (lambda t: patch(t, "blocks.0.output", heads=1), "blocks.0.output has no axis of heads"),
        (lambda t: patch(t, (0, 1), heads=1), r"heads= is for names of steps, got the head \(0, 1\)"),
        (lambda t: scale(2, (0, 1), positions="all"), "positions is an integer or several, got 'all'"),
        (lambda t: scale(0, "blocks.0.output", positions=5), "position 5 of blocks.0.output is out of range: it has 5"),
        (lambda t: scale(0, "blocks.0.attn.q", heads=3), "head 3 of blocks.0.attn.q is out of range: it has 3"),
        (lambda t: scale(0), "no site given"),
        (
            lambda t: add(np.ones(5), "blocks.0.output"),
            r"a vector of shape \(5,\) cannot be added to values of shape \(1, 5, 12\)",
        ),
        (lambda t: freeze(t), "no site given"),
        (lambda t: mean_ablate([], (0, 0)), "the reference has no texts"),
        (lambda t: resample_ablate(t, (0, 0)), "no text of the reference has 5 tokens or more; the longest has 4"),
        (lambda t: patch(t, "blocks.9.output"), "has no 'blocks.9.output'"),
        (lambda t: patch(t, "blocks.0.output"), r"of shape \(1, 4, 12\) instead of \(1, 5, 12\)"),
    ],
)
def test_mistakes(model, edit, message):
    _, other = run(model, "the cat")
    with pytest.raises(RegardError, match=message):
        run(model, edit=edit(other))


@pytest.mark.parametrize("name", ["context", "hook_z"])
def test_what_is_left_free_has_any_of_its_names(plain, name):
    for but in ("blocks.0.attn.context", ["blocks.0.attn.hook_z"], [(0, 0), (0, 1), (0, 2)]):
        assert list(freeze(plain, f"blocks.*.attn.{name}", but=but)) == ["blocks.1.attn.context"]
    assert list(patch(plain, f"blocks.0.attn.{name}", heads=0)) == ["blocks.0.attn.context"]
