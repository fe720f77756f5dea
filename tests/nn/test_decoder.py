"""The layers of decoders: what they compute, that a cache changes nothing, and what they refuse."""

from itertools import pairwise

import numpy as np
import pytest

from regard import KVCache, Trace, nn
from regard.functional import rotary, rotary_frequencies

B, H, G, T, D, E = 2, 6, 3, 5, 4, 12


def drawn(rng, kind, *arguments, **options):
    """Return a fresh layer with its zeros and ones drawn too."""
    layer = kind.init(*arguments, **options)
    for array in nn.parameters(layer).values():
        array[...] = rng.normal(0, 0.5, array.shape)
    return layer


def causal(rng, **options):
    layer = drawn(rng, nn.CausalAttention, rng, E, H, head_dim=D, num_kv_heads=G, dtype=np.float64)
    return nn.CausalAttention(layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj, num_heads=H, **options)


def block(rng, **norms):
    """Return a block with all that a family may have."""
    scales = {name: nn.RMSNorm(rng.uniform(0.5, 1.5, D), 1e-3) for name in ("q_norm", "k_norm")}
    attn = causal(rng, **scales, window=(2, 0), scale=0.3, softcap=1.1, sinks=rng.normal(size=H))
    gated = drawn(rng, nn.GatedFeedForward, rng, E, 20, bias=True, dtype=np.float64)
    return nn.DecoderBlock(
        nn.RMSNorm(rng.uniform(0.5, 1.5, E)), attn, nn.RMSNorm(rng.uniform(0.5, 1.5, E)), gated, **norms
    )


def turned(length, start=0):
    frequencies, _ = rotary_frequencies(D)
    angles = np.arange(start, start + length)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)


def test_causal_attention_by_hand(rng):
    """Norm, rotation, grouped heads, window, scale, softcap and sinks, each as the formula has it."""
    made = block(rng).attn
    x = rng.normal(size=(T, E))
    q, k, v = (
        (x @ p.weight + p.bias).reshape(T, -1, D).swapaxes(0, 1) for p in (made.q_proj, made.k_proj, made.v_proj)
    )
    q, k = (rotary(norm(z)) for norm, z in ((made.q_norm, q), (made.k_norm, k)))
    k, v = (np.repeat(z, H // G, axis=0) for z in (k, v))
    scores = 1.1 * np.tanh(q @ k.swapaxes(1, 2) * 0.3 / 1.1)
    distance = np.arange(T)[:, None] - np.arange(T)
    share = np.where((distance >= 0) & (distance <= 2), np.exp(scores), 0)
    weights = share / (share.sum(-1, keepdims=True) + np.exp(made.sinks)[:, None, None])
    context = (weights @ v).swapaxes(0, 1).reshape(T, H * D)
    trace = Trace()
    output, cache = made(x, rotation=turned(T), trace=trace)
    np.testing.assert_allclose(output, context @ made.o_proj.weight + made.o_proj.bias, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(trace["weights"], weights, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(trace["q"], q, rtol=1e-12)
    assert cache is None


@pytest.mark.parametrize("cuts", [(0, 1, 2, 3, 4, 5), (0, 3, 5), (0, 5)])
def test_a_cache_changes_nothing(rng, cuts):
    made, x, cache, parts = block(rng), rng.normal(size=(B, T, E)), KVCache(), []
    for start, end in pairwise(cuts):
        y, cache = made(x[:, start:end], rotation=turned(end - start, start), cache=cache)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts, 1), made(x, rotation=turned(T))[0], rtol=1e-12, atol=1e-12)
    assert (cache.start, cache.end) == (T - 2, T)  # what its window reaches


@pytest.mark.parametrize("window", [(0, 0), (2, 0), (99, 0), None])
def test_a_mask_is_over_all_positions_also_those_that_are_dropped(rng, window):
    made, x, cache = causal(rng, window=window), rng.normal(size=(B, T, E)), KVCache()
    mask = (np.arange(T) >= np.array([[1], [3]]))[:, None, None]
    whole, parts = made(x, mask=mask)[0], []
    for t in range(T):
        y, cache = made(x[:, t : t + 1], mask=mask[..., : t + 1], cache=cache)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-12, atol=1e-12)


def test_a_mask_hides_besides_the_order(rng):
    made, x = causal(rng), rng.normal(size=(B, T, E))
    mask = np.arange(T) >= np.array([[2], [0]])
    output, _ = made(x, mask=mask[:, None, None])
    np.testing.assert_allclose(output[0, 2:], made(x[0, 2:])[0], rtol=1e-12)
    np.testing.assert_allclose(output[1], made(x[1])[0], rtol=1e-12)


def test_decoder_blocks_are_pre_norm_with_optional_post_norms(rng):
    x = rng.normal(size=(T, E))
    plain = block(rng)
    after = {name: nn.RMSNorm(rng.uniform(0.5, 1.5, E)) for name in ("attn_post_norm", "mlp_post_norm")}
    both = nn.DecoderBlock(plain.attn_norm, plain.attn, plain.mlp_norm, plain.mlp, **after)
    for made, first, second in ((plain, np.array, np.array), (both, *after.values())):
        trace = Trace()
        middle = x + first(made.attn(made.attn_norm(x))[0])
        np.testing.assert_allclose(
            made(x, trace=trace)[0], middle + second(made.mlp(made.mlp_norm(middle))), rtol=1e-12
        )
        np.testing.assert_allclose(trace["attn_residual"], middle, rtol=1e-12)
        post_norm = ["mlp_post_norm"] if made is both else []
        steps = ["attn_residual", "mlp.gate", "mlp.up", "mlp.hidden", "mlp.output", *post_norm, "output"]
        assert list(trace.names()[-len(steps) :]) == steps
        assert ("attn_post_norm" in trace) == (made is both)
