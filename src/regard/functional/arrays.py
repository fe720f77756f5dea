"""What every equation needs before it starts: the array library and the precision to compute in."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace that all `arrays` share."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            break
    else:
        return np  # it follows the standard itself; importing the compatibility layer would slow the start
    from array_api_compat import array_namespace

    try:
        return array_namespace(*arrays)
    except TypeError as error:
        kinds = ", ".join(sorted({type(a).__module__.split(".")[0] for a in arrays}))
        raise RegardError(f"arrays of different libraries ({kinds}) do not mix; convert to one") from error


def as_array(value: Array, name: str) -> Array:
    """Return `value` if it is an array of any library, else what NumPy makes of it (lists, numbers).

    Raises
    ------
    RegardError
        It is not of numbers, or of a kind of NumPy's arrays that computes differently.
    """
    if type(value) is np.ndarray and value.dtype.kind == "f":
        return value  # what is usual, found at once
    if isinstance(value, np.ma.MaskedArray | np.matrix):
        raise RegardError(f"{name} is a {type(value).__name__}, which computes differently; give a plain array")
    if not isinstance(value, np.ndarray):
        if not isinstance(value, np.generic) and (
            hasattr(value, "__array_namespace__") or hasattr(value, "__dlpack__")
        ):
            return value
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise RegardError(f"{name} is not a rectangular array: {error}") from error
    if value.dtype.kind not in "biufc" and not is_half(value.dtype):
        raise RegardError(f"{name} must be an array of numbers, got {value.dtype}")
    return value


def is_boolean(x: Array) -> bool:
    """Tell whether `x` holds truth values."""
    return _is_kind(x, "bool")


def is_floating(x: Array) -> bool:
    """Tell whether `x` holds real floating-point numbers, bfloat16 included."""
    return _is_kind(x, "real floating")


def result_dtype(*arrays: Array) -> Any:
    """Return the dtype of a result made from `arrays`: their common float type; integers become float64.

    Raises
    ------
    RegardError
        An array is boolean or complex.
    """
    first = arrays[0].dtype
    if isinstance(first, np.dtype) and first.kind == "f" and all([x.dtype is first for x in arrays]):  # noqa: C419
        return first  # what is usual, found at once
    xp = namespace(*arrays)
    for x in arrays:
        if is_boolean(x) or _is_kind(x, "complex floating"):
            raise RegardError(f"the equations are of real numbers, got an array of {x.dtype}; convert it first")
    if not all(is_floating(x) for x in arrays):
        return widest_float(xp, device(arrays[0]))
    dtypes = {x.dtype for x in arrays}
    if xp is np and len(dtypes) == 1:
        return dtypes.pop().newbyteorder("=")  # as NumPy's own results are
    try:
        return dtypes.pop() if len(dtypes) == 1 else xp.result_type(*arrays)
    except TypeError as error:
        raise RegardError(f"no float type is common to {', '.join(map(str, dtypes))}; convert to one") from error


def compute_dtype(xp: Any, dtype: Any) -> Any:
    """Return the precision to compute in: float32 for the two short float types, else `dtype` itself."""
    return xp.float32 if is_half(dtype) else dtype


def widest_float(xp: Any, where: Any = None) -> Any:
    """Return float64, or float32 where the library or the device knows no more."""
    if xp is np:
        return np.float64
    return xp.__array_namespace_info__().dtypes(kind="real floating", device=where).get("float64", xp.float32)


def device(x: Array) -> Any:
    """Return where `x` lives, in the words of its library; None for NumPy."""
    return None if isinstance(x, np.ndarray) else getattr(x, "device", None)


def integers(x: Array) -> Array:
    """Return integers as the library's usual ones: sums of positions need more than 8 bits, differences a sign."""
    xp = namespace(x)
    usual = np.int64 if xp is np else xp.__array_namespace_info__().default_dtypes(device=device(x))["integral"]
    return xp.astype(x, usual, copy=False)


def concat(arrays: Sequence[Array], axis: int) -> Array:
    """Return arrays joined along `axis`; a single one as it is."""
    return arrays[0] if len(arrays) == 1 else namespace(*arrays).concat(list(arrays), axis=axis)


def no_grad(xp: Any) -> AbstractContextManager[Any]:
    """Return a context in which PyTorch keeps no graph of what is computed; for other libraries it does nothing."""
    if "torch" not in xp.__name__:
        return nullcontext()
    import torch

    context: AbstractContextManager[Any] = torch.no_grad()
    return context


def is_concretely_true(condition: Array) -> bool:
    """Tell whether `condition` holds for certain: what a compiler only traces, with no values yet, is not known."""
    try:
        return bool(condition)
    except (TypeError, RuntimeError):  # JAX under jit; PyTorch under vmap
        return False


def is_finite(x: Array) -> bool:
    """Tell whether `x` is known to hold neither infinity nor NaN."""
    xp = namespace(x)
    return is_concretely_true(xp.all(xp.isfinite(x)))


def _is_kind(x: Array, kind: str) -> bool:
    if is_half(x.dtype):  # the standard's own isdtype does not know bfloat16
        return kind == "real floating"
    if isinstance(x, np.ndarray):
        return x.dtype.kind in _NUMPY_KINDS[kind]
    return bool(namespace(x).isdtype(x.dtype, kind))


_NUMPY_KINDS = {"bool": "b", "real floating": "f", "complex floating": "c"}


def is_half(dtype: Any) -> bool:
    return _has_short_name(dtype) if isinstance(dtype, np.dtype) else _has_short_name.__wrapped__(dtype)


@functools.lru_cache  # the name of a dtype of NumPy takes longer to make than a small softmax
def _has_short_name(dtype: Any) -> bool:
    name = str(getattr(dtype, "name", dtype))  # NumPy's says nothing of the order of bytes
    return any(short in name for short in ("float16", "half"))  # bfloat16 contains float16
