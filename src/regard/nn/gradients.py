"""Gradients with respect to the arrays of a layer or model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.variable import Variable, gradients
from regard.nn.checkpoint import with_checkpoints
from regard.nn.fast_paths import CACHES
from regard.nn.layer import parameters
from regard.nn.quantized import QuantizedWeight

T = TypeVar("T")


def value_and_gradients(
    layer: T, loss: Callable[[T], Any], *, checkpoint: bool = False
) -> tuple[float, dict[str, np.ndarray]]:
    """Return a scalar function of a layer, and its gradient with respect to each array of the layer.

    Parameters
    ----------
    layer
        A layer, a model, or a dict of arrays.
    loss : function
        From the layer to one number. It gets a copy of the layer whose arrays are variables, which remember what is
        computed from them.
    checkpoint : bool
        Compute each block of a model again when its gradient is, in place of keeping what it computes: the memory of
        one block, for a third more time.

    Returns
    -------
    value : float
    gradients : dict of str to array
        By the names that `parameters` gives, in the shape and dtype of each. Tied weights, which are the same memory
        under several names, transposed or not, have the sum over all of their uses under each of them. Quantized
        weights are dequantized for the run; integers have no gradient.

    Raises
    ------
    RegardError
        The result is not one number that was computed from the arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from regard.nn import Linear, value_and_gradients
    >>> layer, x = Linear(np.array([[1.0], [2.0]])), np.array([3.0, 4.0])
    >>> value, gradients = value_and_gradients(layer, lambda layer: np.sum(layer(x) ** 2))  # (x · W)²
    >>> value, gradients["weight"]  # 2 (x · W) xᵀ
    (121.0, array([[66.],
           [88.]]))
    """
    recorded = RecordedParameters(layer)
    value = loss(with_checkpoints(recorded.layer) if checkpoint else recorded.layer)
    number = one_number("the loss", value)
    return number, recorded.by_name(gradients(value, recorded.leaves))


class RecordedParameters(Generic[T]):
    """A copy of a layer whose arrays are variables.

    Parameters
    ----------
    layer
        A layer, a model, or a dict of arrays.
    has_gradient : function, optional
        Whether the array of a name becomes a variable; all do by default.

    Attributes
    ----------
    layer
        The copy.
    leaves : list of Variable
        One for each memory: tied weights, transposed or not, share one.
    """

    def __init__(self, layer: T, has_gradient: Callable[[str], bool] = lambda _: True) -> None:
        leaves: dict[Any, Variable] = {}
        uses: dict[str, Variable] = {}
        self._places: dict[str, tuple[int, bool]] = {}  # of each name: the index of its leaf, and whether transposed
        dense: dict[Any, np.ndarray] = {}
        for name, x in parameters(layer).items():
            if isinstance(x, QuantizedWeight) and has_gradient(name):
                rows = dense.setdefault(_memory(x.blocks), np.asarray(x.T if x.transposed else x))
                x = rows.T if x.transposed else rows
            if isinstance(x, np.ndarray) and x.dtype.kind == "f" and has_gradient(name):
                memory = _memory(x)
                leaf = leaves.setdefault(memory, Variable(x))
                is_transposed = (leaf.shape, leaf.value.strides) != (x.shape, x.strides)
                uses[name] = leaf.T if is_transposed else leaf
                self._places[name] = list(leaves).index(memory), is_transposed
        self.leaves = list(leaves.values())
        self.layer: T = with_parameters(layer, uses)

    def by_name(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the gradients of `leaves` by the names of the arrays."""
        return {name: arrays[i].T if is_transposed else arrays[i] for name, (i, is_transposed) in self._places.items()}


def one_number(what: str, value: Any) -> float:
    """Return the value of a variable of size 1; an error that names it for anything else."""
    if not isinstance(value, Variable) or value.size != 1:
        got = f"an array {value.shape}" if isinstance(value, Variable | np.ndarray) else f"{value!r}"
        raise RegardError(f"{what} must be one number that depends on what the gradient is taken of, got {got}")
    return float(value.item())


def with_parameters(layer: T, arrays: Mapping[str, Any]) -> T:
    """Return a copy of a layer with other arrays, unchecked; without the calls that were prepared for the old ones.

    Parameters
    ----------
    layer
        A layer, a model, or a dict of arrays.
    arrays : mapping of str to array or Variable
        By the names that `parameters` gives; those not named stay.

    Raises
    ------
    RegardError
        A name is that of no array.
    """
    if unknown := arrays.keys() - parameters(layer).keys():
        raise RegardError(f"the layer has no array {', '.join(map(repr, sorted(unknown)))}; see regard.nn.parameters")
    tree: dict[str, Any] = {}
    for name, x in arrays.items():
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = x
    recorded = any(isinstance(x, Variable) for x in arrays.values())
    replaced: T = _replaced(layer, tree, dict.fromkeys(CACHES) if recorded else {})  # variables take no fast path
    return replaced


def _replaced(value: Any, tree: Any, attributes: dict[str, None]) -> Any:
    """Return a copy of `value` with the arrays of a tree of names; layers with other arrays get further attributes."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(value, dict):
        return value | {name: _replaced(value[name], part, attributes) for name, part in tree.items()}
    if isinstance(value, tuple):
        return tuple(_replaced(x, tree[str(i)], attributes) if str(i) in tree else x for i, x in enumerate(value))
    changed = copy.copy(value)
    for name, part in tree.items():
        object.__setattr__(changed, name, _replaced(getattr(value, name), part, attributes))
    vars(changed).update(attributes)
    return changed


def _memory(x: np.ndarray) -> Any:
    """Return what the views of one array, transposed or not, have in common."""
    axes = tuple(sorted(zip(x.strides, x.shape, strict=True)))
    return x.__array_interface__["data"][0], x.dtype, axes, None if x.size else id(x)
