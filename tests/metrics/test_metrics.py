"""Metrics against the definitions of the papers, written out on whole maps."""

import itertools

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, attention
from regard.metrics import (
    corpus_head_metrics,
    flow,
    head_metrics,
    layer_maps,
    repeated_tokens,
    rollout,
    strongest_heads,
    value_norms,
)
from regard.metrics.heads import METRICS
from regard.text.encoding import Encoding

LAYERS, HEADS, LENGTH = 3, 2, 7
IDS = (9, 4, 5, 4, 4, 5, 8)  # [CLS] a b a a b [SEP]
SPECIAL = (True, False, False, False, False, False, True)


def encoding(length=LENGTH):
    return Encoding("", IDS[:length], ("t",) * length, SPECIAL[:length], tuple(range(length)), tuple([(0, 0)] * length))


def random_trace(rng, *, maps=True, causal=False, lengths=(LENGTH,), layers=LAYERS, size=LENGTH):
    """Return the trace of attentions between random vectors, of texts of some lengths."""
    trace = Trace(maps=maps, only="*")
    trace.set_metadata("made up", [encoding(n) for n in lengths] if size == LENGTH else ())
    for layer in range(layers):
        q, k = rng.standard_normal((2, len(lengths), HEADS, size, 3)) * 2
        with trace.scope(f"blocks.{layer}.attn"):
            attention(q, k, k, causal=causal, key_lengths=np.array(lengths), trace=trace)
    return trace


def mixed(trace, layer, length=LENGTH, batch=0):
    weights = trace[f"blocks.{layer}.attn.weights"][batch, :, :length, :length].mean(0) + np.eye(length)
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture(autouse=True)
def few_rows_at_once(monkeypatch):
    monkeypatch.setattr(layer_maps, "WEIGHTS_PER_BLOCK", 3 * HEADS * LENGTH)


@pytest.mark.parametrize("maps", [True, False])
def test_rollout_is_the_product_of_the_mixed_weights(rng, maps):
    trace = random_trace(rng, maps=maps, lengths=(LENGTH, 5))
    for batch, length in enumerate((LENGTH, 5)):
        whole = np.linalg.multi_dot([mixed(trace, layer, length, batch) for layer in (2, 1, 0)])
        np.testing.assert_allclose(rollout(trace, batch=batch), whole, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(rollout(trace, rows=[3, -1], batch=batch), whole[[3, -1]], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(whole.sum(-1), 1)


def min_cut(pipes, start, end):
    """Return the capacity of the narrowest cut, by trying every one: the maximum flow (Ford and Fulkerson 1956)."""
    length, floors = len(pipes[0]), len(pipes) - 1
    least = np.inf
    for sides in itertools.product([True, False], repeat=length * floors):
        inside = np.array(sides).reshape(floors, length)  # of the part that the start is in
        top, bottom = np.arange(length) == start, np.zeros(length, dtype=bool)
        rows = [bottom, *inside, top]
        # what ends at the bottom beside `end` leads nowhere, and does not count
        cut = sum(
            (pipe[np.ix_(above, ~below)]).sum()
            for pipe, below, above in zip(pipes[1:], rows[1:-1], rows[2:], strict=True)
        )
        cut += pipes[0][inside[0] if floors else top, end].sum()
        least = min(least, cut)
    return least


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_flow_is_the_narrowest_cut(layers, seed):
    size = 4 if layers < 4 else 3
    rng = np.random.default_rng(seed)
    trace = random_trace(rng, lengths=(size,), layers=layers, size=size, causal=seed % 2 == 1)
    pipes = [mixed(trace, layer, size) for layer in range(layers)]
    expected = [[min_cut(pipes, i, j) for j in range(size)] for i in range(size)]
    np.testing.assert_allclose(flow(trace), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(flow(trace, rows=2), expected[2:3], rtol=0, atol=1e-11)


def test_flow_returns_excess_that_was_pushed_the_wrong_way():
    """A network in which the first way found blocks a second, of which the narrow places are 0.1 wide."""
    from regard.metrics.flow import _flows

    upper, middle, lower = np.zeros((3, 3, 3))
    upper[0, :2] = 0.5, 0.5
    middle[0, 0], middle[0, 1], middle[1, 0] = 0.5, 0.5, 0.5
    lower[0, 2], lower[1, 2] = 0.5, 0.5
    assert _flows([lower, middle, upper], 0)[2] == pytest.approx(1.0)


def test_flow_has_a_limit(rng):
    with pytest.raises(RegardError, match="flow takes at most 128 tokens, got 129"):
        flow(random_trace(rng, lengths=(129,), size=129, layers=1))


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_head_metrics_are_their_definitions(rng, maps, causal):
    trace = random_trace(rng, maps=maps, causal=causal, lengths=(LENGTH, 5))
    found = head_metrics(trace)
    assert found.layers == ("blocks.0.attn", "blocks.1.attn", "blocks.2.attn")
    assert found.entropy.shape == (2, LAYERS, HEADS)
    for batch, length in enumerate((LENGTH, 5)):
        sinks = [j for j in range(length) if j == 0 or SPECIAL[j]]
        pairs = [(i, j) for i in range(length) for j in range(i) if IDS[i] == IDS[j] and not SPECIAL[i]]
        for layer, head in itertools.product(range(LAYERS), range(HEADS)):
            w = trace[f"blocks.{layer}.attn.weights"][batch, head]
            rows = [[x for x in row[:length] if x > 0] for row in w[:length]]
            entropies = [-sum(x * np.log(x) for x in row) for row in rows]
            others = [i for i in range(length) if i not in sinks]
            again = sorted({i for i, _ in pairs})
            after = [(i, j + 1) for i, j in pairs if j + 1 != i]
            expected = {
                "entropy": np.mean(entropies),
                "evenness": np.mean(
                    [e / np.log(max(2, len(row))) for e, row in zip(entropies, rows, strict=True)][causal:]
                ),
                "distance": np.mean([sum(w[i, j] * abs(i - j) for j in range(length)) for i in range(length)]),
                "sink": np.mean([sum(w[i, j] for j in sinks) for i in others]),
                "previous_token": np.mean([w[i, i - 1] for i in range(1, length)]),
                "duplicate_token": sum(w[i, j] for i, j in pairs) / len(again),
                "induction": sum(w[i, j] for i, j in after) / len({i for i, _ in after}),
                "current_token": np.mean([w[i, i] for i in range(length)]),
                "next_token": np.mean([w[i, i + 1] for i in range(length - 1)]),
                "separator": np.mean(
                    [sum(w[i, j] for j in range(1, length) if SPECIAL[j]) for i in range(length) if not SPECIAL[i]]
                    if any(SPECIAL[1:length])
                    else np.nan
                ),
            }
            assert {*expected, "punctuation"} == METRICS.keys()  # which has a test of its own
            for name, value in expected.items():
                np.testing.assert_allclose(getattr(found, name)[batch, layer, head], value, rtol=1e-10, err_msg=name)


def heads_that(pattern):
    """Return the trace of one head on a b c a b c with a given pattern."""
    ids = (4, 5, 6, 4, 5, 6)
    trace = Trace(only="*attn.weights")
    trace.set_metadata("", [Encoding("", ids, ("",) * 6, (False,) * 6, tuple(range(6)), tuple([(0, 0)] * 6))])
    with trace.scope("blocks.0.attn"):
        trace("weights", np.asarray(pattern, dtype=float)[None, None], "... H T S")
    return head_metrics(trace)


@pytest.mark.parametrize(
    ("label", "pattern"),
    [
        ("induction", np.eye(6)[[0, 0, 1, 1, 2, 3]]),
        ("duplicate_token", np.eye(6)[[0, 0, 1, 0, 1, 2]]),
        ("previous_token", np.eye(6)[[0, 0, 1, 2, 3, 4]]),
        ("sink", np.eye(6)[[0] * 6]),
        ("broad", np.tri(6) / np.tri(6).sum(-1, keepdims=True)),
        ("narrow", np.eye(6)),
    ],
)
def test_a_head_that_does_one_thing_is_called_so(label, pattern):
    found = heads_that(pattern)
    assert found.label(0, 0, 0) == label
    if label in ("induction", "duplicate_token", "previous_token", "sink"):
        assert getattr(found, label)[0, 0, 0] == pytest.approx(1)


def test_a_metric_is_added_in_one_place(request):
    from regard.metrics import METRICS
    from regard.metrics.registry import metric
    from regard.terminal import heads_rows, heads_table

    def one_ahead(block):
        before_last = block.rows < 5
        return block.weights[:, range(len(block.rows)), np.minimum(block.rows + 1, 5)], before_last

    metric("One ahead", "share", "The share of the token just after.", label_from=0.9)(one_ahead)
    request.addfinalizer(lambda: METRICS.pop("one_ahead"))
    found = heads_that(np.eye(6)[[1, 2, 3, 4, 5, 5]])
    assert found.one_ahead[0, 0, 0] == 1
    assert (found.label(0, 0, 0), heads_rows(found, sort="one_ahead")[0]["one_ahead"]) == ("one_ahead", 1)
    assert "one_ahead" in str(heads_table(found))


def test_repeated_tokens_come_twice_between_the_special_ones(write_bert):
    model = regard.load(write_bert({"max_position_embeddings": 40}, POSITIONS))
    seen = []

    class Watched:
        name, config, tokenizer = model.name, model.config, model.tokenizer

        def __call__(self, ids, trace):
            seen.append(ids)
            return model(ids, trace=trace)

    found = repeated_tokens(Watched(), length=6, seed=3)
    ids = seen[0]
    assert (ids[0], ids[-1], len(ids)) == (2, 3, 14)
    np.testing.assert_array_equal(ids[1:7], ids[7:13])
    assert ids[1:7].min() > 4  # none of [PAD] [UNK] [CLS] [SEP] [MASK]
    assert np.isfinite(found.induction).all()
    np.testing.assert_array_equal(repeated_tokens(model, length=6, seed=3).induction, found.induction)


POSITIONS = {
    "embeddings.position_embeddings.weight": np.random.default_rng(0).standard_normal((40, 12)).astype(np.float32)
}


@pytest.mark.parametrize("maps", [True, False])
def test_value_norms_are_the_norms_of_transformed_values(write_bert, maps):
    model = regard.load(write_bert())
    trace = recorded(model, ["the cat sat", "a"], maps=maps, only="*")
    for batch, length in ((0, 5), (1, 3)):
        weights = trace["blocks.1.attn.weights"][batch].astype(float)
        values = trace["blocks.1.attn.v"][batch].astype(float)
        projection = model.blocks[1].attn.o_proj.weight.astype(float)
        handed = np.zeros((3, length, length, 12))
        for h, i, j in itertools.product(range(3), range(length), range(length)):
            handed[h, i, j] = weights[h, i, j] * values[h, j] @ projection[4 * h : 4 * h + 4]
        each = value_norms(model, trace, 1, batch=batch)
        np.testing.assert_allclose(each, np.linalg.norm(handed, axis=-1), rtol=1e-5)
        together = value_norms(model, trace, -1, heads="together", rows=[2], batch=batch)
        np.testing.assert_allclose(together, np.linalg.norm(handed.sum(0), axis=-1)[[2]], rtol=1e-4)
        if batch == 0:  # summed over heads and keys they are the output of the attention, without the bias
            output = trace["blocks.1.attn.output"][0] - model.blocks[1].attn.o_proj.bias
            np.testing.assert_allclose(handed.sum((0, 2)), output, rtol=1e-4, atol=1e-4)


def test_value_norms_are_of_what_is_added_to_the_residual_stream():
    """The first token of a decoder attends to itself alone: its vector is all that is added, scaled in Granite."""
    model, trace = regard.load(golden.FOLDER / "granite/plain", dtype=np.float64), Trace(maps=True, only="*")
    model(np.array([[5, 7, 9]]), trace=trace)
    added = trace["blocks.0.attn_residual"] - trace["embeddings"]
    norms = value_norms(model, trace, 0, heads="together")
    np.testing.assert_allclose(norms[0, 0], np.linalg.norm(added[0, 0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t: rollout(Trace()), "has no self-attention"),
        (lambda m, t: head_metrics(Trace()), "has no self-attention"),
        (lambda m, t: rollout(t, batch=1), "no sequence 1 in a batch of 1"),
        (lambda m, t: rollout(t, rows=5), "positions of the 5 tokens, got 5"),
        (lambda m, t: rollout(t, rows=0.5), "positions of the 5 tokens, got 0.5"),
        (lambda m, t: value_norms(m, t, 2), "layer 2 is out of range for 2"),
        (lambda m, t: value_norms(m, t, 0), r"no blocks\.0\.attn\.v: record it with"),
        (lambda m, t: value_norms(m, t, 0, heads="all"), "each or together, got 'all'"),
        (lambda m, t: value_norms(regard.models.toy("a"), t, 0), r"no blocks\.0\.attn\.o_proj\.weight"),
        (lambda m, t: repeated_tokens(m, length=0), "length must be a whole number of at least 1"),
        (lambda m, t: repeated_tokens(m, length=1 << 62), r"accepts at most \d+ tokens: repeat at most"),
        (lambda m, t: repeated_tokens(m, length=10**5000), "length must be less than 2 to the power of 63"),
        (lambda m, t: repeated_tokens(regard.models.toy("a b")), "no vocabulary to draw from"),
    ],
)
def test_mistakes(write_bert, call, message):
    model = regard.load(write_bert())
    trace = recorded(model, "the cat sat", only="*attn.weights")
    with pytest.raises(RegardError, match=message):
        call(model, trace)


def test_strongest_heads():
    values = np.array([[0.5, 0.1], [0.9, np.nan]])
    assert strongest_heads("induction", values) == [(1, 0), (0, 0)]  # 0.1 is below the label
    assert strongest_heads("induction", values / 10) == [(1, 0)]
    assert strongest_heads("distance", values) == [(1, 0)]
    assert strongest_heads("induction", np.full((1, 2), np.nan)) == []


@pytest.mark.minilm
@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Well, “no” — it is a #1 test?!", [1, 2, 4, 5, 9, 12, 13]),
        ("it cost $5 + tax", []),
    ],
)
def test_punctuation_is_the_share_of_tokens_of_marks_alone(minilm, text, marks):
    """In the first text the tokens are: well , “ no ” — it is a # 1 test ? !"""
    trace = recorded(minilm, text, only="*attn.weights")
    keys = np.array([i + 1 for i in marks], int)
    rows = np.setdiff1d(np.arange(1, len(trace.encodings[0]) - 1), keys)
    found = head_metrics(trace).punctuation[0]
    weights = trace["blocks.*.attn.weights"][:, 0]  # L H T S
    expected = weights[:, :, rows][..., keys].sum(-1).mean(-1) if len(keys) else np.full((6, 12), np.nan)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_punctuation_of_a_trace_without_tokens_is_not_defined(rng):
    assert np.isnan(head_metrics(random_trace(rng)).punctuation).all()


def first_token(block):
    return block.weights[..., 0], block.rows > 0


def test_an_own_metric_is_the_mean_of_rows_that_count(rng):
    trace = random_trace(rng, lengths=(LENGTH, 5))
    found = head_metrics(trace, own={"first_token": first_token})
    for batch, length in enumerate((LENGTH, 5)):
        for layer in range(LAYERS):
            weights = trace[f"blocks.{layer}.attn.weights"][batch, :, 1:length, 0]
            np.testing.assert_allclose(found.values["first_token"][batch, layer], weights.mean(-1), rtol=1e-12)
    assert list(found.values) == [*METRICS, "first_token"]
    assert found.first_token is found.values["first_token"]
    np.testing.assert_array_equal(found.entropy, head_metrics(trace).entropy)


def test_an_own_metric_in_half_precision_is_summed_in_double_precision(rng):
    found = head_metrics(random_trace(rng), own={"large": lambda b: (np.full_like(b.entropy, 6e4, "f2"), b.rows > 0)})
    np.testing.assert_array_equal(found.values["large"], np.full((1, LAYERS, HEADS), np.float64(np.float16(6e4))))


def test_an_own_metric_of_a_corpus_is_the_mean_of_texts_and_continues(induction, tmp_path):
    texts, own, path = ["qzkfqz", "abcabc", "kqxkqx"], {"first_token": first_token}, tmp_path / "sums"
    found = corpus_head_metrics(induction, texts, own=own)
    values = []
    for text in texts:
        induction(text, trace=(trace := Trace(maps=True)))
        values.append(head_metrics(trace, own=own).values["first_token"][0])
    np.testing.assert_allclose(found.means["first_token"], np.mean(values, 0), rtol=1e-12)
    assert found.counts["first_token"].min() == 3

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        corpus_head_metrics(induction, texts, own=own, batch_size=1, resume=path, progress=stop)
    with pytest.raises(RegardError, match="other"):
        corpus_head_metrics(induction, texts, batch_size=1, resume=path)
    resumed = corpus_head_metrics(induction, texts, own=own, batch_size=1, resume=path)
    np.testing.assert_array_equal(resumed.means["first_token"], found.means["first_token"])


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"entropy": first_token}, "names that are no metric of regard"),
        ({"layer": first_token}, "nor text, layer, head"),
        ([("mine", first_token)], "own= maps names to functions"),
        ({"mine": lambda block: (block.weights[..., 0] * 1j, block.rows > 0)}, "real values .* got complex128"),
        ({"mine": lambda block: (block.weights[..., 0].astype(str), block.rows > 0)}, "real values .* got <U"),
        ({"mine": lambda block: (block.weights.__imul__(0)[..., 0], block.rows > 0)}, "read-only"),
        ({"mine": lambda block: (block.ids.fill(0), block.rows > 0)}, "read-only"),
        ({"mine": 3}, "each with a function, got 'mine': 3"),
        ({"mine": lambda block: block.weights}, "metric 'mine' returns real values"),
        ({"mine": lambda block: (block.weights[..., 0], 1)}, r"which rows count, got float64 \(2, 3\) and int64 \(\)"),
    ],
)
def test_an_own_metric_that_is_none_is_refused(rng, own, problem):
    with pytest.raises(RegardError, match=problem):
        head_metrics(random_trace(rng), own=own)
