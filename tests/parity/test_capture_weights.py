"""Weights of PyTorch models that run as they always do, against those of eager."""

import numpy as np
import pytest
import torch
from capture_models import ALONE_IN_EAGER, LENGTH, MODELS, SEQ2SEQ, SHARED, captured, close, inputs, run

import regard
from regard import RegardError, Trace


@pytest.mark.parametrize("implementation", [None, "regard"])
@pytest.mark.parametrize("padding", ["none", "right", "left", "hole"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_weights_are_those_of_eager_and_the_output_is_unchanged(pair, kind, padding, implementation):
    model, eager = pair(kind, implementation)
    given = inputs(padding)
    rows = given["attention_mask"].numpy() > 0 if padding != "none" else None
    theirs = run(eager, given, output_attentions=True)
    plain = run(model, given)[0]
    with regard.capture(model) as trace:
        looked_at = run(model, given)[0]
    assert implementation in (None, model.config._attn_implementation)
    if kind in ALONE_IN_EAGER and implementation is None:  # computed by regard, without n² weights
        real = torch.ones(2, LENGTH, dtype=torch.bool) if rows is None else torch.tensor(rows)
        torch.testing.assert_close(looked_at[real], plain[real], rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(looked_at, plain)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(len(theirs.attentions)))
    for layer, weights in enumerate(theirs.attentions):
        close(trace[f"blocks.{layer}.attn.weights"], weights, rows)


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "regard"])
@pytest.mark.parametrize("kind", SHARED)
def test_layers_that_share_a_module_are_numbered_by_the_order_of_their_calls(pair, kind, implementation):
    model, eager = pair(kind, implementation)
    given = inputs("right")
    rows = given["attention_mask"].numpy() > 0
    theirs = run(eager, given, output_attentions=True).attentions
    trace = captured(model, given)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(4))
    for layer, weights in enumerate(theirs):
        close(trace[f"blocks.{layer}.attn.weights"], weights, rows)
    edits = Trace(only=(), edit={"blocks.2.attn.context": np.zeros_like})
    with regard.capture(model, trace=edits):
        edited = [run(model, given)[0] for _ in range(2)]  # nothing is recorded, so it may run again
    assert not np.allclose(edited[0], run(model, given)[0])
    np.testing.assert_array_equal(*edited)


def test_a_second_run_of_shared_layers_is_an_error_also_of_a_part_of_the_model(pair):
    model, _ = pair("albert")
    hidden = model.embeddings(inputs()["input_ids"])
    with regard.capture(model):
        run(model, inputs())
        with pytest.raises(RegardError, match="a trace holds one run"):
            run(model, inputs())
    with pytest.raises(RegardError, match="recorded already"), regard.capture(model):
        model.encoder(hidden)


def test_one_layer_in_several_places_of_a_list():
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True).eval()
    model = torch.nn.TransformerEncoder(layer, 1)
    model.layers = torch.nn.ModuleList([layer] * 3)
    x = torch.randn(2, 5, 12)
    with torch.no_grad(), regard.capture(model) as trace:
        model(x)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(3))
    with torch.no_grad():
        second = layer(x)
        theirs = layer.self_attn(second, second, second, average_attn_weights=False)[1]
    close(trace["blocks.1.attn.weights"], theirs)


@pytest.mark.parametrize("implementation", [None, "regard"])
@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_an_encoder_and_a_decoder(pair, kind, padding, implementation):
    model, eager = pair(kind, implementation)
    given = inputs(padding)
    rows = given["attention_mask"].numpy() > 0 if padding != "none" else None
    given["decoder_input_ids"] = torch.arange(7)[None].repeat(2, 1) + 4
    theirs = run(eager, given, output_attentions=True)
    plain = run(model, given)[0]
    with regard.capture(model) as trace:
        assert torch.equal(run(model, given)[0], plain)
    assert len(trace) == 6
    for layer in range(2):
        close(trace[f"encoder.blocks.{layer}.attn.weights"], theirs.encoder_attentions[layer], rows)
        close(trace[f"decoder.blocks.{layer}.attn.weights"], theirs.decoder_attentions[layer])
        close(trace[f"decoder.blocks.{layer}.cross_attn.weights"], theirs.cross_attentions[layer])


def test_t5_keeps_its_bias_as_a_number_for_each_distance(pair):
    model, _ = pair("t5")
    sizes = []
    for length in (20, 40):
        given = inputs(length=length) | {"decoder_input_ids": torch.full((2, length), 4)}
        trace = captured(model, given)
        arrays, _ = trace.map("encoder.blocks.1.attn").to_arrays()
        sizes.append(sum(array.nbytes for array in arrays.values()))
    assert sizes[1] < 2.01 * sizes[0]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_precisions(pair, dtype):
    model, eager = (m.to(getattr(torch, dtype)) for m in pair("bert"))
    trace = captured(model)
    theirs = run(eager, inputs(), output_attentions=True).attentions[0]
    if dtype == "float64":
        np.testing.assert_allclose(trace["blocks.0.attn.weights"], theirs.numpy(), rtol=0, atol=1e-12)
    else:  # eager rounds scores to 8 bits before the softmax
        np.testing.assert_allclose(trace["blocks.0.attn.weights"], theirs.float().numpy(), rtol=0, atol=0.03)


def test_a_mask_and_a_bias_of_ones_own(pair):
    model, eager = pair("bert")
    given = inputs()
    generator = torch.Generator().manual_seed(2)
    bias = torch.randn(2, 1, LENGTH, LENGTH, generator=generator)
    bias[torch.rand(bias.shape, generator=generator) < 0.3] = -torch.inf
    bias[..., 0] = 0.0
    given["attention_mask"] = bias
    trace = captured(model, given)
    theirs = run(eager, given, output_attentions=True)
    for layer, weights in enumerate(theirs.attentions):
        close(trace[f"blocks.{layer}.attn.weights"], weights)


def test_the_tokens_and_a_file(pair, tmp_path):
    class Tokenizer:
        all_special_ids = (3,)

        def convert_ids_to_tokens(self, ids):
            return [f"w{i}" for i in ids]

    model, _ = pair("bert")
    given = inputs("right")
    trace = captured(model, given, Tokenizer())
    assert [len(encoding) for encoding in trace.encodings] == [LENGTH, 8]
    assert trace.encodings[1].tokens[0] == f"w{int(given['input_ids'][1, 0])}"
    assert trace.model == "BertModel"
    trace.save(tmp_path / "bert.safetensors")
    kept = Trace.load(tmp_path / "bert.safetensors")
    np.testing.assert_array_equal(kept["blocks.1.attn.weights"], trace["blocks.1.attn.weights"])
