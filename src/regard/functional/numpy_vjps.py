"""The gradients of NumPy's own functions: the vector-Jacobian product of each that models and metrics call.

Each function takes arrays and returns the result of NumPy's function of that name, with the pullback at its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.functional.native import ops

if TYPE_CHECKING:
    from regard.functional.variable import Pullback, Vjp


def _add(x: Any, y: Any) -> tuple[Any, Pullback]:
    return ops.add(x, y), lambda d: (unbroadcast(d, x), unbroadcast(d, y))


def _subtract(x: Any, y: Any) -> tuple[Any, Pullback]:
    return x - y, lambda d: (unbroadcast(d, x), unbroadcast(-d, y))


def _multiply(x: Any, y: Any) -> tuple[Any, Pullback]:
    return x * y, lambda d: (unbroadcast(d * y, x), unbroadcast(d * x, y))


def _divide(x: Any, y: Any) -> tuple[Any, Pullback]:
    return x / y, lambda d: (unbroadcast(d / y, x), unbroadcast(-d * (x / y) / y, y))


def _power(x: Any, n: Any) -> tuple[Any, Pullback]:
    y = x**n

    def pullback(d: Any) -> tuple[Any, Any]:
        zero = d.dtype.type(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            d_x = d * np.where(n == 0, zero, n * x ** (n - 1))
            d_n = d * np.where(x == 0, zero, y * np.log(x)) if isinstance(n, np.ndarray) else None
        return unbroadcast(d_x, x), None if d_n is None else unbroadcast(d_n, n)

    return y, pullback


def _matmul(x: Any, y: Any) -> tuple[Any, Pullback]:
    def pullback(d: Any) -> tuple[Any, Any]:
        a, b = x if x.ndim > 1 else x[None, :], y if y.ndim > 1 else y[:, None]
        d = d[..., None, :] if x.ndim == 1 and y.ndim > 1 else d[..., None] if y.ndim == 1 else d
        d = d[..., None, :] if x.ndim == y.ndim == 1 else d
        d_x, d_y = unbroadcast(d @ b.mT, a), unbroadcast(a.mT @ d, b)
        return d_x.reshape(x.shape), d_y.reshape(y.shape)

    return x @ y, pullback


def _maximum(x: Any, y: Any) -> tuple[Any, Pullback]:
    share = np.where(x == y, 0.5, x > y)  # equal ones share the gradient
    return np.maximum(x, y), lambda d: (unbroadcast(d * share, x), unbroadcast(d * (1 - share), y))


def _minimum(x: Any, y: Any) -> tuple[Any, Pullback]:
    share = np.where(x == y, 0.5, x < y)
    return np.minimum(x, y), lambda d: (unbroadcast(d * share, x), unbroadcast(d * (1 - share), y))


def _elementwise(function: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]) -> Vjp:
    """Return the VJP of a function of one number, from its derivative as a function of x and y."""

    def vjp(x: Any) -> tuple[Any, Pullback]:
        y = function(x)
        return y, lambda d: (d * derivative(x, y),)

    return vjp


def _where(condition: Any, x: Any, y: Any) -> tuple[Any, Pullback]:
    def pullback(d: Any) -> tuple[Any, Any, Any]:
        zero = d.dtype.type(0)
        return None, unbroadcast(np.where(condition, d, zero), x), unbroadcast(np.where(condition, zero, d), y)

    return np.where(condition, x, y), pullback


def getitem(x: Any, *, index: Any) -> tuple[Any, Pullback]:
    """Return ``x[index]``."""

    def pullback(d: Any) -> tuple[Any]:
        d_x = np.zeros(x.shape, x.dtype)
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, np.ndarray | list) for part in parts):
            np.add.at(d_x, index, d)  # an entry may be read several times
        else:
            d_x[index] = d
        return (d_x,)

    return x[index], pullback


def _sum(x: Any, axis: Any = None, *, keepdims: bool = False) -> tuple[Any, Pullback]:
    return x.sum(axis, keepdims=keepdims), lambda d: (np.broadcast_to(_expanded(d, axis, keepdims), x.shape),)


def _max(x: Any, axis: Any = None, *, keepdims: bool = False) -> tuple[Any, Pullback]:
    y = x.max(axis, keepdims=True)
    is_max = x == y
    share = is_max / is_max.sum(axis, keepdims=True)
    return x.max(axis, keepdims=keepdims), lambda d: (_expanded(d, axis, keepdims) * share,)


def _reshape(x: Any, shape: Any) -> tuple[Any, Pullback]:
    return x.reshape(shape), lambda d: (d.reshape(x.shape),)


def _transpose(x: Any, axes: Any = None) -> tuple[Any, Pullback]:
    inverse = None if axes is None else np.argsort([axis % x.ndim for axis in axes])
    return np.transpose(x, axes), lambda d: (np.transpose(d, inverse),)


def _matrix_transpose(x: Any) -> tuple[Any, Pullback]:
    return x.mT, lambda d: (d.mT,)


def _swapaxes(x: Any, one: int, other: int) -> tuple[Any, Pullback]:
    return x.swapaxes(one, other), lambda d: (d.swapaxes(one, other),)


def _moveaxis(x: Any, source: Any, destination: Any) -> tuple[Any, Pullback]:
    return np.moveaxis(x, source, destination), lambda d: (np.moveaxis(d, destination, source),)


def _expand_dims(x: Any, axis: Any) -> tuple[Any, Pullback]:
    return np.expand_dims(x, axis), lambda d: (d.reshape(x.shape),)


def _squeeze(x: Any, axis: Any = None) -> tuple[Any, Pullback]:
    return np.squeeze(x, axis), lambda d: (d.reshape(x.shape),)


def _broadcast_to(x: Any, shape: Any) -> tuple[Any, Pullback]:
    return np.broadcast_to(x, shape), lambda d: (unbroadcast(d, x),)


def _astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> tuple[Any, Pullback]:  # noqa: ARG001
    return x.astype(dtype, copy=False), lambda d: (d.astype(x.dtype),)


def _concatenate(*arrays: Any, axis: int = 0) -> tuple[Any, Pullback]:
    ends = np.cumsum([x.shape[axis] for x in arrays])[:-1]
    return np.concatenate(arrays, axis), lambda d: np.split(d, ends, axis)


def _stack(*arrays: Any, axis: int = 0) -> tuple[Any, Pullback]:
    return np.stack(arrays, axis), lambda d: tuple(np.moveaxis(d, axis, 0))


def _mean(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the mean."""
    total = np.sum(x, axis, keepdims=keepdims)
    return total / (x.size // total.size) if total.size else total


def _take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Return the entries at some indices of an axis."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    return x[(*(slice(None),) * axis, indices)]


def _repeat(x: Any, repeats: Any, axis: int) -> Any:
    """Return each entry of an axis several times."""
    return _take(x, np.repeat(np.arange(x.shape[axis]), repeats), axis)


def _take_along_axis(x: Any, indices: Any, axis: int = -1) -> Any:
    """Return the entries at indices of their own for each row."""
    places = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    places[axis] = indices
    return x[tuple(places)]


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """Return each number, or the bound that it exceeds."""
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    x = x if low is None else np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


def _split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return consecutive parts of an axis."""
    return [_take(x, places, axis) for places in np.split(np.arange(x.shape[axis]), indices_or_sections)]


def _unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the arrays along an axis."""
    return tuple(_take(x, i, axis) for i in range(x.shape[axis]))


def _norm(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the Euclidean norm."""
    return np.sqrt(np.sum(x * x, axis, keepdims=keepdims))


VJPS: dict[Any, Vjp] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.power: _power,
    np.matmul: _matmul,
    np.maximum: _maximum,
    np.minimum: _minimum,
    np.negative: _elementwise(np.negative, lambda _x, _y: -1),
    np.absolute: _elementwise(np.absolute, lambda x, _y: np.sign(x)),
    np.square: _elementwise(np.square, lambda x, _y: 2 * x),
    np.sqrt: _elementwise(np.sqrt, lambda _x, y: 0.5 / y),
    np.exp: _elementwise(np.exp, lambda _x, y: y),
    np.log: _elementwise(np.log, lambda x, _y: 1 / x),
    np.tanh: _elementwise(np.tanh, lambda _x, y: 1 - y * y),
    np.sin: _elementwise(np.sin, lambda x, _y: np.cos(x)),
    np.cos: _elementwise(np.cos, lambda x, _y: -np.sin(x)),
    np.where: _where,
    np.sum: _sum,
    np.max: _max,
    np.reshape: _reshape,
    np.transpose: _transpose,
    np.matrix_transpose: _matrix_transpose,
    np.swapaxes: _swapaxes,
    np.moveaxis: _moveaxis,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.broadcast_to: _broadcast_to,
    np.astype: _astype,
}
"""By the function."""
OF_SEQUENCES: dict[Any, Vjp] = {np.concatenate: _concatenate, np.stack: _stack}
"""By the function, whose first argument is a sequence of arrays."""
COMPOSITIONS: dict[Any, Callable[..., Any]] = {
    np.mean: _mean,
    np.clip: _clip,
    np.split: _split,
    np.unstack: _unstack,
    np.take: _take,
    np.repeat: _repeat,
    np.take_along_axis: _take_along_axis,
    np.linalg.norm: _norm,
}
"""Functions of variables that are computed by those above."""
CONSTANT = (np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.sign, np.floor, np.ceil)
"""Functions whose gradient is 0."""


def _expanded(d: Any, axis: Any, keepdims: bool) -> Any:
    return d if keepdims or axis is None else np.expand_dims(d, axis)


def unbroadcast(d: Any, x: Any) -> Any:
    """Return a gradient summed over the axes along which x was broadcast."""
    shape = np.shape(x)
    if d.shape == shape:
        return d
    d = d.sum(tuple(range(d.ndim - len(shape))))
    return d.sum(tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True).reshape(shape)
