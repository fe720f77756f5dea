"""Blobs decode to what was encoded, weights exactly to their decimals, and cannot end a script."""

import numpy as np
import pytest
from decode_page import decode_blob, unpack_weights

from regard.explorer.codec import ALPHABET, encode_blob, json_bytes, pack_weights


@pytest.mark.parametrize("decimals", [1, 2, 3, 4])
@pytest.mark.parametrize("power", [4, 80])  # ordinary, and nearly all of them small
@pytest.mark.parametrize("shape", [(37, 41), (38, 41)])
def test_weights_are_exact_to_their_decimals(rng, decimals, power, shape):
    weights = rng.random(shape) ** power
    weights[3] = 0
    weights[5, 7] = 1
    found = unpack_weights(pack_weights(weights, decimals), weights.shape, decimals)
    np.testing.assert_array_equal(found, np.round(weights, decimals))


def test_weights_stand_column_after_column():
    assert pack_weights(np.array([[0.11, 0.12], [0.13, 0.14]]), 2) == bytes([1, 11, 13, 12, 14])


def test_large_numbers_stand_behind_the_others_lower_bytes_first():
    assert pack_weights(np.array([[0.0253, 0.0254, 0.0255, 1.0]]), 4) == bytes([1, 253, 254, 255, 255, 255, 16, 0, 39])


def test_small_numbers_stand_two_in_a_byte():
    weights = np.array([[0.01, 0.02, 0.14, 0, 0, 0, 0, 0.15, 0, 0, 0.03]])
    assert pack_weights(weights, 2) == bytes([2, 0x12, 0xE0, 0, 0x0F, 0, 0x30, 15, 0])


@pytest.mark.parametrize("size", [0, 1, 3, 4, 1000])
def test_bytes_come_back(rng, size):
    content = rng.bytes(size)
    assert decode_blob(encode_blob(content)) == content


def test_a_blob_cannot_end_a_script(rng):
    text = encode_blob(rng.bytes(5000))
    assert len(set(ALPHABET)) == 85
    assert set(text) <= set(ALPHABET.encode())
    assert b"<" not in text


def test_json_is_ascii_and_holds_any_character():
    assert json_bytes({"a": "\ud800 é"}) == b'{"a":"\\ud800 \\u00e9"}'
    with pytest.raises(ValueError, match="JSON"):
        json_bytes(float("nan"))
