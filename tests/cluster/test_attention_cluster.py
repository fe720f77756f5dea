"""Attention of one text on a real cluster of two processes with 1 GB each."""

import numpy as np
import pytest

from regard import attention
from regard.explorer.query import dispatch
from regard.explorer.stored import StoredExploration

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

import regard.dask  # noqa: E402, after the skip

pytestmark = [pytest.mark.filterwarnings("ignore")]

DIM = 64


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("workers"))
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address=None, local_directory=folder
    )
    with cluster, distributed.Client(cluster) as found:
        yield found


def vectors(seed, length, size):
    """Return random vectors that each worker draws where it needs them, ``T 64`` in float32."""

    def draw(block_info=None):
        first, end = block_info[None]["array-location"][0]
        return np.random.default_rng([seed, first]).standard_normal((end - first, DIM)).astype(np.float32)

    sizes = (size,) * (length // size) + ((length % size,) if length % size else ())
    return da.map_blocks(draw, chunks=(sizes, (DIM,)), dtype=np.float32, meta=np.empty((0, 0), np.float32))


def test_the_bits_are_the_same_whatever_worker_did_what(client):
    q, k, v = (vectors(seed, 9000, size) for seed, size in ((0, 1000), (1, 3000), (2, 3000)))
    for options in ({}, {"causal": True}, {"window": (700, 300)}):
        lazy = regard.dask.attention(q, k, v, **options)
        alone = lazy.compute(scheduler="synchronous")
        workers = list(client.scheduler_info()["workers"])
        for chosen in (workers, workers[:1], workers[1:]):
            assert lazy.compute(workers=chosen).tobytes() == alone.tobytes()


@pytest.mark.parametrize("length", [200_000, pytest.param(1_000_000, marks=pytest.mark.sweep)])
def test_a_text_whose_map_fits_no_memory_on_two_workers_of_1_gb(client, length):
    window = 4096
    q, k, v = (vectors(seed, length, 8192) for seed in range(3))
    context = regard.dask.attention(q, k, v, causal=True, window=(window, 0)).persist()
    distributed.wait(context)
    rows = np.sort(np.random.default_rng(4).choice(length, 200, replace=False))
    found = context[rows].compute()
    largest = own = 0.0
    for row, ours in zip(rows.tolist(), found, strict=True):
        keys = slice(max(0, row - window), row + 1)
        one = dask.compute(q[row : row + 1], k[keys], v[keys], scheduler="synchronous")
        exact = direct(*(x.astype(np.float64) for x in one))
        largest = max(largest, np.abs(ours - exact).max())
        own = max(own, np.abs(attention(*one)[0] - exact).max())
    assert largest <= 2 * own


def direct(q, k, v):
    scores = k @ q[0] / np.sqrt(DIM)
    exponentials = np.exp(scores - scores.max())
    return exponentials @ v / exponentials.sum()


def test_its_overview_is_browsed(client, tmp_path):
    length, window = 40_000, 4096
    q, k = (vectors(seed, length, 8192) for seed in range(2))
    regard.dask.AttentionMap(q, k, causal=True, window=(window, 0)).to_zarr(tmp_path / "a.zarr")
    exploration = StoredExploration(tmp_path / "a.zarr")
    region = {"row0": 0, "row1": length, "col0": 0, "col1": length, "bin_size": 512, "pool": "mean"}
    tile = dispatch(exploration, "tile", {"run": 0, "layer": 0, "head": 0, **region})
    side = -(-length // 512)
    sizes = np.diff([*range(0, length, 512), length])
    sums = (tile.reshape(side, side) * np.outer(sizes, sizes)).sum(axis=1)
    np.testing.assert_allclose(sums, sizes, rtol=1e-5)  # each row of weights sums to 1
    band = np.arange(side)[:, None] - np.arange(side)
    assert (tile.reshape(side, side)[(band < 0) | (band > window // 512 + 1)] == 0).all()
    assert (tile.reshape(side, side)[(band >= 0) & (band < window // 512)] > 0).all()
