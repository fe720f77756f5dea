"""The memory of a run is estimated before it, and refused where it does not fit."""

import functools
import io
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from regard import RegardError, Trace
from regard.functional import native
from regard.models import TextModel, toy
from regard.models.memory import estimate_memory
from regard.trace import memory_probe
from regard.trace.edits import force_pattern
from regard.trace.gradient_trace import GradientTrace

CASES = sorted({case.split("/")[0]: case for case in sorted(golden.cases(TextModel))}.values())
RECORDINGS = [{}, {"maps": True}, {"only": "*attn.weights"}, {"only": "*attn.weights", "maps": True}, {"only": ()}]
COPIED = {"edit": {"blocks.0.attn.weights": np.copy}, "only": ()}


@functools.cache  # for each recording
def load(case):
    return regard.load(golden.FOLDER / case)


@pytest.fixture
def decoder(tmp_path):
    return regard.load(tiny_decoder.write(tmp_path / "model", {"max_position_embeddings": 4000}))


def held(trace):
    return sum(x.nbytes for x in trace._values.values()) + sum(x.nbytes for x in trace._maps.values())


@pytest.mark.parametrize("options", RECORDINGS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_what_a_trace_holds(case, options):
    model = load(case)
    trace, length = Trace(**options), min(24, model.max_length)
    estimate = estimate_memory(model, 3, length, trace)
    model(np.full((3, length), 3), trace=trace)
    assert estimate.recorded == pytest.approx(held(trace), rel=0.02)


class _Buffers(pickle.Pickler):
    """Adds up the memory of all arrays of what it pickles, each buffer once."""

    def __init__(self):
        super().__init__(io.BytesIO())
        self.sizes = {}

    def persistent_id(self, x):
        if not isinstance(x, np.ndarray):
            return None
        while isinstance(x.base, np.ndarray):
            x = x.base
        self.sizes[x.__array_interface__["data"][0]] = x.nbytes
        return "array"


@pytest.mark.parametrize("case", CASES)
def test_a_record_of_maps_keeps_maps_alone(case):
    model = load(case)
    trace, length = Trace(maps=True), min(24, model.max_length)
    model(np.full((3, length), 3), trace=trace)
    assert set(trace._maps) == set(trace.names()) != set()
    buffers = _Buffers()
    buffers.dump(trace)
    assert sum(buffers.sizes.values()) < 2 * held(trace)  # also what masks and biases are computed from


def test_the_estimate_of_a_toy_is_what_a_trace_holds():
    model, trace = toy("a b " * 50, num_heads=2), Trace()
    estimate = estimate_memory(model, 1, 100, trace)
    model("a b " * 50, trace=trace)
    assert estimate.recorded == pytest.approx(held(trace), rel=0.02)


EDITED = {"maps": True, "edit": force_pattern("first", (0, 1))}  # whose map is recorded as weights


@pytest.mark.parametrize("options", [*RECORDINGS, EDITED], ids=str)
@pytest.mark.parametrize("step", ["attn.weights", "attn.context", "output"])
def test_the_estimate_ends_with_the_run(decoder, options, step):
    trace = Trace(**options, stop=f"blocks.1.{step}")
    estimate = estimate_memory(decoder, 1, 300, trace)
    decoder([3] * 300, trace=trace)
    assert estimate.recorded == pytest.approx(held(trace), rel=0.02)


def test_the_model_runs_twice_for_estimates_of_many_traces(decoder, monkeypatch):
    runs = []
    forward = type(decoder).forward
    monkeypatch.setattr(
        type(decoder), "forward", lambda *given, **options: runs.append(1) or forward(*given, **options)
    )
    for length in (100, 200):
        for trace in (Trace(), Trace(maps=True), Trace(only="*.output", stop="blocks.0.output")):
            estimate_memory(decoder, 1, length, trace)
    assert len(runs) == 2  # asked for nothing, and for everything


def test_an_estimate_calls_no_edit_and_records_nothing(decoder):
    trace = Trace(edit={"blocks.0.output": lambda _: pytest.fail("an edit was called")})
    estimate_memory(decoder, 1, 300, trace)
    assert len(trace) == 0


@pytest.mark.parametrize("options", [{}, {"only": "*.attn.scores"}], ids=str)
def test_what_does_not_fit_is_refused_before_the_run(decoder, monkeypatch, options):
    monkeypatch.setattr("regard.models.memory.available_memory", lambda: 40_000_000)
    trace = Trace(**options)
    message = r"a run of 2,000 tokens takes about 0\.\d GB of memory, .* but 0\.0 GB are available: give a shorter text"
    with pytest.raises(RegardError, match=message):
        decoder([3] * 2000, trace=trace)
    assert len(trace) == 0
    decoder([3] * 2000, trace=Trace(only="*attn.weights", maps=True))


def test_a_batch_that_does_not_fit_is_refused(decoder, monkeypatch):
    monkeypatch.setattr("regard.models.memory.available_memory", lambda: 1_000_000)
    monkeypatch.setattr("regard.models.memory._NEGLIGIBLE", 0)
    with pytest.raises(RegardError, match=r"a run of 40 × 200 tokens .* give fewer or shorter texts"):
        decoder.embed(["a" * 200] * 40, pooling="mean", batch_size=40)


@pytest.mark.skipif(native.kernel() is None, reason="NumPy's steps take more")
@pytest.mark.parametrize("options", [*RECORDINGS, COPIED], ids=[*map(str, RECORDINGS), "edit"])
def test_the_estimate_is_what_a_run_takes(tmp_path, options):
    sizes = {"hidden_size": 96, "intermediate_size": 512, "head_dim": 16, "num_hidden_layers": 4}
    model = regard.load(
        tiny_decoder.write(tmp_path / "model", {**sizes, "max_position_embeddings": 512}, tiny_decoder.tensors(**sizes))
    )
    trace, ids = Trace(**options), np.full((2, 512), 3)  # whose maps fill whole units of the pool
    estimate = estimate_memory(model, *ids.shape, trace)
    tracemalloc.start()
    try:
        model(ids, trace=trace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert estimate.total == pytest.approx(peak, rel=0.15)  # of which a tenth is what the pool of buffers keeps


def pooled(size):
    """Return the bytes of the buffer of the pool for an array of this size."""
    return size if size < 2 << 20 else -(-size // (1 << 19)) << 19


@pytest.mark.skipif(native.kernel() is None, reason="there is no such call")
def test_a_call_of_all_blocks_returns_weights(minilm):
    """As it computes no more than without a record, all that they take is their own size."""
    nothing, weights = (estimate_memory(minilm, 32, 128, Trace(only=only)) for only in ((), "*.weights"))
    assert weights.recorded == 6 * 32 * 12 * 128**2 * 4
    assert weights.working == nothing.working
    for also in ({"maps": True}, {"edit": {"blocks.0.attn.weights": np.copy}}, {"stop": "blocks.5.attn.weights"}):
        other = estimate_memory(minilm, 32, 128, Trace(only="*.weights", **also))
        assert other.working > 3 * nothing.working


@pytest.mark.skipif(native.kernel() is None, reason="there is no such call")
@pytest.mark.parametrize(("texts", "kept"), [(1, 3), (2, 3), (32, 2)])
def test_a_short_map_keeps_the_product_that_its_queries_and_keys_are_views_of(minilm, texts, kept):
    """A copy of those of long texts leaves out the values."""
    trace, vectors = Trace(maps=True), 4 * minilm.config.embed_dim * texts * 128
    estimate = estimate_memory(minilm, texts, 128, trace)
    minilm(np.full((texts, 128), 1000), trace=trace)
    buffers = _Buffers()
    buffers.dump([each._inputs.q for each in trace._maps.values()] + [each._inputs.k for each in trace._maps.values()])
    assert sum(buffers.sizes.values()) == 6 * kept * vectors
    working = estimate.working - 6 * (kept - 2) * vectors  # of which the maps keep the rest
    inside = (5 if kept == 3 else 8) * vectors + pooled(4 * vectors)  # with q, k and v that no map keeps
    assert working == pytest.approx(inside + vectors, rel=0.05)  # and its input


@pytest.mark.skipif(native.kernel() is None, reason="there is no such call")
def test_a_call_of_all_blocks_takes_the_values_of_one_for_a_few_texts(minilm):
    vector = 4 * minilm.config.embed_dim
    for texts, at_once in ((2, 2), (32, 3), (64, 3)):  # of 384 tokens
        rows = at_once * 128
        inside = 7 * vector * rows + pooled(4 * vector * rows)  # q, k, v, context, 3 outputs, the feed-forward layer
        total = estimate_memory(minilm, texts, 128, Trace(only=())).total
        assert total == pytest.approx(inside + 2 * vector * texts * 128, rel=0.01)  # its input and its result


@pytest.mark.parametrize(
    ("file", "constant", "value"),
    [
        ("bindings/encoder.cpp", "ROWS_AT_ONCE = 384", memory_probe._ROWS_AT_ONCE == 384),
        ("runtime/buffer_pool.cpp", "LARGE_UNIT = size_t(512) << 10", memory_probe._UNIT == 512 << 10),
        ("runtime/buffer_pool.cpp", "HUGE_PAGE = size_t(2) << 20", memory_probe._LARGE == 2 << 20),
    ],
)
def test_constants_are_those_of_the_kernel(file, constant, value):
    assert value
    assert constant in (Path(__file__).parents[2] / "csrc" / file).read_text(encoding="utf-8")


def test_runs_that_record_alike_are_estimated_once(decoder, monkeypatch):
    estimates = [estimate_memory(decoder, 1, 300, Trace(only=only)) for only in ("*.output", "*", "*.output", "*")]
    assert estimates[:2] == estimates[2:]
    assert estimates[0] != estimates[1]
    assert estimate_memory(decoder, 1, 301, Trace(only="*")) != estimates[1]
    monkeypatch.setattr("regard.models.memory.MemoryProbe", lambda *_: pytest.fail("estimated again"))
    assert estimate_memory(decoder, 1, 300, Trace(only="*.output")) is estimates[0]
    stored = vars(decoder)["_memory_estimates"]
    monkeypatch.undo()
    for length in range(2, 300):
        estimate_memory(decoder, 1, length, Trace(only="*"))
    assert len(stored) <= 256


@pytest.mark.parametrize("order", [1, -1])
def test_an_estimate_does_not_depend_on_earlier_ones(decoder, order):
    """A trace of gradients has the names of a trace of edits, and both hold the maps that these name."""
    at, only = "*.attn.weights", "blocks.0.output"
    traces = [GradientTrace(at, only=only), Trace(edit={at: np.copy}, only=only)]
    estimates = [estimate_memory(decoder, 1, 3000, trace) for trace in traces[::order]]
    assert estimates[0] == estimates[1]
    assert estimates[0].working > 2 * 6 * 3000**2 * 4


@pytest.mark.parametrize("known", [lambda: None, lambda: pytest.fail("the system was asked")])
def test_nothing_is_refused_where_memory_is_unknown_nor_asked_where_next_to_nothing_is_taken(
    decoder, monkeypatch, known
):
    monkeypatch.setattr("regard.models.memory.available_memory", known)
    assert decoder([3] * 200, trace=Trace()).hidden.shape == (1, 200, 12)


@pytest.mark.parametrize("options", RECORDINGS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_no_run_that_could_be_refused_counts_as_next_to_nothing(case, options, monkeypatch):
    model = load(case)
    trace, length = Trace(**options), min(24, model.max_length)
    total = estimate_memory(model, 40, length, trace).total
    assert total > 0
    monkeypatch.setattr("regard.models.memory._NEGLIGIBLE", total - 1)
    monkeypatch.setattr("regard.models.memory.available_memory", lambda: total - 1)
    with pytest.raises(RegardError, match="give fewer or shorter texts"):
        model(np.full((40, length), 3), trace=trace)
