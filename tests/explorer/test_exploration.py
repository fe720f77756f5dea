"""Every answer about the maps of an exploration agrees with the trace, computed independently here."""

import base64
import json

import numpy as np
import pytest
from explorations import Left, bare, explored, long_exploration, of_weights, recorded, thumbnails_of, whole

import regard
from regard import Trace
from regard.explorer import Exploration, map_reader, progress as progress_module, run as run_module
from regard.explorer.display_modes import rollouts
from regard.explorer.queries import head_metrics


def test_the_manifest_is_json_that_says_what_there_is(bert):
    manifest = json.loads(json.dumps(explored(bert, "cat sat  on mats").manifest(), allow_nan=False))
    (run,) = manifest["runs"]
    assert (manifest["format"], manifest["title"]) == ("regard.explore/1", "cat sat on mats")
    assert manifest["classroom"] is None
    assert manifest["provenance"].startswith("float32 · ")
    assert [(layer["name"], layer["number"]) for layer in run["layers"]] == [("blocks.0.attn", 0), ("blocks.1.attn", 1)]
    assert {(layer["heads"], layer["kv_heads"], layer["rows"], layer["causal"]) for layer in run["layers"]} == {
        (3, 3, 7, False)
    }
    assert all(layer["row_sum_error"] < 1e-6 for layer in run["layers"])
    tokens = run["tokens"]
    assert [token["text"] for token in tokens] == ["[CLS]", "cat", "sat", "on", "mat", "##s", "[SEP]"]
    assert [token["word"] for token in tokens] == [None, 0, 1, 2, 3, 3, None]
    assert [token["special"] for token in tokens] == [True, *[False] * 5, True]
    assert [run["text"][token["start"] : token["end"]] for token in tokens[1:-1]] == ["cat", "sat", "on", "mat", "s"]


def test_places_in_the_text_count_as_javascript_does():
    model = regard.models.toy(["a 😀 b"])
    tokens = explored(model, "a 😀 b").manifest()["runs"][0]["tokens"]
    utf16 = "a 😀 b".encode("utf-16-le")
    spelled = [utf16[2 * token["start"] : 2 * token["end"]].decode("utf-16-le") for token in tokens]
    assert "".join(spelled).replace(" ", "") == "a😀b"
    assert spelled[-1] == "b"


def test_parts_of_a_character_read_as_it_with_their_numbers(our_smollm2):
    labels = run_module._readable_labels(our_smollm2.tokenizer("עולם, naïve 🧑‍🔬"))
    assert labels[:6] == ["ע₁", "ע₂", "ו", "ל", "ם₁", "ם₂"]
    assert not any("\\x" in label for label in labels)
    assert "naïve" in "".join(labels)


def test_an_empty_text_has_its_special_tokens(bert):
    exploration = explored(bert, "")
    assert [token["special"] for token in exploration.manifest()["runs"][0]["tokens"]] == [True, True]
    assert whole(exploration, 0, 0, 0).shape == (2, 2)
    assert exploration.heads(0)["metrics"]["sink"] == [[None] * 3] * 2


def test_a_single_token_does_not_show_whether_a_model_is_causal():
    assert [long_exploration(n).manifest()["runs"][0]["layers"][0]["causal"] for n in (1, 2)] == [False, True]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_proof_line_has_the_precision_of_the_weights(rng, dtype):
    q, k = rng.standard_normal((2, 1, 2, 40, 8)).astype(dtype)
    look, arrays = (bare(q, k, maps=maps) for maps in (True, False))
    computed = look.manifest()["provenance"]
    assert computed.startswith(f"{dtype} · from recorded q and k by ")
    assert computed.endswith(f" · regard {regard.__version__}")
    (one,), (other,) = look.runs, arrays.runs
    kept = f"{other.trace['blocks.0.attn.weights'].dtype} · as recorded"  # by whom, only who recorded it knows
    assert arrays.manifest()["provenance"] == kept
    assert Exploration(one.trace, other.trace).manifest()["provenance"] == "; ".join(sorted([computed, kept]))
    assert 0 < look.manifest()["runs"][0]["layers"][0]["row_sum_error"] < 20 * np.finfo(dtype).eps


def test_rows_that_are_wrong_are_not_passed_over():
    weights = np.full((1, 1, 4, 4), 0.25)
    weights[0, 0, 0] = 0  # sees nothing
    for wrong, told in ((-0.25, (2.0, 0)), (np.nan, (0.0, 1))):
        weights[0, 0, 2] = wrong
        layer = json.loads(json.dumps(of_weights(weights).manifest(), allow_nan=False))["runs"][0]["layers"][0]
        assert (layer["row_sum_error"], layer["num_nonfinite_rows"]) == told


# Maps.


@pytest.mark.parametrize("layer", [0, 1])
def test_a_map_its_rows_and_its_columns_are_the_recorded_weights(bert, short, layer):
    trace = Trace()
    bert("the cat sat", trace=trace)
    weights = trace[f"blocks.{layer}.attn.weights"][0]
    for head, expected in (*enumerate(weights), ("mean", weights.mean(0))):
        np.testing.assert_allclose(whole(short, 0, layer, head), expected, atol=2e-7)
        np.testing.assert_allclose(short.row(0, layer, head, 2), expected[2], atol=2e-7)
        np.testing.assert_allclose(short.column(0, layer, head, 3), expected[:, 3], atol=2e-7)
        part = short.tile(0, layer, head, row0=1, row1=4, col0=2, col1=5, bin_size=1)
        np.testing.assert_allclose(part, expected[1:4, 2:5], atol=2e-7)
        assert part.dtype == np.float32


def test_rollout_mixes_what_every_layer_gives(short):
    expected = np.eye(5)
    for layer in range(2):
        mixed = whole(short, 0, layer, "mean") + np.eye(5)
        expected = mixed / mixed.sum(-1, keepdims=True) @ expected
        np.testing.assert_allclose(whole(short, 0, layer, 0, mode="rollout"), expected, atol=1e-6)


def test_weights_times_values_are_the_lengths_of_what_is_handed_over(bert, short):
    v = short.runs[0].trace["blocks.1.attn.v"][0, 2].astype(np.float64)
    size = v.shape[-1]
    projection = bert.blocks[1].attn.o_proj.weight.astype(np.float64)[2 * size : 3 * size]
    handed = np.linalg.norm(whole(short, 0, 1, 2)[:, :, None] * (v @ projection), axis=-1)
    np.testing.assert_allclose(whole(short, 0, 1, 2, mode="norms"), handed, rtol=1e-5)


@pytest.mark.parametrize("mode", ["rollout", "norms"])
def test_rows_and_columns_of_a_mode_are_those_of_its_map(short, mode):
    weights = whole(short, 0, 1, 2, mode=mode)
    np.testing.assert_allclose(short.row(0, 1, 2, 3, mode=mode), weights[3], atol=1e-6)
    np.testing.assert_allclose(short.column(0, 1, 2, 1, mode=mode), weights[:, 1], atol=1e-6)


@pytest.mark.parametrize(("pool", "join"), [("max", np.max), ("mean", np.mean)])
@pytest.mark.parametrize("by", [1, 2, 3, 4, 5, 7])
def test_cells_hold_the_largest_or_the_mean_of_what_they_cover(short, pool, join, by):
    weights = whole(short, 0, 0, 1)[1:]
    found = short.tile(0, 0, 1, row0=1, row1=5, col0=0, col1=5, bin_size=by, pool=pool)
    assert found.shape == (-(-4 // by), -(-5 // by))
    for i, j in np.ndindex(found.shape):
        covered = weights[i * by : (i + 1) * by, j * by : (j + 1) * by]
        assert found[i, j] == pytest.approx(join(covered), abs=1e-7)


def test_a_thumbnail_is_the_square_root_of_a_share_of_the_largest(short):
    weights = whole(short, 0, 1, 2)
    np.testing.assert_array_equal(thumbnails_of(short)[1, 2], np.round(255 * np.sqrt(weights / weights.max())))


@pytest.mark.parametrize("length", [100, 3000])
def test_a_cell_of_a_thumbnail_is_the_largest_weight_that_it_covers(length):
    exploration = long_exploration(length)
    run, found = exploration.runs[0], thumbnails_of(exploration)[0, 1]
    side = len(found)
    weights = run.layers[0].tile(1, run.sampled_rows(), None)
    assert side < len(weights)
    rows, cols = ([i * n // side for i in range(side)] for n in weights.shape)
    largest = np.maximum.reduceat(np.maximum.reduceat(weights, rows, 0), cols, 1)
    np.testing.assert_allclose(found, 255 * np.sqrt(largest / largest.max()), atol=0.51)


# Two runs.


def test_differences_of_heads_are_those_of_their_weights(bert):
    both = explored(bert, "the cat sat", "the cat on")
    found = both.differences([0, 1])
    expected = np.array([[whole(both, 0, at, h) - whole(both, 1, at, h) for h in range(3)] for at in range(2)])
    np.testing.assert_allclose(found["largest"], np.abs(expected).max((2, 3)), atol=5.1e-7)
    shown = np.frombuffer(base64.b64decode(found["thumbnails"]), np.int8).reshape(expected.shape)
    scaled = 127 * np.sign(expected) * np.sqrt(np.abs(expected) / np.abs(expected).max())
    np.testing.assert_allclose(shown, scaled, atol=0.51)
    assert np.abs(shown).max() == 127
    edited = both.ablate([[0, 2]])["run"]
    assert both.differences([0, edited])["largest"][0] == [0, 0, 0]


def test_a_cell_of_differences_is_the_one_farthest_from_0():
    exploration = Exploration(*(long_exploration(70, heads=2, seed=seed).runs[0].trace for seed in (1, 2)))
    found = exploration.differences([0, 1])
    shown = np.frombuffer(base64.b64decode(found["thumbnails"]), np.int8).reshape(2, 32, 32)
    difference = whole(exploration, 0, 0, 1) - whole(exploration, 1, 0, 1)
    edges = np.arange(33) * 70 // 32
    part = difference[edges[5] : edges[6], edges[3] : edges[4]].ravel()
    farthest = part[np.abs(part).argmax()]
    largest = np.max(found["largest"])
    assert shown[1, 5, 3] == np.sign(farthest) * np.round(127 * np.sqrt(abs(farthest) / largest))


def test_two_runs_are_comparable_when_they_have_as_many_tokens_and_the_same_layers(bert, causal):
    one, other = (recorded(causal, "some text", only=f"blocks.{n}.attn.weights") for n in range(2))
    for exploration, said in (
        (explored(bert, "the cat sat", "the cat on"), None),
        (explored(bert, "the cat", "the cat on"), "A has 4 tokens and B 5: A and B cannot be compared cell by cell"),
        (Exploration(one, other), "A and B have different layers and heads"),
    ):
        assert exploration.manifest()["difference_blocked_by"] == said


def test_a_smaller_run_opens_with_a_head_that_it_has(bert):
    model = regard.models.toy(["the cat sat"])
    exploration = Exploration(recorded(bert, "the cat sat"), recorded(model, "the cat sat"), layer=1, head=2)
    opened = [run["initial"] for run in exploration.manifest()["runs"]]
    assert opened == [{"layer": 1, "head": 2}, {"layer": 0, "head": 0}]


# Measures.


def test_measures_are_those_that_are_worked_out_by_hand():
    weights = np.zeros((1, 2, 4, 4))
    weights[0, 0, 1:, :-1] = np.eye(3)
    weights[0, 0, 0, 0] = 1  # looks at the token before
    weights[0, 1] = 0.25
    found = of_weights(weights).heads(0)["metrics"]
    assert found["previous_token"] == [[1.0, 0.25]]
    assert found["entropy"][0] == pytest.approx([0, np.log(4)], abs=1e-6)
    assert found["distance"][0] == pytest.approx([0.75, 1.25])
    assert found["sink"][0] == pytest.approx([1 / 3, 0.25], abs=1e-6)
    assert found["duplicate_token"] == [[None, None]]
    blind = of_weights(np.zeros((1, 1, 3, 3)))  # a row that sees nothing gives nothing to a sink
    assert blind.heads(0)["metrics"]["sink"] == [[0.0]]


def test_what_a_sink_takes_is_no_word_s():
    def with_sinks(*sinks):
        """Return a bare layer of a head for each sink; the first looks at one word, the others at all tokens."""
        q, k = np.zeros((2, 1, len(sinks), 4, 2), dtype=np.float32)
        q[:, 0], k[:, 0, 2] = 3, 3
        return bare(q, k, sinks=np.array(sinks, dtype=np.float32))

    assert with_sinks(-9.0, -9.0).initial_head == (0, 0)
    assert with_sinks(99.0, -9.0).initial_head == (0, 1)  # all that the first gives goes to its sink
    exploration = with_sinks(np.log(4.0), -99.0)
    sink, first = exploration.heads(0)["metrics"]["sink"][0], exploration.row(0, 0, 0, 1)
    assert sink[0] == pytest.approx(first[0] + 1 - first.sum(), abs=1e-6)
    assert sink[1] == pytest.approx(0.25, abs=1e-6)


def test_metrics_say_how_far_they_are(monkeypatch):
    exploration, seen = long_exploration(300), []
    measured = head_metrics.layer_metrics
    monkeypatch.setattr(
        head_metrics, "layer_metrics", lambda *x: [seen.append(exploration.progress()), measured(*x)][1]
    )
    exploration.heads(0)
    assert seen == [{"heads": {"share": 0, "seconds_left": None}}]


def test_the_time_that_is_left_follows_from_the_share(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    progress = progress_module.Progress()
    with progress.watch("heads") as watch:
        assert progress.describe() == {"heads": {"share": 0, "seconds_left": None}}
        clock[0] += 10
        watch(lambda: 0.25)
        assert progress.describe() == {"heads": {"share": 0.25, "seconds_left": 30}}
    assert progress.describe() == {}


# Long texts, and memory.


def square(end, bin_size, start=0):
    """Return the region of these rows and columns."""
    return {"row0": start, "row1": end, "col0": start, "col1": end, "bin_size": bin_size}


def test_a_long_map_is_pooled_from_its_overview():
    exploration = long_exploration(6000)
    weights = exploration.runs[0].layers[0].tile(1, None, None)
    off = exploration.tile(0, 0, 1, **square(6000, 24) | {"row0": 5, "row1": 5997})
    assert exploration.memory()["overviews"] == 4 * 2048**2
    assert off.shape == (250, 250)
    for i, j in ((0, 0), (100, 40), (249, 249)):
        a, b, c, d = 5 + i * 24, min(5997, 5 + (i + 1) * 24), j * 24, (j + 1) * 24
        around = weights[max(0, a - 3) : b + 3, max(0, c - 3) : d + 3].max()
        assert weights[a:b, c:d].max() <= off[i, j] + 1e-6
        assert off[i, j] <= around + 1e-6


def test_a_tile_of_large_cells_is_that_of_the_overview_where_it_is_as_fine():
    exploration = long_exploration(8192)
    found = exploration.tile(0, 0, 1, **square(8192, 16, 4096) | {"col0": 0, "col1": 4096})
    assert exploration.memory()["overviews"] == 4 * 2048**2
    weights = exploration.runs[0].layers[0].tile(1, slice(4096, 8192), slice(0, 4096))
    np.testing.assert_allclose(found, weights.reshape(256, 16, 256, 16).max((1, 3)), atol=1e-6)


def test_a_long_text_is_measured_from_some_of_its_rows():
    exploration = long_exploration(3000)
    entry = exploration.manifest()["runs"][0]
    assert entry["num_sampled_rows"] == 512
    rows = np.arange(512) * 3000 // 512
    weights = exploration.runs[0].layers[0].tile(1, rows, None).astype(np.float64)
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1).mean()
    assert exploration.heads(0)["metrics"]["entropy"][0][1] == pytest.approx(entropy, rel=1e-5)
    assert [way["key"] for way in exploration.manifest()["modes"]] == ["raw"]


def test_what_a_page_asks_for_first_is_worked_out_ahead(monkeypatch):
    exploration = long_exploration(8192)
    exploration.prepare()
    monkeypatch.setattr(map_reader.pooling, "overview", None)
    assert exploration.tile(0, 0, 0, **square(8192, 32)).shape == (256, 256)


def test_memory_stays_below_its_bound():
    exploration = long_exploration(6000, heads=3)
    exploration.cache.limit = 40_000_000
    for head in range(3):
        for pool in ("max", "mean"):
            exploration.tile(0, 0, head, **square(6000, 600), pool=pool)
    memory = exploration.memory()
    assert 16_000_000 < memory["overviews"] <= memory["overviews_limit"] == 40_000_000


def test_what_a_run_holds_is_counted_arrays_of_weights_once(bert, short):
    trace = short.runs[0].trace
    vectors = [trace[name].nbytes for name in trace.names() if not name.endswith("weights")]
    maps = [trace.map(f"blocks.{layer}.attn").nbytes for layer in range(2)]
    assert short.memory()["runs"] == sum(vectors) + sum(maps)
    arrays = Trace(only=("*weights", "*output"))
    bert("the cat sat", trace=arrays)
    assert Exploration(arrays).memory()["runs"] == sum(arrays[name].nbytes for name in arrays.names())


def test_the_rollouts_of_two_runs_stay_beside_each_other(monkeypatch, bert):
    made = []
    monkeypatch.setattr(map_reader, "rollouts", lambda *of: made.append(1) or rollouts(*of))
    exploration = explored(bert, "the cat sat", "the cat on")
    assert all(run.rollout_nbytes <= run_module._MAX_ROLLOUT_BYTES for run in exploration.runs)
    exploration.cache.limit = 3 * exploration.runs[0].rollout_nbytes
    exploration.thumbnails(0)
    for _ in range(4):
        for run in (0, 1):
            exploration.row(run, 1, 0, 2, mode="rollout")
    assert len(made) == 2


@pytest.mark.parametrize(
    ("tokens", "at", "ask"),
    [
        (3000, 2, lambda x, check: x.thumbnails(0, check=check)),
        (9000, 5, lambda x, check: x.tile(0, 0, 1, **square(9000, 36), check=check)),
        (8192, 1, lambda x, check: x.prepare(check)),
        *((0, 1, lambda x, check, m=m: x.row(0, 1, 0, 2, mode=m, check=check)) for m in ("rollout", "norms")),
        *((0, 1, lambda x, check, m=m: x.column(0, 1, 0, 2, mode=m, check=check)) for m in ("rollout", "norms")),
    ],
)
def test_work_is_left_off_when_nobody_waits(bert, tokens, at, ask):
    exploration = long_exploration(tokens, heads=5) if tokens else explored(bert, "the cat sat")
    check = Left(at)
    with pytest.raises(InterruptedError):
        ask(exploration, check)
    assert check.calls == at
    assert exploration.memory()["overviews"] == 0


def test_an_overview_that_was_left_off_is_made_again():
    exploration, again = long_exploration(9000), Left(-1)
    with pytest.raises(InterruptedError):
        exploration.tile(0, 0, 1, **square(9000, 36), check=Left(5))
    assert exploration.tile(0, 0, 1, **square(9000, 36), check=again).max() > 0
    assert again.calls > 10
