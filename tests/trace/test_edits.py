"""Ready-made edits, against what the arrays say."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import RegardError, Trace
from regard.trace.edits import ablate, force_pattern, patch

TEXT = "the cat sat"


@pytest.fixture
def model(write_bert):
    return regard.load(write_bert())


def run(model, text=TEXT, edit=None):
    trace = Trace(edit=edit)
    return model(text, trace=trace).hidden, trace


def test_a_head_that_is_ablated_adds_nothing_to_the_output(model):
    _, plain = run(model)
    _, trace = run(model, edit=ablate((0, 1)))
    o_proj = model.blocks[0].attn.o_proj
    given = plain["blocks.0.attn.context"][:, 1] @ o_proj.weight.reshape(3, 4, 12)[1]
    np.testing.assert_allclose(
        trace["blocks.0.attn.output"], plain["blocks.0.attn.output"] - given, rtol=1e-5, atol=1e-5
    )


def test_a_head_that_is_ablated_by_its_mean_gives_every_token_the_same(model):
    _, plain = run(model)
    _, trace = run(model, edit=ablate((1, 0), (1, 2), by="mean"))
    context = trace["blocks.1.attn.context"]
    for head in (0, 2):
        mean = plain["blocks.1.attn.context"][:, head].mean(1, keepdims=True)
        np.testing.assert_allclose(context[:, head], np.broadcast_to(mean, (1, 5, 4)), rtol=1e-5)
    np.testing.assert_array_equal(context[:, 1], plain["blocks.1.attn.context"][:, 1])


@pytest.mark.parametrize(
    ("pattern", "weights"),
    [
        ("uniform", np.full((5, 5), 0.2)),
        ("self", np.eye(5)),
        ("previous", np.eye(5)[[0, 0, 1, 2, 3]]),
        ("first", np.eye(5)[[0] * 5]),
    ],
)
def test_a_head_that_is_made_to_look_by_a_pattern(model, pattern, weights):
    _, plain = run(model)
    _, trace = run(model, edit=force_pattern(pattern, (1, 2)))
    np.testing.assert_allclose(trace["blocks.1.attn.weights"][0, 2], weights, rtol=1e-6)
    np.testing.assert_allclose(
        trace["blocks.1.attn.context"][0, 2], weights @ plain["blocks.1.attn.v"][0, 2], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(trace["blocks.1.attn.weights"][0, :2], plain["blocks.1.attn.weights"][0, :2], rtol=1e-6)


def test_uniform_leaves_out_what_is_hidden(model):
    _, trace = run(model, ["the cat sat", "a"], edit=force_pattern("uniform", (0, 0)))
    np.testing.assert_allclose(trace["blocks.0.attn.weights"][1, 0], np.tile([1 / 3] * 3 + [0, 0], (5, 1)), rtol=1e-6)


def test_patching_the_output_of_a_block_gives_the_other_run(model):
    hidden, other = run(model, "a cat sat")
    patched, _ = run(model, edit=patch(other, "blocks.0.output"))
    np.testing.assert_array_equal(patched, hidden)
    assert not np.allclose(run(model)[0], hidden)


def test_edits_of_different_steps_join(model):
    _, trace = run(model, edit=ablate((0, 0)) | force_pattern("self", (1, 1)))
    assert not trace["blocks.0.attn.context"][:, 0].any()
    np.testing.assert_array_equal(trace["blocks.1.attn.weights"][0, 1], np.eye(5))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: ablate(), "no heads given"),
        (lambda t: ablate(3), r"as \(layer, head\), got 3"),
        (lambda t: ablate((0, -1)), "a head must be a whole number of at least 0"),
        (lambda t: ablate((0, 3)), "head 3 of blocks.0.attn.context is out of range: it has 3"),
        (lambda t: ablate((7, 0)), r"'blocks\.7\.attn\.context' \(did you mean"),
        (lambda t: ablate((0, 0), by="noise"), "by must be zero or mean, got 'noise'"),
        (lambda t: force_pattern("next", (0, 0)), "one of uniform, self, previous, first, got 'next'"),
        (lambda t: patch(t), "needs the names"),
        (lambda t: patch(t, "blocks.9.output"), "has no 'blocks.9.output'"),
        (lambda t: patch(t, "blocks.0.output"), r"returned shape \(1, 4, 12\) instead of \(1, 5, 12\)"),
    ],
)
def test_mistakes(model, edit, message):
    _, other = run(model, "the cat")
    with pytest.raises(RegardError, match=message):
        run(model, edit=edit(other))
