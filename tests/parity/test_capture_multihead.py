"""Captures of torch.nn.MultiheadAttention, and of models of plain PyTorch that contain it."""

import numpy as np
import pytest
import torch
from capture_models import close

import regard
from regard import RegardError, Trace


def multihead(**options):
    torch.manual_seed(4)
    module = torch.nn.MultiheadAttention(12, 3, **options).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True, "add_zero_attn": True}],
    ids=str,
)
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "numbers", "padding and numbers", "each head"])
def test_multihead_attention(options, masks):
    module = multihead(**options)
    generator = torch.Generator().manual_seed(7)
    shapes = [(2, n, width) for n, width in ((5, 12), (7, options.get("kdim", 12)), (7, options.get("vdim", 12)))]
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    if not options.get("batch_first"):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    given = {}
    if "padding" in masks:
        given["key_padding_mask"] = torch.arange(7) >= torch.tensor([[7], [4]])
    if "causal" in masks:
        given["attn_mask"] = torch.ones(5, 7, dtype=torch.bool).triu(1)
    if "numbers" in masks:
        given["attn_mask"] = torch.randn(5, 7, generator=generator)
        if "padding" in masks:
            given["key_padding_mask"] = torch.zeros(2, 7).masked_fill(given["key_padding_mask"], -torch.inf)
    if "head" in masks:
        given["attn_mask"] = torch.rand(6, 5, 7, generator=generator) < 0.3
        given["attn_mask"][..., 0] = False
    with torch.no_grad():
        plain = module(q, k, v, need_weights=False, **given)[0]
        theirs = module(q, k, v, average_attn_weights=False, **given)[1]
        with regard.capture(module) as trace:
            looked_at = module(q, k, v, need_weights=False, **given)[0]
    torch.testing.assert_close(looked_at, plain, rtol=0, atol=1e-6)
    close(trace["weights"], theirs)


def test_a_text_without_a_batch():
    module, x = multihead(), torch.randn(5, 12)
    with torch.no_grad(), regard.capture(module) as trace:
        weights = module(x, x, x, average_attn_weights=False)[1]
    close(trace["weights"], weights[None])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("padded", [False, True])
def test_the_fast_path_of_an_encoder_is_looked_at_too(padded):
    torch.manual_seed(6)
    layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3).eval()
    x = torch.randn(2, 6, 12)
    given = {"src_key_padding_mask": torch.arange(6) >= torch.tensor([[6], [4]])} if padded else {}
    with torch.no_grad():
        plain = model(x, **given)
        with regard.capture(model) as trace:
            looked_at = model(x, **given)
    rows = np.arange(6) < np.array([[6], [4 if padded else 6]])
    np.testing.assert_allclose(looked_at.numpy()[rows], plain.numpy()[rows], rtol=0, atol=1e-5)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(3))
    with torch.no_grad():
        hide = given.get("src_key_padding_mask")
        theirs = model.layers[0].self_attn(x, x, x, key_padding_mask=hide, average_attn_weights=False)[1]
    close(trace["blocks.0.attn.weights"], theirs)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_transformer_of_plain_pytorch():
    model = torch.nn.Transformer(12, 2, 2, 2, 20, batch_first=True).eval()
    source, target = torch.randn(2, 6, 12), torch.randn(2, 5, 12)
    hidden = torch.nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad(), regard.capture(model) as trace:
        model(source, target, tgt_mask=hidden)
    assert trace["decoder.blocks.1.cross_attn.weights"].shape == (2, 2, 5, 6)
    assert not np.triu(trace["decoder.blocks.0.attn.weights"][0, 0], 1).any()
    assert "encoder.blocks.1.attn.weights" in trace


@pytest.mark.parametrize("order", [1, -1])
def test_two_captures_of_multihead_attention_at_once(order):
    module, x = multihead(), torch.randn(5, 12)
    contexts = [regard.capture(module) for _ in range(2)]
    traces = [context.__enter__() for context in contexts]
    module(x, x, x)
    for context in contexts[::order]:
        assert not torch.backends.mha.get_fastpath_enabled()
        context.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_pre_hooks
    np.testing.assert_array_equal(traces[0]["weights"], traces[1]["weights"])


def test_plain_attention_is_not_edited():
    module, x = multihead(), torch.randn(5, 12)
    edits = Trace(edit={"weights": np.negative})
    with pytest.raises(RegardError, match="not edited"), regard.capture(module, trace=edits):
        module(x, x, x)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_pre_hooks
