"""A run of a model stores its large values in a trace without copies, and nothing else can change them."""

import gc
import itertools
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import regard
import tiny_decoder
from regard import RegardError, Trace
from regard.functional import native
from regard.models.memory import estimate_memory

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="only memory of the kernel is stored without a copy")

IDS = np.arange(16 * 200).reshape(16, 200) % 200  # their vectors take more than 128 KB
FULL = 16 * 200 * tiny_decoder.CONFIG["intermediate_size"] * 4  # bytes of a value of the feed-forward layer


@pytest.fixture
def decoder(tmp_path):
    return regard.load(tiny_decoder.write(tmp_path / "model", {"max_position_embeddings": 400}))


@pytest.fixture
def copied(monkeypatch):
    """Return the sizes of the large arrays that traces copy."""
    found = []

    def copy(value):
        found.append(value.nbytes)
        return np.array(value)

    monkeypatch.setattr("regard.trace.trace.to_numpy", copy)
    return found


def test_no_value_that_a_run_makes_alone_is_copied(decoder, copied):
    decoder(IDS, trace=Trace())
    assert copied.count(FULL) == 2 * len(decoder.blocks)  # gate and up, of one product here; not the hidden vectors


def test_no_two_values_share_memory_nor_one_with_the_result(decoder):
    trace = Trace()
    output = decoder(IDS, trace=trace)
    arrays = [*(value for _, value in trace.items()), output.hidden]
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)


def test_the_values_are_those_of_copies(decoder, monkeypatch):
    trace, copies = Trace(), Trace()
    hidden = decoder(IDS, trace=trace).hidden
    monkeypatch.setattr("regard.functional.native.pool_buffer", lambda _: None)
    np.testing.assert_array_equal(decoder(IDS, trace=copies).hidden, hidden)
    for name, value in copies.items():
        np.testing.assert_array_equal(trace[name], value)


def test_what_an_edit_returned_is_copied(decoder):
    mine = native.empty((16, 200, 12), np.dtype(np.float32))
    mine[...] = 1
    trace = Trace(edit={"blocks.0.output": lambda _: mine})
    decoder(IDS, trace=trace)
    assert not np.shares_memory(trace["blocks.0.output"], mine)


def test_values_of_a_layer_by_itself_are_copies(decoder, copied):
    x, trace = np.ones((16, 200, 12), np.float32), Trace()
    decoder.blocks[0](x, trace=trace)
    assert FULL in copied


def test_a_trace_in_a_folder_has_the_values_of_one_in_memory_and_maps_them(decoder, tmp_path):
    trace, kept = Trace(), Trace(folder=tmp_path / "run")
    hidden = decoder(IDS, trace=trace).hidden
    np.testing.assert_array_equal(decoder(IDS, trace=kept).hidden, hidden)
    assert kept.names() == trace.names()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, trace[name])
        np.testing.assert_array_equal(np.load(tmp_path / "run" / f"{name}.npy"), value)
        assert type(value) is np.ndarray
        assert not value.flags.writeable
    kept.save(tmp_path / "trace.safetensors")
    np.testing.assert_array_equal(Trace.load(tmp_path / "trace.safetensors")["final_norm"], hidden)
    with pytest.raises(RegardError, match=r"token_embeddings.npy is there already: give folder= an empty folder"):
        decoder(IDS, trace=Trace(folder=tmp_path / "run"))


def test_what_goes_to_a_folder_takes_no_memory(decoder, tmp_path):
    whole, kept = (estimate_memory(decoder, 16, 200, trace) for trace in (Trace(), Trace(folder=tmp_path / "run")))
    assert kept.recorded == 0
    assert kept.total < whole.total
    tracemalloc.start()
    try:
        decoder(IDS, trace=Trace(folder=tmp_path / "run"))
        assert tracemalloc.get_traced_memory()[1] < whole.recorded / 2
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files as Linux lists them")
def test_as_many_arrays_are_mapped_as_files_may_be_open_or_the_remedy_is_said(decoder, tmp_path):
    resource = pytest.importorskip("resource")
    gc.collect()
    limits, opened = resource.getrlimit(resource.RLIMIT_NOFILE), len(list(Path("/proc/self/fd").iterdir()))
    trace = Trace(folder=tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 8, limits[1]))
    try:
        if sys.version_info >= (3, 13):
            decoder(IDS, trace=trace)
            assert len(trace) > 8
        else:
            with pytest.raises(RegardError, match=r"before Python 3.13 each array holds one open: raise"):
                decoder(IDS, trace=trace)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path, monkeypatch):
    def interrupted(stream, values, **options):
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Trace(folder=tmp_path)("x", np.zeros((2, 3)), "T E")
    assert not list(tmp_path.iterdir())


def test_names_and_orders_of_arrays_stay_in_the_folder_as_they_are(tmp_path):
    trace, values = Trace(folder=tmp_path / "run"), np.arange(6.0).reshape(2, 3)
    steps = {"../../x": values, "a/b": np.asfortranarray(values), "\ud800": values[:, ::-1], "..": values.astype(">f2")}
    for name, value in steps.items():
        trace(name, value, "T E")
        np.testing.assert_array_equal(trace[name], value)
        assert trace[name].dtype == value.dtype
    assert [path.parent for path in tmp_path.rglob("*.npy")] == [tmp_path / "run"] * len(steps)


@pytest.mark.parametrize(
    ("folder", "message"),
    [*((name, "cannot make the folder") for name in ("file", "a\0b", "file/run")), (3, "the path of a folder, got 3")],
)
def test_a_folder_that_cannot_be_made_is_named(folder, message, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match=message):
        Trace(folder=tmp_path / folder if isinstance(folder, str) else folder)("x", np.zeros((2, 3)), "T E")
