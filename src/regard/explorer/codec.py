"""Arrays as text for the exported page.

**A blob** is bytes, compressed by zlib, in base 85 as of ``base64.b85encode``, with ``,`` in place of ``<`` so that no
text can end a script. The browser decompresses it with ``DecompressionStream("deflate")``.

**Packed weights** are whole numbers of 10^-decimals in column-major order: neighbours are more alike within a column
than within a row. The first byte of a blob is the number of values in each byte that follows. 1: a byte is the value
if that is at most 254, else 255. 2: half a byte, the higher first, is the value if that is at most 14, else 15; for a
long text, most of whose weights are small, this is shorter, since deflate needs at least a bit for every byte. The
larger values follow: the low bytes of all, then the high bytes.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from regard._utils.errors import RegardError

MAX_DECIMALS = 4
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
_CHARACTERS = np.frombuffer(ALPHABET.encode("ascii"), np.uint8)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.uint32)
_ESCAPES = {1: 255, 2: 15}  # by values in a byte
_SMALL_MEAN = 4  # below this mean value, two in a byte are shorter


def pack_weights(weights: np.ndarray, decimals: int) -> bytes:
    """Return weights between 0 and 1, ``T S``, rounded to some decimals, as bytes.

    An error if a weight is outside 0 to 1, or if there are more decimals than two bytes hold.
    """
    if not 1 <= decimals <= MAX_DECIMALS:
        raise RegardError(f"weights are packed with 1 to {MAX_DECIMALS} decimals, not {decimals}")
    values = np.rint(np.asarray(weights, np.float64) * 10**decimals)
    if not (np.isfinite(values).all() and (values >= 0).all() and (values <= 65535).all()):
        raise RegardError("weights to pack must be between 0 and 1")
    values = values.astype("<u2").ravel(order="F")
    per_byte = 2 if values.size and values.mean() < _SMALL_MEAN else 1
    escape = _ESCAPES[per_byte]
    small = np.minimum(values, escape).astype(np.uint8)
    if per_byte == 2:
        small = np.append(small, np.zeros(small.size % 2, np.uint8))
        small = small[::2] << 4 | small[1::2]
    large = values[values >= escape]
    low, high = large.astype(np.uint8), (large >> 8).astype(np.uint8)
    return bytes([per_byte]) + bytes(small) + bytes(low) + bytes(high)


def encode_blob(content: bytes) -> bytes:
    """Return bytes compressed and in base 85."""
    # Packed weights hardly repeat: Z_FILTERED is as small as level 9 and five times as fast.
    compressor = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
    compressed = compressor.compress(content) + compressor.flush()
    padding = -len(compressed) % 4
    numbers = np.frombuffer(compressed + bytes(padding), ">u4")
    digits = (numbers[:, None] // _POWERS) % 85  # a hundred times as fast as base64.b85encode
    return bytes(_CHARACTERS[digits].ravel()[: digits.size - padding])


def short_number(x: float) -> float | None:
    """Return a number in six digits, as it goes to the page; None for one that is not finite."""
    return short(x) if np.isfinite(x) else None


def short(x: float, digits: int = 6) -> float:
    """Return a number in so many digits."""
    return float(f"{x:.{digits}g}")


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON in ASCII, lone surrogates included; NaN and infinity raise."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
