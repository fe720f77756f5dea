"""Every method of attribution, against the formulas of its paper in PyTorch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import make_golden
import regard
from regard.metrics import attribute

TOLERANCE = 1e-9  # of the largest, float64


@pytest.fixture(params=["gpt2", "llama", "bert", "t5"])
def pair(request, tmp_path):
    return make_pair(request.param, next(iter(make_golden.CASES[request.param].cases)), tmp_path)


def make_pair(family, case, tmp_path):
    """Return a tiny model with random numbers in transformers and in regard, in float64, and a text."""
    with make_golden.doubles_throughout():
        peer = make_golden.make_model(family, case, 0, "float64")
    make_golden.write_checkpoint(peer, tmp_path)
    model = regard.load(tmp_path, dtype=np.float64)
    ids, _ = make_golden._batch(peer.config, (7,))
    return peer, model, model.tokenizer.from_ids(ids[0].tolist()), peer.config


def run(peer, config, embeddings):
    extra = {}
    if config.is_encoder_decoder:
        extra = {"decoder_input_ids": torch.full((len(embeddings), 1), make_golden._start(config))}
    with make_golden.doubles_throughout():
        return peer(inputs_embeds=embeddings, output_attentions=True, **extra)


def number(output, config):
    """A difference of two logits of the next token; of an encoder the fifth number of the second vector."""
    if hasattr(output, "logits"):
        return output.logits[0, -1, 7] - output.logits[0, -1, 3]
    return output.last_hidden_state[0, 1, 4]


def arguments(config, peer):
    if peer.can_generate():
        return {"to": 7, "versus": 3}
    return {"to": lambda output: output.hidden[0, 1, 4]}


def assert_close(ours, expected):
    expected = expected.detach().numpy()
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(ours, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def embeddings_of(peer, encoding):
    return peer.get_input_embeddings()(torch.tensor([encoding.ids])).detach()


def test_gradient_times_input(pair):
    peer, model, encoding, config = pair
    x = embeddings_of(peer, encoding).requires_grad_()
    value = number(run(peer, config, x), config)
    (gradient,) = torch.autograd.grad(value, x)
    found = attribute(model, encoding, method="gradient", **arguments(config, peer))
    assert found.value == pytest.approx(value.item(), rel=TOLERANCE)
    assert_close(found.scores, (gradient * x)[0].sum(-1))


@pytest.mark.parametrize("baseline", ["zero", 5])
def test_integrated_gradients(pair, baseline):
    peer, model, encoding, config = pair
    x = embeddings_of(peer, encoding)
    start = torch.zeros_like(x)
    if baseline == 5:
        start = x.clone()
        ordinary = ~torch.tensor(encoding.special_tokens_mask)
        start[0, ordinary] = peer.get_input_embeddings().weight[5].detach()
    nodes, weights = np.polynomial.legendre.leggauss(6)
    total = torch.zeros_like(x)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        point = (start + node * (x - start)).requires_grad_()
        total += weight * torch.autograd.grad(number(run(peer, config, point), config), point)[0]
    found = attribute(
        model, encoding, method="integrated", baseline=baseline, steps=6, batch_size=4, **arguments(config, peer)
    )
    assert found.baseline_value == pytest.approx(number(run(peer, config, start), config).item(), rel=1e-9, abs=1e-12)
    assert_close(found.scores, (total * (x - start))[0].sum(-1))


def test_attention_relevance(pair):
    peer, model, encoding, config = pair
    x = embeddings_of(peer, encoding)
    output = run(peer, config, x.requires_grad_())
    value = number(output, config)

    def bars(attentions):
        gradients = torch.autograd.grad(value, attentions, retain_graph=True)
        return [(a * g).clamp(min=0).mean(1)[0] for a, g in zip(attentions, gradients, strict=True)]

    def rolled(maps):
        relevance = torch.eye(maps[0].shape[-1], dtype=torch.float64)
        for bar in maps:
            relevance = relevance + bar @ relevance
        return relevance

    def normalized(relevance):
        eye = torch.eye(len(relevance), dtype=torch.float64)
        rest = relevance - eye
        return eye + torch.nan_to_num(rest / rest.sum(-1, keepdim=True))

    if config.is_encoder_decoder:
        image = normalized(rolled(bars(output.encoder_attentions)))
        text, expected = torch.eye(1, dtype=torch.float64), torch.zeros(1, len(image), dtype=torch.float64)
        for own, cross in zip(bars(output.decoder_attentions), bars(output.cross_attentions), strict=True):
            text, expected = text + own @ text, expected + own @ expected
            expected = expected + normalized(text).T @ cross @ image
    else:
        expected = rolled(bars(output.attentions))
    found = attribute(model, encoding, method="relevance", **arguments(config, peer))
    assert_close(found.relevance, expected)


@pytest.mark.parametrize(
    ("family", "case"), [("gpt2", "plain"), ("llama", "plain"), ("bert", "gelu"), ("gemma2", "capped")]
)
def test_attnlrp(family, case, transformers, tmp_path):
    """A gradient through a model in which half of each factor and all scales are detached."""
    peer, model, encoding, config = make_pair(family, case, tmp_path)
    found = attribute(model, encoding, method="attnlrp", **arguments(config, peer))
    with_rules(peer, transformers)
    x = embeddings_of(peer, encoding).requires_grad_()
    value = number(run(peer, config, x), config)
    (gradient,) = torch.autograd.grad(value, x)
    assert found.value == pytest.approx(value.item(), rel=TOLERANCE)
    assert_close(found.scores, (gradient * x)[0].sum(-1))


def with_rules(peer, transformers):
    """Make the modules of a model pass relevance in place of gradients."""

    def half(x):
        return x / 2 + (x / 2).detach()

    def through(function):
        return lambda x: x * torch.where(x == 0, 0.5, function(x) / x).detach()

    def layer_norm(norm, x):
        centered = x - x.mean(-1, keepdim=True)
        return (
            centered / (centered.square().mean(-1, keepdim=True) + norm.eps).sqrt().detach() * norm.weight + norm.bias
        )

    def rms_norm(norm, x, plus):
        eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt().detach() * (plus + norm.weight)

    def gated(mlp, activation, x):
        return mlp.down_proj(half(activation(mlp.gate_proj(x))) * half(mlp.up_proj(x)))

    def attention(module, q, k, v, mask, scaling=None, softcap=None, **_):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = half(q) @ half(k).mT * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = through(lambda x: softcap * torch.tanh(x / softcap))(scores)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        return (half(weights) @ half(v)).transpose(1, 2), weights

    transformers.AttentionInterface.register("attnlrp", attention)
    eager = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"]
    transformers.AttentionMaskInterface.register("attnlrp", eager)
    peer.set_attn_implementation("attnlrp")
    for module in peer.modules():
        kind = type(module).__name__
        for name in ("act", "act_fn", "intermediate_act_fn"):
            if hasattr(module, name):
                function = through(getattr(module, name))
                module.__dict__["_modules"].pop(name, None)
                setattr(module, name, function)
        if isinstance(module, torch.nn.LayerNorm):
            module.forward = functools.partial(layer_norm, module)
        elif kind.endswith("RMSNorm"):
            module.forward = functools.partial(rms_norm, module, plus=float(kind.startswith("Gemma")))
        elif hasattr(module, "gate_proj"):
            module.forward = functools.partial(gated, module, module.act_fn)
    if peer.config.get_text_config().model_type == "gemma2":  # whose logits are capped too
        cap, head = peer.config.final_logit_softcapping, peer.lm_head.forward
        peer.config.final_logit_softcapping = None
        peer.lm_head.forward = lambda x: through(lambda y: cap * torch.tanh(y / cap))(head(x))
