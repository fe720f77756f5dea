"""Masks and biases that declare their fields: what follows from the declaration, for rules that nothing else knows."""

import pickle
from typing import Literal

import numpy as np
import pytest

import regard
from attention_cases import PATHS, close, cut_into_blocks, random_case
from invented_rules import BATCH, HEADS, KEYS, KINDS, QUERIES, DilatedMask, EveryOther, KindBias, invented_case
from regard import AttentionMap, RegardError, Trace, attention, attention_vjp, attention_weights, functional
from regard.functional.biases.base import PartOfBias
from regard.functional.inputs import validate_inputs
from regard.functional.masks.base import PartOfMask
from regard.functional.part_inputs import slice_inputs
from regard.functional.rules import RULES, Axes, Rule, RuleField, is_declared, rule
from regard.functional.scores.part import ScorePart


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 8, 12)


def test_the_rules_of_the_package_declare_their_fields_but_for_functions():
    public = {x for x in map(functional.__getattr__, functional.__all__) if isinstance(x, type)}
    rules = {x for x in public if issubclass(x, functional.Mask | functional.Bias)}
    functions = {functional.FunctionMask, functional.ScoreMod}
    assert rules - RULES.keys() == {functional.Mask, functional.Bias, *functions}
    own = {kind for kind in RULES if kind.__module__.startswith("regard.")}
    assert {kind.__name__ for kind in own - rules} == {"LogicalAnd", "LogicalOr", "DenseBias"}


def rules_of(options):
    """Yield the kinds of the rules of a call, with those inside of others."""
    waiting = [options.get("mask"), options.get("bias")]
    while waiting:
        if isinstance(value := waiting.pop(), Rule):
            yield type(value)
            waiting += [getattr(value, field.name) for field in value.rule_fields]


def test_every_rule_of_the_package_is_drawn_by_the_random_calls():
    """So it goes through every implementation, gradients, maps, files, parts, dask and PyTorch."""
    drawn = {kind for seed in range(150) for kind in rules_of(random_case(seed).options)}
    own = {kind.__name__ for kind in RULES if kind.__module__.startswith("regard.")}
    assert own - {kind.__name__ for kind in drawn} == {"BlockMask", "DenseBias"}  # the one of a function, and an array


def test_what_an_annotation_says_of_a_field():
    assert RULES[functional.SlidingWindow] == (
        RuleField("left", None, None, (type(None), int)),
        RuleField("right", None, None, (type(None), int)),
        RuleField("query_offset", Axes("...", "offset"), 3, (type(None), np.ndarray, int)),
    )
    lacking = {field.name: field.lacking for kind in (DilatedMask, KindBias) for field in RULES[kind]}
    assert lacking == {"strides": 2, "hidden": 2, "also_self": None, "parameter": 1, "kinds": None}


@pytest.mark.parametrize("name", ["tiled", "F", "n"])
def test_names_that_the_operator_of_pytorch_means_otherwise_are_refused(name):
    with pytest.raises(TypeError, match="begins with a capital"):
        rule(type(name, (functional.Mask,), {}))


@pytest.mark.parametrize("hint", [tuple[int, int], Literal["a", "b"], str, dict])
def test_fields_that_files_and_programs_cannot_carry_are_refused(hint):
    with pytest.raises(TypeError, match="the field sizes is a number"):
        rule(type("Sized", (functional.Mask,), {"__annotations__": {"sizes": hint}, "__module__": __name__}))


def test_a_rule_that_sees_indices_of_keys_and_heads_is_evaluated_whole_in_every_part():
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, HEADS, KEYS, 8))
    mask = EveryOther(functional.Causal(), rng.random((HEADS, KEYS, KEYS)) < 0.8)
    every = (np.arange(KEYS) + np.arange(HEADS)[:, None, None]) % 2 == 0
    dense = np.tri(KEYS, dtype=bool) & every & mask.among
    look = AttentionMap(q, k, mask=mask)
    close(look.weights(), AttentionMap(q, k, mask=dense).weights())
    close(look[1, 3:9], look.weights()[1, 3:9])
    close(look.select(slice(1, 3)).weights(), look.weights()[1:3])
    lazy = regard.dask.attention(*(dask.from_array(x, chunks=(1, 16, 8)) for x in (q, k, v)), mask=mask)
    close(lazy.compute(scheduler="synchronous"), attention(q, k, v, mask=dense))


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(TypeError, match="a rule Causal already"):

        @rule
        class Causal(functional.Mask):
            pass


def test_a_class_derived_from_a_rule_is_none_that_files_know():
    class Own(functional.Causal):
        pass

    assert not is_declared(Own())
    attention_map = AttentionMap(np.zeros((2, 3)), np.zeros((2, 3)), mask=Own())
    with pytest.raises(RegardError, match="Own is not a mask or bias of regard"):
        attention_map.to_arrays()


@pytest.mark.parametrize("path", PATHS)
def test_invented_rules_are_what_arrays_of_the_same_meaning_are(path):
    arrays, rules, dense = invented_case()
    close(attention(*arrays, **rules, implementation=path), attention(*arrays, **dense, implementation="reference"))
    tile = {"rows": slice(3, 20), "cols": np.array([0, 7, 40])}
    close(
        attention_weights(*arrays[:2], **rules, **tile, implementation=path),
        attention_weights(*arrays[:2], **dense, **tile, implementation="reference"),
    )
    context, pullback = attention_vjp(*arrays, **rules, implementation=path)
    ours, theirs = pullback(context), attention_vjp(*arrays, **dense)[1](context)
    close(ours.q, theirs.q)
    kinds = rules["bias"].kinds
    by_key = theirs.bias[:, 0, :]
    close(ours.bias, np.stack([by_key[:, kinds == n].sum(-1) for n in range(KINDS)], -1))


def test_maps_of_invented_rules_are_cut_saved_copied_and_pickled(tmp_path):
    (q, k, _), rules, dense = invented_case()
    ours, theirs = AttentionMap(q, k, **rules), AttentionMap(q, k, **dense)
    for index in [(1,), (slice(None), 2), (0, slice(1, 4, 2))]:
        close(ours.select(*index).weights(), theirs.select(*index).weights())
    for copied in (ours.copy(), pickle.loads(pickle.dumps(ours)), AttentionMap.from_arrays(*ours.to_arrays())):
        close(copied.weights(), theirs.weights())
    trace = Trace(maps=True, only="*")
    attention(q, k, k, **rules, trace=trace)
    trace.save(tmp_path / "trace.safetensors")
    close(Trace.load(tmp_path / "trace.safetensors")["weights"], theirs.weights())


@pytest.mark.parametrize("span", [(0, 33, 0, 50), (5, 17, 11, 30), (32, 33, 49, 50), (4, 4, 3, 9)])
def test_blocks_of_invented_rules_are_rules(span):
    arrays, rules, dense = invented_case()
    entries, rows, cols = (slice(1, 2), slice(1, 3)), slice(*span[:2]), slice(*span[2:])
    p = validate_inputs(*arrays, **rules)
    block = slice_inputs(p, ScorePart(p.layout, entries, rows, cols))
    assert (type(block.mask), type(block.bias)) == (DilatedMask, KindBias)
    every = slice(None)
    allowed = np.broadcast_to(dense["mask"], (BATCH, HEADS, QUERIES, KEYS))[(*entries, rows, cols)]
    added = np.broadcast_to(dense["bias"], (BATCH, HEADS, QUERIES, KEYS))[(*entries, rows, cols)]
    found = np.broadcast_to(block.mask.allows(block.layout, every, every), allowed.shape)
    assert np.array_equal(found, allowed)
    assert np.array_equal(np.broadcast_to(block.bias.values(block.layout, every, every), added.shape), added)


def test_of_a_rule_that_does_not_say_that_it_is_shift_invariant_a_part_is_evaluated():
    class Own(DilatedMask):
        pass

    (q, k, v), rules, _ = invented_case()
    declared = rules["mask"]
    p = validate_inputs(q, k, v, mask=Own(declared.strides, declared.hidden), bias=rules["bias"])
    block = slice_inputs(p, ScorePart(p.layout, (slice(0, 2), slice(0, 4)), slice(3, 9), slice(4, 30)))
    assert isinstance(block.mask, PartOfMask)
    assert not isinstance(block.bias, PartOfBias)
    found = block.mask.allows(block.layout, slice(2, 6), slice(1, 20))
    assert np.array_equal(found, p.mask.allows(p.layout, slice(5, 9), slice(5, 24)))


def test_a_slice_of_a_slice_counts_heads_from_the_first():
    x = np.zeros((6, 3, 4))
    attention_map = AttentionMap(x, x, bias=lambda score, b, h, q_idx, kv_idx: score + h * kv_idx)
    twice = attention_map.select(slice(2, 6)).select(slice(1, 3))
    assert np.array_equal(twice.weights(), attention_map.weights()[3:5])
