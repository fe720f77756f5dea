"""Scores as sums over pairs beside a plain computation with PyTorch: hooks, and sums that are written out."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import golden
import regard
from regard import Trace

IDS = [5, 9, 4, 9, 11, 6, 5]
QUERY, KEY, OTHER = 5, 3, 4


def captured(case, read):
    """Return a model of transformers in float64, and the tensors of one run that go into modules or come out of them.

    `read` returns which, ``"in"`` or ``"out"``, by the name of the module.
    """
    path = golden.FOLDER / case
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float64).eval()
    tensors = {}

    def keep(name, value):
        tensors[name] = (value[0] if isinstance(value, tuple) else value)[0].detach()

    for name, side in read(model.config).items():
        module = model.get_submodule(name)
        if side == "in":
            module.register_forward_pre_hook(lambda _, args, name=name: keep(name, args))
        else:
            module.register_forward_hook(lambda _, args, output, name=name: keep(name, output))
    with torch.no_grad():
        model(torch.tensor([IDS]))
    return model, tensors


def of_heads(context, weight, count):
    """Return what each of some heads writes, ``H T E``, of their concatenated context and a weight ``(H D) E``."""
    return torch.einsum("thd,hde->hte", context.unflatten(-1, (count, -1)), weight.unflatten(0, (count, -1)))


def gpt2_modules(config):
    names = {"transformer.wte": "out", "transformer.wpe": "out"}
    for i in range(config.n_layer):
        at = f"transformer.h.{i}"
        names |= {f"{at}.ln_1": "in", f"{at}.attn.c_proj": "in", f"{at}.mlp": "out"}
    return names


def gpt2_pairs(model, x, layer, head, key):
    parts = [x["transformer.wte"], x["transformer.wpe"].expand(len(IDS), -1)]
    for i in range(layer):
        projection = model.transformer.h[i].attn.c_proj
        parts += [*of_heads(x[f"transformer.h.{i}.attn.c_proj"], projection.weight, model.config.n_head)]
        parts += [projection.bias.expand(len(IDS), -1), x[f"transformer.h.{i}.mlp"]]
    stream, norm = x[f"transformer.h.{layer}.ln_1"], model.transformer.h[layer].ln_1
    torch.testing.assert_close(sum(parts), stream)
    deviation = (stream.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    parts = [(part - part.mean(-1, keepdim=True)) / deviation * norm.weight for part in parts]
    parts = torch.stack([*parts, norm.bias.expand(len(IDS), -1)])
    attn = model.transformer.h[layer].attn.c_attn
    width, D = model.config.n_embd, model.config.n_embd // model.config.n_head
    at = slice(head * D, (head + 1) * D)
    (w_q, w_k, _), (b_q, b_k, _) = attn.weight.split(width, 1), attn.bias.split(width)
    q = torch.cat([parts[:, QUERY] @ w_q[:, at], b_q[None, at]])
    k = torch.cat([parts[:, key] @ w_k[:, at], b_k[None, at]])
    return q @ k.T / D**0.5


def gemma2_modules(config):
    names = {"model.embed_tokens": "out"}
    for i in range(config.num_hidden_layers):
        at, ins = f"model.layers.{i}", ("input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm")
        names |= {f"{at}.self_attn.o_proj": "in", f"{at}.mlp": "out"} | {f"{at}.{name}": "in" for name in ins}
    return names


def gemma2_pairs(model, x, layer, head, key):
    config, H = model.config, model.config.num_attention_heads

    def normed(norm, parts, whole):
        return parts / (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt() * (1 + norm.weight)

    parts = [x["model.embed_tokens"]]  # after the scale √E
    for i in range(layer):
        at, block = f"model.layers.{i}", model.model.layers[i]
        heads = of_heads(x[f"{at}.self_attn.o_proj"], block.self_attn.o_proj.weight.T, H)
        parts += [*normed(block.post_attention_layernorm, heads, x[f"{at}.post_attention_layernorm"])]
        parts += [normed(block.post_feedforward_layernorm, x[f"{at}.mlp"], x[f"{at}.post_feedforward_layernorm"])]
    block, stream = model.model.layers[layer], x[f"model.layers.{layer}.input_layernorm"]
    torch.testing.assert_close(sum(parts), stream, rtol=1e-4, atol=1e-5)
    parts = normed(block.input_layernorm, torch.stack(parts), stream)
    cos, sin = model.model.rotary_emb(parts, torch.arange(len(IDS))[None])
    D, G = config.head_dim, config.num_key_value_heads

    def rotated(vectors, position):
        first, second = vectors.chunk(2, -1)
        return vectors * cos[0, position] + torch.cat([-second, first], -1) * sin[0, position]

    group = head * G // H
    q = rotated(parts[:, QUERY] @ block.self_attn.q_proj.weight.T[:, head * D : (head + 1) * D], QUERY)
    k = rotated(parts[:, key] @ block.self_attn.k_proj.weight.T[:, group * D : (group + 1) * D], key)
    return q @ k.T * config.query_pre_attn_scalar**-0.5


CASES = {
    "gpt2/plain": (gpt2_modules, gpt2_pairs, 1e-9),
    "gemma2/capped": (gemma2_modules, gemma2_pairs, 1e-5),  # transformers computes its norms and rotations in float32
}


@pytest.mark.parametrize("case", CASES)
def test_every_pair_is_that_of_a_plain_computation(case):
    modules, pairs_of, tolerance = CASES[case]
    theirs = captured(case, modules)
    model, trace = regard.load(golden.FOLDER / case, dtype=np.float64), Trace()
    model(np.array(IDS), trace=trace)
    for layer in range(model.config.num_layers):
        for head in range(model.config.num_heads):
            expected, other = (pairs_of(*theirs, layer, head, key).detach().numpy() for key in (KEY, OTHER))
            close = {"rtol": 0, "atol": tolerance * np.abs(expected).max()}
            found = trace.why(layer, head, QUERY, KEY)
            np.testing.assert_allclose(found.pairs, expected, **close)
            np.testing.assert_allclose(found.queries, expected.sum(1), **close)
            np.testing.assert_allclose(found.keys, expected.sum(0), **close)
            np.testing.assert_allclose(trace.why(layer, head, QUERY, KEY, OTHER).pairs, expected - other, **close)
