"""Contract 2: recording, selecting, editing, keeping."""

from __future__ import annotations

import json

import numpy as np
import pytest

from regard import Encoding, RegardError, Trace, nn
from regard._safetensors import write_safetensors


@pytest.fixture
def block(rng):
    return nn.EncoderBlock.init(rng, 12, 3)


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 5, 12)).astype(np.float32)


def traced(block, x, **options):
    trace = Trace(**options)
    with trace.scope("blocks.0"):
        block(x, trace=trace)
    return trace


def test_names_follow_the_computation_and_nest(block, x):
    names = traced(block, x).names()
    assert names[:4] == ("blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.attn.v", "blocks.0.attn.scores")
    assert names[-1] == "blocks.0.output"


def test_only_selects_by_name_and_by_star(block, x):
    assert traced(block, x, only="blocks.0.attn.q").names() == ("blocks.0.attn.q",)
    assert traced(block, x, only=["*.weights", "*.hidden"]).names() == ("blocks.0.attn.weights", "blocks.0.mlp.hidden")


def test_looking_never_changes_the_answer(block, x):
    assert np.array_equal(block(x, trace=Trace()), block(x))


def test_what_is_recorded_is_a_copy(rng):
    trace = Trace()
    value = np.zeros(3)
    assert trace("a", value, "E") is value
    value += 1
    assert (trace["a"] == 0).all()


def test_an_edit_of_one_head_changes_what_follows_and_nothing_before(block, x):
    def without_head_1(weights):
        weights[:, 1] = 0
        return weights

    plain, edited = traced(block, x), traced(block, x, edit={"blocks.0.attn.weights": without_head_1})
    assert np.array_equal(plain["blocks.0.attn.scores"], edited["blocks.0.attn.scores"])
    assert (edited["blocks.0.attn.weights"][:, 1] == 0).all()
    assert (edited["blocks.0.attn.context"][:, 1] == 0).all()
    assert np.array_equal(plain["blocks.0.attn.context"][:, [0, 2]], edited["blocks.0.attn.context"][:, [0, 2]])
    assert not np.array_equal(plain["blocks.0.output"], edited["blocks.0.output"])


def test_an_edit_must_keep_the_shape(block, x):
    with pytest.raises(RegardError, match=r"edit of blocks\.0\.attn\.q returned shape \(\) in place of"):
        traced(block, x, edit={"*.attn.q": lambda value: value.sum()})


def test_a_second_run_needs_a_new_trace(block, x):
    trace = traced(block, x)
    with pytest.raises(RegardError, match=r"blocks\.0\.attn\.q is recorded already"), trace.scope("blocks.0"):
        block(x, trace=trace)


def test_a_scope_ends_also_when_the_inside_fails():
    trace = Trace()
    with pytest.raises(ZeroDivisionError), trace.scope("inside"):
        raise ZeroDivisionError
    trace("a", np.zeros(1), "E")
    assert trace.names() == ("a",)


def test_a_missing_name_tells_the_near_ones(block, x):
    with pytest.raises(RegardError, match=r"no 'blocks\.0\.attn\.weight'; near it are blocks\.0\.attn\.weights"):
        traced(block, x)["blocks.0.attn.weight"]
    with pytest.raises(RegardError, match=r"with only=\*\.q"):
        traced(block, x, only="*.q")["blocks.0.attn.weights"]


def test_axes_leave_out_what_is_not_there(rng):
    trace = Trace()
    nn.SelfAttention.init(rng, 12, 3)(np.ones((5, 12), np.float32), trace=trace)
    assert trace.axes("weights") == "H T S"
    assert trace.axes("output") == "T E"


def encoding():
    return Encoding("a \x1b[31m\u202eb", (1, 2), ("a", "\x1b[31m\u202eb"), (False, True), (0, None), ((0, 1), (0, 0)))


def test_saving_and_loading_gives_everything_back(block, x, tmp_path):
    trace = traced(block, x)
    trace.describe("a model", [encoding()] * 2)
    trace.save(tmp_path / "run.safetensors")
    back = Trace.load(tmp_path / "run.safetensors")
    assert back.names() == trace.names()
    assert (back.model, back.encodings) == ("a model", trace.encodings)
    for name in trace:
        assert np.array_equal(back[name], trace[name])
        assert back[name].dtype == trace[name].dtype
        assert back.axes(name) == trace.axes(name)


def test_a_saved_trace_is_plain_safetensors(block, x, tmp_path):
    from safetensors.numpy import load_file

    trace = traced(block, x)
    trace.save(tmp_path / "run.safetensors")
    theirs = load_file(tmp_path / "run.safetensors")
    assert theirs.keys() == set(trace.names())
    assert np.array_equal(theirs["blocks.0.attn.weights"], trace["blocks.0.attn.weights"])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, r"is not a trace of regard: its format is 'none'"),
        ({"format": "regard.trace/99"}, r"its format is 'regard\.trace/99'"),
        ({"format": "regard.trace/1"}, r"damaged trace"),
        ({"format": "regard.trace/1", "model": "", "encodings": "[{}]", "axes": "{}"}, r"encoding"),
        ({"format": "regard.trace/1", "model": "", "encodings": "[]", "axes": '{"b": "E"}'}, r"damaged trace"),
        ({"format": "regard.trace/1", "model": "", "encodings": "[]", "axes": "7"}, r"damaged trace"),
        ({"format": "regard.trace/1", "model": "", "encodings": "{", "axes": "{}"}, r"damaged trace"),
        ({"format": "regard.trace/1", "model": "", "encodings": "[]", "axes": json.dumps({"a": "T E"})}, r"dimensions"),
    ],
)
def test_what_is_not_a_trace_is_refused(tmp_path, metadata, message):
    write_safetensors(tmp_path / "other", {"a": np.zeros(3)}, metadata)
    with pytest.raises(RegardError, match=message):
        Trace.load(tmp_path / "other")


def test_the_steps_are_a_table_of_formulas(block, x):
    steps = {step.name: step for step in traced(block, x).steps()}
    weights = steps["blocks.0.attn.weights"]
    assert (weights.formula, weights.axes, weights.shape) == (
        "softmax(scores), each row sums to 1",
        "B H T S",
        (2, 3, 5, 5),
    )
    np.testing.assert_allclose(weights.values.sum(-1), 1, rtol=1e-6)
    assert all(step.formula for step in steps.values())
    assert steps["blocks.0.attn.output"].formula != steps["blocks.0.mlp.output"].formula
