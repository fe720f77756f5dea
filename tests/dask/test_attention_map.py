"""Statistics and overviews of `regard.dask.AttentionMap` are those of `regard.AttentionMap`, lazily and on disk."""

import functools
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from corpora import chunked
from hypothesis import given, strategies as st

from attention_cases import random_case
from regard import AttentionMap, RegardError
from regard.trace import open_map
from sweeps import sweep_after

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")

import regard.dask  # noqa: E402, after the skip

pytestmark = pytest.mark.usefixtures("synchronous")
seeds = st.integers(0, 2**31)


@pytest.fixture
def small_tiles(monkeypatch):
    """Cells of 2 × 2 weights in tiles of 2 × 2 cells, so that small maps have a pyramid."""
    monkeypatch.setattr("regard.dask.attention_map.TILE_CELLS", 2)
    monkeypatch.setattr("regard.trace.stored_map.TILE_CELLS", 2)
    monkeypatch.setattr("regard.trace.stored_map.FINEST_CELL", 2)


def both(seed):
    case, rng = random_case(seed), np.random.default_rng(seed)
    lazy = regard.dask.AttentionMap(chunked(case.q, rng), chunked(case.k, rng), **case.options)
    return lazy, AttentionMap(case.q, case.k, **case.options), rng


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@given(seeds)
def test_statistics_are_those_of_one_machine(seed):
    lazy, one, rng = both(seed)
    assert lazy.shape == one.shape
    size, count = tuple(rng.integers(1, 12, 2).tolist()), int(rng.integers(1, 6))
    wanted = {
        "lse": one.lse, "entropy": one.entropy(), "distance": one.distance(), "received": one.received(),
        "pooled": one.pooled(size), "mean": one.pooled(size, "mean"), **one.top(count)._asdict(),
    }  # fmt: skip
    arrays = {
        "lse": lazy.lse, "entropy": lazy.entropy(), "distance": lazy.distance(), "received": lazy.received(),
        "pooled": lazy.pooled(size), "mean": lazy.pooled(size, "mean"), **lazy.top(count)._asdict(),
    }  # fmt: skip
    found = dict(zip(arrays, dask.compute(*arrays.values()), strict=True))
    for name, array in arrays.items():
        assert (array.shape, array.dtype) == (found[name].shape, found[name].dtype) == (wanted[name].shape, array.dtype)
        if name != "keys":
            close(found[name], wanted[name])
    swapped = found["keys"] != wanted["keys"]  # of weights that are equal but for rounding
    close(found["weights"][swapped], wanted["weights"][swapped])


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Return a function that writes the map of a seed once, and returns its folder."""

    @functools.cache
    def write(seed):
        folder = tmp_path_factory.mktemp("map") / "a.zarr"
        both(seed)[0].to_zarr(folder, top=3)
        return folder

    return write


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("seed", sweep_after(6, range(60)))
def test_a_map_on_disk_is_the_map(folder_of, seed):
    _, one, rng = both(seed)
    stored = open_map(folder_of(seed))
    assert stored.shape == one.shape
    for stage in ("weights", "biased"):
        close(stored.tile(stage=stage), one.tile(stage=stage))
    cell = tuple(int(rng.integers(0, n)) for n in one.shape)
    rows, cols = rng.integers(0, one.shape[-2], 4), rng.integers(0, one.shape[-1], 4)
    close(stored[cell], one[cell])
    close(stored[..., rows, cols], one[..., rows, cols])
    for lead in [(), *([(0,), (cell[0],), (slice(0, 1),)] if one.ndim > 2 else [])]:
        part, theirs = stored.select(*lead), one.select(*lead)
        assert part.shape == theirs.shape
        for name in ("entropy", "received", "tile"):
            close(getattr(part, name)(), getattr(theirs, name)())
        close(part.lse, theirs.lse)
        close(part.q, theirs.q)
        for ours, expected in zip(part.top(2), theirs.top(2), strict=True):
            close(ours, expected)
    terms = stored.score_terms(*cell)
    close(terms.score, one.score_terms(*cell).score)
    assert terms.kv_head == one.score_terms(*cell).kv_head
    close(pickle.loads(pickle.dumps(stored)).tile(), one.tile())


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("seed", sweep_after(6, range(60)))
def test_overviews_on_disk_are_pooled_weights_at_every_scale(folder_of, seed):
    _, one, _ = both(seed)
    stored, weights = open_map(folder_of(seed)), one.weights()
    assert max(one.shape[-2:]) <= 2 * stored.cells[-1]
    for cell in stored.cells:
        rows, cols = (np.array([*range(0, length, cell), length]) for length in one.shape[-2:])
        for how, join in (("max", np.maximum), ("mean", np.add)):
            wanted = join.reduceat(join.reduceat(weights, rows[:-1], axis=-2), cols[:-1], axis=-1)
            wanted = wanted if how == "max" else wanted / np.outer(np.diff(rows), np.diff(cols))
            np.testing.assert_allclose(stored.pooled_between(rows, cols, how), wanted, rtol=1e-6, atol=1e-9)


def test_cells_without_weight_take_no_space(tmp_path):
    x = da.from_array(np.random.default_rng(0).standard_normal((40_000, 4)).astype(np.float32), chunks=(8192, 4))
    regard.dask.AttentionMap(x, x, causal=True, window=(100, 0)).to_zarr(tmp_path / "a.zarr")
    written = [path for path in (tmp_path / "a.zarr/overview/max/32/c").rglob("*") if path.is_file()]
    assert len(written) == 9  # of 5 × 5 tiles: the diagonal, and those below it


def test_what_cannot_be_written_is_said(tmp_path):
    x = da.zeros((6, 2), chunks=2)
    attention_map = regard.dask.AttentionMap(x, x)
    (tmp_path / "there").mkdir()
    for made, path, message in (
        (attention_map, tmp_path / "there", "exists"),
        (regard.dask.AttentionMap(x, x, mask=da.ones((6, 6), dtype=bool)), tmp_path / "a", "mask is a dask array"),
        (regard.dask.AttentionMap(x, x, mask=lambda b, h, q, k: q >= k), tmp_path / "a", "cannot be saved"),
        (regard.dask.AttentionMap(x, x[:0]), tmp_path / "a", "nothing to write"),
        (attention_map, tmp_path / "no" / "file.txt" / "\0", "cannot be written|null byte"),
    ):
        with pytest.raises((RegardError, ValueError), match=message):
            made.to_zarr(path)


def damaged(tmp_path, *damages):
    """Return the path of a map after these functions of it."""
    x = da.from_array(np.eye(6, dtype=np.float32), chunks=2)
    path = tmp_path / "a.zarr"
    regard.dask.AttentionMap(x, x, causal=True).to_zarr(path)
    for damage in damages:
        damage(path)
    return path


def metadata(name, change):
    """Return a function that changes the JSON of an array, or, without a name, of the map."""

    def damage(path):
        file = path / name / "zarr.json"
        fields = json.loads(file.read_text())
        change(fields)
        file.write_text(json.dumps(fields))

    return damage


def fields(**changed):
    return metadata("", lambda x: x["attributes"]["regard"].update(changed))


def chunks(name, *shape):
    return metadata(name, lambda x: x["chunk_grid"]["configuration"].update(chunk_shape=list(shape)))


def nest(name):
    return lambda path: (path / name).write_text('{"attributes": ' * 20_000)


def damage_keys(path):
    for chunk in [file for file in (path / "k" / "c").rglob("*") if file.is_file()]:
        chunk.write_bytes(b"\x00" + chunk.read_bytes()[5:])


def replace_keys(path):
    keys = zarr.open_group(path, mode="r+")["k"]
    keys[...] = np.random.default_rng(1).standard_normal(keys.shape)


def expand(path):
    """Put a frame of Zstandard there whose header says 2**62 bytes (RFC 8878)."""
    (path / "q/c/0/0").write_bytes(b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little") + bytes(20))


def by_a_file(path):
    shutil.rmtree(path)
    path.write_text("text")


GZIP = {"name": "gzip", "configuration": {"level": 5}}
DAMAGE = [
    ([metadata("", lambda x: x["attributes"].clear())], "interrupted"),
    ([fields(format="regard.map/9")], "its format is .regard.map/9"),
    ([fields(shape=[6, 7])], "do not fit a map"),
    ([fields(shape=[10**12, 6])], "cannot have the shape"),
    ([fields(shape="six")], "damaged map|a list of lengths|do not fit|cannot have"),
    ([fields(cells=[3])], "powers of two"),
    ([fields(cells=[])], "powers of two"),
    ([fields(mask={"kind": "eval"})], "damaged map"),
    ([fields(scale="x")], "scale"),
    ([metadata("q", lambda x: x.update(data_type="int8"))], "q is not an array|damaged map"),
    ([metadata("row_max", lambda x: x.update(shape=[6, 7]))], "no Zarr|row_max|damaged"),
    ([metadata(name, lambda x: x.pop("node_type")) for name in ("", "q", "row_max", "top_keys")], "damaged map"),
    ([chunks("q", 2**40, 6)], "chunks of"),
    *(
        ([chunks(name, *[size] * axes)], said)
        for name, axes in (("q", 2), ("row_max", 1), ("top_keys", 2))
        for size, said in ((0, f"{name} has chunks of .*, which hold nothing"), (-1, "damaged map"))
    ),
    ([chunks("q", 1, 1)], "q lacks"),
    (
        [metadata("q", lambda x: x.update(shape=[1 << 20, 1 << 20])), chunks("q", 1, 1)],
        "q has 1099511627776 chunks, more than the limit",
    ),
    ([metadata("q", lambda x: x["codecs"].__setitem__(1, GZIP))], "q is stored with 'GzipCodec'"),
    ([nest("zarr.json")], "damaged map|not a Zarr group"),
    ([nest("q/zarr.json")], "damaged map|not a Zarr group"),
    ([expand], "q/c/0/0 expands to more than the limit of 268435456 bytes"),
    ([damage_keys], "k cannot be read"),
    ([replace_keys], r"the weights of row 0 sum to .*: its queries or keys are not those"),
    ([shutil.rmtree, Path.mkdir], "not a Zarr group"),
    ([by_a_file], "no folder"),
    ([shutil.rmtree], "no folder"),
]


@pytest.mark.parametrize(("damages", "message"), DAMAGE, ids=[f"{i}-{said!a}" for i, (_, said) in enumerate(DAMAGE)])
def test_a_damaged_folder_is_one_sentence(tmp_path, damages, message):
    with pytest.raises(RegardError, match=message) as error:
        open_map(damaged(tmp_path, *damages)).tile()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["zarr.json", "q/zarr.json", "q/c/0/0", "row_max/c/0", "overview/max/32/c/0/0"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "it is not a regular file|lacks 1 of its 1 chunks"),
        (lambda path: path.symlink_to("/dev/zero"), "it is not a regular file|lacks 1 of its 1 chunks"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "more than the limit of"),
    ],
    ids=["pipe", "endless", "large"],
)
def test_a_file_that_is_none_of_a_map_is_not_read(tmp_path, name, make, message):
    path = damaged(tmp_path)
    (path / name).unlink()
    make(path / name)
    with pytest.raises(RegardError, match=message) as error:
        open_map(path).pooled((1, 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 1 << 20])
def test_the_size_of_a_chunk_is_that_of_its_header(size):
    from numcodecs import zstd

    from regard.trace.bounded_store import _unpacked_size

    assert _unpacked_size(zstd.compress(bytes(size), 1)) == size


def test_a_map_at_an_address_is_read_up_to_the_limit(tmp_path):
    import fsspec

    path = damaged(tmp_path)
    fs = fsspec.filesystem("memory")
    fs.put(str(path), "/maps/bounded.zarr", recursive=True)
    np.testing.assert_array_equal(open_map("memory://maps/bounded.zarr").tile(), open_map(path).tile())
    fs.pipe_file("/maps/bounded.zarr/q/zarr.json", b" " * (1 << 21))
    with pytest.raises(RegardError, match=r"q/zarr\.json has more than the limit of 1048576 bytes"):
        open_map("memory://maps/bounded.zarr")


def test_a_chunk_that_was_not_copied_is_told(tmp_path):
    x = da.from_array(np.eye(6, dtype=np.float32), chunks=2)
    whole, path = tmp_path / "whole.zarr", tmp_path / "copy.zarr"
    regard.dask.AttentionMap(x, x, mask=np.tri(6, dtype=bool)).to_zarr(whole)
    chunks = [file for file in whole.rglob("*") if file.is_file() and file.name != "zarr.json"]
    assert {"rules", "overview", "top_keys", "q"} <= {file.relative_to(whole).parts[0] for file in chunks}
    for chunk in chunks:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        (path / chunk.relative_to(whole)).unlink()
        with pytest.raises(RegardError, match=r"lacks 1 of its .* chunks: copy the folder again"):
            open_map(path)


def test_whole_numbers_are_written_and_what_cannot_be_leaves_no_folder(tmp_path):
    import ml_dtypes

    q = da.from_array(np.arange(24).reshape(1, 6, 4) % 5, chunks=3)
    regard.dask.AttentionMap(q, q).to_zarr(str(tmp_path / "whole.zarr"))
    expected = regard.trace.AttentionMap(np.asarray(q, np.float64), np.asarray(q, np.float64))
    np.testing.assert_allclose(open_map(tmp_path / "whole.zarr").tile(None, None), expected[:], rtol=1e-6)
    half = da.from_array(np.ones((1, 6, 4), ml_dtypes.bfloat16), chunks=3)
    with pytest.raises(RegardError, match="not from bfloat16: convert q and k"):
        regard.dask.AttentionMap(half, half).to_zarr(str(tmp_path / "half.zarr"))
    assert not (tmp_path / "half.zarr").exists()
