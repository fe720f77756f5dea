"""Layers: what they compute, that they are values, and how they are drawn."""

import dataclasses
import math

import numpy as np
import pytest

from regard import Trace, attention, nn

B, H, T, S, E = 2, 3, 5, 7, 12


def test_self_attention_is_the_equation_between_projections(rng):
    layer = nn.SelfAttention.init(rng, E, H, dtype=np.float64)
    x = rng.standard_normal((B, T, E))
    out = np.zeros((B, T, E))
    for b in range(B):
        contexts = []
        for h in range(H):
            own = slice(h * 4, h * 4 + 4)
            q, k, v = (x[b] @ p.weight[:, own] + p.bias[own] for p in (layer.q_proj, layer.k_proj, layer.v_proj))
            weights = np.exp(q @ k.T / 2)
            contexts.append(weights / weights.sum(-1, keepdims=True) @ v)
        out[b] = np.concatenate(contexts, -1) @ layer.o_proj.weight + layer.o_proj.bias
    np.testing.assert_allclose(layer(x), out, rtol=1e-12)


def test_weights_for_each_head_make_the_same_layer_as_one_matrix(rng):
    per_head = [rng.standard_normal((H, E, 4)) for _ in range(3)]
    w_o = rng.standard_normal((H * 4, E))
    joined = [np.concatenate(list(w), axis=1) for w in per_head]
    x = rng.standard_normal((T, E))
    one, other = nn.SelfAttention.from_weights(*per_head, w_o), nn.SelfAttention.from_weights(*joined, w_o, num_heads=H)
    np.testing.assert_array_equal(one(x), other(x))


def test_single_head_without_output_projection(rng):
    layer = nn.SelfAttention.init(rng, E, 1, head_dim=4, bias=False, output_projection=False)
    x = rng.standard_normal((T, E)).astype(np.float32)
    q, k, v = (x @ p.weight for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    assert layer.o_proj is None
    np.testing.assert_array_equal(layer(x), attention(q, k, v))


def test_fewer_kv_heads_are_inferred_from_the_projections(rng):
    layer = nn.SelfAttention.init(rng, 24, 6, num_kv_heads=2, bias=False, dtype=np.float64)
    assert (layer.num_heads, layer.num_kv_heads, layer.head_dim) == (6, 2, 4)
    k, v = (np.repeat(p.weight.reshape(24, 2, 4), 3, axis=1).reshape(24, 24) for p in (layer.k_proj, layer.v_proj))
    spelled_out = nn.SelfAttention.from_weights(layer.q_proj.weight, k, v, layer.o_proj.weight, num_heads=6)
    x = rng.standard_normal((T, 24))
    np.testing.assert_allclose(layer(x), spelled_out(x), rtol=1e-12)


def test_fewer_kv_heads_can_be_given_one_by_one(rng):
    w_q, w_k, w_v = (rng.standard_normal((heads, E, 4)) for heads in (6, 2, 2))
    layer = nn.SelfAttention.from_weights(w_q, w_k, w_v)
    x = rng.standard_normal((T, E))
    want = attention(x @ w_q, x @ w_k, x @ w_v)
    np.testing.assert_allclose(layer(x), np.concatenate(list(want), axis=-1), rtol=1e-12)


def test_cross_attention_takes_keys_and_values_from_the_memory(rng):
    layer = nn.CrossAttention.init(rng, E, H, dtype=np.float64)
    x, memory = rng.standard_normal((B, T, E)), rng.standard_normal((B, S, E))
    trace = Trace()
    assert layer(x, memory, trace=trace).shape == (B, T, E)
    assert trace["weights"].shape == (B, H, T, S)
    np.testing.assert_array_equal(
        layer(x, x), nn.SelfAttention(layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj, num_heads=H)(x)
    )


def test_attention_in_steps_is_the_layer(rng):
    """So that keys and values can be stored for later queries."""
    layer = nn.CrossAttention.init(rng, E, H)
    x, memory = rng.standard_normal((B, T, E)), rng.standard_normal((B, S, E))
    whole, steps = Trace(), Trace()
    expected = layer(x, memory, trace=whole, scale=0.3)
    k, v = layer.project_kv(memory, trace=steps)
    parts = [
        layer.attend(layer.project_q(row, trace=trace), k, v, scale=0.3, trace=trace)
        for row, trace in ((x[:, :1], steps), (x[:, 1:], Trace()))
    ]
    np.testing.assert_allclose(np.concatenate(parts, 1), expected, rtol=1e-6, atol=1e-6)
    assert sorted(steps.names()) == sorted(whole.names())
    q, k, v = layer.project_qkv(x)
    np.testing.assert_allclose(layer.attend(q, k, v), layer(x, x), rtol=1e-6, atol=1e-6)


def test_every_call_gives_the_same(rng):
    layer = nn.EncoderBlock.init(rng, E, H)
    x = rng.standard_normal((T, E)).astype(np.float32)
    assert np.array_equal(layer(x), layer(x))
    assert np.array_equal(layer(x), layer.forward(x))


@pytest.mark.parametrize("kind", [nn.SelfAttention, nn.CrossAttention, nn.EncoderBlock])
@pytest.mark.parametrize("hides", ["mask", "bias", "causal"])
def test_what_attention_takes_reaches_it(rng, kind, hides):
    seen = np.tri(T, dtype=bool)
    argument = {"mask": seen, "bias": np.where(seen, 0.0, -np.inf), "causal": True}[hides]
    layer = kind.init(rng, E, H, dtype=np.float64)
    x = rng.standard_normal((T, E))
    texts = (x, x) if kind is nn.CrossAttention else (x,)
    trace = Trace()
    layer(*texts, trace=trace, **{hides: argument})
    weights = next(trace[name] for name in trace if name.endswith("weights"))
    assert ((weights > 0) == seen).all()


def test_without_bias_no_projection_has_one(rng):
    block = nn.EncoderBlock.init(rng, E, H, bias=False)
    assert [name for name in nn.parameters(block) if name.endswith("bias")] == ["attn_norm.bias", "mlp_norm.bias"]


def test_an_encoder_block_is_drawn_with_the_choices_of_its_parts(rng):
    block = nn.EncoderBlock.init(rng, E, 6, head_dim=4, num_kv_heads=2, hidden_dim=7, eps=0.5)
    assert (block.attn.head_dim, block.attn.num_kv_heads, block.mlp.up_proj.weight.shape) == (4, 2, (E, 7))
    assert (block.attn_norm.eps, block.mlp_norm.eps) == (0.5, 0.5)


def test_layers_are_frozen(rng):
    layer = nn.Linear.init(rng, 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.weight = np.zeros((2, 3))


def test_xavier_keeps_attention_soft_where_the_lessons_saturate_it(rng):
    """With unscaled normal weights the strongest weight of a row is nearly 1; with Xavier's it is not."""
    width = 128
    x = rng.standard_normal((64, width)).astype(np.float32)
    sound = nn.SelfAttention.init(rng, width, 4)
    lesson = nn.SelfAttention.from_weights(*(rng.standard_normal((width, width)) for _ in range(4)), num_heads=4)
    strongest = {}
    for name, layer in (("sound", sound), ("lesson", lesson)):
        trace = Trace(only="weights")
        layer(x, trace=trace)
        strongest[name] = np.median(trace["weights"].max(-1))
    assert strongest["lesson"] > 0.99
    assert strongest["sound"] < 0.2


def test_linear_init_has_glorots_variance(rng):
    weight = nn.Linear.init(rng, 300, 500).weight
    assert weight.var() == pytest.approx(2 / 800, rel=0.02)
    assert np.abs(weight).max() <= math.sqrt(6 / 800)


def test_feed_forward_is_two_maps_with_an_activation(rng):
    layer = nn.FeedForward.init(rng, E, activation="relu", dtype=np.float64)
    x = rng.standard_normal((T, E))
    assert layer.up_proj.weight.shape == (E, 4 * E)
    np.testing.assert_allclose(layer(x), np.maximum(x @ layer.up_proj.weight, 0) @ layer.down_proj.weight, rtol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_block_adds_and_normalises(rng, norm_first):
    block = nn.EncoderBlock.init(rng, E, H, norm_first=norm_first, dtype=np.float64)
    x = rng.standard_normal((T, E))
    if norm_first:
        y = x + block.attn(block.attn_norm(x))
        want = y + block.mlp(block.mlp_norm(y))
    else:
        y = block.attn_norm(x + block.attn(x))
        want = block.mlp_norm(y + block.mlp(y))
    np.testing.assert_allclose(block(x), want, rtol=1e-12)


def test_embedding_looks_rows_up(rng):
    table = nn.Embedding.init(rng, 11, E)
    np.testing.assert_array_equal(table(np.array([[3, 0], [10, 3]])), table.weight[[[3, 0], [10, 3]]])
    assert table([]).shape == (0, E)


def test_layers_are_shown_by_their_shapes(rng):
    assert repr(nn.Linear.init(rng, 2, 3)) == "Linear(weight=float32[2 3], bias=float32[3])"
    assert len(repr(nn.EncoderBlock.init(rng, 384, 12))) < 1000
