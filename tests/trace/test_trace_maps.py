"""A trace that stores queries and keys instead of n² weights, which it computes when they are read."""

from __future__ import annotations

import copy
import json
import multiprocessing
import operator

import numpy as np
import pytest

from attention_cases import PATHS, random_case, reference
from fake_traces import encoding_of
from regard import AttentionMap, RegardError, Trace, attention, explain_plan, nn
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.functional import Mask


def test_weights_are_those_of_the_array_before_and_after_a_file(tmp_path):
    for seed in range(150):
        case = random_case(seed)
        _, weights, _ = reference(case)
        arrays, maps = Trace(), Trace(maps=True)
        plain = attention(case.q, case.k, case.v, **case.options, trace=arrays)
        assert np.array_equal(attention(case.q, case.k, case.v, **case.options, trace=maps), plain)
        assert maps.names() == ("weights", "context")
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


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m.update(shape=[2, 5, 6]), lambda m: m.update(shape="5"), lambda m: m.update(dtype="object"),
        lambda m: m.update(dtype="<i8"), lambda m: m.pop("scale"), lambda m: m.update(mask={"kind": "system"}),
        lambda m: m.update(mask={"kind": "DenseMask", "array": "x"}),
        lambda m: m.update(mask={"kind": "Causal", "x": 1}),
        lambda m: m.update(bias={"kind": "ALiBi", "parameter": [1, 2]}), lambda m: m.update(mask=3),
        lambda m: m.update(scale="big"), lambda m: m.update(sinks=[1]), lambda m: m.update(softcap={}),
        lambda m: m.update(mask={"kind": "LogicalAnd", "one": None, "other": None}), lambda m: m.clear(),
    ],
)  # fmt: skip
def test_a_damaged_map_is_an_error(tmp_path, rng, damage):
    path = tmp_path / "trace.safetensors"
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    trace = Trace(maps=True)
    attention(q, k, v, causal=True, trace=trace)
    trace.save(path)
    file = SafetensorsFile(path)
    maps = json.loads(file.metadata["maps"])
    damage(maps["weights"])
    arrays = {name: np.array(file[name]) for name in file}
    write_safetensors(path, arrays, file.metadata | {"maps": json.dumps(maps)})
    with pytest.raises(RegardError, match="is a damaged trace"):
        Trace.load(path)["weights"]


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


def test_a_copy_of_a_map_shares_no_array(rng):
    look = AttentionMap(rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 4))).copy()
    again = look.copy()
    again.q[...] = 0
    assert look.q.any()


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
