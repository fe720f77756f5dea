"""A trace that stores queries and keys instead of n² weights, which it computes when they are read."""

import copy
import functools
import json
import multiprocessing
import operator

import numpy as np
import pytest

from attention_cases import PATHS, random_case, reference
from fake_traces import encoding_of
from regard import RegardError, Trace, attention, attention_weights, explain_plan, nn
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.functional import Mask


def test_weights_are_those_of_the_array_before_and_after_a_file(tmp_path):
    for seed in range(150):
        case = random_case(seed)
        _, weights, _ = reference(case)
        arrays, maps = Trace(), Trace(maps=True)
        plain = attention(case.q, case.k, case.v, **case.options, trace=arrays)
        assert np.array_equal(attention(case.q, case.k, case.v, **case.options, trace=maps), plain)
        assert maps.names() == ("weights",)
        assert maps.axes("weights") == arrays.axes("weights")
        maps.save(tmp_path / "maps.safetensors")
        for trace in (maps, Trace.load(tmp_path / "maps.safetensors")):
            np.testing.assert_allclose(trace["weights"], weights, rtol=1e-9, atol=1e-12)
            step = "scores"
            for stage in ("scores", "capped", "biased"):
                step = stage if stage in arrays else step
                np.testing.assert_allclose(
                    trace[stage], np.broadcast_to(arrays[step], weights.shape), rtol=1e-12, atol=1e-12
                )
            cell = tuple(n - 1 for n in weights.shape)
            np.testing.assert_allclose(trace.map()[cell], weights[cell], rtol=1e-9, atol=1e-12)


def test_a_long_text_stays_on_its_path(rng):
    q = k = v = rng.standard_normal((4096, 4)).astype(np.float32)
    maps = Trace(maps=True)
    assert explain_plan(q, k, v, trace=maps).implementation == explain_plan(q, k, v).implementation == PATHS[-1]
    assert explain_plan(q, k, v, trace=Trace()).implementation == ("native" if "native" in PATHS else "reference")
    assert explain_plan(q, k, v, trace=Trace(edit={"weights": np.copy})).implementation == "reference"
    assert np.array_equal(attention(q, k, v, trace=maps), attention(q, k, v))  # looking never changes the answer
    assert maps.map().nbytes < 1e6
    np.testing.assert_allclose(maps.map()[4000].sum(), 1, atol=1e-6)


def test_scopes_only_and_names(rng):
    layer = nn.SelfAttention.init(rng, 8, 2)
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    trace = Trace(maps=True, only="blocks.1.*")
    for block in range(2):
        with trace.scope(f"blocks.{block}"), trace.scope("attn"):
            layer(x, causal=True, trace=trace)
    assert trace.names() == tuple(f"blocks.1.attn.{name}" for name in ("q", "k", "v", "weights", "context", "output"))
    assert "blocks.1.attn.weights" in trace
    assert trace.map("blocks.1.attn").shape == trace["blocks.1.attn.weights"].shape == (1, 2, 5, 5)
    assert [step.name for step in trace.steps()] == [n for n in trace.names() if not n.endswith("weights")]
    with pytest.raises(RegardError, match=r"no map of 'blocks.0.attn'; there are blocks.1.attn"):
        trace.map("blocks.0.attn")
    with pytest.raises(RegardError, match=r"record with Trace\(maps=True\)"):
        Trace().map("blocks.0.attn")
    with pytest.raises(RegardError, match="recorded already"), trace.scope("blocks.1"), trace.scope("attn"):
        layer(x, causal=True, trace=trace)


@pytest.mark.parametrize("edited", ["weights", "scores", "biased"])
def test_an_edited_map_is_recorded_as_it_was_used(rng, edited):
    q, k, v = rng.standard_normal((3, 5, 4))

    def edit(values):
        values[:, 0] += 1
        return values

    maps, arrays = Trace(maps=True, edit={edited: edit}), Trace(edit={edited: edit})
    out = attention(q, k, v, causal=True, trace=maps)
    assert np.array_equal(out, attention(q, k, v, causal=True, trace=arrays))
    assert np.array_equal(maps["weights"], arrays["weights"])
    with pytest.raises(RegardError, match="no map"):
        maps.map()


@pytest.mark.parametrize("path", PATHS)
def test_every_implementation_records_its_map(rng, path):
    q, k, v = rng.standard_normal((3, 5, 4))
    trace = Trace(maps=True, only="weights")
    attention(q, k, v, causal=True, trace=trace, implementation=path)
    np.testing.assert_allclose(trace.map().weights() @ v, attention(q, k, v, causal=True), rtol=1e-12)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_dropped_weights_are_recorded_as_they_were_used(rng, path):
    q, k, v = rng.standard_normal((3, 5, 4))
    trace = Trace()
    context = attention(q, k, v, dropout=0.4, rng=np.random.default_rng(1), trace=trace, implementation=path)
    dropped = trace["dropped"]
    np.testing.assert_allclose(dropped @ v, context, rtol=1e-12)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.size
    options = {"dropout": 0.4, "rng": np.random.default_rng(1), "implementation": path}
    np.testing.assert_allclose(attention_weights(q, k, trace=Trace(), **options), dropped, rtol=1e-12)
    np.testing.assert_allclose(dropped[kept], trace["weights"][kept] / 0.6, rtol=1e-12)


def test_a_second_map_of_one_name_is_an_error(rng):
    q, k, v = rng.standard_normal((3, 5, 4))
    trace = Trace(maps=True, only="weights")
    attention(q, k, v, trace=trace)
    with pytest.raises(RegardError, match="weights is recorded already"):
        attention(k, q, v, trace=trace)
    np.testing.assert_array_equal(trace.map().q, q)


def test_a_mask_of_a_user_class_is_recorded_but_not_saved(rng, tmp_path):
    class Even(Mask):
        def allows(self, grid, rows, cols):
            return grid.key_indices(cols) % 2 == 0

    q, k, v = rng.standard_normal((3, 5, 4))
    trace = Trace(maps=True)
    attention(q, k, v, mask=Even(), trace=trace)
    assert np.array_equal(trace["weights"] > 0, np.broadcast_to(np.arange(5) % 2 == 0, (5, 5)))
    with pytest.raises(RegardError, match=r"Even is not a mask or bias of regard.*boolean mask"):
        trace.save(tmp_path / "trace.safetensors")
    assert not list(tmp_path.iterdir())


Q = {"array": "map:weights.q"}
CAUSAL = {"kind": "Causal", "query_offset": None}
T5 = {"kind": "RelativePositionBias", "parameter": {"array": "table"}, "bidirectional": True, "max_distance": 128}
WINDOW = {"kind": "SlidingWindow", "left": 1, "right": 0, "query_offset": None}
DAMAGE = [
    *({"shape": shape} for shape in ([2, 5, 6], "5", [2.0, 5, 5], [True, 5, 5], [2, 5, -5], [5], {}, None, ["2", 5])),
    *({"dtype": dtype} for dtype in ("object", "<i8", None, [["a", "f4"]], 5)),
    *({"scale": scale} for scale in ("big", None, True, 1e999, Q, 10**400)),
    *({"softcap": softcap} for softcap in ({}, 0, -1.0, "1", True, Q)),
    *({"sinks": sinks} for sinks in ([1], 1, Q, {"array": "none"}, {"array": []}, "x")),
    *({"query_offset": offset} for offset in (0.5, True, "1", [1], 2**40, Q, CAUSAL)),
    *({"mask": mask} for mask in (3, "x", [1], {"kind": "system"}, {"kind": []}, CAUSAL | {"x": 1}, T5)),
    *({"mask": CAUSAL | {"query_offset": offset}} for offset in (0.5, True, "1", Q)),
    *({"mask": WINDOW | {"left": left}} for left in (0.5, True, "1", -1)),
    *({"mask": {"kind": "KeyLengths", "lengths": lengths}} for lengths in (0.5, None, "1", 99, [1], CAUSAL)),
    *({"mask": {"kind": "DenseMask", "array": array}} for array in ("x", None, Q)),
    *({"mask": {"kind": "SegmentMask", "queries": ids, "keys": None}} for ids in (5, Q)),
    {"mask": {"kind": "KeyRangeMask", "first": 0, "last": Q}},
    *({"mask": {"kind": "LogicalAnd", "one": one, "other": None}} for one in (None, 5, CAUSAL)),
    *({"bias": {"kind": "ALiBi", "parameter": parameter}} for parameter in ([1, 2], "x", Q)),
    *({"bias": T5 | field} for field in ({"bidirectional": 1}, {"max_distance": 10**400}, {"max_distance": None})),
    {"bias": {"kind": "DistanceBias", "parameter": Q, "min_distance": 0.5}},
    *({"bias": bias} for bias in (1, CAUSAL, {"kind": "DenseMask"})),
]  # fmt: skip


def damaged(path, fields, **arrays):
    """Write a trace of one map with other fields or, in a list, another description of all maps; and other arrays."""
    q, k, v = np.random.default_rng(1).standard_normal((3, 2, 5, 4))
    trace = Trace(maps=True)
    attention(q, k, v, sinks=np.zeros(2), trace=trace)
    trace.save(path)
    file = SafetensorsFile(path)
    maps = json.loads(file.metadata["maps"])
    fields = {"weights": maps["weights"] | fields} if isinstance(fields, dict) else fields[0]
    stored = {name: np.array(file[name]) for name in file} | {f"map:weights.{name}": x for name, x in arrays.items()}
    stored["map:weights.table"] = np.zeros((32, 2))
    names = json.dumps(fields).replace('"table"', '"map:weights.table"')
    write_safetensors(path, stored, file.metadata | {"maps": names})


NESTED = functools.reduce(lambda mask, _: {"kind": "LogicalAnd", "one": mask, "other": CAUSAL}, range(200), CAUSAL)
LONG = [  # axes without numbers: eight hundred bytes could else announce hours of work
    ([10**8, 1, 0, 5], (10**8, 1, 0, 4), (1, 1, 5, 4)),
    ([10**8, 1, 0, 5], (1, 1, 0, 4), (1, 1, 5, 4)),
    ([1, 1, 10**8], (1, 1, 0), (1, 10**8, 0)),
    ([10**6, 10**6, 0, 0], (1, 1, 0, 4), (1, 1, 0, 4)),
]
DAMAGED = [  # fields, arrays, and what is said
    *((fields, {}, r"is a damaged trace: \w") for fields in DAMAGE),
    *(([maps], {}, "is a damaged trace") for maps in ([], 5, {"weights": []}, {"weights": {}}, {"other": {}})),
    ({"mask": NESTED}, {}, "masks are combined more than 50 deep"),
    *(
        ({}, {name: np.zeros((2, 5, 1), np.int32)}, r"is a damaged trace: row_max .* do not fit")
        for name in ("row_max", "row_sum")
    ),
    *(
        (
            {"shape": shape, "sinks": None},
            {"q": np.zeros(q), "k": np.zeros(k)} | dict.fromkeys(("row_max", "row_sum"), np.zeros((*shape[:-1], 1))),
            r"holds no numbers, but has axes of [\d,]+ entries together",
        )
        for shape, q, k in LONG
    ),
]


@pytest.mark.parametrize(("fields", "arrays", "message"), DAMAGED, ids=[ascii(row[0])[:60] for row in DAMAGED])
def test_a_damaged_map_is_an_error_when_it_is_read(tmp_path, fields, arrays, message):
    damaged(tmp_path / "trace", fields, **arrays)
    assert "q" not in arrays or (tmp_path / "trace").stat().st_size < 3000
    with pytest.raises(RegardError, match=message):
        Trace.load(tmp_path / "trace")


def test_a_map_of_an_empty_batch_is_read(tmp_path):
    rows = np.zeros((0, 2, 3, 1))
    arrays = {"q": np.zeros((0, 2, 3, 4)), "k": np.zeros((0, 2, 5, 4)), "row_max": rows, "row_sum": rows}
    damaged(tmp_path / "trace", {"shape": [0, 2, 3, 5], "sinks": None}, **arrays)
    path = tmp_path / "trace"
    file = SafetensorsFile(path)
    axes = file.metadata | {"axes": json.dumps(json.loads(file.metadata["axes"]) | {"weights": "B H T S"})}
    write_safetensors(path, {name: np.array(file[name]) for name in file}, axes)
    assert Trace.load(path)["weights"].shape == (0, 2, 3, 5)


@pytest.mark.parametrize("only", [None, "weights"])
def test_a_map_stays_what_it_was_whoever_changes_the_queries(rng, only):
    layer = nn.SelfAttention.init(rng, 8, 2, dtype=np.float64)
    x = rng.standard_normal((5, 8))
    trace = Trace(maps=True, only=only)
    layer(x, trace=trace)
    before = trace["weights"]
    for name in {"q", "k"} & set(trace.names()):
        trace[name][...] = 0
    x[...] = 0
    np.testing.assert_array_equal(trace["weights"], before)


def test_queries_that_an_edit_has_seen_are_copied(rng):
    layer, held = nn.SelfAttention.init(rng, 8, 2, dtype=np.float64), []

    def look(q):
        held.append(q)
        return q

    trace = Trace(maps=True, only="weights", edit={"q": look})
    layer(rng.standard_normal((5, 8)), trace=trace)
    before = trace["weights"]
    held[0][...] = 0
    np.testing.assert_array_equal(trace["weights"], before)


def test_maps_of_projections_that_return_what_they_hold_are_copied(rng):
    class Held(nn.Linear):
        def __call__(self, x, *, activation=None):
            return self.weight

    held = rng.standard_normal((8, 8))
    layer = nn.SelfAttention(Held(held), Held(held), Held(held), num_heads=2)
    trace = Trace(maps=True, only="weights")
    layer(np.zeros((8, 8)), trace=trace)
    before = trace["weights"]
    held[...] = 0
    np.testing.assert_array_equal(trace["weights"], before)


def test_traces_are_copied_and_cross_processes(rng, tmp_path):
    trace = Trace(maps=True)
    with trace.scope("blocks.0.attn"):
        attention(*rng.standard_normal((3, 1, 2, 5, 4)), causal=True, trace=trace)
    trace.set_metadata("bare", [encoding_of([["the"], ["cat"], ["sat"], ["down"], ["here"]])])
    trace.save(tmp_path / "trace.safetensors")
    for one in (trace, Trace.load(tmp_path / "trace.safetensors")):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            (there,) = pool.map(operator.methodcaller("map", "blocks.0.attn"), [one])
            np.testing.assert_array_equal(
                pool.apply(operator.getitem, (one, "blocks.0.attn.weights")), trace["blocks.0.attn.weights"]
            )
        np.testing.assert_array_equal(there.weights(), trace["blocks.0.attn.weights"])
        kept = copy.deepcopy(one)
        assert (kept.names(), kept.model, kept.encodings) == (trace.names(), "bare", trace.encodings)
        for name in trace:
            np.testing.assert_array_equal(kept[name], trace[name])
        with kept.scope("blocks.1.attn"):
            attention(*rng.standard_normal((3, 1, 2, 5, 4)), trace=kept)
        assert len(kept) > len(one) == len(trace)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("only", [(), "context", "weights", None])
@pytest.mark.parametrize("maps", [False, True])
@pytest.mark.parametrize("call", [{}, {"causal": True}, {"softcap": 3.0, "dropout": 0.5}])
def test_a_run_has_the_same_steps_whatever_computes_it(rng, path, maps, only, call):
    q = k = v = rng.standard_normal((5, 4))
    random = {"rng": np.random.default_rng(0)} if "dropout" in call else {}
    if path == "blockwise" and not maps and only in ("weights", None):
        pytest.skip("blocks hold no map")
    every, trace = Trace(), Trace(maps=maps, only=only)
    attention(q, k, v, implementation="reference", trace=every, **call, **random)
    attention(q, k, v, implementation=path, trace=trace, **call, **random)
    assert trace.tapped() == every.tapped() == every.names()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["only", "stop"])
def test_a_map_gives_no_step_that_the_run_does_not_have(rng, path, name):
    q = k = v = rng.standard_normal((5, 4))
    for call, missing in (({}, ("capped", "biased")), ({"causal": True}, ("capped",)), ({"softcap": 1.0}, ("biased",))):
        for step in missing:
            trace = Trace(maps=True, **{name: step})
            attention(q, k, v, implementation=path, trace=trace, **call)
            with pytest.raises(RegardError, match=f"{name}= matched no step of this run: '{step}'"):
                trace.check_matched()
