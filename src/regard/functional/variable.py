"""Variables: NumPy arrays that remember how they were computed, so that gradients can be taken of the result.

A function of `regard.functional` that gets a `Variable` computes its value and stores its pullback, the vector-Jacobian
product, with the result; `gradients` walks from a result back to the variables it was computed from. NumPy's own
functions do so too where `numpy_vjps` has them, by the protocols of NEP 13 and NEP 18.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from regard._utils.errors import RegardError

Pullback: TypeAlias = Callable[[Any], Sequence[Any]]
"""From the gradient of a result to those of the inputs; None for an input that has none."""
Vjp: TypeAlias = Callable[..., tuple[Any, Pullback]]
"""A function that returns its result and the pullback at its inputs."""
Rule: TypeAlias = Callable[..., Pullback]
"""From the pullback of a function, its inputs (variables or not), its result and its options: what to use instead."""


class Variable(NDArrayOperatorsMixin):
    """An array that remembers how it was computed.

    Operators, indexing and NumPy functions give variables; comparisons give plain arrays. Nothing is written in place.

    Parameters
    ----------
    value : array
    parents : sequence of Variable or None
        What it was computed from; None for inputs that are not variables.
    pullback : function, optional
        Returns the gradient of each parent for that of this variable. Without one the variable is an input.
    rules : mapping of function to Rule, optional
        By `Vjp`: what replaces its pullback, in everything that is computed from this variable; by default those of a
        parent. `gradients` then returns what the rules define in place of gradients: see `attnlrp`.

    Examples
    --------
    >>> import numpy as np
    >>> x = Variable(np.array([1.0, 2.0]))
    >>> gradients(np.sum(x * x), [x])
    [array([2., 4.])]
    """

    __slots__ = ("depth", "parents", "pullback", "rules", "value")

    requires_grad = True
    """As tensors of PyTorch say it: a cache is not written in place."""

    def __init__(
        self,
        value: Any,
        parents: Sequence[Variable | None] = (),
        pullback: Pullback | None = None,
        *,
        rules: Mapping[Vjp, Rule] | None = None,
    ) -> None:
        self.value = np.asarray(value)
        self.parents, self.pullback = parents, pullback
        variables = [parent for parent in parents if parent is not None]
        self.depth: int = 1 + max((parent.depth for parent in variables), default=-1)
        inherited = (parent.rules for parent in variables if parent.rules)
        self.rules: Mapping[Vjp, Rule] = rules or next(inherited, {})

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    dtype = property(lambda self: self.value.dtype)
    nbytes = property(lambda self: self.value.nbytes)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.matrix_transpose(self))

    def __repr__(self) -> str:
        return f"Variable({self.value!r})"

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def item(self) -> Any:
        """Return the number of an array of size 1."""
        return self.value.item()

    def __getitem__(self, index: Any) -> Any:
        from regard.functional import numpy_vjps

        return record_vjp(numpy_vjps.getitem, self, index=index)

    def __iter__(self) -> Iterator[Variable]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RegardError("a Variable is not converted to a plain array, which would lose its gradient; use .value")

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return np

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options.get("out") is not None:
            raise RegardError("a Variable is not written in place, nor reduced by a method of a ufunc; use np.sum")
        return _apply(ufunc, inputs, options)

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        return _apply(function, args, options)

    # In place means a new variable under the old name.
    __iadd__ = NDArrayOperatorsMixin.__add__
    __isub__ = NDArrayOperatorsMixin.__sub__
    __imul__ = NDArrayOperatorsMixin.__mul__
    __itruediv__ = NDArrayOperatorsMixin.__truediv__

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Return the sum along some axes."""
        return np.sum(self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Return the mean along some axes."""
        return np.mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Return the maximum along some axes; equal ones share its gradient."""
        return np.max(self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> Any:
        """Return the indices of the maxima, a plain array."""
        return self.value.argmax(axis)

    def reshape(self, *shape: Any) -> Any:
        """Return the numbers in another shape."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape)

    def swapaxes(self, one: int, other: int) -> Any:
        """Return the array with two axes exchanged."""
        return np.swapaxes(self, one, other)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:  # noqa: ARG002
        """Return the numbers in another dtype."""
        return _apply(np.astype, (self, dtype), {})


def is_recorded(*arrays: Any) -> bool:
    """Return whether any of the arguments is a variable."""
    return any([type(x) is Variable for x in arrays])  # noqa: C419, a list is made faster


def record_vjp(vjp: Vjp, *inputs: Any, **options: Any) -> Any:
    """Return the result of `vjp` for the values of its inputs, as a variable with its pullback."""
    output, pullback = vjp(*(x.value if type(x) is Variable else x for x in inputs), **options)
    result = Variable(output, [x if type(x) is Variable else None for x in inputs], pullback)
    if vjp in result.rules:
        result.pullback = result.rules[vjp](pullback, inputs, result.value, **options)
    return result


def plain(x: Any) -> Any:
    """Return the value of a variable, also within lists and tuples; anything else unchanged."""
    if isinstance(x, Variable):
        return x.value
    return type(x)(map(plain, x)) if type(x) in (list, tuple) else x


def gradients(of: Variable, wrt: Sequence[Variable], d_of: Any = None) -> list[np.ndarray]:
    """Return the gradient of a result with respect to each of `wrt`; 0 where it does not depend on it.

    What the result was computed from is released on the way, so that this can be done once.

    Parameters
    ----------
    of : Variable
        A scalar, or any variable with the gradient `d_of` of a scalar.
    wrt : sequence of Variable
    d_of : array, shape of `of`, optional
        1 by default.
    """
    if of.value.dtype.kind != "f" or (d_of is None and of.size != 1):
        raise RegardError(f"gradients are those of one floating number, got {of.dtype} {of.shape}")
    from regard.functional.native import ops  # which knows of variables

    wrt_ids = {id(x) for x in wrt}
    totals = {id(of): np.ones_like(of.value) if d_of is None else d_of}
    summed = set[int]()  # whose total is an array of ours; that of a single part may be shared with another variable
    order = itertools.count()  # of variables of one depth, which was found first: sums have one order in every run
    queue = [(-of.depth, next(order), of)]  # the deepest first: what depends on a variable comes before it
    while queue:
        x = heapq.heappop(queue)[-1]
        key = id(x)
        total = totals[key] if key in wrt_ids else totals.pop(key)
        summed.discard(key)
        if x.pullback is None:
            continue
        for parent, part in zip(x.parents, x.pullback(total), strict=False):
            if parent is None or part is None:
                continue
            part = np.asarray(part, parent.dtype)
            if id(parent) in summed:
                ops.add(totals[id(parent)], part, out=totals[id(parent)])
            elif id(parent) in totals:
                totals[id(parent)] = ops.add(totals[id(parent)], part)
                summed.add(id(parent))
            else:
                totals[id(parent)] = part
                heapq.heappush(queue, (-parent.depth, next(order), parent))
        x.parents, x.pullback = (), _released
    return [totals[id(x)] if id(x) in totals else np.zeros_like(x.value) for x in wrt]


def _released(_: Any) -> Any:
    raise RegardError("the gradients of this result were taken already; compute it again")


def _apply(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return a function of NumPy of variables: recorded, or of their values if its result has no gradient."""
    from regard.functional import numpy_vjps  # on first use: attention alone does not need it

    if function in numpy_vjps.VJPS:
        return record_vjp(numpy_vjps.VJPS[function], *args, **options)
    if function in numpy_vjps.OF_SEQUENCES:
        return record_vjp(numpy_vjps.OF_SEQUENCES[function], *args[0], *args[1:], **options)
    if function in numpy_vjps.COMPOSITIONS:
        return numpy_vjps.COMPOSITIONS[function](*args, **options)
    result = function(*map(plain, args), **{name: plain(x) for name, x in options.items()})
    if function not in numpy_vjps.CONSTANT and _is_continuous(result):
        raise RegardError(f"there is no gradient through np.{function.__name__}; compute it by functions that have one")
    return result


def _is_continuous(result: Any) -> bool:
    """Whether a result, or one of several, is of floating or complex numbers, which have a gradient."""
    if isinstance(result, list | tuple):
        return any(map(_is_continuous, result))
    return isinstance(result, float | complex) or getattr(result, "dtype", np.dtype(bool)).kind in "fc"
