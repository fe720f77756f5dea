"""Encoder–decoders in the explorer: every attention in its block, with rows and columns of its own."""

import numpy as np
import pytest
from explorations import thumbnails_of

import golden
import regard
from regard import RegardError
from regard.explorer import Exploration
from regard.explorer.launch import exploration_of
from regard.explorer.run import MAX_PAIR_TOKENS
from regard.metrics import head_metrics

MODELS = ("bart/tied", "bart/untied", "bart/scaled", "t5/relu", "t5/gated")
TEXT, TARGET = "w5 w6 w7 w8 w10 w9", "w8 w6 w9"


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return regard.load(golden.FOLDER / request.param)


def traced(model, *args, **options):
    trace = regard.Trace(**({"only": "*"} | options))
    model(*args, trace=trace)
    return trace


def weights_of(trace):
    return [name for name in trace.names() if name.endswith("attn.weights")]


def blocks_of(exploration, run=0):
    layers = exploration.manifest()["runs"][run]["layers"]
    return [np.ix_(*(range(each["from"], each["to"]) for each in layer["block"])) for layer in layers]


@pytest.mark.parametrize("maps", [True, False])
def test_maps_are_the_recorded_weights_in_their_blocks_and_0_outside(model, maps):
    trace = traced(model, TEXT, TARGET, maps=maps)
    exploration = Exploration(trace, models=[model])
    names = weights_of(trace)
    assert {name.split(".")[-2] for name in names} == {"attn", "cross_attn"}
    for layer, (name, block) in enumerate(zip(names, blocks_of(exploration), strict=True)):
        for head, expected in enumerate(trace[name][0]):
            whole = exploration.whole(0, layer, head).copy()
            np.testing.assert_allclose(whole[block], expected, rtol=2e-6, atol=1e-7)
            whole[block] = 0
            assert not whole.any()


def test_layers_are_named_and_described(bart):
    trace = traced(bart, TEXT, TARGET, maps=True)
    exploration = Exploration(trace)
    (run,) = exploration.manifest()["runs"]
    crosses = ["Cross 0", "Cross 1"]
    numbers = [layer["number"] for layer in run["layers"]]
    assert numbers == ["Encoder 0", "Encoder 1", "Decoder 0", crosses[0], "Decoder 1", crosses[1]]
    assert [layer["causal"] for layer in run["layers"]] == [False, False, True, False, True, False]
    assert all(layer["row_sum_error"] < 1e-6 for layer in run["layers"])
    assert run["text"] == f"{TEXT} → {TARGET}"
    words = [run["text"][token["start"] : token["end"]] for token in run["tokens"] if not token["special"]]
    assert words == [*TEXT.split(), *TARGET.split()]
    assert len({token["word"] for token in run["tokens"] if not token["special"]}) == len(words)
    assert exploration.modes == ("raw",)
    assert numbers[exploration.initial_head[0]] in crosses
    only = Exploration(traced(bart, TEXT, TARGET, maps=True, only="*cross_attn.weights")).manifest()
    assert [layer["number"] for layer in only["runs"][0]["layers"]] == crosses
    other = traced(bart, TEXT, "w4 w4 w4", maps=True)  # two targets of one length can be subtracted
    assert np.any(Exploration(trace, other).differences([0, 1])["largest"])


def test_steps_of_a_cell_give_its_weight_and_the_context(model):
    trace = traced(model, TEXT, TARGET, maps=True)
    exploration = Exploration(trace, models=[model])
    for layer, (name, block) in enumerate(zip(weights_of(trace), blocks_of(exploration), strict=True)):
        rows, cols = (axis.ravel() for axis in block)
        i, j = int(rows[-1]), int(cols[1])
        for head, weights in enumerate(trace[name][0]):
            steps = exploration.cell(0, layer, head, i, j)
            assert steps["weight"] == pytest.approx(weights[-1, 1], rel=1e-5)
            assert np.exp(steps["biased"] - steps["lse"]) == pytest.approx(steps["weight"], rel=1e-5)
            context = trace[name.replace("weights", "context")][0, head, -1]
            np.testing.assert_allclose(steps["output"], context, rtol=1e-4, atol=1e-6)


def test_metrics_of_self_attention_are_those_of_the_part_alone(bart):
    trace = traced(bart, TEXT, TARGET, maps=True)
    exploration = Exploration(trace, models=[bart])
    names = weights_of(trace)
    found = exploration.heads(0)["metrics"]
    for part in ("encoder", "decoder"):
        own = [n for n, name in enumerate(names) if name.startswith(part) and "cross" not in name]
        expected = head_metrics(trace.subtrace(part))
        for metric, values in found.items():
            shown = np.array([values[n] for n in own], float)
            np.testing.assert_allclose(shown, getattr(expected, metric)[0], atol=1e-6, err_msg=metric)
    crosses = [n for n, name in enumerate(names) if "cross" in name]
    weights = np.stack([trace[names[n]][0] for n in crosses]).astype(np.float64)
    entropy = -(weights * np.log(weights)).sum(-1).mean(-1)
    np.testing.assert_allclose([found["entropy"][n] for n in crosses], entropy, atol=1e-5)


def test_thumbnails_are_of_the_block(bart):
    exploration = Exploration(traced(bart, TEXT, TARGET, maps=True))
    thumbnails = thumbnails_of(exploration)
    side = thumbnails.shape[-1]
    for layer, block in enumerate(blocks_of(exploration)):
        weights = exploration.whole(0, layer, 0)[block]
        rows, cols = (np.arange(side) * n // side for n in weights.shape)
        expected = np.sqrt(weights[np.ix_(rows, cols)] / weights.max())
        np.testing.assert_allclose(thumbnails[layer, 0] / 255, expected, atol=0.003)


def test_texts_of_a_padded_batch_are_as_they_are_alone(bart):
    texts, targets = [TEXT, "w7 w8"], ["w3", "w2 w9 w4 w5"]
    trace = traced(bart, texts, targets, maps=True)
    for batch in (0, 1):
        alone = Exploration(traced(bart, texts[batch], targets[batch], maps=True))
        found = Exploration(trace, batch=batch)
        assert found.runs[0].encoding == alone.runs[0].encoding
        for layer in range(len(alone.runs[0].layers)):
            np.testing.assert_allclose(found.whole(0, layer, 1), alone.whole(0, layer, 1), rtol=1e-4, atol=1e-6)
    with pytest.raises(RegardError, match="there is no text 2 in a trace of 2"):
        Exploration(trace, batch=2)


def test_a_text_brings_its_target_or_the_model_generates_one(bart):
    given = exploration_of([f"{TEXT} → {TARGET}"], bart)
    assert given.runs[0].encoding == Exploration(traced(bart, TEXT, TARGET, maps=True)).runs[0].encoding
    generated = exploration_of([TEXT], bart).runs[0]
    assert generated.encodings[1].ids == bart.generate(TEXT, max_new_tokens=64).encoding.ids
    assert exploration_of([f"{TEXT} →"], bart).runs[0].encoding == generated.encoding
    live = given.run_text(f"{TEXT} → w9", model=given.live_models[0])
    assert live["metadata"]["text"] == f"{TEXT} → w9"


def test_too_many_tokens_are_an_error(bart, monkeypatch):
    monkeypatch.setattr("regard.explorer.pair.MAX_PAIR_TOKENS", 9)
    with pytest.raises(RegardError, match=r"explored up to 9 tokens together, these have \d+ and 4"):
        Exploration(traced(bart, TEXT, TARGET, maps=True))
    assert MAX_PAIR_TOKENS == 1024


def test_a_trace_keeps_the_tokens_of_its_targets(bart, tmp_path):
    trace = traced(bart, [TEXT, "w7 w8"], [TARGET, "w5"], maps=True)
    targets = [bart(text, target).encodings[0] for text, target in ((TEXT, TARGET), ("w7 w8", "w5"))]
    assert [one.ids for one in trace.target_encodings] == [one.ids for one in targets]
    trace.save(tmp_path / "trace.safetensors")
    assert regard.Trace.load(tmp_path / "trace.safetensors").target_encodings == trace.target_encodings
    assert trace.select(1).target_encodings == trace.target_encodings[1:]
    assert trace.subtrace("decoder").encodings == trace.target_encodings
    assert trace.subtrace("encoder").encodings == trace.encodings
    assert traced(regard.load("induction"), "a b a").target_encodings == ()


def test_a_long_text_is_shown_by_the_encoder_alone():
    t5 = regard.load(golden.FOLDER / "t5/gated")
    exploration = exploration_of([" ".join(["w5 w6 w7 w8"] * 250)], t5)
    (run,) = exploration.manifest()["runs"]
    assert len(run["tokens"]) >= 1000
    assert [layer["block"] for layer in run["layers"]] == [None] * len(run["layers"])
