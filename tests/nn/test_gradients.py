"""Gradients with respect to the arrays of layers: names, tied and stored weights, fast paths, memory."""

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

import tiny_decoder
from regard import RegardError, Trace, functional as F, load
from regard.functional.variable import Variable, gradients
from regard.nn import (
    EncoderBlock,
    FeedForward,
    Layer,
    LayerNorm,
    Linear,
    QuantizedWeight,
    SelfAttention,
    parameters,
    value_and_gradients,
    with_parameters,
)
from regard.nn.kv_cache import KVCache


def slope(function, layer, name, direction):
    """Return the derivative of a function of a layer along a direction of one of its arrays, by a difference."""
    x = np.asarray(parameters(layer)[name])
    up, down = (function(with_parameters(layer, {name: x + step * direction})) for step in (1e-6, -1e-6))
    return (up - down) / 2e-6


def check(function, layer, rtol=1e-6):
    value, found = value_and_gradients(layer, function)
    assert value == pytest.approx(float(function(layer)), rel=1e-6)
    assert found.keys() == parameters(layer).keys()
    for name, gradient in found.items():
        assert gradient.shape == parameters(layer)[name].shape
        direction = np.random.default_rng(0).standard_normal(gradient.shape)
        expected = slope(function, layer, name, direction)
        np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=rtol, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_block(rng, norm_first):
    block = EncoderBlock.init(rng, 12, 3, norm_first=norm_first, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    mask = np.arange(5) < np.array([5, 3])[:, None, None, None]
    check(lambda block: np.sum(block(x, mask=mask) ** 3), block)


def test_a_dict_of_arrays(rng):
    x = rng.standard_normal((7, 3))
    arrays = {"w": rng.standard_normal((3, 4)), "mlp": FeedForward.init(rng, 4, dtype=np.float64)}
    check(lambda p: np.mean(p["mlp"](np.tanh(F.linear(x, p["w"]))) ** 2), arrays)


def test_the_steps_of_another_trace_are_plain_arrays(rng):
    attn, x = SelfAttention.init(rng, 6, 2, dtype=np.float64), rng.standard_normal((4, 6))
    for trace in (Trace(), Trace(maps=True, only="*")):
        value_and_gradients(attn, lambda attn, trace=trace: np.sum(attn(x, trace=trace)))
        assert all(isinstance(trace[name], np.ndarray) for name in trace.names())
        np.testing.assert_allclose(trace["weights"].sum(-1), 1, rtol=1e-12)


def test_an_edit_has_no_gradient(rng):
    attn, x = SelfAttention.init(rng, 6, 2), rng.standard_normal((4, 6)).astype(np.float32)
    trace = Trace(edit={"context": lambda context: 2 * context})
    with pytest.raises(RegardError, match="no gradient through the edit of context"):
        value_and_gradients(attn, lambda attn: np.sum(attn(x, trace=trace)))


@dataclass(frozen=True, eq=False, repr=False)
class Tied(Layer):
    table: np.ndarray
    head: Linear
    again: np.ndarray


def test_tied_weights_have_the_sum_of_all_uses_under_each_name(rng):
    table, ids = rng.standard_normal((5, 3)), np.array([1, 4, 4])
    tied = Tied(table, Linear(table.T), table)
    _, found = value_and_gradients(tied, lambda t: np.sum(t.head(F.embedding(t.table, ids)) ** 2) + np.sum(t.again))

    def loss(table):
        return np.sum((table[ids] @ table.T) ** 2) + np.sum(table)

    expected = np.empty_like(table)
    for place in np.ndindex(*table.shape):
        step = np.zeros_like(table)
        step[place] = 1e-6
        expected[place] = (loss(table + step) - loss(table - step)) / 2e-6
    np.testing.assert_allclose(found["table"], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found["head.weight"], found["table"].T)
    np.testing.assert_array_equal(found["again"], found["table"])


def test_quantized_weights_have_the_gradient_of_what_they_stand_for(rng):
    blocks = rng.standard_normal((6, 32)).astype(np.float16).view(np.uint8)
    stored = Linear(QuantizedWeight(blocks, "F16", transposed=True), rng.standard_normal(6).astype(np.float32))
    dense, x = Linear(np.asarray(stored.weight), stored.bias), rng.standard_normal((4, 32)).astype(np.float32)
    (_, ours), (_, expected) = (value_and_gradients(layer, lambda f: np.sum(f(x) ** 2)) for layer in (stored, dense))
    for name, gradient in expected.items():
        np.testing.assert_allclose(ours[name], gradient, rtol=1e-5, atol=1e-4)
    variables = [Variable(x), Variable(x)]  # with respect to the input the weight stays as it is
    for layer, variable in zip((stored, dense), variables, strict=True):
        gradients(np.sum(layer(variable, activation="silu") ** 2), [variable])
    pairs = [
        gradients(np.sum(f(v, activation="silu")), [v])[0] for f, v in zip((stored, dense), variables, strict=True)
    ]
    np.testing.assert_allclose(*pairs, rtol=1e-4, atol=1e-4)


def test_weights_of_a_file_take_no_fast_path(tmp_path, rng):
    """They are packed for ordinary runs; fused steps have no gradient."""
    model = load(tiny_decoder.write(tmp_path / "tiny"), dtype=np.float32)
    ids = np.array([[5, 7, 99, 4, 5]])

    def loss(model):
        return F.cross_entropy(model.head(model.forward(ids))[:, :-1], ids[:, 1:])

    before = loss(model)
    value, found = value_and_gradients(model, loss)
    assert value == pytest.approx(float(before), rel=1e-5)
    wide = with_parameters(model, {name: x.astype(np.float64) for name, x in parameters(model).items()})
    _, expected = value_and_gradients(wide, loss)
    largest = max(np.abs(x).max() for x in expected.values())
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=0, atol=1e-5 * largest, err_msg=name)
    np.testing.assert_array_equal(loss(model), before)


def test_a_cache_keeps_gradients(rng):
    k = Variable(rng.standard_normal((2, 5, 3)))
    cache = KVCache().append(k[:, :2], k[:, :2]).append(k[:, 2:], k[:, 2:])
    np.testing.assert_allclose(gradients(np.sum(cache.k * cache.v), [k])[0], 2 * k.value)


def test_no_map_is_held():
    x, attn = np.ones((2048, 16), np.float32), SelfAttention.init(np.random.default_rng(0), 16, 4)
    value_and_gradients(attn, lambda attn: np.sum(attn(x[:64])))
    tracemalloc.start()
    value_and_gradients(attn, lambda attn: np.sum(attn(x, causal=True, implementation="blockwise")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * 2048**2 * 2  # bytes of the map of four heads, twice


def test_checkpointed_blocks_hold_their_inputs_alone(tmp_path):
    deep = tiny_decoder.tensors(num_hidden_layers=12)
    config = {"num_hidden_layers": 12, "max_position_embeddings": 3000}
    model = load(tiny_decoder.write(tmp_path / "deep", config=config, changed=deep))
    ids, peaks = np.arange(2000)[None] % 250, []
    for checkpoint in (False, True):
        tracemalloc.start()
        value_and_gradients(model, lambda m: np.sum(m.forward(ids)), checkpoint=checkpoint)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 2


def test_a_cache_of_checkpointed_blocks_has_gradients(tmp_path):
    model = load(tiny_decoder.write(tmp_path / "tiny"), dtype=np.float64)

    def loss(model):
        _, state = model.prefill(np.array([[5, 7, 99]]))
        hidden, _ = model.decode_step(np.array([[3, 4]]), state)
        return np.sum(hidden**3)

    (one, whole), (other, again) = (value_and_gradients(model, loss, checkpoint=c) for c in (False, True))
    assert one == pytest.approx(other, rel=1e-12)
    for name, x in whole.items():
        np.testing.assert_allclose(again[name], x, rtol=1e-9, atol=1e-10, err_msg=name)

    def at_once(model):
        return np.sum(model.forward(np.array([[5, 7, 99, 3, 4]]))[:, 3:] ** 3)

    for name, x in value_and_gradients(model, at_once)[1].items():
        np.testing.assert_allclose(again[name], x, rtol=1e-9, atol=1e-10, err_msg=name)


def test_a_loss_that_is_no_number_is_an_error(rng):
    norm = LayerNorm.init(4)
    with pytest.raises(RegardError, match=r"got an array \(3, 4\)"):
        value_and_gradients(norm, lambda norm: norm(np.ones((3, 4), np.float32)))
    with pytest.raises(RegardError, match=r"got 2\.0"):
        value_and_gradients(norm, lambda norm: 2.0)


def test_other_arrays_make_another_layer(rng):
    block = EncoderBlock.init(rng, 12, 3)
    doubled = {name: 2 * x for name, x in parameters(block).items()}
    other = with_parameters(block, doubled)
    assert other.attn.num_heads == 3
    for name, x in parameters(other).items():
        assert x is doubled[name]
    assert parameters(block)["attn.q_proj.weight"] is not doubled["attn.q_proj.weight"]
    with pytest.raises(RegardError, match=r"no array 'attn.q.weight'"):
        with_parameters(block, {"attn.q.weight": np.zeros(3)})


def test_other_arrays_of_a_file_are_as_fast(tmp_path):
    """Arrays that nobody can write are packed again."""
    model = load(tiny_decoder.write(tmp_path / "tiny"), dtype=np.float32)
    again = with_parameters(model, parameters(model))
    np.testing.assert_array_equal(again("abc").hidden, model("abc").hidden)
    assert again.blocks[0].attn.__dict__.keys() == model.blocks[0].attn.__dict__.keys()
