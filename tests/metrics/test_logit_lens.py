"""The logit lens and direct logit attribution, against formulas in float64."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, edits as E, metrics
from regard.metrics import logit_attribution, logit_lens
from regard.metrics.logit_attribution import STEPS
from regard.nn import DecoderBlock

TEXTS = ("qzkfqz", "abcdabc")


@pytest.fixture(scope="module")
def run(induction):
    trace = Trace()
    return induction(list(TEXTS), trace=trace), trace


def test_the_last_stream_is_the_prediction(induction, run):
    output, trace = run
    lens = logit_lens(induction, trace, k=3)
    assert lens.names == ("embeddings", "blocks.0.output", "blocks.1.output")
    logits = output.logits.astype(np.float64)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    np.testing.assert_array_equal(lens.ids[-1], np.argsort(-logits, kind="stable")[..., :3])
    np.testing.assert_allclose(lens.probabilities[-1], -np.sort(-probabilities)[..., :3], rtol=1e-5)
    np.testing.assert_array_equal(lens.target, logits.argmax(-1))
    assert not lens.target_rank[-1].any()
    np.testing.assert_allclose(lens.entropy[-1], -(probabilities * np.log(probabilities)).sum(-1), atol=1e-5)


def test_a_target_and_its_rank_in_each_layer(induction, run, monkeypatch):
    _, trace = run
    lens = logit_lens(induction, trace, "k")
    (target,) = induction.tokenizer("k").ids
    column = np.abs(
        np.asarray(induction.lm_head.weight if induction.lm_head else induction.token_embedding.weight.T)[:, target]
    )
    for name, logit, probability, rank in zip(
        lens.names, lens.target_logit, lens.target_probability, lens.target_rank, strict=True
    ):
        vectors = induction.final_norm(trace[name])
        logits = induction.head(vectors).astype(np.float64)
        # Two sums of E products, in any order: each errs by at most E u Σ |products|, where 2 u is eps.
        error = len(column) * np.finfo(np.float32).eps * (np.abs(vectors) @ column)
        assert (np.abs(logit - logits[..., target]) <= error).all()
        np.testing.assert_array_equal(rank, (logits > logits[..., [target]]).sum(-1))
        np.testing.assert_allclose(probability, 1 / np.exp(logits - logits[..., [target]]).sum(-1), rtol=1e-5)
    monkeypatch.setattr("regard.metrics.lens._NUMBERS", 1)  # a position at a time
    again = logit_lens(induction, trace, target)
    np.testing.assert_array_equal(again.ids, lens.ids)
    np.testing.assert_allclose(again.entropy, lens.entropy, rtol=1e-5)


@pytest.mark.parametrize("versus", [None, "f"])
def test_parts_sum_to_the_logit(induction, run, versus):
    output, trace = run
    found = logit_attribution(induction, trace, "k", versus)
    expected = output.logits[..., induction.tokenizer("k").ids[0]].astype(np.float64)
    if versus is not None:
        expected = expected - output.logits[..., induction.tokenizer(versus).ids[0]]
    np.testing.assert_allclose(found.logit, expected, atol=1e-4)
    np.testing.assert_allclose(found.total, found.logit, atol=1e-4)
    assert found.heads.shape == (2, 2, 4, 7)  # L B H T
    assert not found.mlps.any()  # it has no feed-forward


def test_the_induction_heads_write_the_answer(induction, run):
    _, trace = run
    found = logit_attribution(induction, trace, "k", "f")
    assert found.heads[1, 0, :, 5].sum() > 0.8 * found.logit[0, 5]


def residual_edits(width, layer):
    """Edits of every kind of step that a residual stream is made of."""
    vector = np.random.default_rng(0).standard_normal(width)
    return {
        "a stream": E.add(vector, f"blocks.{layer}.output", positions=[1, -1]),
        "the first stream": E.scale(0.5, "embeddings"),
        "attention": E.add(vector, f"blocks.{layer}.attn.output"),
        "all streams": E.scale(1.5, "blocks.*.output"),
        "feed-forward": E.scale(0, f"blocks.{layer}.mlp.output"),
        "the middle": {f"blocks.{layer}.attn_residual": lambda x: x * 2},
        "heads": E.ablate((layer, 1)) | E.scale(3, f"blocks.{layer}.attn.weights"),
        "the last norm": E.add(vector, "final_norm"),
    }


FAMILIES = (
    *("gpt2/plain", "gpt_neox/half", "llama/biased", "gemma2/capped", "granite/biased", "olmo2/plain", "gpt_oss/plain"),
    "opt/plain",
)


@pytest.mark.parametrize("case", FAMILIES)
@pytest.mark.parametrize("kind", residual_edits(1, 0))
def test_parts_sum_to_the_logit_of_a_run_with_edits(case, kind):
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    edit = residual_edits(model.config.embed_dim, 1)[kind]
    if kind == "the middle" and getattr(model.blocks[0], "parallel", False):
        pytest.skip("a parallel block has none")
    trace = Trace(edit=edit)
    output = model([model.tokenizer.from_ids([5, 9, 4, 6]), model.tokenizer.from_ids([3, 7])], trace=trace)
    found = logit_attribution(model, trace, 7, 3)
    # before the soft cap, from the vectors that the run returned
    table = model.token_embedding.weight.T if model.lm_head is None else model.lm_head.weight
    bias = 0 if model.lm_head is None or model.lm_head.bias is None else model.lm_head.bias[7] - model.lm_head.bias[3]
    expected = output.hidden @ (table[:, 7] - table[:, 3]) * model.logit_scale + bias
    is_text = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    np.testing.assert_allclose(found.logit[is_text], expected[is_text], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.total[is_text], found.logit[is_text], rtol=0, atol=1e-10)
    is_explained = kind in ("feed-forward", "heads", "the first stream")
    assert (np.abs(found.edits[:, 0]).max() < 1e-10) == is_explained


class ScaledBlock(DecoderBlock):
    """A block of a family with arithmetic of its own: each feature of what it adds has another factor."""

    def before_residual(self, part):
        norm, factor = super().before_residual(part)
        return norm, factor * np.linspace(0.5, 1.5 if part == "attn" else 2, len(self.attn.q_proj.weight))


@pytest.mark.parametrize("case", ["gemma2/capped", "llama/biased"])
def test_what_a_block_of_another_kind_adds_is_stated_by_the_block_alone(case):
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    model = replace(model, blocks=tuple(ScaledBlock(**block.__getstate__()) for block in model.blocks))
    trace = Trace()
    model([model.tokenizer.from_ids([5, 9, 4, 6])], trace=trace)
    for i, block in enumerate(model.blocks):
        y = trace[f"blocks.{i}.attn_post_norm" if block.attn_post_norm else f"blocks.{i}.attn.output"]
        x = trace["embeddings" if i == 0 else f"blocks.{i - 1}.output"]
        np.testing.assert_allclose(
            trace[f"blocks.{i}.attn_residual"] - x, y * np.linspace(0.5, 1.5, y.shape[-1]), atol=1e-12
        )
    parts = logit_attribution(model, trace, 7, 3)
    np.testing.assert_allclose(parts.edits, 0, atol=1e-10)
    np.testing.assert_allclose(parts.total, parts.logit, rtol=0, atol=1e-10)
    if not model.blocks[0].attn_post_norm:
        weights, v = trace["blocks.0.attn.weights"][0], trace["blocks.0.attn.v"][0]
        heads = np.einsum("gtd,gde->gte", v, model.circuits.W_O[0][:: len(weights) // len(v)])
        norms = metrics.value_norms(model, trace, 0)
        np.testing.assert_allclose(
            norms[:: len(weights) // len(v)],
            weights[:: len(weights) // len(v)] * np.linalg.norm(heads, axis=-1)[:, None],
        )
    score = trace.why(1, 0, 3, 1, model=model)
    np.testing.assert_allclose(score.pairs.sum(), score.score, rtol=1e-6)


def test_what_an_edit_adds_is_its_projection(induction):
    vector = np.random.default_rng(1).standard_normal(128)
    trace = recorded(induction, "qzkfqz", edit=E.add(vector, "blocks.0.output"))
    found = logit_attribution(induction, trace, "k", "f")
    last = trace["blocks.1.output"].astype(np.float64)
    norm, ids = induction.final_norm, [induction.tokenizer(each).ids[0] for each in "kf"]
    columns = induction.token_embedding.weight[ids] if induction.lm_head is None else induction.lm_head.weight[:, ids].T
    read = (columns[0] - columns[1]) * norm.weight
    added = vector @ (read - (read.mean() if hasattr(norm, "bias") else 0))
    spread = last.var(-1) if hasattr(norm, "bias") else (last**2).mean(-1)
    np.testing.assert_allclose(found.edits[0], added / np.sqrt(spread + norm.eps), atol=1e-4)
    np.testing.assert_allclose(found.edits[1:], 0, atol=1e-4)


def test_an_edit_of_the_last_norm_must_be_recorded(induction):
    trace = recorded(
        induction, "abc", only=[step for step in STEPS if step != "final_norm"], edit=E.scale(2, "final_norm")
    )
    with pytest.raises(RegardError, match="the run edited final_norm, which the trace lacks"):
        logit_attribution(induction, trace, "a")


def test_a_run_that_starts_from_a_block_has_no_embeddings(induction):
    before, trace = Trace(), Trace()
    induction("abc", trace=before)
    trace = recorded(induction, "abc", start={"blocks.0.output": before["blocks.0.output"]})
    with pytest.raises(RegardError, match="the run started from a block, so that it has no embeddings"):
        logit_lens(induction, trace)


@settings(max_examples=20, deadline=None)
@given(
    tokens=arrays(np.int64, (2, 7), elements=st.integers(0, 60)),
    versus=arrays(np.int64, (2, 1), elements=st.integers(0, 60)),
)
def test_a_token_for_each_position_is_as_one_token_at_a_time(tokens, versus):
    model, trace = regard.load("induction"), Trace()
    model(list(TEXTS), trace=trace)
    for form in (tokens, tokens.tolist()):
        lens, parts = logit_lens(model, trace, form), logit_attribution(model, trace, form, versus)
        np.testing.assert_array_equal(lens.target, tokens)
        np.testing.assert_array_equal(parts.versus, np.broadcast_to(versus, tokens.shape))
        for text, position in ((0, 0), (0, 5), (1, 6)):
            at = (..., text, position)
            one = logit_lens(model, trace, int(tokens[text, position]))
            for name in ("target_probability", "target_rank", "target_logit"):
                np.testing.assert_array_equal(getattr(lens, name)[at], getattr(one, name)[at])
            one = logit_attribution(model, trace, int(tokens[text, position]), int(versus[text, 0]))
            np.testing.assert_allclose(parts.heads[:, text, :, position], one.heads[:, text, :, position], atol=1e-12)
            np.testing.assert_allclose(parts.total[at], one.total[at], atol=1e-12)


def test_tokens_as_text_for_each_text_and_for_each_position(induction, run):
    _, trace = run
    k, c, z = (induction.tokenizer(each).ids[0] for each in "kcz")
    np.testing.assert_array_equal(logit_lens(induction, trace, ["k", "c"]).target, np.repeat([[k], [c]], 7, 1))
    np.testing.assert_array_equal(logit_lens(induction, trace, ("k", c)).target, np.repeat([[k], [c]], 7, 1))
    assert logit_lens(induction, trace, [["k"] * 6 + [z]] * 2).target[1].tolist() == [k] * 6 + [z]
    one = recorded(induction, "qzk")
    lens = logit_lens(induction, one, ["z", "k", c])
    assert lens.target.tolist() == [[z, k, c]]
    assert lens.target_token.tolist() == [["z", "k", "c"]]
    np.testing.assert_array_equal(logit_lens(induction, one, ["k"]).target, [[k, k, k]])


@pytest.mark.parametrize("tokens", [[1, 2, 3], np.zeros((3, 7), int), [[1, 2], [3]], np.zeros((1, 2, 7), int)])
def test_tokens_that_do_not_fit(induction, run, tokens):
    with pytest.raises(RegardError, match=r"do not fit 2 texts of 7 positions|a next token as text"):
        logit_lens(induction, run[1], tokens)


def test_a_trace_that_lacks_a_step_or_a_model_that_predicts_nothing(induction, minilm):
    trace = recorded(induction, "abc", only="*.output")
    with pytest.raises(RegardError, match="no embeddings: record"):
        logit_lens(induction, trace)
    trace = recorded(induction, "abc", only=("embeddings", "*.output"))
    with pytest.raises(RegardError, match=r"attn\.context"):
        logit_attribution(induction, trace, "a")
    with pytest.raises(RegardError, match="is not a decoder"):
        logit_lens(minilm, trace)


@pytest.mark.parametrize("case", ["clip_text_model/plain", "modernbert/plain", "vit/plain", "bart/tied", "bert/gelu"])
@pytest.mark.parametrize("function", [logit_lens, logit_attribution])
def test_models_without_an_unembedding(case, function):
    model = regard.load(golden.FOLDER / case)
    with pytest.raises(RegardError, match=r"is not a decoder: it has no unembedding.*load a decoder, such as smollm2"):
        function(model, Trace(), 5)


def test_metrics_of_texts_and_models_of_pictures():
    model = regard.load(golden.FOLDER / "vit/plain")
    with pytest.raises(RegardError, match="a model of texts is needed"):
        metrics.attribute(model, "a", to="b")


def test_a_decoder_that_was_saved_without_its_head(induction, run):
    headless = replace(induction, lm_head=None, config=replace(induction.config, tied=False))
    for function in (logit_lens, logit_attribution):
        with pytest.raises(RegardError, match="it was saved without its head"):
            function(headless, run[1], 5)


def test_tables_and_labelled_arrays(induction):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    trace = recorded(induction, ["qzkfqz", "abc"])
    lens, parts = logit_lens(induction, trace, ["k", "a"], k=2), logit_attribution(induction, trace, ["k", "a"])
    frame = lens.to_frame("pandas")
    assert len(frame) == 3 * (6 + 3)  # no padding
    row = frame[(frame.step == "blocks.1.output") & (frame.text == 0) & (frame.position == 5)].iloc[0]
    assert (row.token, row.target, row.predicted, row.target_rank) == ("z", "k", "k", 0)
    assert row.target_probability == lens.target_probability[2, 0, 5] == row.probability
    data = lens.to_xarray()
    assert data.target_rank.dims == ("N", "B", "T")
    assert data.tokens.sel(k=0, B=0, T=5).values[-1] == "k"
    frame = parts.to_frame("pandas")
    total = frame.groupby(["text", "position"]).contribution.sum()
    np.testing.assert_allclose(total[0], parts.logit[0, :6], atol=1e-9)
    np.testing.assert_allclose(total[1], parts.logit[1, :3], atol=1e-9)
    head = frame[(frame.part == "head") & (frame.layer == 1) & (frame["head"] == 2) & (frame.text == 1)]
    np.testing.assert_array_equal(head.contribution, parts.heads[1, 1, 2, :3])
    assert parts.to_xarray().heads.dims == ("L", "B", "H", "T")
    np.testing.assert_allclose(parts.to_xarray().mlps, parts.mlps)


def test_what_a_notebook_shows(induction):
    trace = recorded(induction, "qzkfqz")
    lens, parts = logit_lens(induction, trace, "k"), logit_attribution(induction, trace, "k", "f")
    assert repr(lens) == "<LogitLens: 3 residual streams, 1 × 6 tokens>"
    assert repr(parts) == "<LogitAttribution of 'k' minus 'f': 2 × 4 heads, 1 × 6 tokens>"
    assert "blocks.1.output" in lens._repr_html_()
    assert "lens.to_frame()" in lens._repr_html_()
    assert "largest parts" in parts._repr_html_()
    assert f"of {parts.logit[0, -1]:+.3f}" in parts._repr_html_()
