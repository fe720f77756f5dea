"""Every method of attribution, against the formulas of its paper in PyTorch."""

import numpy as np
import pytest
import torch
from attribution_pairs import arguments, make_pair, number

import make_golden
from regard.metrics import attribute

TOLERANCE = 1e-9  # of the largest, float64


@pytest.fixture(params=["gpt2", "llama", "bert", "t5"])
def pair(request, tmp_path):
    """Return both models, a text, and the configuration."""
    peer, model = make_pair(request.param, next(iter(make_golden.CASES[request.param].cases)), tmp_path)
    ids, _ = make_golden._batch(peer.config, (7,))
    return peer, model, model.tokenizer.from_ids(ids[0].tolist()), peer.config


def run(peer, config, embeddings):
    extra = {}
    if config.is_encoder_decoder:
        extra = {"decoder_input_ids": torch.full((len(embeddings), 1), make_golden._start(config))}
    with make_golden.doubles_throughout():
        return peer(inputs_embeds=embeddings, output_attentions=True, **extra)


def assert_close(ours, expected):
    expected = expected.detach().numpy()
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(ours, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def embeddings_of(peer, encoding):
    return peer.get_input_embeddings()(torch.tensor([encoding.ids])).detach()


def test_gradient_times_input(pair):
    peer, model, encoding, config = pair
    x = embeddings_of(peer, encoding).requires_grad_()
    value = number(run(peer, config, x))
    (gradient,) = torch.autograd.grad(value, x)
    found = attribute(model, encoding, method="gradient", **arguments(peer))
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
        total += weight * torch.autograd.grad(number(run(peer, config, point)), point)[0]
    found = attribute(model, encoding, method="integrated", baseline=baseline, steps=6, batch_size=4, **arguments(peer))
    assert found.baseline_value == pytest.approx(number(run(peer, config, start)).item(), rel=1e-9, abs=1e-12)
    assert_close(found.scores, (total * (x - start))[0].sum(-1))


def test_attention_relevance(pair):
    peer, model, encoding, config = pair
    x = embeddings_of(peer, encoding)
    output = run(peer, config, x.requires_grad_())
    value = number(output)

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
    found = attribute(model, encoding, method="relevance", **arguments(peer))
    assert_close(found.relevance, expected)
