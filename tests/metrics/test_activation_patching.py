"""Grids of patched runs against one run for each site; paths against the arithmetic of the residual stream."""

import dataclasses

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, edits, nn
from regard.metrics import PathEffect, logit_attribution, patch_grid, path_patching

CLEAN, CORRUPTED = [5, 9, 4, 9, 11, 6, 5], [5, 8, 4, 9, 7, 6, 5]
A, B = 7, 3
STEPS = {("layer", "position"): "output", "attn": "attn.output", "mlp": "mlp.output", "head": "attn.context"}
CASES = [
    next(case for case in golden.KEPT if case.startswith(family))
    for family in ("llama", "gpt2", "gpt_neox", "gemma2", "qwen3")
]


def texts(model):
    return model.tokenizer.from_ids(CLEAN), model.tokenizer.from_ids(CORRUPTED)


def difference(output):
    return output.logits[0, -1, A] - output.logits[0, -1, B]


@pytest.fixture(params=CASES)
def model(request):
    return regard.load(golden.FOLDER / request.param)


@pytest.mark.parametrize("over", STEPS)
def test_a_grid_is_a_loop_of_patched_runs(model, over):
    clean, corrupted = texts(model)
    trace = recorded(model, clean)
    grid = patch_grid(model, clean, corrupted, (A, B), over=over, batch_size=3)
    where = "heads" if over == "head" else "positions"
    for i in range(len(model.blocks)):
        name = f"blocks.{i}.{STEPS[over]}"
        assert grid.steps[i] == name
        for j in range(len(grid.columns)):
            expected = difference(model(corrupted, edit=edits.patch(trace, name, **{where: j})))
            assert grid.values[i, j] == pytest.approx(expected, rel=1e-4, abs=2e-5)
    assert grid.clean == pytest.approx(difference(model(clean)), rel=1e-5, abs=1e-6)
    assert grid.corrupted == pytest.approx(difference(model(corrupted)), rel=1e-5, abs=1e-6)
    assert len(set(np.round(grid.values.ravel(), 4))) > len(model.blocks)


@pytest.mark.parametrize("over", STEPS)
def test_chosen_layers_and_positions_are_a_part_of_the_grid(model, over):
    clean, corrupted = texts(model)
    whole, last = patch_grid(model, clean, corrupted, (A, B), over=over), len(model.blocks) - 1
    chosen = {} if over == "head" else {"positions": (-1, 2)}
    part = patch_grid(model, clean, corrupted, (A, B), over=over, layers=[-1], **chosen)
    sites = list(whole.sites) if over == "head" else [len(CLEAN) - 1, 2]
    np.testing.assert_allclose(part.values, whole.values[last:, sites], rtol=1e-4, atol=1e-5)
    assert (part.clean, part.corrupted) == (whole.clean, whole.corrupted)
    assert (part.layers, part.sites) == ((last,), tuple(sites))
    assert part.steps == whole.steps[last:]
    assert part.columns == tuple(whole.columns[i] for i in sites)
    site = "head" if over == "head" else "position"
    assert part.to_columns()["layer"].tolist() == [last] * len(sites)
    assert part.to_columns()[site].tolist() == sites


def test_a_function_of_the_output_gives_the_same(model):
    clean, corrupted = texts(model)
    one, other = (patch_grid(model, clean, corrupted, metric) for metric in ((A, B), difference))
    np.testing.assert_allclose(one.values, other.values, rtol=1e-4, atol=1e-5)


def test_everything_is_recovered_at_the_last_position_of_the_last_block(model):
    clean, corrupted = texts(model)
    recovered = patch_grid(model, clean, corrupted, (A, B)).recovered
    assert recovered[-1, -1] == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(recovered[-1, :-1], 0, atol=1e-4)


def test_nothing_is_recovered_where_both_runs_have_the_same_number(model):
    clean, corrupted = texts(model)
    grid = patch_grid(model, clean, corrupted, (A, B))
    same = dataclasses.replace(grid, clean=1.0, corrupted=1.0)  # though a site gives another
    assert np.isnan(same.recovered).all()
    assert np.isnan(PathEffect("", "", 2.0, 1.0, 1.0).recovered)


def test_a_grid_starts_at_the_layer_that_changes(model, blocks_run):
    ran, layers = blocks_run(model), len(model.blocks)
    patch_grid(model, *texts(model), (A, B))
    assert [at for at in ran if at[1] == 7] == [(i, 7) for k in range(layers) for i in range(k, layers)]


def test_an_encoder_is_patched_in_whole_runs(minilm_like):
    clean, corrupted = "the cat sat", "a cat sat"
    trace = recorded(minilm_like, clean)
    grid = patch_grid(minilm_like, clean, corrupted, lambda o: o.hidden[0, 0].sum())
    edit = edits.patch(trace, "blocks.0.output", positions=1)
    assert grid.values[0, 1] == pytest.approx(minilm_like(corrupted, edit=edit).hidden[0, 0].sum(), rel=1e-4)
    assert grid.columns == minilm_like.tokenizer(clean).tokens


@pytest.fixture
def minilm_like(write_bert):
    return regard.load(write_bert())


@pytest.fixture
def llama():
    return regard.load(golden.FOLDER / CASES[0], dtype=np.float64)


@pytest.mark.parametrize("into", ["q", "k", "v"])
@pytest.mark.parametrize("to_head", [0, 1])
def test_the_direct_path_is_what_the_sender_adds_to_the_residual_stream(llama, into, to_head):
    """By hand: the receiver reads norm(residual + change of the sender), and nothing else changes."""
    clean, corrupted = texts(llama)
    runs = [Trace(), Trace()]
    for text, trace in zip((clean, corrupted), runs, strict=True):
        llama(text, trace=trace)
    one, other = (trace["blocks.0.attn.context"][0, 1] for trace in runs)
    sender, receiver = llama.blocks[0], llama.blocks[1]
    heads, kv_heads = receiver.attn.num_heads, receiver.attn.num_kv_heads
    weight = sender.attn.o_proj.weight.reshape(heads, -1, llama.config.embed_dim)[1]
    stream = runs[1]["blocks.0.output"] + (one - other) @ weight
    rotation = llama.config.rope(np.arange(len(clean)), stream.dtype)
    inputs = Trace(only=("q", "k", "v"))
    receiver.attn(receiver.attn_norm(stream), rotation=rotation, trace=inputs)
    q, k, v = (runs[1][f"blocks.1.attn.{name}"][0] for name in "qkv")
    q, k, v = q[to_head], *(np.repeat(x, heads // kv_heads, 0)[to_head] for x in (k, v))
    changed = {name: inputs[name][0] for name in "qkv"}
    at = to_head if into == "q" else to_head * kv_heads // heads
    q, k, v = (changed[name][at] if name == into else x for name, x in zip("qkv", (q, k, v), strict=True))
    context = regard.attention(q, k, v, causal=True)
    patched = runs[1]["blocks.1.attn.context"].copy()
    patched[0, to_head] = context
    expected = difference(llama(corrupted, edit={"blocks.1.attn.context": lambda _: patched}))
    found = path_patching(
        llama, clean, corrupted, (A, B), sender=(0, 1), receiver=(1, to_head), into=into, freeze_mlps=True
    )
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert abs(found.value - found.corrupted) > 1e-6


def test_feed_forward_layers_between_carry_the_path_too(llama):
    clean, corrupted = texts(llama)
    either = [
        path_patching(llama, clean, corrupted, (A, B), sender=(0, 1), receiver=(1, 0), freeze_mlps=frozen).value
        for frozen in (False, True)
    ]
    assert abs(either[0] - either[1]) > 1e-6


def test_the_path_of_the_induction_circuit():
    """The head of the previous token reaches the induction head by its keys, not by its queries."""
    model = regard.load("induction")
    texts = "qzkfqz", "qxkfqz"
    heads = patch_grid(model, *texts, ("k", "f"), over="head").recovered
    sender, receiver = (0, int(heads[0].argmax())), (1, int(heads[1].argmax()))
    effects = {
        into: path_patching(model, *texts, ("k", "f"), sender=sender, receiver=receiver, into=into)
        for into in ("q", "k")
    }
    changes = {into: effect.value - effect.corrupted for into, effect in effects.items()}
    assert changes["k"] > 5 * abs(changes["q"])


@pytest.mark.parametrize(
    ("function", "change", "message"),
    [
        (patch_grid, {"layers": [99]}, "there is no layer 99: there are"),
        (patch_grid, {"layers": []}, "no layer is chosen"),
        (patch_grid, {"positions": [0.5]}, "there is no position 0.5"),
        (patch_grid, {"positions": [0], "over": "head"}, "positions is not for heads"),
        (
            patch_grid,
            {"over": "layer"},
            r"over must be one of \('layer', 'position'\), 'attn', 'mlp', 'head', got 'lay",
        ),
        (patch_grid, {"metric": (A, B, A)}, "a metric is a token, two tokens, or a function of the output"),
        (patch_grid, {"metric": lambda o: o.hidden}, "the metric must be one number, got float64 of shape"),
        (patch_grid, {"batch_size": 0}, "batch_size must be"),
        (patch_grid, {"corrupted": CORRUPTED[:-1]}, "the same number of tokens, got 7 and 6"),
        (path_patching, {"receiver": (0, 1)}, r"must be in a later layer than the sender, got \(0, 0\) to \(0, 1\)"),
        (path_patching, {"receiver": (1, 99)}, r"there is no head \(1, 99\)"),
        (path_patching, {"sender": 3}, r"a head is given as \(layer, head\) or 'L3H7', got 3"),
        (path_patching, {"into": "x"}, "into must be q, k or v, got 'x'"),
    ],
)
def test_mistakes(llama, function, change, message):
    heads = {"sender": (0, 0), "receiver": (1, 0)} if function is path_patching else {}
    given = {"clean": CLEAN, "corrupted": CORRUPTED, "metric": (A, B)} | heads | change
    given |= {name: llama.tokenizer.from_ids(given[name]) for name in ("clean", "corrupted")}
    with pytest.raises(RegardError, match=message):
        function(llama, **given)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WithoutAttention(nn.Layer):
    """A block of a family that is defined elsewhere: a feed-forward layer alone."""

    mlp_norm: nn.RMSNorm
    mlp: nn.GatedFeedForward

    def __call__(self, x, *, cache=None, trace=regard.trace.NULL_RECORDER, **_):
        with trace.scope("mlp"):
            y = self.mlp(self.mlp_norm(x), trace=trace)
        return trace("output", x + y, "... T E"), cache


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, pair: path_patching(model, *pair, (A, B), sender=(0, 0), receiver=(2, 0)),
        lambda model, pair: path_patching(model, *pair, (A, B), sender=(1, 0), receiver=(2, 0)),
        lambda model, pair: patch_grid(model, *pair, (A, B), over="attn"),
        lambda model, pair: model.paths(pair[0], to=A, versus=B),
        lambda model, pair: logit_attribution(model, recorded(model, [pair[0]]), A),
    ],
)
def test_a_block_without_attention_is_named(llama, ask):
    first, last = llama.blocks[0], llama.blocks[-1]
    model = dataclasses.replace(llama, blocks=(first, WithoutAttention(first.mlp_norm, first.mlp), last))
    with pytest.raises(RegardError, match=r"blocks\.1 of .* has no attention \(WithoutAttention\)"):
        ask(model, texts(model))
    np.testing.assert_allclose(model(texts(model)[0]).hidden, model(texts(model)[0], trace=Trace()).hidden)


def test_paths_are_of_decoders(minilm_like):
    with pytest.raises(RegardError, match="is not a decoder"):
        path_patching(minilm_like, "the cat", "a cat", "cat", sender=(0, 0), receiver=(1, 0))


@pytest.mark.parametrize(
    ("clean", "corrupted", "which"), [(np.nan, 1, "clean text is nan"), (1, np.inf, "corrupted text is inf")]
)
def test_a_metric_that_is_no_number_of_a_text_recovers_nothing(llama, clean, corrupted, which):
    numbers = iter([clean, corrupted])
    with pytest.raises(RegardError, match=f"the metric of the {which}, so nothing can be recovered"):
        patch_grid(llama, *texts(llama), lambda output: next(numbers, 0.0))
