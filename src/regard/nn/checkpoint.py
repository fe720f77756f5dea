"""Gradient checkpointing: a block keeps its inputs alone, and is computed again when its gradient is."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.variable import Variable, gradients
from regard.nn.fast_paths import CACHES
from regard.nn.kv_cache import KVCache
from regard.nn.layer import Layer

T = TypeVar("T")


def with_checkpoints(layer: T) -> T:
    """Return a copy of a model whose ``blocks`` are checkpointed.

    A run then holds the inputs of the blocks, and what one block computes, in place of what all of them do; each block
    is computed twice.

    References
    ----------
    Chen et al. (2016), "Training deep nets with sublinear memory cost", https://arxiv.org/abs/1604.06174.
    """
    if not isinstance(layer, Layer) or not is_dataclass(layer):
        return layer
    changed = copy.copy(layer)
    for field in fields(layer):
        value = getattr(layer, field.name)
        is_blocks = field.name == "blocks" and isinstance(value, tuple)
        value = tuple(map(CheckpointedBlock, value)) if is_blocks else with_checkpoints(value)
        object.__setattr__(changed, field.name, value)
    vars(changed).update(dict.fromkeys(CACHES))
    return changed


class CheckpointedBlock:
    """A block that keeps, of a run with variables, its inputs alone.

    Parameters
    ----------
    block
        A layer, whose call takes variables among its arguments or has them among its arrays.
    """

    def __init__(self, block: Any) -> None:
        self._block = block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def __call__(self, *args: Any, trace: Recorder = NULL_RECORDER, **options: Any) -> Any:
        """Return what the block does; its arrays are variables that compute the block again for their gradient."""
        call = self._block, args, options
        inputs = list({id(x): x for x in _leaves(call, Variable)}.values())
        first, again, steps = trace.checkpoint()
        block, arguments, keywords = _replaced(call, Variable, lambda x: x.value)
        output = block(*arguments, trace=first, **keywords)
        inputs_and_steps = [*inputs, *steps]

        def pullback(index: int, d: np.ndarray) -> list[np.ndarray]:
            fresh = {id(x): Variable(x.value, rules=x.rules) for x in inputs}
            block, arguments, keywords = _replaced(call, Variable, lambda x: fresh[id(x)])
            result = list(_leaves(block(*arguments, trace=again, **keywords), Variable))[index]
            return gradients(result, [*fresh.values(), *inputs_and_steps[len(inputs) :]], d)

        places = itertools.count()

        def variable(x: np.ndarray) -> Variable:
            return Variable(x, inputs_and_steps, functools.partial(pullback, next(places)))

        return _replaced(output, np.ndarray, variable) if inputs_and_steps else output


def _leaves(tree: Any, kind: type) -> Iterator[Any]:
    """Yield what is of a kind in layers, tuples, dicts and caches."""
    if isinstance(tree, kind):
        yield tree
        return
    if isinstance(tree, KVCache):
        parts: Any = tree.arrays
    elif isinstance(tree, dict):
        parts = tree.values()
    elif is_dataclass(tree) and not isinstance(tree, type):
        parts = (getattr(tree, field.name) for field in fields(tree))
    else:
        parts = tree if isinstance(tree, tuple | list) else ()
    for part in parts:
        yield from _leaves(part, kind)


def _replaced(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a copy of layers, tuples, dicts and caches in which what is of a kind is changed."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, KVCache):
        return tree.with_arrays(*(_replaced(x, kind, change) for x in tree.arrays))
    if isinstance(tree, dict):
        return {key: _replaced(part, kind, change) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(_replaced(part, kind, change) for part in tree)
    if not is_dataclass(tree) or isinstance(tree, type) or not any(True for _ in _leaves(tree, kind)):
        return tree
    changed = copy.copy(tree)
    for field in fields(tree):
        object.__setattr__(changed, field.name, _replaced(getattr(tree, field.name), kind, change))
    vars(changed).update(dict.fromkeys(CACHES))
    return changed
