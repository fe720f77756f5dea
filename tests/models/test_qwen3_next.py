"""Qwen3-Next: layers of linear attention among layers with maps, and what is said where there is none."""

import tracemalloc

import numpy as np
import pytest
from explorations import explored

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, metrics
from regard.explorer.run import make_run
from regard.models.qwen3_next import GatedDeltaNet
from regard.nn import Linear, RMSNorm, parameters
from regard.nn.linear_state import LinearState
from regard.terminal import heads_rows
from regard.trace.memory_probe import MemoryProbe, list_taps
from regard.views.head_steps import head_steps

IDS, OTHERS = [3, 7, 9, 11, 5, 2], [3, 7, 9, 11, 5, 4]


@pytest.fixture(scope="module")
def model():
    """Return a model whose layers 0 and 2 attend."""
    return regard.load(golden.FOLDER / "qwen3_next/mixed", dtype=np.float64)


@pytest.fixture(scope="module")
def trace(model):
    return recorded(model, IDS)


def number(output):
    return output.logits[0, -1, 5]


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, trace: metrics.rollout(trace),
        lambda model, trace: metrics.flow(trace),
        lambda model, trace: metrics.logit_attribution(model, trace, 5),
        lambda model, trace: metrics.ablation_sweep(model, [IDS]),
        lambda model, trace: metrics.attribute(model, IDS, 5, method="attnlrp"),
        lambda model, trace: metrics.attribute(model, IDS, 5, method="relevance"),
        lambda model, trace: model.paths(IDS, to=5),
        lambda model, trace: model.circuits,
    ],
)
def test_what_needs_all_maps_names_the_layer_that_has_none(model, trace, ask):
    with pytest.raises(RegardError, match=r"in every layer, but blocks\.1 of .* is linear attention \(GatedDeltaNet\)"):
        ask(model, trace)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda _, trace: trace["blocks.1.attn.weights"], "blocks.1 is linear attention, blocks.1.linear_attn"),
        (lambda model, _: model(IDS, edit=regard.edits.ablate((1, 0))), "blocks.1 is linear attention"),
        (lambda _, trace: trace.why(1, 0, 5, 2), "blocks.1.linear_attn is a GatedDeltaNet, which has no scores"),
        (lambda model, trace: metrics.value_norms(model, trace, 0), "blocks.0.attn multiplies what a head has read by"),
        (
            lambda model, _: metrics.path_patching(model, IDS, OTHERS, number, sender=(0, 0), receiver=(1, 0)),
            r"no head \(1, 0\): blocks.1 of .* is linear attention",
        ),
    ],
)
def test_a_layer_without_heads_says_so(model, trace, ask, message):
    with pytest.raises(RegardError, match=message):
        ask(model, trace)


def test_a_rollout_of_a_record_from_a_file_misses_the_layer(model, tmp_path):
    recorded(model, IDS).save(tmp_path / "run.safetensors")
    with pytest.raises(RegardError, match=r"the trace has none of blocks\.1"):
        metrics.rollout(Trace.load(tmp_path / "run.safetensors"))


def test_layers_with_maps_keep_their_numbers(model, trace):
    found = metrics.head_metrics(trace)
    assert found.layers == ("blocks.0.attn", "blocks.2.attn")
    assert found.to_columns()["layer"].tolist() == [row["layer"] for row in heads_rows(found)] == [0] * 4 + [2] * 4
    assert metrics.corpus_head_metrics(model, [IDS]).to_columns()["layer"].tolist() == [0] * 4 + [2] * 4
    assert "L2H" in found._repr_html_()
    assert "L1H" not in found._repr_html_()
    assert metrics.patch_grid(model, IDS, OTHERS, number, over="head").layers == (0, 2)
    run = make_run(trace, model, 0)
    assert [layer["number"] for layer in run.layer_descriptions] == [0, 2]
    assert run.modes == ("raw",)


def test_the_explorer_names_the_layers_that_it_patches(model):
    exploration = explored(model, "w4 w8 w10 w12 w6 w3", "w4 w8 w10 w12 w6 w5")
    for over, layers in (("output", [0, 1, 2, 3]), ("mlp", [0, 1, 2, 3]), ("attn", [0, 1, 2, 3]), ("head", [0, 2])):
        answer = exploration.patching(0, 1, over=over)
        assert answer["layers"] == layers
        assert len(answer["recovered"]) == len(layers)
    path = exploration.patching(0, 1, over="path")
    assert (path["sender"][0], path["receiver"][0]) == (0, 2)


def test_the_attention_of_a_block_that_is_patched_may_be_linear(model):
    grid = metrics.patch_grid(model, IDS, OTHERS, 5, over="attn")
    assert grid.steps[:2] == ("blocks.0.attn.output", "blocks.1.linear_attn.output")
    clean = recorded(model, IDS)
    edit = regard.edits.patch(clean, "blocks.1.linear_attn.output", positions=-1)
    value = model(OTHERS, edit=edit).logits[0, -1, 5]
    assert grid.values[1, -1] == pytest.approx(value, rel=1e-12)


def test_a_path_passes_a_linear_layer_and_no_other_gate(model):
    """What the sender writes more in the clean run is all that is added to what the receiver reads."""
    clean, corrupted = recorded(model, IDS), recorded(model, OTHERS)
    context, gate, v = "blocks.0.attn.context", "blocks.0.attn.output_gate", "blocks.2.attn.v"
    rows = parameters(model)["blocks.0.attn.o_proj.weight"].reshape(4, 4, -1)[1]
    written = [(trace[context] * trace[gate])[:, 1] @ rows for trace in (clean, corrupted)]
    edit = regard.edits.add(written[0] - written[1], "blocks.1.output")
    read = Trace(only=v, edit=edit, stop=v)
    model(OTHERS, trace=read)
    last = regard.edits.patch(read, v) | regard.edits.freeze(corrupted, "blocks.2.attn.context", but=[(2, 3)])
    value = model(OTHERS, edit=last).logits[0, -1, 5]
    effect = metrics.path_patching(model, IDS, OTHERS, 5, sender=(0, 1), receiver=(2, 3), into="v", freeze_mlps=True)
    assert effect.value == pytest.approx(value, rel=1e-12)
    assert abs(effect.value - effect.corrupted) > 1e-6


def test_what_heads_carry_through_their_gate_is_what_the_layer_writes(model, trace):
    total = np.zeros(model.config.embed_dim)
    for head in range(model.config.num_heads):
        for key in range(len(IDS)):
            total += trace.carried(2, head, len(IDS) - 1, key).outputs.sum(0)
    bias = parameters(model)["blocks.2.attn.o_proj.bias"]
    np.testing.assert_allclose(total + bias, trace["blocks.2.attn.output"][0, -1], rtol=0, atol=1e-10)


def test_the_steps_of_a_head_have_its_gate(trace):
    steps = {step.name: step.values for step in head_steps(trace, layer=2, head=1)}
    np.testing.assert_array_equal(steps["blocks.2.attn.output_gate"], trace["blocks.2.attn.output_gate"][0, 1])


def test_what_heads_add_is_their_context_times_their_gate(model):
    run = recorded(model, IDS, only=("blocks.2.attn.*", "*head_outputs"))
    gated = run["blocks.2.attn.context"] * run["blocks.2.attn.output_gate"]
    weight = parameters(model)["blocks.2.attn.o_proj.weight"].reshape(4, 4, -1)
    np.testing.assert_allclose(run["blocks.2.attn.head_outputs"], gated @ weight, rtol=0, atol=1e-12)


def test_a_later_head_reads_what_an_earlier_one_carried_through_its_gate(trace):
    score = trace.why(2, 1, 5, 2)
    row = [writer.label for writer in score.query_writers].index("L0H3")
    moved = sum(trace.carried(0, 3, 5, key).into_head(2, 1).sum(0) for key in range(6))
    np.testing.assert_allclose(moved, score.q_parts[row], rtol=0, atol=1e-9 * np.linalg.norm(score.q_parts))


def test_a_layer_is_one_writer(trace):
    labels = [writer.label for writer in trace.why(2, 0, 5, 2).query_writers]
    assert [label for label in labels if "linear" in label] == ["L1 linear attention"]


def test_a_state_is_of_one_size_and_continues(model):
    _, state = model.prefill(np.array([IDS[:4], OTHERS[:4]]))
    kept = model.decode_step(np.array([[5]]), state.select_batch([1]))[1].caches[1]
    assert isinstance(kept, LinearState)
    assert (kept.end, kept.state.shape, kept.inputs.shape) == (5, (1, 4, 6, 5), (1, 1, 68))


def test_keys_and_values_of_layers_that_attend_are_those_that_stay(model):
    taps = list_taps(lambda recorder: model.forward(np.zeros((1, 2), int), trace=recorder), "values")
    probe = MemoryProbe(Trace(), 1, 2)
    probe.add(taps)
    trace = recorded(model, [3, 7])
    assert probe.cache == sum(trace[f"blocks.{i}.attn.{letter}"].nbytes for i in (0, 2) for letter in "kv")


def test_what_a_published_checkpoint_has_besides_is_not_read(changed):
    extra = {"mtp.fc.weight": np.zeros((12, 24), np.float32)}
    published = {"use_sliding_window": False}
    np.testing.assert_array_equal(
        regard.load(changed("qwen3_next/plain", published, extra=extra))(IDS).hidden,
        regard.load(golden.FOLDER / "qwen3_next/plain")(IDS).hidden,
    )


def test_a_layer_takes_the_memory_of_its_steps():
    """What it computes between them takes no more than what an estimate counts: all of them at once."""
    rng, E, G, H, D, T = np.random.default_rng(3), 512, 4, 8, 64, 2000
    maps = [Linear.init(rng, E, width, bias=False) for width in (G * D, G * D, H * D, H * D, H, H)]
    conv = rng.standard_normal((2 * G * D + H * D, 4), np.float32)
    zeros, norm, o_proj = np.zeros(H, np.float32), RMSNorm.init(D), Linear.init(rng, H * D, E, bias=False)
    net = GatedDeltaNet(*maps, conv, zeros, zeros, norm, o_proj, num_heads=H, num_key_heads=G)
    x = rng.standard_normal((1, T, E), np.float32)
    counted = sum(
        tap.nbytes({"B": 1, "T": T}) for tap in list_taps(lambda recorder: net(x[:, :2], trace=recorder), None)
    )
    tracemalloc.start()
    try:
        net(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counted == pytest.approx(peak, rel=0.1)
