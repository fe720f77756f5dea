"""attn_implementation="regard" in use: masks, caches, dropout, edits in place, capture, and what is refused."""

import copy

import pytest
import torch
from test_transformers_models import IDS, B, T, assert_close, padded
from transformers_models import SIZES, make_model

import regard
from regard import RegardError
from regard.torch import transformers as interface


@pytest.fixture(autouse=True)
def registered(transformers):
    regard.torch.register()


def switched(model, implementation="regard"):
    model = copy.deepcopy(model)
    model.set_attn_implementation(implementation)
    return model


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "llama4_text"])
def test_keys_behind_the_written_ones_of_a_static_cache_are_not_read(transformers, name):
    """Prefill, a second piece, and one token, with NaN where the cache is not written yet."""
    model = make_model(transformers, name, "regard").requires_grad_(False)
    expected = model(IDS).logits
    cache = transformers.StaticCache(model.config, max_cache_len=24)
    pieces = []
    for first, last in ((0, 6), (6, 10), (10, 11)):
        pieces.append(model(IDS[:, first:last], cache=cache).logits)
        for layer in cache.layers:
            if layer.keys.shape[2] == 24:  # those of sliding windows are shorter, and full
                layer.keys[:, :, last:] = layer.values[:, :, last:] = torch.nan
    assert_close(torch.cat(pieces, 1), expected)


def test_texts_packed_in_a_row_do_not_mix(transformers):
    model = make_model(transformers, "llama")
    positions = torch.tensor([[*range(6), *range(5)]] * B)
    expected, packed = (x(IDS, position_ids=positions).logits for x in (model, switched(model)))
    assert_close(packed, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_of_ones_own_may_be_written_to_between_runs(transformers, dtype):
    model = make_model(transformers, "llama")
    ours = switched(model)
    mask = torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(7)) > 0.4
    mask |= torch.eye(T, dtype=torch.bool)
    added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    given = mask if dtype is torch.bool else added
    for _ in range(2):
        assert_close(ours(IDS, attention_mask=given).logits, model(IDS, attention_mask=added).logits)
        for x in (mask, added):
            x[:, :, 1:, 0] = torch.tensor(False if x is mask else torch.finfo(torch.float32).min)


@pytest.mark.parametrize("side", ["none", "left"])
def test_inference_mode(transformers, side):
    model = make_model(transformers, "mistral")
    with torch.inference_mode():
        expected, ids = (
            x.generate(IDS, attention_mask=padded(side), max_new_tokens=5, do_sample=False)
            for x in (model, switched(model))
        )
    assert torch.equal(ids, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_less_exact_than_eager(transformers, dtype):
    model = make_model(transformers, "llama")
    exact = model(IDS).logits
    half = model.to(dtype)
    eager, ours = ((x(IDS).logits.float() - exact).square().mean().sqrt() for x in (half, switched(half)))
    assert ours <= 1.5 * eager


def loss_and_gradients(model, seed):
    torch.manual_seed(seed)
    model.zero_grad()
    loss = model(IDS, attention_mask=padded("right"), labels=IDS).loss
    loss.backward()
    return loss.item(), torch.cat([x.grad.flatten() for x in model.parameters()])


def test_dropout_in_training_follows_the_seed_of_pytorch_also_through_checkpoints_of_activations(transformers):
    model = make_model(transformers, "llama", "regard").train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    loss, gradients = loss_and_gradients(model, 1)
    assert loss_and_gradients(model, 2)[0] != loss
    model.activation_checkpointing_enable()
    again, recomputed = loss_and_gradients(model, 1)
    assert again == loss
    assert torch.equal(recomputed, gradients)


def test_output_attentions_is_refused_in_a_configuration_and_warned_of_once_in_a_call(transformers, monkeypatch):
    model = make_model(transformers, "bert", "regard")
    with pytest.raises(ValueError, match=r"output_attentions.*eager"):
        model.config.output_attentions = True
    warnings = []
    monkeypatch.setattr(transformers.logging.get_logger(interface.__name__), "warning", warnings.append)
    interface._warn_of_weights.cache_clear()
    for _ in range(2):
        given = torch.randn(3, 1, 2, 3, 4)
        _, weights = interface.attention_forward(torch.nn.Module(), *given, None, output_attentions=True)
        assert weights is None
    assert len(warnings) == 1
    assert "regard.capture" in warnings[0]


@pytest.mark.parametrize("keyword", ["indices", "block_indices", "sinks", "cache"])
def test_what_the_interface_does_not_pass_to_all_is_refused(keyword):
    with pytest.raises(RegardError, match=rf"^Module asks for .* \({keyword}=\), which attn_implementation='regard'"):
        interface.attention_forward(torch.nn.Module(), *torch.randn(3, 1, 2, 3, 4), None, **{keyword: torch.ones(1)})


def test_another_device_is_refused():
    q = torch.empty(1, 2, 3, 4, device="meta")
    with pytest.raises(RegardError, match=r"q is on meta, but regard.* computes on the CPU"):
        interface.attention_forward(torch.nn.Module(), q, q, q, None)


def test_registering_again_changes_nothing(transformers):
    before = dict(transformers.AttentionInterface._global_mapping)
    regard.torch.register()
    assert dict(transformers.AttentionInterface._global_mapping) == before
    config = transformers.LlamaConfig(**SIZES, attn_implementation="regard")
    assert transformers.LlamaModel(config).config._attn_implementation == "regard"
