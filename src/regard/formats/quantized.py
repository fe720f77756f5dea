"""Blocks of quantised numbers, as GGUF stores them; half precision counts as blocks of one number."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard._utils.errors import RegardError

if TYPE_CHECKING:
    from types import ModuleType

BLOCKS = MappingProxyType(
    {
        "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
        "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "F16": (1, 2), "BF16": (1, 2),
    }
)  # fmt: skip
"""The kinds of blocks that models compute with: the numbers of a block, and its bytes."""

_SCALES = MappingProxyType(
    {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
)  # of float16; the others: 0
_CHUNK = 1 << 17  # numbers dequantised at a time, so that intermediate arrays stay in the cache


def dequantize(blocks: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Return the numbers of rows of blocks, ``rows columns``, in float32.

    Parameters
    ----------
    blocks : uint8 array, ``rows bytes``
    kind : str
        A type of ggml: one of `BLOCKS`, or another that the `gguf` library dequantises. The library takes twenty times
        as long for the simple kinds as a few operations of NumPy, so these are done here.

    Raises
    ------
    RegardError
        `gguf` is not installed.
    NotImplementedError
        The library cannot dequantise this kind.
    """
    if kind == "F16":
        return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)
    if kind == "BF16":
        bits: NDArray[np.uint32] = np.left_shift(np.ascontiguousarray(blocks).view("<u2"), 16, dtype=np.uint32)
        return bits.view(np.float32)
    if kind in ("Q4_0", "Q4_1", "Q8_0"):
        numbers, size = BLOCKS[kind]
        expand = partial(_expand, kind)
    else:
        gguf = gguf_library()
        quantization = gguf.GGMLQuantizationType[kind]
        numbers, size = gguf.GGML_QUANT_SIZES[quantization]
        expand = partial(_expand_by_library, quantization)
    flat = np.ascontiguousarray(blocks).reshape(-1, size)
    result = np.empty((len(flat), numbers), np.float32)
    step = _CHUNK // numbers
    with np.errstate(all="ignore"):  # a scale may be infinite; the caller checks the weights
        for at in range(0, len(flat), step):
            expand(flat[at : at + step], result[at : at + step])
    return result.reshape(len(blocks), blocks.shape[1] // size * numbers)


def _expand(kind: str, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """Write the numbers of blocks to `out`: scale × code, and for Q4_1 + minimum."""
    count = 2 if kind == "Q4_1" else 1  # of float16 before the codes
    halves = np.ascontiguousarray(blocks[:, : 2 * count]).view("<f2").astype(np.float32)
    codes = np.ascontiguousarray(blocks[:, 2 * count :])
    if kind == "Q8_0":
        out[:] = codes.view(np.int8)
    else:
        out[:, :16], out[:, 16:] = codes & 15, codes >> 4
    if kind == "Q4_0":
        out -= 8
    out *= halves[:, :1]
    if kind == "Q4_1":
        out += halves[:, 1:]


def _expand_by_library(quantization: Any, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    # As one row: the library works on 16 rows at a time, which is slow for short ones.
    out[:] = gguf_library().dequantize(blocks.reshape(1, -1), quantization).reshape(out.shape)


def are_finite(blocks: NDArray[np.uint8], kind: str) -> bool:
    """Tell from their scales whether all numbers of rows of blocks, of a kind in `BLOCKS`, are finite."""
    if kind == "BF16":
        return not ((np.ascontiguousarray(blocks).view("<u2") & 0x7F80) == 0x7F80).any()
    upper = blocks.reshape(len(blocks), -1, BLOCKS[kind][1])[..., [at + 1 for at in _SCALES.get(kind, (0,))]]
    return not ((upper & 0x7C) == 0x7C).any()  # an exponent of all ones


def require_gguf() -> None:
    """Check that the library that reads blocks is installed, without importing it; an error says how to install it."""
    if find_spec("gguf") is None:
        raise RegardError("reading a GGUF file needs the gguf library: pip install gguf")


def gguf_library() -> ModuleType:
    """Return the `gguf` library."""
    require_gguf()
    import gguf

    module: Any = gguf
    return module  # type: ignore[no-any-return]
