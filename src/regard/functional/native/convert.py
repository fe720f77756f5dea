"""Arrays as the compiled kernel reads them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from regard.functional.arrays import Array
from regard.functional.frameworks import framework_of


def to_kernel(x: Array) -> np.ndarray:
    """Return an array that the kernel can read, copied only if necessary; half precision as 16-bit integers."""
    array = x if isinstance(x, np.ndarray) else framework_of(x).to_numpy(x)
    dtype = array.dtype
    if not (array.flags.aligned and dtype.isnative and dtype.alignment == dtype.itemsize):
        array = aligned(array)
    return array.view(np.uint16) if dtype.itemsize == 2 else array


def aligned(x: np.ndarray) -> np.ndarray:
    """Return an array in native byte order whose elements and strides are aligned, copied only if necessary."""
    dtype = x.dtype
    if x.flags.aligned and dtype.isnative and dtype.alignment == dtype.itemsize:  # then its strides are aligned too
        return x
    return np.array(x, dtype=x.dtype.newbyteorder("="), order="C")


def compute_type(dtype: Any) -> Any:
    """Return NumPy's type of the numbers that the kernel computes with for `dtype`."""
    return np.float64 if dtype_name(dtype) == "float64" else np.float32


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of any library and byte order."""
    return _numpy_name(dtype) if isinstance(dtype, np.dtype | type) else str(dtype).split(".")[-1]


@functools.lru_cache  # slow to compute
def _numpy_name(dtype: Any) -> str:
    return str(np.dtype(dtype).name)
