"""What `regard.explorer.codec` packed, read back as the page does."""

from __future__ import annotations

import zlib

import numpy as np

from regard.explorer.codec import ALPHABET


def unpacked(blob, shape, digits):
    """Return the weights that `packed` made bytes of, as float64."""
    count = int(np.prod(shape))
    in_byte = blob[0]
    end = 1 + -(-count // in_byte)
    small, large = np.frombuffer(blob[1:end], np.uint8), np.frombuffer(blob[end:], np.uint8).astype(np.uint16)
    if in_byte == 2:
        small = np.stack([small >> 4, small & 15], axis=1).ravel()[:count]
    numbers = small.astype(np.uint16)
    low, high = np.split(large, 2)
    numbers[numbers == {1: 255, 2: 15}[in_byte]] = low + (high << 8)
    return (numbers / 10**digits).reshape(shape, order="F")


def from_text(text):
    """Return the bytes that `to_text` was given."""
    digits = np.full(256, 85, np.uint32)
    digits[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(85)
    numbers = digits[np.frombuffer(text, np.uint8)].reshape(-1, 5) @ 85 ** np.arange(4, -1, -1, dtype=np.uint32)
    return zlib.decompressobj().decompress(numbers.astype(">u4").tobytes())
