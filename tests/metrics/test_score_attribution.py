"""Scores and values as sums over writers: complete for every family, and true to the circuits that are known."""

import copy
import pickle
import re
import zlib
from dataclasses import dataclass

import numpy as np
import pytest

import golden
import golden_runs
import regard
from fake_traces import recorded
from regard import RegardError, Trace, edits
from regard.metrics import WHY_STEPS, Writer, logit_attribution, why
from regard.metrics.writers import Parts
from regard.models import toy
from regard.nn import Layer
from regard.nn.fast_paths import CACHES
from sweeps import sweep_after, sweep_except

TEXT = "qzkfqzabqzk"  # z follows q; k followed the first z
FEW = {case.split("/")[0]: case for case in golden.KEPT if not case.endswith("long")}


@pytest.fixture(scope="module")
def trace(induction):
    return recorded(induction, TEXT)


def recorded_runs(case, dtype, **options):
    """Yield a trace of each model of a golden case, of the batch that is kept with it."""
    for model, arguments in golden_runs.calls(case, dtype):
        yield recorded(model, *arguments, **options)


def random_cells(trace, seed):
    """Yield for each attention, text and head of a run a query and two keys to which it may attend."""
    rng = np.random.default_rng(seed)
    for name in (name.removesuffix(".weights") for name in trace.names() if name.endswith(".weights")):
        weights = trace[f"{name}.weights"]
        for batch, head in np.ndindex(weights.shape[:2]):
            text = (trace.target_encodings if name.startswith("decoder.") else trace.encodings)[batch]
            rows = weights[batch, head, : len(text)] > 0
            query = rng.choice(np.flatnonzero(rows.sum(-1) > 1))
            yield name, batch, head, int(query), rng.choice(np.flatnonzero(rows[query]), 2, replace=False).tolist()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), pytest.param(np.float32, 1e-4, marks=pytest.mark.sweep)]
)
@pytest.mark.parametrize("case", sweep_except(FEW.values(), golden.KEPT))
def test_the_parts_sum_to_the_recorded_score_and_value(case, dtype, tolerance):
    seed = zlib.crc32(case.encode())
    for trace in recorded_runs(case, dtype):
        for name, batch, head, query, (key, other) in random_cells(trace, seed):
            by = "token" if (query + key) % 2 else "head"
            scores = trace[f"{name}.scores"][batch, head, query]
            one = why(trace, name, head, query, key, batch=batch, by=by)
            two = why(trace, name, head, query, key, other, batch=batch, by=by)
            lengths = np.linalg.norm(one.q_parts.sum(0)) * np.linalg.norm(one.k_parts.sum(0)) * one.scale
            close = {"rtol": 0, "atol": tolerance * max(abs(scores[key]), abs(scores[other]), lengths)}
            assert one.pairs.shape == (len(one.query_writers), len(one.key_writers))
            for found, expected in ((one, scores[key]), (two, scores[key] - scores[other])):
                assert abs(found.score - expected) <= 1e-12 * abs(expected)
                np.testing.assert_allclose(found.pairs.sum(), expected, **close)
                np.testing.assert_allclose(found.queries, found.pairs.sum(1), **close)
                np.testing.assert_allclose(found.keys, found.pairs.sum(0), **close)
            last = next(
                x for stage in ("biased", "capped", "scores") if (x := trace.get(f"{name}.{stage}")) is not None
            )
            np.testing.assert_allclose(one.score + sum(one.terms.values()), last[batch, head, query, key], **close)

            moved = trace.carried(name, head, query, key, batch=batch, by=by)
            v = trace[f"{name}.v"][batch]
            v = v[head * len(v) // trace[f"{name}.weights"].shape[1], key]
            np.testing.assert_allclose(moved.values.sum(0), v, rtol=0, atol=tolerance * np.linalg.norm(v))
            assert abs(moved.shares.sum() - 1) < 1e-9
            assert moved.weight == trace[f"{name}.weights"][batch, head, query, key]


@pytest.mark.parametrize("maps", sweep_after(1, [False, True]))
@pytest.mark.parametrize("case", FEW.values(), ids=FEW)
def test_the_steps_that_it_needs_suffice(case, maps):
    for trace in recorded_runs(case, np.float64, optional=WHY_STEPS, maps=maps):
        for name, batch, head, query, keys in list(random_cells(trace, 1))[-3:]:
            for by in ("head", "token"):
                score = why(trace, name, head, query, *keys, batch=batch, by=by)
                assert abs(score.total - score.score) < 1e-9 * np.abs(score.pairs).sum()
                assert trace.carried(name, head, query, keys[0], batch=batch, by=by).weight > 0


@pytest.mark.parametrize("case", [case for case in FEW.values() if not case.startswith(golden.WITHOUT_MAPS)])
def test_a_later_head_reads_what_an_earlier_one_carried(case):
    """Summed over keys, what a head carried into a query is the part of that head, which `why` has."""
    for trace in recorded_runs(case, np.float64):
        scopes = [name.removesuffix(".weights") for name in trace.names() if name.endswith(".weights")]
        before = next(name for name in scopes if re.fullmatch(r"(decoder\.)?blocks\.0\.attn", name))
        after = [name for name in scopes if re.fullmatch(r"(decoder\.)?blocks\.1\.attn", name)]
        for name, batch, head, query, (key, _) in random_cells(trace, 0):
            if name not in after:
                continue
            score = why(trace, name, head, query, key, batch=batch)
            row = [writer.label.split(" ")[0] for writer in score.query_writers].index("L0H0")
            keys = np.flatnonzero(trace[f"{before}.weights"][batch, 0, query])
            moved = [trace.carried(before, 0, query, int(k), batch=batch).into_head(name, head) for k in keys]
            summed = sum(each.sum(0) for each in moved)
            np.testing.assert_allclose(summed, score.q_parts[row], rtol=0, atol=1e-9 * np.linalg.norm(score.q_parts))


@pytest.mark.parametrize(
    "case", ["gpt2/plain", "gemma2/capped", "granite/biased", "olmo2/plain", "deepseek_v3/plain", "gpt_oss/plain"]
)
def test_what_is_carried_to_a_logit_is_the_direct_logit_attribution_of_the_head(case):
    (trace,) = recorded_runs(case, np.float64)
    direct = logit_attribution(trace.source, trace, 5, versus=7)
    for layer, head in ((0, 1), (len(trace.source.blocks) - 1, 0)):
        keys = np.flatnonzero(trace[f"blocks.{layer}.attn.weights"][0, head, 4])
        moved = sum(trace.carried(layer, head, 4, int(key)).into_logit(5, versus=7).sum() for key in keys)
        np.testing.assert_allclose(moved, direct.heads[layer, 0, head, 4], rtol=1e-9)


@pytest.mark.parametrize("case", ["t5/gated", "bart/scaled"])
def test_what_a_decoder_carries_from_its_encoder_reaches_the_logit(case):
    """Logits are linear in what a head writes where the scales of norms are held; of T5 that is written out."""
    (trace,) = recorded_runs(case, np.float64)
    name = "decoder.blocks.0.cross_attn"
    keys = np.flatnonzero(trace[f"{name}.weights"][0, 0, 2])
    moved = [trace.carried(name, 0, 2, int(key)) for key in keys]
    for each in moved:
        assert {writer.detail for writer in each.writers if writer.kind == "mlp"} == {" (encoder)"}
        assert each.into_logit(5).shape == (len(each.writers),)
    if case == "t5/gated":
        model, written = trace.source, sum(each.outputs.sum(0) for each in moved)
        last = trace[f"decoder.blocks.{len(model.decoder.blocks) - 1}.output"][0, 2]
        norm = model.decoder.final_norm
        read = written / np.sqrt((last**2).mean() + norm.eps) * norm.weight
        head = model.token_embedding.weight.T if model.lm_head is None else model.lm_head.weight
        factor = 1.0 if model.lm_head is not None else last.size**-0.5
        logit = factor * read @ head[:, 5]
        np.testing.assert_allclose(sum(each.into_logit(5).sum() for each in moved), logit, rtol=1e-9)
    with pytest.raises(RegardError, match="writes nothing that the logits reads directly"):
        trace.carried("encoder.blocks.0.attn", 0, 2, 1).into_logit(5)


def test_an_induction_head_is_the_textbook_circuit(trace):
    """A head of layer 0 attends to the token before; its output is the key, and the token embedding the query."""
    weights = trace["blocks.0.attn.weights"][0]
    reads_token_before = [np.diagonal(head, -1).mean() for head in weights]
    head = int(np.argmax(reads_token_before))
    assert reads_token_before[head] > 0.9
    for induction_head in range(4):
        score = trace.why(1, induction_head, query=5, key=2, versus=1)
        first = score.top(1)[0]
        assert (first.query.label, first.key.label) == ("token embedding", f"L0H{head}")
        assert first.value > score.score / 3
        assert score.weight > 0.9
        split = trace.why(1, induction_head, query=5, key=2, by="token").top(1)[0]
        assert split.key.label == f"L0H{head} reading 'z'"
    assert trace.carried(1, 0, 5, 2).into_logit("k", versus="f").sum() > 1


def test_a_split_by_token_sums_to_the_whole_heads(trace):
    whole, split = (trace.why(1, 2, 9, 4, by=by) for by in ("head", "token"))
    heads = [w.index if w.kind == "head" else -1 for w in split.key_writers]
    for column, writer in enumerate(whole.key_writers):
        if writer.kind == "head":
            of_head = split.keys[[i for i, head in enumerate(heads) if head == writer.index]]
            np.testing.assert_allclose(of_head.sum(), whole.keys[column], atol=1e-5)


def test_the_largest_pairs_are_those_of_the_matrix(trace):
    score = trace.why(1, 1, 9, 4, by="token")
    order = np.argsort(-np.abs(score.pairs), axis=None)
    for n in (1, 7, 300):
        np.testing.assert_allclose([abs(pair.value) for pair in score.top(n)], np.abs(score.pairs).flat[order[:n]])
    assert len(score.top(10**9)) == score.pairs.size


def test_the_table_has_all_pairs(trace):
    score = trace.why(1, 1, 9, 4)
    columns = score.to_columns()
    assert abs(columns["contribution"].sum() - score.score) < 1e-4
    first = score.top(1)[0]
    assert (columns["query_writer"][0], columns["key_writer"][0]) == (first.query.label, first.key.label)


def test_experts_are_writers():
    (trace,) = recorded_runs("deepseek_v3/plain", np.float64)
    score = why(trace, 2, 0, 4, 2)
    labels = [writer.label for writer in score.query_writers]
    experts = np.flatnonzero(trace["blocks.1.mlp.experts"][0, [4, 2]].any(0))
    assert [label for label in labels if label.startswith("L1 expert")] == [f"L1 expert {i}" for i in experts]
    assert "L1 shared expert" in labels
    assert "L0 MLP" in labels


@pytest.mark.parametrize("case", ["vit/plain", "clip_vision_model/plain", "dinov2/plain"])
def test_the_class_and_the_patches_of_a_picture_are_writers(case):
    (trace,) = recorded_runs(case, np.float64)
    score = why(trace, 1, 0, "[CLS]", "r1c0")
    labels = [writer.label for writer in score.query_writers]
    assert labels[:3] == ["class embedding", "patch embedding", "position embedding"]
    assert (score.queries[:2] != 0).tolist() == [True, False]
    assert (score.keys[:2] != 0).tolist() == [False, True]


def test_a_cap_and_a_position_bias_are_terms_of_their_own():
    (capped,) = recorded_runs("gemma2/capped", np.float64)
    score = why(capped, 1, 0, 3, 2)
    cap = capped.source.blocks[1].attn.softcap
    assert abs(score.terms["softcap"] - (cap * np.tanh(score.score / cap) - score.score)) < 1e-12
    (t5,) = recorded_runs("t5/gated", np.float64)
    name = "decoder.blocks.0.cross_attn"
    labels = [writer.label for writer in why(t5, name, 1, 3, 2, by="token").query_writers]
    assert any(label.startswith("L0H1 (decoder) reading ") for label in labels)
    moved = t5.carried("decoder.blocks.0.attn", 1, 3, 2).into_head(name, 0)
    assert moved.shape[0] == len(t5.carried("decoder.blocks.0.attn", 1, 3, 2).writers)
    bias = t5["encoder.blocks.1.attn.biased"] - t5["encoder.blocks.1.attn.scores"]
    assert why(t5, "encoder.blocks.1.attn", 1, 3, 2).terms == {"bias": bias[0, 1, 3, 2]}


def test_the_constant_is_what_no_token_changes():
    (trace,) = recorded_runs("gpt_neox/plain", np.float64)
    score = why(trace, 1, 0, 4, 2)
    rows, columns = ([w.kind == "bias" for w in each] for each in (score.query_writers, score.key_writers))
    assert score.constant != 0
    assert abs(score.constant - score.pairs[np.ix_(rows, columns)].sum()) < 1e-12


def test_the_run_is_not_repeated_and_needs_few_steps(induction):
    few, maps = Trace(optional=WHY_STEPS), Trace(maps=True, only="*")
    for trace in (few, maps):
        induction(TEXT, trace=trace)
    assert "blocks.0.attn.q" not in few
    one, two = (trace.why(1, 0, 5, 2) for trace in (few, maps))
    np.testing.assert_allclose(one.pairs, two.pairs, atol=1e-4)
    assert abs(one.weight - two.weight) < 1e-5


def test_a_saved_trace_needs_its_model(induction, trace, tmp_path):
    trace.save(tmp_path / "run.safetensors")
    loaded = Trace.load(tmp_path / "run.safetensors")
    with pytest.raises(RegardError, match="has no model: it is from a file"):
        loaded.why(1, 0, 5, 2)
    np.testing.assert_array_equal(loaded.why(1, 0, 5, 2, model=induction).pairs, trace.why(1, 0, 5, 2).pairs)
    assert trace.source is induction
    assert pickle.loads(pickle.dumps(trace)).source is None


def test_one_text_of_a_batch(induction, trace):
    batch = recorded(induction, ["qz", TEXT])
    for found in (batch.why(1, 0, 5, 2, batch=1), batch.select(1).why(1, 0, 5, 2)):
        np.testing.assert_allclose(found.pairs, trace.why(1, 0, 5, 2).pairs, atol=1e-4)


def test_what_an_edit_wrote_is_a_writer_of_its_own(induction):
    def add(x):
        x[:, 2] += 1.0
        return x

    trace = recorded(induction, TEXT, edit={"blocks.0.output": add})
    score = trace.why(1, 0, 5, 2)
    edit = score.keys[[writer.label for writer in score.key_writers].index("edit of blocks.0.output")]
    assert abs(edit) > 1e-3
    assert abs(score.total - score.score) < 1e-4
    ablated = recorded(induction, TEXT, edit=edits.ablate(("blocks.0.attn", 1)))
    found, split = ablated.why(1, 0, 5, 2), ablated.why(1, 0, 5, 2, by="token")
    assert found.keys[[writer.label for writer in found.key_writers].index("L0H1")] == 0
    assert abs(found.total - found.score) < 1e-4
    assert abs(split.total - split.score) < 1e-4
    removed = [w.label in ("L0H1 reading 'z'", "edit of blocks.0.attn.context of head 1") for w in split.key_writers]
    assert abs(split.keys[removed].sum()) < 1e-3 < abs(split.keys[removed]).max()
    heads, read = (
        Trace(only=("*", name), edit=edit)
        for name, edit in (
            ("*.head_outputs", {"blocks.0.attn.head_outputs": lambda x: x * 1.5}),
            ("*.attn_norm", {"blocks.1.attn_norm": lambda x: x * 1.5}),
        )
    )
    for trace, edited in ((heads, "blocks.0.attn.output"), (read, "blocks.1.attn_norm")):
        induction(TEXT, trace=trace)
        found = trace.why(1, 0, 5, 2)
        assert f"edit of {edited}" in [writer.label for writer in found.key_writers]
        assert abs(found.total - found.score) < 1e-4


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("the run edited blocks.1.attn.q, which", {"edit": {"blocks.1.attn.q": lambda q: q * 2}}),
        ("the run edited blocks.1.attn.scores, which", {"edit": {"blocks.1.attn.scores": lambda x: x * 2}}),
        ("the run edited blocks.1.attn.biased, which", {"edit": {"blocks.1.attn.biased": lambda x: x - 1}}),
        ("the run edited blocks.1.attn_norm.scale: a norm", {"edit": {"blocks.1.attn_norm.scale": lambda x: x * 2}}),
        ("the run started from a block", {"start": {"blocks.0.output": np.zeros((1, 11, 128), np.float32)}}),
    ],
)
def test_a_run_that_is_not_a_sum_of_what_was_written_is_refused(induction, message, options):
    trace = recorded(induction, TEXT, **options)
    with pytest.raises(RegardError, match=re.escape(message)):
        trace.why(1, 0, 5, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named_as_such(induction, bad):
    def put(x):
        x = x.copy()
        x[0, 2] = bad
        return x

    broken = recorded(induction, TEXT, edit={"blocks.0.mlp.output": put})
    for what, explained in (("scores", broken.why), ("value", broken.carried)):
        with pytest.raises(RegardError, match=f"the run has values that are not finite, in the {what} or before"):
            explained(1, 0, 5, 2)


def test_a_run_with_gradients_and_copies_of_a_trace_are_explained(induction, trace):
    of_gradients = induction.gradients(TEXT, lambda output: output.logits[0, -1, 0], at="*").values
    wanted = trace.why(1, 0, 5, 2).score
    for each in (copy.copy(trace), copy.deepcopy(trace)):
        assert each.why(1, 0, 5, 2).score == wanted
    assert abs(of_gradients.why(1, 0, 5, 2, model=induction).score - wanted) < 1e-4
    with pytest.raises(RegardError, match="model is what the trace is of"):
        trace.why(1, 0, 5, 2, model=induction.blocks[0])
    with pytest.raises(RegardError, match="the trace is of induction, and model= is minilm"):
        trace.why(1, 0, 5, 2, model=regard.load("minilm"))


def test_another_model_and_an_edited_run_from_a_file_are_noticed(induction, trace, tmp_path):
    other = copy.copy(induction)
    object.__setattr__(other, "blocks", induction.blocks[::-1])
    with pytest.raises(RegardError, match="the parts do not sum to the scores of the run: the trace is of another"):
        trace.why(1, 0, 5, 2, model=other)
    with pytest.raises(RegardError, match="the parts do not sum to the value of the run"):
        trace.carried(1, 0, 5, 2, model=other)
    edited = recorded(induction, TEXT, edit={"blocks.0.output": lambda x: np.roll(x, 1, axis=-1)})
    edited.save(tmp_path / "run.safetensors")
    with pytest.raises(RegardError, match="read from a file"):
        Trace.load(tmp_path / "run.safetensors").why(1, 0, 5, 2, model=induction)
    value = recorded(induction, TEXT, edit={"blocks.1.attn.v": lambda v: v * 2})
    with pytest.raises(RegardError, match=r"the run edited blocks\.1\.attn\.v"):
        value.carried(1, 0, 5, 2)


def test_a_toy_layer_and_words_as_positions():
    model, trace = toy("the cat sat on a mat"), Trace()
    model("the cat sat", trace=trace)
    score = trace.why(0, 0, "sat", "cat", versus="the")
    assert [writer.label for writer in score.query_writers] == ["token embedding", "position embedding"]
    scores = trace["blocks.0.attn.scores"][0, 0, 2]
    assert abs(score.pairs.sum() - (scores[1] - scores[0])) < 1e-6


def test_shown(trace):
    score, moved = trace.why(1, 0, 5, 2), trace.carried(1, 0, 5, 2)
    lines = repr(score).splitlines()
    assert lines[0].startswith("<ScoreAttribution of blocks.1.attn head 0: 'z' attends to 'k', score +")
    assert "norm scales frozen" in lines[0]
    assert lines[1].endswith("token embedding (query) · L0H1 (key)")
    assert "L0H1" in score._repr_html_()
    assert "%  token embedding" in repr(moved)
    assert "token embedding" in moved._repr_html_()
    assert str(moved.to_columns()["writer"][0]) == "token embedding"


ERRORS = {
    "there is no token 99 for the query": lambda t: t.why(1, 0, 99, 2),
    "there is no token True for the key": lambda t: t.why(1, 0, 5, True),
    "the key 'z' is at 1, 5, 9: give its position": lambda t: t.why(1, 0, 5, "z"),
    "the query 'y' is not a token of the text, which has 'q', 'z', 'k'": lambda t: t.why(1, 0, "y", 2),
    "key and versus are one token, 'k': their difference is 0": lambda t: t.why(1, 0, 5, -9, versus=2),
    "to and versus are the same token, 'k'": lambda t: t.carried(1, 0, 5, 2).into_logit("k", "k"),
    "'k' does not attend to 'z': a mask hides it": lambda t: t.why(1, 0, 2, 5),
    "'z' does not attend to 'z': a mask hides it": lambda t: t.carried(1, 0, 1, 9),
    "has no head 4: it has 4": lambda t: t.why(1, 4, 5, 2),
    "has no attention blocks.2.attn: there are blocks.0.attn, blocks.1.attn": lambda t: t.carried(2, 0, 5, 2),
    "there is no text 1 in a batch of 1": lambda t: t.why(1, 0, 5, 2, batch=1),
    "by must be one of head, token": lambda t: t.why(1, 0, 5, 2, by="layer"),
    "layer must be a whole number": lambda t: t.why(None, 0, 5, 2),
    "head must be a whole number": lambda t: t.why(1, "0", 5, 2),
    "reads must be one of q, k, v": lambda t: t.carried(0, 0, 5, 2).into_head(1, 0, "z"),
    "blocks.1.attn writes nothing that blocks.1.attn.q reads": lambda t: t.carried(1, 0, 5, 2).into_head(1, 0),
}


@pytest.mark.parametrize("message", ERRORS)
def test_a_wrong_argument_is_a_sentence(trace, message):
    with pytest.raises(RegardError, match=re.escape(message)):
        ERRORS[message](trace)


def test_a_trace_without_a_step_says_which_to_record(induction):
    for only, missing in (
        (["*embeddings", "*attn.context", "*mlp.output"], "blocks.1.attn.weights"),
        (["*embeddings", "*attn.context", "*mlp.output", "*attn.weights"], "blocks.1.attn.scores"),
        (["*attn.scores", "*attn.weights"], "token_embeddings"),
    ):
        trace = recorded(induction, TEXT, only=only)
        call = trace.carried if missing.endswith("weights") else trace.why
        with pytest.raises(
            RegardError, match=rf"the trace has no \S*{missing}, .* Trace\(optional=regard.metrics.WHY_STEPS"
        ):
            call(1, 0, 5, 2)


def test_of_many_attentions_ten_are_named():
    model, trace = copy.copy(regard.load("induction")), Trace()
    object.__setattr__(model, "blocks", model.blocks * 6)
    vars(model).update(dict.fromkeys(CACHES))
    model(TEXT, trace=trace)
    with pytest.raises(RegardError, match=r"there are blocks\.0\.attn, .* blocks\.9\.attn and 2 more$"):
        trace.why("3", 0, 5, 2)


def test_a_trace_of_a_bare_layer_and_an_encoder_decoder(trace):
    bare = Trace()
    x = np.eye(4)
    regard.attention(x, x, x, trace=bare)
    with pytest.raises(RegardError, match="the trace is of no model"):
        bare.why(0, 0, 1, 1)
    (t5,) = recorded_runs("t5/gated", np.float64)
    with pytest.raises(RegardError, match=r"name the attention, such as 'encoder\.blocks\.0\.attn'"):
        t5.why(0, 0, 1, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Shift(Layer):
    """A layer between tokens without scores: each reads the one before."""

    def __call__(self, x, *, trace):
        return trace("output", np.roll(x, 1, axis=-2), "... T E")


@dataclass(frozen=True, eq=False, repr=False)
class ShiftBlock(Layer):
    """A block as a new family may have it."""

    mixer: Shift

    def __call__(self, x, *, rotation, cache, mask, trace):
        with trace.scope("mixer"):
            y = self.mixer(x, trace=trace)
        return trace("output", x + y * 0.5, "... T E"), cache


def test_a_new_block_is_read_by_its_own_code_and_a_layer_without_scores_refused(induction):
    model, trace = copy.copy(induction), Trace()
    object.__setattr__(model, "blocks", (ShiftBlock(Shift()), induction.blocks[1]))
    vars(model).update(dict.fromkeys(CACHES))
    model(TEXT, trace=trace)
    score = trace.why(1, 0, 5, 2)
    assert [writer.label for writer in score.query_writers] == ["token embedding", "L0 mixer"]
    assert abs(score.total - score.score) < 1e-4 * np.abs(score.pairs).sum()
    for layer in (0, "blocks.0.mixer"):
        with pytest.raises(RegardError, match=r"blocks\.0\.mixer is a Shift, which has no scores between tokens"):
            trace.why(layer, 0, 5, 2)
    with pytest.raises(RegardError, match=r"blocks\.0 of induction has no attention \(ShiftBlock\)"):
        logit_attribution(model, trace, "b")


def test_parts_take_the_place_of_an_array_in_the_code_of_a_model():
    rng = np.random.default_rng(0)
    x, y, factor = rng.standard_normal((2, 1, 3)), rng.standard_normal((3, 1, 3)), np.arange(3.0)
    one, two = (Parts(lambda values=values: ((Writer("mlp"),) * len(values), values), np.float64) for values in (x, y))
    found = (one + two) * np.float64(2) * factor
    np.testing.assert_allclose(found.total, (x.sum(0) + y.sum(0)) * 2 * factor)
    np.testing.assert_allclose(found.values, np.concatenate([x, y]) * 2 * factor)
    assert (np.float32(2) * one).dtype == np.float64
    assert np.where(np.array([[[True]]]), one, 0) is one  # padding becomes 0, and is not read
    for wrong in (lambda: np.exp(one), lambda: np.concatenate([one, two]), lambda: one + 1.0):
        with pytest.raises(TypeError):
            wrong()


def test_a_padded_batch_of_an_encoder_without_such_a_layer():
    (trace,) = recorded_runs("bert/gelu", np.float64)
    with pytest.raises(RegardError, match=r"has no attention blocks\.7\.attn"):
        why(trace, 7, 0, 1, 2, batch=1)
