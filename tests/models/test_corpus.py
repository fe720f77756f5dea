"""Many texts, one trace each: the runs of each text alone, in the order of length, whatever the batches."""

import itertools

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from regard import RegardError, Trace
from regard.models import corpus
from regard.trace.edits import ablate, mean_ablate

TEXTS = ["the cat sat", "a cat", "sat", "the the the", "cat", "a a a a"]
LENGTHS = [5, 4, 3, 5, 3, 6]
ORDER = [2, 4, 1, 0, 3, 5]


@pytest.fixture
def model(write_bert):
    return regard.load(write_bert())


@pytest.mark.parametrize("batch_size", [1, 2, 32])
@pytest.mark.parametrize("keep", ["maps", "arrays"])
def test_each_trace_is_that_of_the_text_alone(model, batch_size, keep):
    done = []
    found = list(model.iter_traces(TEXTS, batch_size=batch_size, keep=keep, progress=lambda *at: done.append(at)))
    assert [i for i, _ in found] == ORDER
    assert done == [(n, 6) for n in (range(1, 7) if batch_size == 1 else (2, 3, 5, 6))]  # texts of a length together
    for i, trace in found:
        alone = Trace(maps=keep == "maps", only="*")
        model(TEXTS[i], trace=alone)
        assert trace.names() == alone.names()
        assert trace.encodings == alone.encodings
        assert trace.model == alone.model
        assert trace.has_map("blocks.0.attn") == (keep == "maps")
        for name in trace:
            assert trace.axes(name) == alone.axes(name)
            np.testing.assert_allclose(trace[name], alone[name], rtol=1e-4, atol=1e-5)


def test_a_decoder_and_an_encoder_decoder_run_too(tmp_path):
    decoder = regard.load(tiny_decoder.write(tmp_path / "tiny"))
    t5 = regard.load(golden.FOLDER / next(case for case in golden.KEPT if case.startswith("t5")))
    with pytest.raises(RegardError, match="text 1 is empty"):
        list(decoder.iter_traces(["cat", ""]))
    for model, name in ((decoder, "blocks.1.output"), (t5, "encoder.blocks.0.output")):
        texts = [model.tokenizer.from_ids(ids) for ids in ([5, 6, 7], [6, 5], [7, 7, 5])]
        found = dict(model.iter_traces(texts, only=name))
        for i, text in enumerate(texts):
            alone = Trace(only=name)
            model(text, trace=alone)
            np.testing.assert_allclose(found[i][name], alone[name], rtol=1e-4, atol=1e-5)


def test_an_iterator_is_read_a_window_at_a_time(model, monkeypatch):
    monkeypatch.setattr(corpus, "_WINDOW", 4)
    read, done = [], []
    lines = (read.append(text) or f"{text}\n" for text in itertools.chain(TEXTS, TEXTS))
    found = model.iter_traces(lines, only=(), progress=lambda n, total: done.append((n, total)))
    assert [i for i, _ in itertools.islice(found, 4)] == [2, 1, 0, 3]
    assert len(read) == 4
    assert [i for i, _ in found] == [4, 7, 6, 5, 8, 10, 9, 11]
    assert done[-1] == (12, None)


def test_edits_and_names_are_those_of_a_trace(model):
    for i, trace in model.iter_traces(TEXTS, only="*.context", edit=ablate((0, 1))):
        assert trace.names() == ("blocks.0.attn.context", "blocks.1.attn.context")
        assert not trace["blocks.0.attn.context"][:, 1].any()
        assert trace["blocks.0.attn.context"].shape == (1, 3, LENGTHS[i], 4)


def test_what_it_yields_is_a_reference_set(model):
    edit = mean_ablate(model.iter_traces(TEXTS, only="*.context"), (1, 0))
    contexts = []
    for text in TEXTS:
        trace = Trace(only="blocks.1.attn.context")
        model(text, trace=trace)
        contexts.append(trace["blocks.1.attn.context"][0, 0])
    trace = Trace(edit=edit)
    model("the cat", trace=trace)
    mean = np.concatenate(contexts).mean(0)
    np.testing.assert_allclose(trace["blocks.1.attn.context"][0, 0], [mean] * 4, rtol=1e-4, atol=1e-6)


def test_a_long_text_is_truncated_when_asked(model):
    text = " ".join(["cat"] * 99)
    with pytest.raises(RegardError, match=r"text 1 has 101 tokens, but .* accepts at most"):
        list(model.iter_traces(["cat", text]))
    _, (_, trace) = model.iter_traces(["cat", text], truncate=True, only="blocks.0.output")
    assert trace["blocks.0.output"].shape[1] == model.max_length == len(trace.encodings[0])


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("the cat", {}, "texts are an iterable"),
        ({"cat"}, {}, "a set has no order"),
        (["cat", 3], {}, "text 1 is not a str, an encoding or ids, got 3"),
        (["cat"], {"keep": "all"}, "keep must be maps or arrays, got 'all'"),
        (["cat"], {"batch_size": 0}, "batch_size must be"),
    ],
)
def test_mistakes(model, texts, options, message):
    with pytest.raises(RegardError, match=message):
        list(model.iter_traces(texts, **options))


@pytest.mark.parametrize("at", ["blocks.*.output", "*.attn.context", "*.attn.k", ["embeddings", "blocks.1.output"]])
@pytest.mark.parametrize("positions", [-1, 1, [0, -2]])
def test_activations_are_the_steps_of_each_text_alone(model, tmp_path, at, positions):
    values = model.activations(TEXTS, at, positions=positions, batch_size=2)
    for i, text in enumerate(TEXTS):
        trace = Trace(only=at)
        model(text, trace=trace)
        for j, name in enumerate(trace):
            step = trace[name][0]  # T E, or H T D
            expected = step[..., positions, :] if isinstance(positions, int) or step.ndim == 2 else [
                step[:, at, :] for at in positions]  # fmt: skip
            np.testing.assert_allclose(values[i, j], expected, rtol=1e-4, atol=1e-5)
    stored = model.activations(TEXTS, at, positions=positions, batch_size=2, out=tmp_path / "values.npy")
    assert isinstance(stored, np.memmap)
    np.testing.assert_array_equal(stored, values)


def test_activations_that_are_no_array_are_refused(model):
    with pytest.raises(RegardError, match="text 2 has 3 tokens: there is no position 4"):
        model.activations(TEXTS, positions=[0, 4])
    with pytest.raises(RegardError, match=r"differ in their shapes, .*: blocks\.0\.attn\.context, blocks\.0\.output"):
        model.activations(TEXTS, ["blocks.0.output", "blocks.0.attn.context"])
    with pytest.raises(RegardError, match="there is no text"):
        model.activations([])
    for positions in ([0.5], None, 1.5, True, [], [[0, 1]], "1"):
        with pytest.raises(RegardError, match="positions is a number or several"):
            model.activations(TEXTS, positions=positions)


def test_activations_of_another_shape_in_each_text_leave_no_file(model, tmp_path):
    for out in (None, tmp_path / "values.npy"):  # a row of weights is as long as its text
        with pytest.raises(RegardError, match="have other shapes in text 1 than in text 2, so they are not one array"):
            model.activations(TEXTS, "*.attn.weights", batch_size=2, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]  # the model alone
