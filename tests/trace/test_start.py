"""A run that starts from the output of a block has the bits of a whole run, and computes nothing earlier."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, Trace
from sweeps import sweep_except

DECODERS = (
    *("llama", "gpt2", "gpt_neo", "gemma", "gpt_oss", "qwen"),
    *("mistral", "mixtral", "opt", "olmo2", "phi3", "smollm3", "deepseek"),
)

CASES = [case for case in golden.KEPT if case.startswith(DECODERS)]
IDS = np.array([[5, 6, 7, 8], [9, 5, 6, 5]])


@pytest.fixture
def model():
    return regard.load(golden.FOLDER / next(case for case in CASES if case.startswith("llama")))


@functools.cache  # for the tests without and with maps
def load(case):
    return regard.load(golden.FOLDER / case)


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(CASES), CASES))
@pytest.mark.parametrize("maps", [False, True])
def test_the_steps_from_there_are_those_of_a_whole_run(case, maps):
    model = load(case)
    whole = Trace(maps=maps, only="*")
    hidden = model(IDS, trace=whole).hidden
    for i in range(len(model.blocks)):
        name = f"blocks.{i}.output"
        trace = Trace(maps=maps, only="*", start={name: whole[name]})
        np.testing.assert_array_equal(model(IDS, trace=trace).hidden, hidden)
        assert trace.names() == whole.names()[whole.names().index(name) + 1 :]
        for step in trace:
            np.testing.assert_array_equal(trace[step], whole[step])


def test_with_a_stop_it_runs_some_of_the_blocks_only(model, monkeypatch):
    whole = Trace()
    model(IDS, trace=whole)
    ran = []
    run = type(model.blocks[0]).__call__
    monkeypatch.setattr(
        type(model.blocks[0]),
        "__call__",
        lambda self, *args, **options: ran.append(self) or run(self, *args, **options),
    )
    trace = Trace(start={"blocks.0.output": whole["blocks.0.output"]}, stop="blocks.1.attn.output")
    model(IDS, trace=trace)
    assert ran == [model.blocks[1]]
    np.testing.assert_array_equal(trace["blocks.1.attn.output"], whole["blocks.1.attn.output"])


def test_the_state_of_one_text_stands_for_a_batch(model):
    whole = Trace()
    expected = model(IDS[:1], trace=whole).hidden
    trace = Trace(only=(), start={"blocks.0.output": whole["blocks.0.output"]})
    hidden = model(IDS[[0, 0, 0]], trace=trace).hidden
    np.testing.assert_allclose(hidden, np.repeat(expected, 3, 0), rtol=1e-5, atol=1e-6)


def test_names_of_transformer_lens_are_understood(model):
    whole = Trace()
    hidden = model(IDS, trace=whole).hidden
    for name in ("blocks.1.hook_resid_pre", "blocks.0.hook_resid_post"):
        trace = Trace(only=(), start={name: whole["blocks.0.output"]})
        np.testing.assert_array_equal(model(IDS, trace=trace).hidden, hidden)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"embeddings": np.zeros(3)}, "a run starts from the output of a block, such as 'blocks.3.output', got 'embed"),
        ({}, "start maps the output of one block to its value"),
        ("blocks.0.output", "start maps the output of one block to its value"),
        (
            {"blocks.0.output": np.zeros((2, 3, 8))},
            r"start= has blocks.0.output of shape \(2, 3, 8\), and this run needs",
        ),
        ({"blocks.9.output": None}, "start= names blocks.9, but .* blocks"),
    ],
)
def test_mistakes(model, start, message):
    if start == {"blocks.9.output": None}:
        whole = Trace(only="blocks.0.output")
        model(IDS, trace=whole)
        start = {"blocks.9.output": whole["blocks.0.output"]}
    with pytest.raises(RegardError, match=message):
        model(IDS, trace=Trace(start=start))


def test_an_edit_before_the_start_is_an_error(model):
    whole = Trace(only="blocks.0.output")
    model(IDS, trace=whole)
    trace = Trace(start={"blocks.0.output": whole["blocks.0.output"]}, edit={"embeddings": np.negative})
    with pytest.raises(RegardError, match="edit= matched no step of this run: 'embeddings'"):
        model(IDS, trace=trace)


def test_an_encoder_says_that_it_cannot(write_bert):
    with pytest.raises(RegardError, match="start= is for a decoder"):
        regard.load(write_bert())("the cat", trace=Trace(start={"blocks.0.output": np.zeros((1, 4, 12))}))


def test_generation_says_that_it_cannot(model):
    with pytest.raises(RegardError, match="leave it out of the trace of generate"):
        model.generate([5, 6], trace=Trace(start={"blocks.0.output": np.zeros((1, 2, 8))}))
