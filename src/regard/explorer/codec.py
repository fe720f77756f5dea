"""Arrays as text that a page can hold, small and exact to the digits that it shows.

**A blob** is bytes, deflated (zlib's format, which a browser's ``DecompressionStream("deflate")`` reads), then written
in base 85: every four bytes, as one big-endian number, are five digits, the highest first; the last four are filled up
with zero bytes, which do not belong to the deflated stream. The digits are those of `ALPHABET`: Python's
``base64.b85encode`` with ``,`` in place of ``<``, so that no text can end a script.

**Weights** are whole numbers of 10^-digits, column after column, for a column is more like itself than a row is. The
first byte of a blob says how many stand in each of the next. 1: a byte is the number if that is at most 254, else 255.
2: half a byte, the higher first, is the number if that is at most 14, else 15; of the many small numbers of a long text
this is shorter, for a deflated byte takes a bit at least. Behind them stand the numbers that were too large, the lower
bytes of all and then the higher.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from regard._utils.errors import RegardError

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
MOST_DIGITS = 4
_ESCAPES = {1: 255, 2: 15}  # by how many numbers a byte holds
_FEW = 4  # a mean below which two in a byte are shorter
_LETTERS = np.frombuffer(ALPHABET.encode("ascii"), np.uint8)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.uint32)


def packed(weights: np.ndarray, digits: int) -> bytes:
    """Return weights between 0 and 1, ``T S``, rounded to some decimals, as bytes.

    Raises
    ------
    RegardError
        A weight is no share; or there are more digits than two bytes hold.
    """
    if not 1 <= digits <= MOST_DIGITS:
        raise RegardError(f"weights are packed with 1 to {MOST_DIGITS} digits, not {digits}")
    numbers = np.rint(np.asarray(weights, np.float64) * 10**digits)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers <= 65535).all()):
        raise RegardError("weights are between 0 and 1; these are not")
    numbers = numbers.astype("<u2").ravel(order="F")
    in_byte = 2 if numbers.size and numbers.mean() < _FEW else 1
    escape = _ESCAPES[in_byte]
    small = np.minimum(numbers, escape).astype(np.uint8)
    if in_byte == 2:
        small = np.append(small, np.zeros(small.size % 2, np.uint8))
        small = small[::2] << 4 | small[1::2]
    large = numbers[numbers >= escape]
    lower, higher = large.astype(np.uint8), (large >> 8).astype(np.uint8)
    return bytes([in_byte]) + bytes(small) + bytes(lower) + bytes(higher)


def to_text(blob: bytes) -> bytes:
    """Return bytes deflated and in base 85."""
    # Small numbers, hardly any sequence of which comes twice: filtered, as small as level 9 and five times as fast.
    deflater = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
    deflated = deflater.compress(blob) + deflater.flush()
    numbers = np.frombuffer(deflated + bytes(-len(deflated) % 4), ">u4")
    return bytes(_LETTERS[(numbers[:, None] // _POWERS) % 85].ravel())


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON in ASCII, which holds lone surrogates too; NaN and infinity are refused."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
