"""Weights of a mapped file are packed once; those that a person holds are read anew each time."""

from __future__ import annotations

import copy
import mmap
import pickle

import numpy as np
import pytest

from regard import kernels
from regard.nn import Linear, SelfAttention
from regard.nn._packed import Packed

WITH_KERNEL = pytest.mark.skipif(kernels.native() is None, reason="there is no kernel to pack for")


@pytest.fixture
def mapped(tmp_path):
    """Return a function that puts an array into a file and returns it mapped read-only."""

    def mapped(array):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(array.tobytes())
        with path.open("rb") as stream:
            view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(view, array.dtype).reshape(array.shape)

    return mapped


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mapped_weights_map_as_others_do(rng, mapped, dtype):
    weight, bias = rng.standard_normal((70, 50)).astype(dtype), rng.standard_normal(70).astype(dtype)
    x = rng.standard_normal((2, 3, 50)).astype(dtype)
    ours, plain = Linear(mapped(weight).T, mapped(bias)), Linear(weight.T, bias)
    for activation in (None, "gelu", "relu"):
        np.testing.assert_allclose(
            ours(x, activation=activation), plain(x, activation=activation), atol=50 * np.finfo(dtype).eps
        )
    np.testing.assert_allclose(ours(x.astype(np.float16)), plain(x.astype(np.float16)))  # not for the kernel


@WITH_KERNEL
def test_only_what_cannot_change_is_packed(rng, mapped):
    weight = rng.standard_normal((4, 3))
    assert Packed.of([Linear(mapped(weight))]) is not None
    assert Packed.of([Linear(weight)]) is None
    locked = weight.view()
    locked.flags.writeable = False
    assert Packed.of([Linear(locked)]) is None
    assert Packed.of([Linear(mapped(weight), np.zeros(3))]) is None
    assert Packed.of([Linear(np.frombuffer(memoryview(bytearray(96)).toreadonly()).reshape(4, 3))]) is None
    own = np.array(weight)
    own.flags.writeable = False
    assert Packed.of([Linear(own)]) is None


def test_a_change_of_ones_own_weights_is_seen(rng):
    linear = Linear(rng.standard_normal((4, 3)))
    x = rng.standard_normal((2, 4))
    linear(x)
    linear.weight[...] = 0
    assert not linear(x).any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_has_weights_of_its_own(rng, mapped, copied):
    x = rng.standard_normal((2, 4))
    linear = Linear(mapped(rng.standard_normal((4, 4))))
    attention = SelfAttention(linear, linear, linear, linear, num_heads=2)
    attention(x)
    other = copied(attention)
    np.testing.assert_array_equal(other.q_proj.weight, linear.weight)
    other.o_proj.weight[...] = 0
    other.v_proj.weight[...] = 0
    assert attention(x).any()
    assert not other(x).any()


@pytest.mark.parametrize("biases", [(True, True, True), (True, False, True), (False, False, False)])
def test_queries_keys_and_values_in_one_product(rng, mapped, biases):
    def attention(put):
        rng = np.random.default_rng(3)
        maps = []
        for width, bias in zip((40, 20, 10), biases, strict=True):
            weight = put(0.1 * rng.standard_normal((width, 50)).astype(np.float32))
            maps.append(Linear(weight.T, put(rng.standard_normal(width).astype(np.float32)) if bias else None))
        return SelfAttention(*maps, num_heads=4)

    x = rng.standard_normal((2, 9, 50)).astype(np.float32)
    together, apart = attention(mapped), attention(lambda array: array)
    np.testing.assert_allclose(together(x), apart(x), atol=1e-5)
