"""Functions of the scores beside the textbook formula with the same function."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from attention_cases import PATHS, chance, close, cut_into_blocks
from regard import AttentionMap, attention, attention_vjp, attention_weights, explain_plan
from regard.functional import ALiBi, ScoreMod, alibi_slopes, native

seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


def random_score_mod(rng, batch, heads):
    """Return a ScoreMod with its derivative."""
    slopes, shifts = rng.random((batch, heads)), rng.standard_normal((batch, heads))
    table = rng.standard_normal((40, 40))
    return [
        ScoreMod(lambda score, b, h, q_idx, kv_idx: score - slopes[b, h] * abs(q_idx - kv_idx), 1),
        ScoreMod(lambda score, b, h, q_idx, kv_idx: score + table[q_idx, kv_idx], 1),
        ScoreMod(lambda score, b, h, q_idx, kv_idx: np.where(q_idx >= kv_idx, score, -np.inf),
                 lambda score, b, h, q_idx, kv_idx: np.where(q_idx >= kv_idx, 1.0, 0.0)),
        ScoreMod(lambda score, *_: 2 * np.tanh(score / 2), lambda score, *_: 1 - np.tanh(score / 2) ** 2),
        ScoreMod(lambda score, b, h, q_idx, kv_idx: score * (1 + slopes[b, h]) + shifts[b, h] * kv_idx,
                 lambda score, b, h, *_: 1 + slopes[b, h]),
        ScoreMod(lambda score, b, h, q_idx, kv_idx: np.sin(score) * (1 + q_idx % 3),
                 lambda score, b, h, q_idx, kv_idx: np.cos(score) * (1 + q_idx % 3)),
    ][int(rng.integers(0, 6))]  # fmt: skip


def random_call(seed):
    rng = np.random.default_rng(seed)
    batch, groups, repeats = (int(rng.integers(1, 3)) for _ in range(3))
    queries, keys = (int(rng.integers(1, 10)) for _ in range(2))
    q = rng.standard_normal((batch, groups * repeats, queries, 4))
    k, v = (rng.standard_normal((batch, groups, keys, n)) for n in (4, 3))
    mod, options = random_score_mod(rng, batch, groups * repeats), {}
    allowed = np.ones((queries, keys), bool)
    if chance(rng, 0.5):
        options["mask"] = allowed = rng.random((queries, keys)) < 0.7
    if chance(rng, 0.3):
        options["softcap"] = 1.5
    return rng, q, k, v, mod, options, allowed


def textbook(q, k, v, mod, softcap=None, allowed=True):
    """Return output and weights on the whole map."""
    batch, heads, queries, _ = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / 2
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    b, h = np.arange(batch)[:, None, None, None], np.arange(heads)[:, None, None]
    scores = mod.score_mod(scores, b, h, np.arange(queries)[:, None], np.arange(k.shape[2])[None, :])
    weights = np.where(allowed & (scores > -np.inf), np.exp(scores), 0)
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    return weights @ v, weights


@pytest.mark.parametrize("path", PATHS)
@given(seeds)
def test_the_numbers_of_the_formula(path, seed):
    _, q, k, v, mod, options, allowed = random_call(seed)
    if path == "native" and not mod.adds:
        path = "auto"
    output, weights = textbook(q, k, v, mod, options.get("softcap"), allowed)
    close(attention(q, k, v, bias=mod, implementation=path, **options), output)
    close(attention(q, k, v, bias=mod.score_mod, **options), output)
    close(attention_weights(q, k, bias=mod, implementation=path, **options), weights)
    close(attention_weights(q, k, bias=mod, rows=[-1, 0], cols=slice(1, None), **options), weights[:, :, [-1, 0], 1:])


@given(seeds)
def test_maps_and_their_heads(seed):
    _, q, k, v, mod, options, allowed = random_call(seed)
    _, weights = textbook(q, k, v, mod, options.get("softcap"), allowed)
    whole = AttentionMap(q, k, bias=mod, **options)
    close(whole.weights(), weights)
    close(whole.select(-1, -1).weights(), weights[-1, -1])
    close(whole.received(), weights.sum(-2))


@pytest.mark.parametrize("path", PATHS)
@given(seeds)
def test_gradients_are_those_of_differences(path, seed):
    rng, q, k, v, mod, options, allowed = random_call(seed)
    if path == "native" and not mod.adds:
        path = "auto"
    output, pullback = attention_vjp(q, k, v, bias=mod, implementation=path, **options)
    d_output = rng.standard_normal(output.shape)
    gradients = pullback(d_output)
    assert gradients.bias is None
    given = {"q": q, "k": k, "v": v}
    for name, x in given.items():
        step = rng.standard_normal(x.shape) * 1e-5
        up, down = (textbook(**(given | {name: x + s}), mod=mod, softcap=options.get("softcap"), allowed=allowed)[0]
                    for s in (step, -step))  # fmt: skip
        difference = ((up - down) * d_output).sum()
        np.testing.assert_allclose((getattr(gradients, name) * step).sum() * 2, difference, rtol=1e-5, atol=1e-9)


def test_a_function_that_adds_is_a_bias_of_the_kernel():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 4, 100, 8))
    slopes = alibi_slopes(4)
    mod = ScoreMod(lambda score, b, h, q_idx, kv_idx: score - slopes[h] * abs(q_idx - kv_idx), 1)
    close(attention(q, k, v, bias=mod), attention(q, k, v, bias=ALiBi(slopes)))
    if native.kernel():
        assert explain_plan(q, k, v, bias=mod).implementation == "native"
