"""A weight in quantised blocks behaves as the array that it stands for."""

import copy
import pickle

import gguf
import numpy as np
import pytest

from gguf_files import quantised
from regard import RegardError
from regard.formats.quantized import BLOCKS, dequantize
from regard.functional import native
from regard.functional.variable import Variable, gradients
from regard.nn import Embedding, Linear, QuantizedWeight, parameters

KINDS = tuple(BLOCKS)


@pytest.fixture(params=KINDS)
def weight(request, rng):
    return made(rng, request.param)


def made(rng, kind, rows=20, columns=256):
    return QuantizedWeight(
        quantised(rng.standard_normal((rows, columns)).astype(np.float32), kind).view(np.uint8), kind
    )


@pytest.fixture
def without_kernel(monkeypatch):
    monkeypatch.setattr(native, "kernel", lambda: None)


def dense(weight):
    return gguf.dequantize(weight.blocks, gguf.GGMLQuantizationType[weight.kind])


def assert_same_products(ours, plain, x, matrix):
    """Compare sums of products in float32, whose rounding is of the products and not of their sum."""
    largest = (np.abs(x) @ np.abs(matrix)).max()
    np.testing.assert_allclose(ours, plain, rtol=0, atol=2e-6 * largest + 1e-6)


def test_it_reads_as_the_library_reads_it(weight):
    wanted = dense(weight)
    assert weight.shape == wanted.shape == (20, 256)
    assert (weight.dtype, weight.ndim, weight.size, len(weight)) == (np.float32, 2, 5120, 20)
    rows = (0, -1, slice(3, 9), np.array([2, 2, 5]), np.array([[1], [0]]), (3, slice(2)), ..., np.arange(20) > 4)
    for index in rows:
        np.testing.assert_array_equal(weight[index], wanted[index])
    for index in (0, slice(3, 9), (slice(2), 3)):
        np.testing.assert_array_equal(weight.T[index], wanted.T[index])
    np.testing.assert_array_equal(np.asarray(weight, np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(np.asarray(weight.T), wanted.T)
    with pytest.raises(IndexError):
        weight[20]


def test_it_takes_part_in_arithmetic(weight):
    wanted = dense(weight)
    np.testing.assert_array_equal(weight * 2, wanted * 2)
    np.testing.assert_array_equal(np.ones((1, 20), np.float32) @ weight, np.ones((1, 20), np.float32) @ wanted)
    np.testing.assert_array_equal(weight == weight, wanted == wanted)
    assert np.linalg.norm(weight) == np.linalg.norm(wanted)


def test_it_stays_small_and_says_what_it_is(rng):
    weight = made(rng, "Q4_1", 8, 64)
    assert (weight.nbytes, repr(weight), repr(weight.T)) == (8 * 40, "Q4_1[8 64]", "Q4_1[64 8]")
    assert repr(Linear(weight.T)) == "Linear(weight=Q4_1[64 8], bias=None)"
    assert parameters(Linear(weight.T))["weight"].kind == "Q4_1"
    with pytest.raises(ValueError, match="makes a copy"):
        np.asarray(weight, copy=False)


def test_copies_and_pickles_are_equal(weight):
    for other in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight.T)).T):
        np.testing.assert_array_equal(np.asarray(other), np.asarray(weight))


@pytest.mark.parametrize("rows", [1, 5, 33])
def test_a_linear_map_with_it_is_that_of_the_array(weight, rng, rows):
    """The kernel multiplies blocks only without a bias that may be written to."""
    x, bias = rng.standard_normal((2, rows, 256)).astype(np.float32), rng.standard_normal(20).astype(np.float32)
    for added in (None, bias):
        ours, plain = Linear(weight.T, added), Linear(np.ascontiguousarray(dense(weight).T), added)
        for activation in (None, "gelu"):
            assert_same_products(ours(x, activation=activation), plain(x, activation=activation), x, dense(weight).T)


def test_without_the_kernel_too(weight, rng, without_kernel, monkeypatch):
    monkeypatch.setattr("regard.nn.quantized._CHUNK", 256 * 7)  # several parts, the last a short one
    x, bias = rng.standard_normal((3, 256)).astype(np.float32), rng.standard_normal(20).astype(np.float32)
    assert_same_products(Linear(weight.T, bias)(x), x @ dense(weight).T + bias, x, dense(weight).T)
    assert_same_products(Linear(weight)(x[:, :20]), x[:, :20] @ dense(weight), x[:, :20], dense(weight))


def test_other_dtypes_are_multiplied_too(weight, rng):
    x = rng.standard_normal((3, 256))
    np.testing.assert_allclose(Linear(weight.T)(x), x @ dense(weight).T, rtol=1e-6, atol=1e-6)
    assert Linear(weight.T)(x).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_gradients_of_the_input_are_those_of_the_array(weight, rng, dtype):
    """Of float32 by the kernel, else by parts that are dequantised."""
    x, d = rng.standard_normal((5, 256)).astype(dtype), rng.standard_normal((5, 20)).astype(dtype)
    bias = rng.standard_normal(20).astype(dtype)
    found, expected = (gradient_at(layer, x, d) for layer in (Linear(weight.T, bias), Linear(dense(weight).T, bias)))
    assert found.dtype == dtype
    largest = (np.abs(d) @ np.abs(dense(weight))).max()
    np.testing.assert_allclose(found, expected, rtol=2 * np.finfo(dtype).eps, atol=2e-6 * largest)


def test_gradients_without_the_kernel_take_no_whole_weight(weight, rng, without_kernel, monkeypatch):
    read = []
    monkeypatch.setattr("regard.nn.quantized._CHUNK", 256 * 7)
    monkeypatch.setattr("regard.nn.quantized.dequantize", lambda *x: read.append(len(x[0])) or dequantize(*x))
    x, d = (rng.standard_normal((5, size)).astype(np.float32) for size in (256, 20))
    assert_same_products(gradient_at(Linear(weight.T), x, d), d @ dense(weight), d, dense(weight))
    assert max(read) == 7


def gradient_at(layer, x, d):
    variable = Variable(x)
    y = layer(variable)
    (found,) = gradients(y, [variable], d.astype(y.dtype))
    return found


def test_an_embedding_reads_its_rows(weight):
    table = Embedding(weight)
    np.testing.assert_array_equal(table([[3, 0], [19, 3]]), dense(weight)[[[3, 0], [19, 3]]])
    assert table([]).shape == (0, 256)
    with pytest.raises(RegardError, match="outside the vocabulary"):
        table([20])


def test_nothing_can_be_written_to_it(rng):
    weight = made(rng, "Q4_1", 8, 64)
    before = np.asarray(weight)
    with pytest.raises(ValueError, match="is read-only"):
        weight += 1
    with pytest.raises(ValueError, match="is read-only"):
        np.add(before, 1, out=weight)
    with pytest.raises(ValueError, match="is read-only"):
        np.add.at(weight, 0, 1)
    np.testing.assert_array_equal(np.asarray(weight), before)
    with pytest.raises(TypeError, match="Cannot cast"):
        np.add(before, 1, where=weight, out=before.copy())


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        (np.zeros((8, 21), np.uint8), "Q4_1"),
        (np.zeros((8, 20), np.int8), "Q4_1"),
        (np.zeros(20, np.uint8), "Q4_1"),
        (np.zeros((8, 20), np.uint8), "Q9"),
    ],
)
def test_it_is_made_from_whole_blocks(blocks, kind):
    with pytest.raises(RegardError, match="rows of whole blocks, uint8, and their kind"):
        QuantizedWeight(blocks, kind)
