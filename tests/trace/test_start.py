"""A run that starts from the output of a block has the bits of a whole run, and computes nothing earlier."""

import functools

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
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


@pytest.fixture
def whole(model):
    return recorded(model, IDS)


@functools.cache  # for the tests without and with maps
def load(case):
    return regard.load(golden.FOLDER / case)


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(CASES), CASES))
@pytest.mark.parametrize("maps", [False, True])
def test_the_steps_from_there_are_those_of_a_whole_run(case, maps):
    model = load(case)
    whole = Trace(maps=maps, only="*")
    hidden = model(IDS, trace=whole).hidden
    for i in range(min(len(model.blocks), model.last_start)):
        name = f"blocks.{i}.output"
        trace = Trace(maps=maps, only="*", start={name: whole[name]})
        np.testing.assert_array_equal(model(IDS, trace=trace).hidden, hidden)
        assert trace.names() == whole.names()[whole.names().index(name) + 1 :]
        for step in trace:
            np.testing.assert_array_equal(trace[step], whole[step])


def test_with_a_stop_it_runs_some_of_the_blocks_only(model, whole, blocks_run):
    ran, name = blocks_run(model), "blocks.1.attn.output"
    trace = recorded(model, IDS, start={"blocks.0.output": whole["blocks.0.output"]}, stop=name)
    assert [layer for layer, _ in ran] == [1]
    np.testing.assert_array_equal(trace[name], whole[name])


def test_the_state_of_one_text_stands_for_a_batch(model, whole):
    trace = Trace(only=(), start={"blocks.0.output": whole["blocks.0.output"][:1]})
    hidden = model(IDS[[0, 0, 0]], trace=trace).hidden
    np.testing.assert_allclose(hidden, np.repeat(model(IDS[:1]).hidden, 3, 0), rtol=1e-5, atol=1e-6)


def test_names_of_transformer_lens_are_understood(model, whole):
    for name in ("blocks.1.hook_resid_pre", "blocks.0.hook_resid_post"):
        trace = Trace(only=(), start={name: whole["blocks.0.output"]})
        np.testing.assert_array_equal(model(IDS, trace=trace).hidden, model(IDS).hidden)


SOUND = object()  # for the output of the first block


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"start": {"embeddings": np.zeros(3)}},
            "starts from the output of a block, such as 'blocks.3.output', got 'e",
        ),
        ({"start": {}}, "start maps the output of one block to its value"),
        ({"start": "blocks.0.output"}, "start maps the output of one block to its value"),
        (
            {"start": {"blocks.0.output": np.zeros((2, 3, 8))}},
            r"has blocks.0.output of shape \(2, 3, 8\), and this run",
        ),
        ({"start": {"blocks.9.output": SOUND}}, "start= names blocks.9, but .* blocks"),
        (
            {"start": {"blocks.0.output": SOUND}, "edit": {"embeddings": np.negative}},
            "edit= matched no step of this run: 'embeddings'",
        ),
    ],
)
def test_mistakes(model, whole, options, message):
    start = options["start"]
    if isinstance(start, dict):
        start = {name: whole["blocks.0.output"] if value is SOUND else value for name, value in start.items()}
    with pytest.raises(RegardError, match=message):
        recorded(model, IDS, **options | {"start": start})


def test_an_encoder_and_generation_say_that_they_cannot(write_bert, model):
    with pytest.raises(RegardError, match="start= is for a decoder"):
        recorded(regard.load(write_bert()), "the cat", start={"blocks.0.output": np.zeros((1, 4, 12))})
    with pytest.raises(RegardError, match="leave it out of the trace of generate"):
        model.generate([5, 6], trace=Trace(start={"blocks.0.output": np.zeros((1, 2, 8))}))
