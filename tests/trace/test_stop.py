"""A run that ends after a step: what was recorded until then is that of a whole run, and nothing later was computed."""

import functools
import re

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, attention

CASES = [case for case in golden.KEPT if case.startswith(("bert", "llama", "gpt2", "gemma2", "gpt_oss", "t5", "bart"))]
IDS = np.array([[5, 6, 7]])


@functools.cache  # for the tests without and with maps
def load(case):
    return regard.load(golden.FOLDER / case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("maps", [False, True])
def test_the_steps_until_then_are_those_of_a_whole_run(case, maps, rng):
    model = load(case)
    whole = Trace(maps=maps, only="*")
    whole_output = model(IDS, trace=whole)
    names = whole.names()
    for stop in (names[0], *rng.choice(names, 6), names[-1]):
        trace = Trace(maps=maps, only="*", stop=str(stop))
        output = model(IDS, trace=trace)
        assert trace.names() == names[: names.index(stop) + 1]
        for name in trace:
            np.testing.assert_array_equal(trace[name], whole[name])
        with pytest.raises(RegardError, match=re.escape(f"the run ended after '{stop}'")):
            _ = output.hidden
        assert output.encodings == whole_output.encodings


def test_only_what_is_named_is_recorded(write_bert):
    model = regard.load(write_bert())
    trace = recorded(model, "the cat sat", only="blocks.0.attn.q", stop="blocks.1.attn.weights")
    assert trace.names() == ("blocks.0.attn.q",)


@pytest.mark.parametrize("options", [{"maps": True}, {"only": "*.weights"}])
def test_a_layer_after_the_stop_is_not_run(write_bert, blocks_run, options):
    model = regard.load(write_bert())
    ran = blocks_run(model)
    recorded(model, "the cat sat", **options, stop="blocks.0.attn.hook_pattern")
    assert {layer for layer, _ in ran} == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": (), "stop": "blocks.7.output"}, "stop= matched no step of this run: 'blocks.*did you mean"),
        ({"only": (), "stop": "blocks.0.attn.wieghts"}, "stop= matched no step of this run: 'blocks.*did you mean"),
        ({"stop": "blocks.0.output", "edit": {"blocks.1.output": np.negative}}, "edit= matched no step"),
    ],
)
def test_a_step_that_does_not_occur_is_an_error_after_the_run(write_bert, options, message):
    with pytest.raises(RegardError, match=message):
        recorded(regard.load(write_bert()), "the cat sat", **options)


@pytest.mark.parametrize("stop", ["blocks.*.output", 3, ("a", "b")])
def test_it_is_the_name_of_one_step(stop):
    with pytest.raises(RegardError, match=r"stop is the name of one step, such as 'blocks.3.output', got"):
        Trace(stop=stop)


def test_a_function_by_itself_says_that_it_was_ended(rng):
    trace = Trace(stop="weights")
    x = rng.standard_normal((3, 4))
    with pytest.raises(RegardError, match="the run ended after 'weights', as stop= asked"):
        attention(x, x, x, trace=trace)
    assert trace.names() == ("scores", "weights")


def test_generation_runs_to_its_end():
    model = regard.load(golden.FOLDER / next(case for case in CASES if case.startswith("llama")))
    trace = Trace(stop="blocks.0.output")
    generated = model.generate([5, 6, 7], max_new_tokens=4, trace=trace)
    assert generated.ids == model.generate([5, 6, 7], max_new_tokens=4).ids
    assert trace.names()[-1] == "blocks.0.output"
    assert trace["blocks.0.output"].shape[1] == len(generated.encoding)
    with pytest.raises(RegardError, match=r"the run ended after 'blocks.0.output'"):
        _ = model(IDS, trace=Trace(stop="blocks.0.output")).logits
