"""Vectors on their way through the layers, on one plane."""

import numpy as np
import pytest
from explorations import explored

from regard import RegardError, Trace
from regard.explorer import launch
from regard.explorer.queries.movement import describe_plane, moved as points_of


def test_runs_of_one_model_stand_on_one_plane_as_does_an_edit(bert):
    both = explored(bert, "the cat sat", "the cat on")
    moved = both.movement([0, 1])
    assert moved["stages"] == ["embeddings", "blocks.0.output", "blocks.1.output"]
    points = np.array(moved["points"])
    assert points[0].shape == (3, 5, 2)
    np.testing.assert_allclose(points[0][0, 1], points[1][0, 1], atol=1e-4)  # "the" is the same before any layer
    assert moved["left_out"] == [[0, 4], [0, 4]]  # [CLS] and [SEP]
    edited = both.ablate([[0, 0], [0, 1], [0, 2]])
    assert edited["metadata"]["projection_key"] == both.manifest()["runs"][0]["projection_key"]
    before, after = edit = np.array(both.movement([0, edited["run"]])["points"])
    np.testing.assert_array_equal(before[0], after[0])  # no head has done anything yet
    assert np.abs(before[1] - after[1]).max() > 0.01
    for pair in (points, edit):
        np.testing.assert_allclose(np.concatenate(pair[:, :, 1:-1], axis=1).mean(axis=1), 0, atol=1e-3)


def test_runs_that_share_no_plane_are_not_drawn_on_one(bert, bart):
    trace = Trace(maps=True, only="*")
    bart("the cat", trace=trace)
    exploration = launch.exploration_of(["the cat", trace], [bert, bart])
    planes = [run["projection_key"] for run in exploration.manifest()["runs"]]
    assert None not in planes
    assert planes[0] != planes[1]
    assert exploration.movement([1])["stages"]
    with pytest.raises(RegardError, match="share no plane"):
        exploration.movement([0, 1])


def test_movement_keeps_distances_as_far_as_it_says(short):
    moved = short.movement([0])
    clouds = []
    for name in moved["stages"]:
        cloud = short.runs[0].trace[name][0, 1:-1].astype(np.float64)
        centred = cloud - cloud.mean(0)
        clouds.append(centred / np.sqrt((centred**2).sum(-1).mean()))
    singular = np.linalg.svd(np.concatenate(clouds), compute_uv=False) ** 2
    assert moved["explained_variance_ratio"] == pytest.approx(singular[:2] / singular.sum())
    points = np.array(moved["points"][0])[:, 1:-1]
    assert (points**2).sum() == pytest.approx(singular[:2].sum(), rel=1e-3)


def traced_stages(stages):
    trace = Trace()
    trace("embeddings", stages[0][None], "B T E")
    for number, vectors in enumerate(stages[1:]):
        trace(f"blocks.{number}.output", vectors[None], "B T E")
    return trace


def test_a_sink_takes_no_part_in_the_fit_of_the_plane(rng):
    stages = rng.standard_normal((3, 6, 8))
    sunk = stages.copy()
    sunk[1, 2] *= 200  # as of the first token of a language model, but not the first
    specials = np.zeros(6, dtype=bool)
    without = points_of([(traced_stages(np.delete(stages, 2, axis=1)), 0, specials[1:])])
    found = points_of([(traced_stages(sunk), 0, specials)])
    assert (without["left_out"], found["left_out"]) == ([[]], [[2]])
    assert found["explained_variance_ratio"] == pytest.approx(without["explained_variance_ratio"])
    points = np.array(found["points"][0])
    np.testing.assert_allclose(np.delete(points, 2, axis=1), without["points"][0], atol=1e-4)
    assert np.abs(points[1, 2]).max() > 10 * np.abs(np.delete(points, 2, axis=1)).max()  # it is projected too


@pytest.mark.parametrize(("special", "factors", "left_out"), [
    ([1, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 4]),
    ([1, 0, 0, 0, 0], [1, 1, 60, 1, 1], [0, 2]),
    ([0, 0, 0, 0, 0], [1, 1, 4, 1, 1], []),  # long, but no sink
    ([1, 1, 0, 0, 1], [1, 1, 1, 1, 1], []),  # 2 tokens span no plane
    ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], []),
    ([0], [1], []),
    ([1], [1], []),
    ([0, 0], [99, 1], []),
])  # fmt: skip
def test_the_fit_leaves_out_special_tokens_and_sinks_while_enough_remain(rng, special, factors, left_out):
    stages = rng.uniform(1, 2, (2, len(factors), 8)) * np.array(factors)[:, None]
    moved = points_of([(traced_stages(stages), 0, np.array(special, dtype=bool))])
    assert moved["left_out"] == [left_out]
    assert np.isfinite(moved["points"]).all()


def test_what_is_left_out_of_the_fit_is_named_with_the_reason():
    tokens = [{"text": text, "special": text == "[SEP]"} for text in (" a", "b", "c", "d", "[SEP]", "e")]
    said = describe_plane({"explained_variance_ratio": [0.5, 0.05], "left_out": [[0]]}, [tokens])
    assert said.startswith(
        "The two axes show 55 % of the variance (50 % across, 5.0 % up) and hide 45 %. “a” is left out"
    )
    assert "its vector is more than 10 times as long as the median" in said
    many = describe_plane({"explained_variance_ratio": [0.5, 0.5], "left_out": [[0, 1, 2, 3, 4]]}, [tokens])
    assert "“a”, “b”, “c” and 1 more are left out of the fit: their vectors are" in many
    assert "Special tokens (“[SEP]”) are left out" in many
    nothing = describe_plane({"explained_variance_ratio": [0.5, 0.5], "left_out": [[]]}, [tokens])
    assert "left out" not in nothing
