"""Array API helpers: namespace, device, and the dtypes of results and of computation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.functional.frameworks import framework
from regard.functional.variable import Variable

MAX_SIZE = 2**48  # numbers in an array, more than an address space holds: a few sizes multiplied fit into 64 bits

Array: TypeAlias = Any
"""An array of any library that follows the Python array API standard; shapes are in the docstrings."""


@functools.cache
def _array_namespace() -> Any:
    with needed("an array of another library"):
        from array_api_compat import array_namespace

    return array_namespace


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace that all `arrays` share."""
    for array in arrays:
        if not isinstance(array, np.ndarray | Variable):
            break
    else:
        return np  # it follows the standard itself; importing the compatibility layer would slow the start
    if all([is_tensor(x) for x in arrays]):  # noqa: C419, a list is made faster
        return framework("torch").namespace  # faster than by the function below
    try:
        return _array_namespace()(*arrays)
    except TypeError as error:
        kinds = ", ".join(sorted({type(a).__module__.split(".")[0] for a in arrays}))
        raise RegardError(f"arrays of different libraries ({kinds}) do not mix; convert to one") from error


def is_jax(*arrays: Array) -> bool:
    """Tell whether all are arrays of JAX, or what stands for them while it traces."""
    return all([type(x).__module__.partition(".")[0] in ("jax", "jaxlib") for x in arrays])  # noqa: C419, a list is made faster


def is_tensor(x: Any) -> bool:
    """Return whether `x` is a tensor of a class of PyTorch itself."""
    return type(x).__module__.partition(".")[0] == "torch"


def as_array(value: Array, name: str) -> Array:
    """Return `value` if it is an array of any library, else as a NumPy array (lists, numbers).

    An error if it is not numeric, is a masked array or a matrix, or has more than `MAX_SIZE` numbers; or if it is a
    tensor that is sparse, nested, quantized, in 8 bits or fewer, or of a subclass.
    """
    if type(value) is np.ndarray and value.dtype.kind == "f" and value.size <= MAX_SIZE:
        return value  # the usual case
    is_subclass = isinstance(value, np.ndarray) and type(value) is not np.ndarray  # else numpy.ma is not imported
    if is_subclass and isinstance(value, np.ma.MaskedArray | np.matrix):
        raise RegardError(f"{name} must be a plain array, got a {type(value).__name__}, whose operators differ")
    if not isinstance(value, np.ndarray):
        if not isinstance(value, np.generic) and (
            hasattr(value, "__array_namespace__") or hasattr(value, "__dlpack__")
        ):
            if hasattr(value, "__torch_function__"):
                framework("torch").check(value, name)
            elif _is_narrow_float(getattr(value, "dtype", None)):
                raise RegardError(f"{name} must be an array of numbers, got {value.dtype}; convert it first")
            return value
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise RegardError(f"{name} is not a rectangular array: {error}") from error
    if value.dtype.kind not in "biufc" and not is_half(value.dtype):
        raise RegardError(f"{name} must be an array of numbers, got {value.dtype}")
    if value.size > MAX_SIZE:
        raise RegardError(f"{name} {value.shape} is too large: an array may have 2^48 numbers")
    return value


def _is_narrow_float(dtype: Any) -> bool:
    return any(name in str(dtype) for name in ("float8_", "float6_", "float4_"))


def is_boolean(x: Array) -> bool:
    """Return whether `x` is boolean."""
    return _is_kind(x, "bool")


def is_floating(x: Array) -> bool:
    """Return whether `x` is real floating-point, bfloat16 included."""
    return _is_kind(x, "real floating")


def result_dtype(*arrays: Array) -> Any:
    """Return the common floating dtype of `arrays`; integers become float64, boolean and complex are an error."""
    first = arrays[0].dtype
    is_usual = first.kind == "f" if isinstance(first, np.dtype) else is_tensor(arrays[0]) and is_floating(arrays[0])
    if is_usual and all([x.dtype is first for x in arrays]):  # noqa: C419
        return first
    xp = namespace(*arrays)
    for x in arrays:
        if is_boolean(x) or _is_kind(x, "complex floating"):
            raise RegardError(f"arrays must be real numbers, got {x.dtype}; convert it first")
    if not all(is_floating(x) for x in arrays):
        return widest_float(xp, device(arrays[0]))
    dtypes = {x.dtype for x in arrays}
    if xp is np and len(dtypes) == 1:
        return dtypes.pop().newbyteorder("=")  # native byte order, as in NumPy's results
    try:
        return dtypes.pop() if len(dtypes) == 1 else xp.result_type(*arrays)
    except TypeError as error:
        raise RegardError(f"{', '.join(map(str, dtypes))} have no common floating dtype; convert to one") from error


def compute_dtype(xp: Any, dtype: Any) -> Any:
    """Return the dtype to compute in: float32 for half precision (float16, bfloat16), else `dtype`."""
    return xp.float32 if is_half(dtype) else dtype


def narrowed(x: Array, dtype: Any) -> Array:
    """Return a result in its dtype; what is beyond that is infinite."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return namespace(x).astype(x, dtype)


def widest_float(xp: Any, where: Any = None) -> Any:
    """Return float64, or float32 where the library or the device has no wider float."""
    if xp is np:
        return np.float64
    return xp.__array_namespace_info__().dtypes(kind="real floating", device=where).get("float64", xp.float32)


def device(x: Array) -> Any:
    """Return the device of `x`; None for NumPy."""
    return None if isinstance(x, np.ndarray) else getattr(x, "device", None)


def to_device(xp: Any, x: Array, where: Any) -> Array:
    """Return `x` as an array of the library `xp` on the device `where`."""
    if is_jax(x) and "jax" in xp.__name__:
        return x.to_device(where)  # asarray refuses an array that jax.vmap maps
    return xp.asarray(x, device=where)


def integers(x: Array) -> Array:
    """Return integers in the default dtype of the library, where sums and differences of positions do not overflow."""
    xp = namespace(x)
    usual = np.int64 if xp is np else xp.__array_namespace_info__().default_dtypes(device=device(x))["integral"]
    return xp.astype(x, usual, copy=False)


def concat(arrays: Sequence[Array], axis: int) -> Array:
    """Return arrays concatenated along `axis`; a single one as it is."""
    return arrays[0] if len(arrays) == 1 else namespace(*arrays).concat(list(arrays), axis=axis)


def no_grad(xp: Any) -> AbstractContextManager[Any]:
    """Return a context in which PyTorch records no gradients; it does nothing for other libraries."""
    return framework("torch").no_grad() if "torch" in xp.__name__ else nullcontext()


def is_concretely_true(condition: Array) -> bool:
    """Return whether `condition` is concretely true; an abstract tracer, which has no value, is not."""
    try:
        return bool(condition)
    except (TypeError, RuntimeError):  # JAX under jit; PyTorch under vmap
        return False


def is_finite(x: Array) -> bool:
    """Return whether `x` is concretely free of infinities and NaN."""
    xp = namespace(x)
    return is_concretely_true(xp.all(xp.isfinite(x)))


def _is_kind(x: Array, kind: str) -> bool:
    if is_half(x.dtype):  # isdtype of the standard does not include bfloat16
        return kind == "real floating"
    if isinstance(x, np.ndarray):
        return x.dtype.kind in _NUMPY_KINDS[kind]
    if is_tensor(x):
        names = {
            "bool": ("bool",),
            "real floating": ("float32", "float64"),
            "complex floating": ("complex64", "complex128"),
        }
        return str(x.dtype).removeprefix("torch.") in names[kind]
    return bool(namespace(x).isdtype(x.dtype, kind))


_NUMPY_KINDS = {"bool": "b", "real floating": "f", "complex floating": "c"}


def is_half(dtype: Any) -> bool:
    """Return whether `dtype` is float16 or bfloat16."""
    return _has_half_name(dtype) if isinstance(dtype, np.dtype) else _has_half_name.__wrapped__(dtype)


@functools.lru_cache  # the name of a NumPy dtype takes longer to build than a small softmax
def _has_half_name(dtype: Any) -> bool:
    name = str(getattr(dtype, "name", dtype))  # without the byte order
    return any(half in name for half in ("float16", "half"))  # bfloat16 contains float16
