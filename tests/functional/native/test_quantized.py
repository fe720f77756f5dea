"""Weights in quantised blocks: the kernel's products beside those of the weights as `gguf` dequantises them."""

import functools

import gguf
import numpy as np
import pytest

from gguf_files import SCALES, quantised
from regard import functional as F
from regard.formats.quantized import BLOCKS
from regard.functional import native
from regard.functional.native import ops

kernel = native.kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason="there is no compiled kernel")

KINDS = tuple(BLOCKS)
BLOCK_KINDS = tuple(kind for kind in KINDS if kind not in ("F16", "BF16"))


def drawn(rng, kind, outputs, inputs):
    """Return blocks of random weights, and the weights, ``outputs inputs``, in float32."""
    blocks = quantised(rng.standard_normal((outputs, inputs)).astype(np.float32), kind).view(np.uint8)
    return blocks, gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind])


def product(x, blocks, kind, bias=None, activation="identity"):
    groups = ops.pack_quantized([blocks], kind, x.shape[-1])
    return ops.packed_linear(x, groups, x.shape[-1], len(blocks), bias, activation, kind)


def transposed(d, blocks, kind, inputs):
    return ops.packed_linear_transposed(d, ops.pack_quantized([blocks], kind, inputs), inputs, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 16, 17, 40, 300])
def test_products_are_those_of_the_dequantised_weights(rng, instruction_set, kind, rows):
    for inputs, outputs in ((256, 16), (768, 51), (512, 1), (2304, 21)):
        blocks, weight = drawn(rng, kind, outputs, inputs)
        x, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, inputs), outputs))
        wanted = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
        # An error of each product and sum relative to the sum of magnitudes, as of any float32 dot product.
        bound = np.abs(x).astype(np.float64) @ np.abs(weight.T) + np.abs(bias)
        assert (np.abs(product(x, blocks, kind, bias) - wanted) <= 4e-7 * bound).all()


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_one_number_are_the_dequantised_weights(rng, instruction_set, kind):
    blocks, weight = drawn(rng, kind, 35, 512)
    found = product(np.eye(512, dtype=np.float32), blocks, kind).T
    if instruction_set != "AVX-512 VNNI" or kind not in BLOCK_KINDS:
        np.testing.assert_array_equal(found, weight)
    else:  # x is rounded, and the scale and the offset of a block are added
        largest = np.abs(weight).reshape(35, -1, 32).max(axis=-1).repeat(32, axis=-1)
        assert (np.abs(found - weight) <= 3e-7 * largest).all()


@pytest.mark.parametrize("kind", BLOCK_KINDS)
def test_in_fixed_point_a_row_has_the_same_bits_in_any_batch(rng, instruction_set, kind):
    if instruction_set != "AVX-512 VNNI":
        pytest.skip("few rows are multiplied otherwise than many")
    blocks, _ = drawn(rng, kind, 83, 2304)
    x, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 2304), 83))
    whole = product(x, blocks, kind, bias)
    for start, stop in ((0, 1), (1, 3), (5, 9), (7, 14), (40, 56), (99, 227), (150, 300)):
        np.testing.assert_array_equal(product(x[start:stop], blocks, kind, bias), whole[start:stop])


@pytest.mark.parametrize("kind", BLOCK_KINDS)
@pytest.mark.parametrize("rows", [1, 6])
def test_numbers_are_rounded_to_the_largest_that_meets_their_block(rng, instruction_set, kind, rows):
    blocks, weight = drawn(rng, kind, 40, 512)
    wide, large = 10 ** rng.uniform(-6, 6, 512), 1e25 * 10 ** rng.uniform(-1, 1, 512)
    for sizes in (wide, large, np.full(512, 1e-28), np.zeros(512)):
        x = (rng.standard_normal((rows, 512)) * sizes).astype(np.float32)
        wanted = x.astype(np.float64) @ weight.T.astype(np.float64)
        # Of a float32 dot product, and of numbers rounded to the largest of each part of 32.
        largest = np.abs(x).reshape(rows, -1, 32).max(axis=-1).astype(np.float64)
        bound = np.abs(x).astype(np.float64) @ np.abs(weight.T)
        rounded = largest @ np.abs(weight).reshape(40, -1, 32).sum(axis=-1).T
        assert (np.abs(product(x, blocks, kind) - wanted) <= 4e-7 * bound + 3 * 2**-24 * rounded).all()


@pytest.mark.parametrize("kind", BLOCK_KINDS)
@pytest.mark.parametrize("rows", [1, 6])
def test_no_sum_of_the_largest_codes_and_numbers_overflows(instruction_set, kind, rows):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        blocks = np.full((20, 512 // size[0], size[1]), byte, np.uint8)
        for at in SCALES.get(kind, (0, 2) if kind in ("Q4_1", "Q5_1") else (0,)):
            blocks[..., at : at + 2] = np.array([1.5], np.float16).view(np.uint8)
        blocks = blocks.reshape(20, -1)
        weight = gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind]).astype(np.float64)
        for signs in (np.ones(512), -np.ones(512), np.where(np.arange(512) % 3, 1, -1)):
            x = np.broadcast_to(signs.astype(np.float32), (rows, 512))
            bound = 8e-7 * (np.abs(weight).sum(axis=-1) + 512 * 1.5 * 255)
            assert (np.abs(product(np.ascontiguousarray(x), blocks, kind) - signs @ weight.T) <= bound).all()


@pytest.mark.parametrize("kind", BLOCK_KINDS)
def test_what_is_not_finite_stays_in_its_row(rng, instruction_set, kind):
    blocks, _ = drawn(rng, kind, 40, 512)
    for rows in (1, 6, 40):
        x = rng.standard_normal((rows, 512)).astype(np.float32)
        expected = product(x, blocks, kind)
        for value in (np.nan, np.inf, -np.inf):
            x[0, 77] = value
            found = product(x, blocks, kind)
            assert not np.isfinite(found[0]).any()
            assert np.isnan(found[0]).all() or np.isinf(value)
            np.testing.assert_array_equal(found[1:], expected[1:])


@pytest.mark.parametrize("kind", ["F16", "BF16"])
@pytest.mark.parametrize("inputs", [1, 2, 3, 5, 63])
def test_half_precision_has_any_number_of_inputs(rng, instruction_set, kind, inputs):
    blocks, weight = drawn(rng, kind, 18, inputs)
    for rows in (1, 5, 30):
        x = rng.standard_normal((rows, inputs)).astype(np.float32)
        np.testing.assert_allclose(product(x, blocks, kind), x @ weight.T, rtol=1e-5, atol=1e-5)
        d = rng.standard_normal((rows, 18)).astype(np.float32)
        np.testing.assert_allclose(transposed(d, blocks, kind, inputs), d @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 16, 300])
def test_products_with_the_transposed_weights_are_those_of_the_dequantised(rng, instruction_set, kind, rows):
    for inputs, outputs in ((256, 16), (768, 151), (1280, 1)):
        blocks, weight = drawn(rng, kind, outputs, inputs)
        d = rng.standard_normal((rows, outputs)).astype(np.float32)
        bound = 130 * 2**-24 * (np.abs(d).astype(np.float64) @ np.abs(weight))  # of sums of 128, and of two of these
        assert (np.abs(transposed(d, blocks, kind, inputs) - d.astype(np.float64) @ weight) <= bound).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_transposed_weights_are_dequantised_to_the_last_bit(rng, instruction_set, kind):
    blocks, weight = drawn(rng, kind, 35, 512)
    np.testing.assert_array_equal(transposed(np.eye(35, dtype=np.float32), blocks, kind, 512), weight)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_threads_gives_the_same_bits(rng, same_bits, kind):
    blocks, _ = drawn(rng, kind, 700, 1024)
    for rows in (1, 4, 60):
        x = rng.standard_normal((rows, 1024)).astype(np.float32)
        same_bits(functools.partial(product, x, blocks, kind), (1, 2, 5))
        d = rng.standard_normal((rows, 700)).astype(np.float32)
        same_bits(functools.partial(transposed, d, blocks, kind, 1024), (1, 2, 17))


def test_weights_packed_together_give_the_bits_of_each(rng):
    (first, _), (second, _), (last, _) = (drawn(rng, "Q4_1", outputs, 64) for outputs in (32, 16, 5))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    groups = ops.pack_quantized([first, second, last], "Q4_1", 64)
    together = ops.packed_linear(x, groups, 64, 53, None, "identity", "Q4_1")
    apart = np.concatenate([product(x, blocks, "Q4_1") for blocks in (first, second, last)], axis=-1)
    np.testing.assert_array_equal(together, apart)
    assert ops.pack_quantized([last, first], "Q4_1", 64) is None  # 5 outputs do not fill a group


def test_activations_are_applied(rng):
    blocks, _ = drawn(rng, "Q8_0", 20, 32)
    for rows in (2, 30):
        x = rng.standard_normal((rows, 32)).astype(np.float32)
        found, plain = (product(x, blocks, "Q8_0", activation=name) for name in ("silu", "identity"))
        np.testing.assert_array_equal(found, F.silu(plain))


def test_rows_of_blocks_may_be_apart(rng):
    blocks, _ = drawn(rng, "Q4_0", 20, 64)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    wide = np.zeros((20, 100), np.uint8)
    wide[:, : blocks.shape[1]] = blocks
    np.testing.assert_array_equal(product(x, wide[:, : blocks.shape[1]], "Q4_0"), product(x, blocks, "Q4_0"))
