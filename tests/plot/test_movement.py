"""The movement plot: points of `project`, arrows between them, and labels without overlap."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from fake_traces import encoding_of, trace_of
from figure_geometry import STRANGE, WORDS, assert_apart_and_inside, texts_of
from regard import RegardError, Trace
from regard.plot import movement
from regard.views import project
from sweeps import sweep_except


def points_of(ax):
    """Return all points that are drawn with a marker, ``N 2``."""
    lines = [line for line in ax.lines if line.get_marker() not in ("None", "", None)]
    return np.concatenate([line.get_xydata() for line in lines])


def rows(*points):
    """Return the points, each ``N 2``, as a set."""
    return {tuple(point) for point in np.concatenate(points).round(9)}


def written(ax):
    return " ".join(text.get_text() for text in texts_of(ax.figure))


@pytest.mark.parametrize("size", sweep_except((1, 2, 3, 5, 8, 12, 20, 30, 60), [*range(1, 13), 20, 30, 45, 60]))
def test_labels_neither_collide_nor_are_cut_off(text_trace, size):
    ax = movement(text_trace([WORDS[i % len(WORDS)] for i in range(size)]))
    assert_apart_and_inside(ax.figure)
    assert len(ax.texts) == size


def test_strange_words_fit(rng):
    vectors = rng.standard_normal((2, len(STRANGE), 5))
    assert_apart_and_inside(movement(*vectors, STRANGE).figure)


def test_dollars_are_no_formula(rng):
    vectors = rng.standard_normal((2, 2, 5))
    movement(*vectors, ["$\\frac{$", "a"], highlight="$\\frac{$").figure.draw_without_rendering()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_labels_stay_inside_of_the_plane(text_trace, theme):
    ax = movement(text_trace(WORDS), theme=theme)
    ax.figure.draw_without_rendering()
    plane = ax.get_window_extent()
    for text in ax.texts:
        box = text.get_window_extent()
        assert plane.x0 <= box.x0
        assert box.x1 <= plane.x1
        assert plane.y0 <= box.y0
        assert box.y1 <= plane.y1


def test_points_are_those_of_the_projection(rng):
    original, contextual = rng.standard_normal((2, 6, 5))
    before, after, explained = project(original, contextual)
    ax = movement(original, contextual, list("abcdef"))
    assert rows(points_of(ax)) == rows(before, after)
    assert f"{explained[0]:.0%} of the variance" in ax.get_xlabel()
    assert f"{explained[1]:.0%}" in ax.get_ylabel()


def test_both_axes_have_one_scale(trace):
    ax = movement(trace)
    ax.figure.draw_without_rendering()
    plane, (x0, x1), (y0, y1) = ax.get_window_extent(), ax.get_xlim(), ax.get_ylim()
    np.testing.assert_allclose(plane.width / (x1 - x0), plane.height / (y1 - y0), rtol=1e-6)


def test_a_trace_gives_the_embeddings_and_the_last_output_without_special_tokens(trace):
    before, after, _ = project(trace["token_embeddings"][0, 1:-1], trace["blocks.2.output"][0, 1:-1])
    assert rows(points_of(movement(trace))) == rows(before, after)
    assert "output of layer 2" in written(movement(trace))


def test_words_have_the_mean_of_their_pieces(trace):
    before, _, _ = project(
        *(
            np.array([vectors[1], vectors[2:4].mean(0), vectors[4:7].mean(0), vectors[7]])
            for vectors in (trace["token_embeddings"][0], trace["blocks.2.output"][0])
        )
    )
    ax = movement(trace, merge_subwords=True)
    assert {text.get_text() for text in ax.texts} == {"the", "cats", "unbelievably", "sat"}
    assert rows(before) <= rows(points_of(ax))


@pytest.mark.parametrize("words", [["one"], ["one", "two"], ["same", "same"], ["same"] * 5])
def test_few_and_equal_words(rng, words):
    trace = trace_of(rng, encoding_of([[word] for word in words]))
    assert_apart_and_inside(movement(trace).figure)


def test_vectors_that_are_all_equal_are_drawn_without_arrows():
    ax = movement(np.ones((3, 4)), np.ones((3, 4)), list("abc"))
    assert_apart_and_inside(ax.figure)
    assert not ax.patches
    assert "0% of the variance" in ax.get_xlabel()


def test_a_highlighted_word_moves_alone(rng):
    trace = trace_of(rng, encoding_of([["the"], ["bank"], ["of"], ["the"], ["Bank"]]))
    ax = movement(trace, highlight="bank")
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 2
    assert {text.get_text() for text in ax.texts} == {"the", "bank", "of", "Bank"}
    assert "Movement of “bank”" in written(ax)


def test_two_texts_share_one_plane_and_differ_in_marker_and_line(rng):
    texts = [trace_of(rng, encoding_of([[word] for word in words])) for words in (WORDS[:5], WORDS[5:])]
    ax = movement(texts)
    assert_apart_and_inside(ax.figure)
    stacked = [
        np.concatenate([trace[name][0, 1:-1] for trace in texts]) for name in ("token_embeddings", "blocks.2.output")
    ]
    before, after, _ = project(*stacked)
    assert rows(points_of(ax)) == rows(before, after)
    assert {line.get_marker() for line in ax.lines} - {"None"} == {"o", "s"}
    assert len({patch.get_linestyle() for patch in ax.patches}) == 2
    for trace in texts:
        assert trace.encodings[0].text in written(ax)


def test_two_texts_of_one_word_show_how_it_moves(rng):
    trace = trace_of(rng, encoding_of([["bank"]]))
    ax = movement([trace, trace])
    assert_apart_and_inside(ax.figure)
    vectors = np.array([trace["token_embeddings"][0, 1], trace["blocks.2.output"][0, 1]])
    assert np.ptp(points_of(ax)[:, 0]) == pytest.approx(np.linalg.norm(vectors[1] - vectors[0]))
    assert "100% of the variance" in ax.get_xlabel()
    assert "Only one word: the raw vectors are shown" in written(ax).replace("\n", " ")


def test_points_that_texts_share_are_seen_for_each(rng):
    traces = [trace_of(rng, encoding_of([[word] for word in words])) for words in (["bank", "a"], ["bank", "b"])]
    first, second = (trace["token_embeddings"][0, 1:-1] for trace in traces)
    second[0] = first[0]
    ax = movement(traces, highlight="bank")
    starts = [line for line in ax.lines if len(line.get_xdata()) and line.get_markerfacecolor() == "#ffffff"]
    np.testing.assert_array_equal(*(line.get_xydata() for line in starts))
    assert [line.get_marker() for line in starts] == ["o", "s"]
    assert starts[0].get_markersize() > starts[1].get_markersize() + 3
    ends = [line for line in ax.lines if len(line.get_xdata()) == 1 and line not in starts and line.get_alpha() is None]
    assert len({line.get_markersize() for line in ends}) == 1


def test_labels_for_which_there_is_no_room_are_counted(text_trace):
    ax = Figure(figsize=(1.5, 1.5)).subplots()
    movement(text_trace(WORDS * 3), ax=ax)
    assert ax.get_xlabel() == f"{48 - len(ax.texts)} left out"
    ax = Figure(figsize=(6, 1.5)).subplots()
    movement(text_trace(WORDS * 3), ax=ax)
    assert f"of the variance; {48 - len(ax.texts)} labels left out" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ((np.ones((2, 3)),), {}, "original and contextual vectors"),
        ((np.ones((2, 3)), np.ones((3, 3))), {}, r"got \(2, 3\) and \(3, 3\)"),
        ((np.ones((2, 3)), np.ones((2, 3)), ["a"]), {}, r"1 tokens do not fit vectors of shape \(2, 3\)"),
        ((np.ones((2, 3)), np.ones((2, 3))), {"batch": 1}, "no batch axis"),
        ((np.ones((1, 3)), np.ones((1, 3)), ["a"]), {"highlight": "b"}, "no word 'b'; its words are a"),
        ((Trace(),), {}, "'token_embeddings' and the output of a block"),
        (([Trace()] * 5,), {}, "at most 4 texts"),
    ],
)
def test_mistakes(arguments, given, message):
    with pytest.raises(RegardError, match=message):
        movement(*arguments, **given)


def test_runs_of_different_models_are_an_error(rng):
    traces = [trace_of(rng, encoding_of([["a"], ["b"]]), width=width) for width in (5, 7)]
    with pytest.raises(RegardError, match=r"vectors must have one size, got \[5, 7\]"):
        movement(traces)


def test_a_trace_brings_its_own_tokens(trace):
    with pytest.raises(RegardError, match="leave out contextual and tokens"):
        movement(trace, tokens=["a"])


def test_words_that_crowd_the_centre_get_a_larger_plane(rng):
    """Every label is beside its point, nearer to it than to the point of another word."""
    words = "the animal did not cross the street because it was too tired".split()
    original, contextual = rng.standard_normal((2, 12, 9)) * np.where(np.arange(12) < 8, 0.12, 1.0)[:, None]
    ax = movement(original, contextual, words)
    figure = ax.figure
    figure.draw_without_rendering()
    (points,) = (line for line in ax.lines if line.get_zorder() == 4 and len(line.get_xdata()))
    at = ax.transData.transform(points.get_xydata())
    for text in ax.texts:
        box = text.get_window_extent()
        apart = np.hypot(
            *(
                np.maximum(0, np.maximum(low - x, x - high))
                for low, x, high in ((box.x0, at[:, 0], box.x1), (box.y0, at[:, 1], box.y1))
            )
        )
        own = [i for i, word in enumerate(words) if word == text.get_text()]
        assert apart.argmin() in own
        assert apart.min() < 0.25 * figure.dpi


def test_a_sink_is_neither_fitted_nor_drawn_unless_it_is_asked_for(rng):
    original, contextual = rng.standard_normal((2, 6, 8))
    contextual[3] *= 100
    ax = movement(original, contextual, list("abcdef"))
    without = movement(np.delete(original, 3, 0), np.delete(contextual, 3, 0), list("abcef"))
    np.testing.assert_allclose(points_of(ax), points_of(without))
    said = "“d” is left out: its vector is more than 10 times as long as the median (an attention sink)."
    assert said in written(ax).replace("\n", " ")
    assert "left out" not in written(without)
    asked = movement(original, contextual, list("abcdef"), highlight="d")
    assert "left out" not in written(asked)
    assert len(points_of(asked)) == 7  # all contextual points, and the original one of d


def test_special_tokens_are_drawn_but_not_fitted(text_trace):
    trace = text_trace(WORDS)
    words = movement(trace)
    both = movement(trace, show_special_tokens=True)
    assert rows(points_of(words)) < rows(points_of(both))
    assert "Special tokens are left out of the fit" in written(both).replace("\n", " ")
    assert "Special tokens" not in written(words)
