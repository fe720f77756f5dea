"""Runs of which some heads are switched off."""

import numpy as np
import pytest
from explorations import explored, recorded, whole

import regard
from regard.explorer import Exploration
from regard.explorer.queries import ablation

TEXT = "some text that is not short"


def test_a_head_that_is_switched_off_hands_nothing_on(bert, short):
    edited = short.ablate([[1, 0], [1, 2]])
    context = short.store[edited["run"]].trace["blocks.1.attn.context"]
    assert not context[0, [0, 2]].any()
    assert context[0, 1].any()
    before = bert("the cat sat").hidden[0]
    after = bert("the cat sat", edit=regard.edits.ablate((1, 0), (1, 2))).hidden[0]
    cosines = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)
    assert edited["changes"]["cosines"] == pytest.approx(cosines.tolist(), abs=1e-5)
    assert edited["changes"]["next_tokens"] is None
    assert edited["metadata"]["title"] == "without layer 1 head 0, layer 1 head 2"


def test_a_head_that_is_switched_off_has_no_share_in_what_is_handed_over(short):
    run = short.ablate([[1, 0], [1, 2]])["run"]
    before, after = (short.value_norms(each, 1) for each in (0, run))
    np.testing.assert_array_equal(after[[0, 2]], 0)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-6)
    whole_before, whole_after = (whole(short, each, 1, 1, mode="norms") for each in (0, run))
    np.testing.assert_allclose(whole_after, whole_before, rtol=1e-6)
    np.testing.assert_allclose(whole(short, run, 1, "mean", mode="norms"), whole_after / 3, rtol=1e-6)
    below = np.array(whole(short, 0, 0, 0, mode="rollout"))
    mixed = whole(short, run, 1, 1) / 3 + np.eye(5)  # the heads that are off mix nothing in
    rolled = mixed / mixed.sum(-1, keepdims=True) @ below
    np.testing.assert_allclose(whole(short, run, 1, 0, mode="rollout"), rolled, rtol=1e-5)
    np.testing.assert_array_equal(whole(short, run, 0, 0, mode="rollout"), below)


def test_the_steps_of_a_head_tell_whether_it_is_off(short):
    run = short.ablate([[1, 0]])["run"]
    off, on = (short.cell(run, 1, head, 3, 2) for head in (0, 1))
    before = short.cell(0, 1, 0, 3, 2)
    assert [each["ablated"] for each in (off, on, before)] == [True, False, False]
    assert not any(off["output"])
    assert off["weight"] == pytest.approx(before["weight"])
    row = [short.cell(run, 1, 1, 3, j) for j in range(5)]
    np.testing.assert_allclose(sum(x["weight"] * np.array(x["v"]) for x in row), on["output"], atol=1e-6)


def test_an_edit_tells_where_weights_change_and_what_is_expected_next(causal):
    exploration = explored(causal, TEXT)
    edited = exploration.ablate([[0, 1]])
    changed = edited["changes"]["heads"]
    assert set(changed[0]) == {0.0}  # none before it
    for layer, heads in list(enumerate(changed))[1:]:
        for head, by in enumerate(heads):
            before, after = (exploration.whole(run, layer, head) for run in (0, edited["run"]))
            assert by == pytest.approx(np.abs(before - after).max(), abs=1e-6)
            assert by > 0
    next_tokens = edited["changes"]["next_tokens"]
    assert len(next_tokens) == 10
    differences = [abs(change["after"] - change["before"]) for change in next_tokens]
    assert differences == sorted(differences, reverse=True)
    assert differences[0] > 0


def test_either_of_two_texts_is_edited(bert):
    answer = explored(bert, "the cat sat", "the cat on").ablate([[0, 1]], run=1)
    assert (answer["metadata"]["text"], answer["metadata"]["base_run"]) == ("the cat on", 1)


def test_of_many_edits_the_last_stay_and_another_is_run_again(short):
    first = short.ablate([[0, 1]])["run"]
    maps, thumbnails = (whole(short, first, 1, 2), short.thumbnails(first))
    numbers = [short.ablate([[0, n % 3]])["run"] for n in range(9)]
    assert [first, *numbers] == list(range(1, 11))
    assert len(list(short.store)) == 1 + 8
    np.testing.assert_array_equal(whole(short, first, 1, 2), maps)
    assert short.thumbnails(first) == thumbnails
    assert short.memory()["runs"] > 0
    assert len(list(short.store)) == 1 + 8
    with pytest.raises(regard.RegardError, match="there is no run 11: choose from 0 to 10"):
        short.thumbnails(11)


def test_an_edit_is_held_against_one_run_of_the_model(short, monkeypatch):
    model, runs = short.runs[0].model, []
    run = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *x, **kw: runs.append(1) or run(self, *x, **kw))
    for head in range(3):
        short.ablate([[0, head]])
    assert len(runs) == 4


def test_an_edit_has_the_layers_that_were_recorded_with_their_numbers(causal):
    trace = recorded(causal, TEXT, only=["blocks.1.attn.weights", "blocks.1.attn.v"])
    second = Exploration(trace, models=[causal], layer=1)
    assert [layer["number"] for layer in second.manifest()["runs"][0]["layers"]] == [1]
    edited = second.ablate([[0, 1]])
    assert edited["metadata"]["title"] == "without layer 1 head 1"
    assert [layer["name"] for layer in edited["metadata"]["layers"]] == ["blocks.1.attn"]
    before, after = (second.row(run, 0, 0, 3) for run in (0, edited["run"]))
    np.testing.assert_array_equal(before, after)  # heads of one layer know nothing of each other
    assert second.store[edited["run"]].trace.names() == trace.names()
    assert edited["changes"]["cosines"] != [1.0] * len(edited["changes"]["cosines"])


def test_how_far_an_ablation_is_grows_and_ends(short, monkeypatch):
    seen = []

    def watched(call):
        def told(*args):
            seen.append(short.progress()["ablate"]["share"])
            return call(*args)

        return told

    monkeypatch.setattr(regard.Trace, "__call__", watched(regard.Trace.__call__))
    monkeypatch.setattr(ablation, "changed_outputs", watched(ablation.changed_outputs))
    short.ablate([[0, 1]])
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 1)
    assert len(set(seen)) > 3
    assert short.progress() == {}
