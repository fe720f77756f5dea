"""Metrics over many texts against NumPy over the stack of all."""

import numpy as np
import pytest

import regard
from fake_traces import recorded
from regard import RegardError
from regard.metrics import METRICS, CorpusHeadMetrics, corpus_head_metrics, head_metrics
from regard.metrics.running_sums import RunningMean

TEXTS = ["the cat the cat", "a cat", "sat", "the the the", "cat sat the a", "a a a a"]


@pytest.fixture
def model(write_bert):
    return regard.load(write_bert())


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:Mean of empty")
def test_means_and_deviations_are_those_of_all_texts(model):
    found = corpus_head_metrics(model, TEXTS, batch_size=2)
    each = []
    for text in TEXTS:
        trace = recorded(model, text, maps=True, only="*")
        each.append(head_metrics(trace).values)
    for name in METRICS:
        stacked = np.concatenate([values[name] for values in each])  # N L H
        has_value = np.isfinite(stacked)
        deviations = np.nanstd(stacked, 0, ddof=1)
        np.testing.assert_array_equal(found.counts[name], has_value.sum(0))
        np.testing.assert_allclose(found.means[name], np.nanmean(stacked, 0), rtol=1e-5)
        np.testing.assert_allclose(found.deviations[name], deviations, rtol=1e-3, atol=1e-6)
        low, high = found.interval(name)
        half = 1.959964 * deviations / np.sqrt(has_value.sum(0))
        np.testing.assert_allclose((high - low) / 2, half, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose((high + low) / 2, found.means[name], rtol=1e-9, atol=1e-9)
    assert found.counts["duplicate_token"].max() < len(TEXTS)
    assert found.layers == ("blocks.0.attn", "blocks.1.attn")


def test_intervals_hold_the_true_mean_as_often_as_they_say():
    """Of 400 samples of 50 numbers drawn around 0, the interval of 90% has 0 in it in 86% to 94%."""
    running, rng = RunningMean(), np.random.default_rng(0)
    for _ in range(50):
        running = running.add(rng.standard_normal((1, 400)))
    found = CorpusHeadMetrics(("",), *({"entropy": x} for x in (running.count, running.mean, running.deviation)))
    low, high = found.interval("entropy", 0.9)
    assert 0.86 < ((low < 0) & (high > 0)).mean() < 0.94


def test_a_metric_that_no_text_has_is_nan(model):
    found = corpus_head_metrics(model, ["sat", "a cat"])
    assert np.isnan(found.means["duplicate_token"]).all()
    assert np.isnan(found.deviations["duplicate_token"]).all()


def test_its_columns_have_a_row_for_each_head(model):
    found = corpus_head_metrics(model, TEXTS)
    columns = found.to_columns()
    assert {len(column) for column in columns.values()} == {6}
    at = (columns["layer"] == 1) & (columns["head"] == 2)
    assert columns["sink"][at] == found.means["sink"][1, 2]
    assert columns["sink_low"][at] < columns["sink"][at] < columns["sink_high"][at]
    assert found.as_head_metrics().values["sink"].shape == (1, 2, 3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_they_become_frames(model, library):
    pytest.importorskip(library)
    found = corpus_head_metrics(model, TEXTS)
    trace = recorded(model, TEXTS[0], maps=True, only="*")
    for each in (found, head_metrics(trace)):
        frame = each.to_frame(library)
        assert type(frame).__module__.startswith(library)
        assert list(frame.columns) == list(each.to_columns())
        np.testing.assert_array_equal(frame["sink"].to_numpy(), each.to_columns()["sink"])


def test_a_library_that_is_not_there_is_named(model, monkeypatch):
    found = corpus_head_metrics(model, TEXTS[:1])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RegardError, match="a table needs pandas or polars: pip install pandas"):
        found.to_frame()
    with pytest.raises(RegardError, match="a table needs polars: pip install polars"):
        found.to_frame("polars")
    with pytest.raises(RegardError, match="a table is of pandas or polars, got 'excel'"):
        found.to_frame("excel")


def test_mistakes(model):
    with pytest.raises(RegardError, match="there is no text"):
        corpus_head_metrics(model, [])
    with pytest.raises(RegardError, match="level must be between 0 and 1"):
        corpus_head_metrics(model, TEXTS[:1]).interval("sink", 95)


def test_running_means_have_the_same_bits_in_any_order_and_division():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((60, 2, 3)) * 10.0 ** rng.integers(-6, 6, (60, 2, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    one = RunningMean()
    for value in values:
        one = one.add(value)
    parts = [RunningMean() for _ in range(4)]
    for i in rng.permutation(60):
        at = int(rng.integers(4))
        parts[at] = parts[at].add(values[i])
    other = parts[3].merge(parts[1]).merge(parts[0].merge(parts[2]))
    for name in ("count", "mean", "deviation"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    np.testing.assert_allclose(one.mean, np.nanmean(values, 0), rtol=1e-13)
    np.testing.assert_allclose(one.deviation, np.nanstd(values, 0, ddof=1), rtol=1e-12)


def test_a_mean_is_rounded_once():
    running = RunningMean()
    for value in (1e6, 0.1, -1e6):  # which a sum of floats does not keep
        running = running.add(np.array(value))
    assert running.mean == 0.1 / 3
