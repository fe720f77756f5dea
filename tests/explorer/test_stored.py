"""The explorer on an attention map that is on disk."""

import numpy as np
import pytest

from regard import AttentionMap, RegardError, explore
from regard.cli import main
from regard.explorer.query import dispatch
from regard.explorer.stored import StoredExploration
from regard.trace import open_map

da = pytest.importorskip("dask.array")
pytest.importorskip("zarr")


def written(path, q, k, **options):
    from regard.dask import AttentionMap as LazyMap

    LazyMap(*(da.from_array(x, chunks=-1) for x in (q, k)), **options).to_zarr(path)
    return path


@pytest.fixture(scope="module")
def long_map(tmp_path_factory):
    """A map of 20,000 tokens and one head, with a window, and the same in memory."""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((20_000, 8)).astype(np.float32) * 2 for _ in range(2))
    options = {"causal": True, "window": (300, 0)}
    path = written(tmp_path_factory.mktemp("maps") / "long.zarr", q, k, **options)
    return path, AttentionMap(q, k, **options)


def tile(exploration, row0, col0, bin_size, side, pool="max"):
    region = {"row0": row0, "row1": row0 + side, "col0": col0, "col1": col0 + side, "bin_size": bin_size, "pool": pool}
    return dispatch(exploration, "tile", {"run": 0, "layer": 0, "head": 0, **region})


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("bin_size", [1, 16, 32, 64])
def test_tiles_are_those_of_the_map(long_map, bin_size, pool):
    path, one = long_map
    start, side = 8192, 16 * 64
    found = tile(StoredExploration(path), start, start - 256, bin_size, side, pool)
    weights = one.tile(slice(start, start + side), slice(start - 256, start - 256 + side)).astype(np.float64)
    cells = weights.reshape(side // bin_size, bin_size, side // bin_size, bin_size)
    wanted = cells.max((1, 3)) if pool == "max" else cells.mean((1, 3))
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-9)


def test_rows_columns_and_cells_are_those_of_the_map(long_map):
    path, one = long_map
    exploration = StoredExploration(path)
    at = {"run": 0, "layer": 0, "head": 0}
    row = dispatch(exploration, "row", {**at, "i": 9000})
    column = dispatch(exploration, "column", {**at, "j": 9000})
    np.testing.assert_allclose(row, one[9000], rtol=2e-6, atol=1e-9)
    np.testing.assert_allclose(column, one[:, 9000], rtol=2e-6, atol=1e-9)
    cell = dispatch(exploration, "cell", {**at, "i": 9000, "j": 8990})
    np.testing.assert_allclose(cell["weight"], one[9000, 8990], rtol=2e-6)
    np.testing.assert_allclose(cell["q"], one.q[9000])
    np.testing.assert_allclose(cell["k"], one.k[8990])


def test_the_manifest_has_no_model_and_few_sampled_rows(long_map):
    manifest = StoredExploration(long_map[0]).manifest()
    run = manifest["runs"][0]
    assert (manifest["title"], len(run["tokens"]), manifest["live_models"]) == ("long.zarr", 20_000, [])
    assert manifest["can"] == {"ablate": False, "tiles": True, "figures": False}
    assert len(dispatch(StoredExploration(long_map[0]), "thumbnails", {"run": 0})) == 32 * 32


def test_a_batch_of_heads_is_explored_and_exported(tmp_path):
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 4, 9, 3)), rng.standard_normal((2, 2, 9, 3))
    stored = open_map(written(tmp_path / "a.zarr", q, k, causal=True))
    explored = StoredExploration(stored, batch=1, head=2)
    assert explored.initial_head == (0, 2)
    weights = AttentionMap(q[1], k[1], causal=True).weights()
    np.testing.assert_allclose(explored.whole(0, 0, 3), weights[3], rtol=1e-6)
    assert explored.manifest()["runs"][0]["layers"][0]["kv_heads"] == 2
    assert explore(stored, html=tmp_path / "page.html") is None
    assert (tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(RegardError, match="no text 2"):
        StoredExploration(stored, batch=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{}", "hello"), "explored alone"),
        (("{}", "--model", "minilm"), "leave out --model"),
        (("{}", "--layer", "0"), "leave out --layer"),
        (("{}", "--corpus", __file__), "leave out --corpus"),
        (("{}", "--head", "3"), "no head 3"),
        (("away.zarr",), "no folder away.zarr"),
    ],
)
def test_the_command_says_what_does_not_fit(long_map, capsys, arguments, message):
    code = main(["explore", *(word.format(long_map[0]) for word in arguments), "--no-browser"])
    assert code != 0
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
    assert "Traceback" not in error


def test_a_map_between_two_texts_is_refused(tmp_path):
    path = written(tmp_path / "a.zarr", np.zeros((3, 2)), np.zeros((4, 2)))
    with pytest.raises(RegardError, match="3 queries and 4 keys"):
        StoredExploration(path)


def test_a_long_map_is_too_long_for_a_file(long_map, tmp_path):
    with pytest.raises(RegardError, match="at most 2,048 tokens"):
        explore(open_map(long_map[0]), html=tmp_path / "page.html")
