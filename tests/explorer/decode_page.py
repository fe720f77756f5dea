"""Read an exported page, and decode what `regard.explorer.codec` encodes, as the page does."""

import base64
import json
import re
import zlib

import numpy as np


def unpack_weights(blob, shape, decimals):
    """Return the weights of `pack_weights`, as float64."""
    count = int(np.prod(shape))
    per_byte = blob[0]
    end = 1 + -(-count // per_byte)
    small, large = np.frombuffer(blob[1:end], np.uint8), np.frombuffer(blob[end:], np.uint8).astype(np.uint16)
    if per_byte == 2:
        small = np.stack([small >> 4, small & 15], axis=1).ravel()[:count]
    values = small.astype(np.uint16)
    low, high = np.split(large, 2)
    values[values == {1: 255, 2: 15}[per_byte]] = low + (high << 8)
    return (values / 10**decimals).reshape(shape, order="F")


def decode_blob(text):
    """Return the bytes of `encode_blob`."""
    text = text if isinstance(text, str) else text.decode("ascii")
    return zlib.decompress(base64.b85decode(text.replace(",", "<")))


def read_page(page):
    """Return the manifest of an exported page, and a function that decodes one of its blobs."""
    text = page.decode("utf-8")
    manifest, data = (
        re.search(rf'id="regard-{name}">(.*?)</script>', text, re.DOTALL)[1] for name in ("manifest", "data")
    )
    manifest = json.loads(manifest)

    def blob(name):
        start, size = manifest["blobs"][name]
        return decode_blob(data[start : start + size])

    return manifest, blob
