"""The logit lens and direct logit attribution, against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import RegardError, Trace
from regard.metrics import logit_attribution, logit_lens

TEXTS = ("qzkfqz", "abcdabc")


@pytest.fixture(scope="module")
def model():
    return regard.load("induction")


@pytest.fixture(scope="module")
def run(model):
    trace = Trace()
    return model(list(TEXTS), trace=trace), trace


def test_the_last_stream_is_the_prediction(model, run):
    output, trace = run
    lens = logit_lens(model, trace, k=3)
    assert lens.names == ("embeddings", "blocks.0.output", "blocks.1.output")
    logits = output.logits.astype(np.float64)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    np.testing.assert_array_equal(lens.ids[-1], np.argsort(-logits, kind="stable")[..., :3])
    np.testing.assert_allclose(lens.probabilities[-1], -np.sort(-probabilities)[..., :3], rtol=1e-5)
    np.testing.assert_array_equal(lens.target, logits.argmax(-1))
    assert not lens.target_rank[-1].any()
    np.testing.assert_allclose(lens.entropy[-1], -(probabilities * np.log(probabilities)).sum(-1), atol=1e-5)


def test_a_target_and_its_rank_in_each_layer(model, run, monkeypatch):
    _, trace = run
    lens = logit_lens(model, trace, "k")
    (target,) = model.tokenizer("k").ids
    column = np.abs(np.asarray(model.lm_head.weight if model.lm_head else model.token_embedding.weight.T)[:, target])
    for name, logit, probability, rank in zip(
        lens.names, lens.target_logit, lens.target_probability, lens.target_rank, strict=True
    ):
        vectors = model.final_norm(trace[name])
        logits = model.head(vectors).astype(np.float64)
        # Two sums of E products, in any order: each errs by at most E u Σ |products|, where 2 u is eps.
        error = len(column) * np.finfo(np.float32).eps * (np.abs(vectors) @ column)
        assert (np.abs(logit - logits[..., target]) <= error).all()
        np.testing.assert_array_equal(rank, (logits > logits[..., [target]]).sum(-1))
        np.testing.assert_allclose(probability, 1 / np.exp(logits - logits[..., [target]]).sum(-1), rtol=1e-5)
    monkeypatch.setattr("regard.metrics.lens._NUMBERS", 1)  # a position at a time
    again = logit_lens(model, trace, target)
    np.testing.assert_array_equal(again.ids, lens.ids)
    np.testing.assert_allclose(again.entropy, lens.entropy, rtol=1e-5)


@pytest.mark.parametrize("versus", [None, "f"])
def test_parts_sum_to_the_logit(model, run, versus):
    output, trace = run
    found = logit_attribution(model, trace, "k", versus)
    expected = output.logits[..., model.tokenizer("k").ids[0]].astype(np.float64)
    if versus is not None:
        expected = expected - output.logits[..., model.tokenizer(versus).ids[0]]
    np.testing.assert_allclose(found.logit, expected, atol=1e-4)
    np.testing.assert_allclose(found.total, found.logit, atol=1e-4)
    assert found.heads.shape == (2, 2, 4, 7)  # L B H T
    assert not found.mlps.any()  # it has no feed-forward


def test_the_induction_heads_write_the_answer(model, run):
    _, trace = run
    found = logit_attribution(model, trace, "k", "f")
    assert found.heads[1, 0, :, 5].sum() > 0.8 * found.logit[0, 5]


def test_a_trace_that_lacks_a_step_or_a_model_that_predicts_nothing(model, minilm):
    trace = Trace(only="*.output")
    model("abc", trace=trace)
    with pytest.raises(RegardError, match="no embeddings: record"):
        logit_lens(model, trace)
    trace = Trace(only=("embeddings", "*.output"))
    model("abc", trace=trace)
    with pytest.raises(RegardError, match=r"attn\.context"):
        logit_attribution(model, trace, "a")
    with pytest.raises(RegardError, match="is no decoder"):
        logit_lens(minilm, trace)
