"""The figure of a training run: its numbers are those of the run, nothing covers another, and what lacks is said."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

import regard
from fake_traces import recorded
from figure_geometry import assert_apart_and_inside, texts_of
from regard import RegardError
from regard.metrics import head_metrics, strongest_heads
from regard.plot import training
from regard.plot.training import _apart
from regard.training import TrainingRun, text_task
from regard.training.run_folder import LOSSES
from training_runs import small_model, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "a $run_1$ <b>")


def panel(figure, title):
    (found,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith(title)]
    return found


def lines(ax):
    return [line for line in ax.lines if len(line.get_xdata()) > 2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_covers_another(folder, theme):
    figure = training(folder, theme=theme)
    assert_apart_and_inside(figure)
    shown = [text.get_text() for text in texts_of(figure)]
    assert "Training of a $run_1$ <b>" in shown
    assert {"step 0", "step 12", "Previous token", "Induction", "Loss, nats"} <= set(shown)


def test_numbers_are_those_of_the_run(folder):
    run = TrainingRun(folder)
    figure = training(run)
    loss, held_out = panel(figure, "Loss").lines[:2]
    np.testing.assert_array_equal(loss.get_ydata(), run.losses().values)
    np.testing.assert_array_equal(held_out.get_ydata(), run.losses().evaluation_values)
    np.testing.assert_array_equal(held_out.get_xdata(), [6, 12])
    model = run.load(9)
    trace = recorded(model, run.encode(model), maps=True, only="*")
    metrics = head_metrics(trace)
    for name, title in (("previous_token", "Previous token"), ("induction", "Induction")):
        drawn = [line.get_ydata()[3] for line in lines(panel(figure, title))]
        np.testing.assert_allclose(drawn, metrics.values[name][0].ravel(), atol=1e-7)
        assert list(lines(panel(figure, title))[0].get_xdata()) == [0, 3, 6, 9, 12]


def test_maps_are_those_of_the_strongest_heads(folder):
    run = TrainingRun(folder)
    figure = training(run, "abcabc")
    model = run.load(12)
    trace = recorded(model, "abcabc", maps=True, only="*")
    layer, head = strongest_heads("previous_token", head_metrics(trace).previous_token[0])[0]
    first_row = [ax for ax in figure.axes if ax.images][: len([ax for ax in figure.axes if ax.get_title() != ""])]
    expected = np.asarray(trace[f"blocks.{layer}.attn.weights"])[0, head]
    np.testing.assert_allclose(first_row[-1].images[0].get_array(), expected, atol=1e-6)
    assert first_row[-1].get_title() == "step 12"


def test_a_text_without_repetition_and_a_run_without_losses(folder, tmp_path):
    task = text_task("the cat sat on the mat. " * 100, context=8, batch_size=2)
    regard.train(small_model(task, 1), task.batches(), steps=2, folder=tmp_path / "r")
    (tmp_path / "r" / LOSSES).unlink()
    with pytest.raises(RegardError, match="give a text"):
        training(tmp_path / "r")
    figure = training(tmp_path / "r", "cat")
    assert_apart_and_inside(figure)
    shown = [text.get_text() for text in texts_of(figure)]
    assert "no token repeats" in shown
    assert "no losses in the folder of this run" in shown


def test_errors(folder, tmp_path):
    with pytest.raises(RegardError, match="no checkpoint"):
        training(tmp_path)
    with pytest.raises(RegardError, match="theme"):
        training(folder, theme="blue")


@given(st.lists(st.floats(0, 1), max_size=6))
def test_labels_are_apart_and_as_near_as_they_can_be(places):
    places, gap = sorted(places, reverse=True), 0.12
    spaced = _apart(places, gap)
    assert all(a - b >= gap - 1e-9 for a, b in pairwise(spaced))
    moved = [a - b for a, b in zip(spaced, places, strict=True)]
    for number, (a, b) in enumerate(pairwise(spaced)):
        if a - b > gap + 1e-9:  # labels that do not touch have nothing to gain from the others
            assert abs(sum(moved[: number + 1])) < 1e-6
    assert abs(sum(moved)) < 1e-6
