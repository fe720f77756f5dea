"""What the functions here need of a library of arrays beyond the array API standard.

`regard.torch` and `regard.jax` have a `Framework` of their own. The package root says where; it is imported for the
first array of the library. Nothing here imports a library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

import numpy as np

from regard._utils import hooks

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NAMES = {"torch": "PyTorch", "jax": "JAX", "cupy": "CuPy", "dask": "Dask"}


class Framework:
    """A library of arrays, with no more than the standard has.

    Parameters
    ----------
    library : str
        The name of its module.
    """

    namespace: Any = None  # of the array API, if it is known; faster than to ask for it
    shares_memory = False  # whether its arrays on the CPU are read and made without a copy

    def __init__(self, library: str) -> None:
        self.library = library

    def autocast(self, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        """Return the arrays as a matrix product would get them."""
        return q, k, v

    def attention(self, q: Any, k: Any, v: Any, options: Any) -> Any:  # noqa: ARG002
        """Return the context of a call that the library traces or differentiates, or by a shorter way to the kernel.

        None: the functions here compute it, operation by operation of the library, or by the kernel.
        """
        return None

    def compiles(self) -> bool:
        """Tell whether the library compiles the bytecode of a call, which `run_uncompiled` leaves out."""
        return False

    def run_uncompiled(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function outside the graph that the library compiles."""
        raise NotImplementedError

    def in_numpy(self, q: Any, k: Any, v: Any, options: Any) -> tuple[Any, Any, Any, Any]:
        """Return a call in NumPy, if `attention` would compute it so."""
        return q, k, v, options

    def differentiable(self, p: Any) -> Any:
        """Return the context of inputs of which `has_gradients`, by the kernel, with its gradient."""
        raise NotImplementedError

    def differentiable_varlen(self, p: Any) -> Any:
        """Return the output of `attention_varlen` of such inputs."""
        raise NotImplementedError

    def has_gradients(self, arrays: Sequence[Any]) -> bool:  # noqa: ARG002
        """Tell whether the library records the gradient of a function of these arrays."""
        return False

    def no_grad(self) -> AbstractContextManager[Any]:
        """Return a context in which it records none."""
        return nullcontext()

    def unsupported_reason(self, device: Any, arrays: Iterable[Any]) -> str | None:  # noqa: ARG002
        """Return why the kernel cannot compute with these arrays, or None if it can."""
        name = _NAMES.get(self.library, self.library)
        if device is None:  # a tracer
            return f"{name} traces the call"
        return (
            f"the kernel supports arrays of NumPy and of PyTorch on the CPU, not of {name} on {device} "
            f"(numpy.asarray converts them)"
        )

    def check(self, x: Any, name: str) -> None:
        """Raise RegardError unless an array is one block of numbers that attention computes with."""

    def to_numpy(self, x: Any) -> np.ndarray:
        """Return an array on the CPU with its memory, if it is shared; bfloat16 as 16-bit integers."""
        return np.asarray(x)

    def from_numpy(self, x: np.ndarray, dtype: Any = None) -> Any:
        """Return an array with the memory of one of NumPy, read as numbers of another dtype of the same size."""
        raise NotImplementedError

    def as_mask(self, mask: Any) -> Any:
        """Return a mask of the library as one of ours, anything else as it is."""
        return mask

    def vectorized(self, mask_mod: Callable[..., Any]) -> Callable[..., np.ndarray]:
        """Return a ``mask_mod`` of single numbers of the library as one of NumPy arrays, which returns ``B H S T``."""
        raise NotImplementedError


def framework(library: str) -> Framework:
    """Return the framework of a library, by the name of its module."""
    load = hooks.frameworks.get(library)  # nothing is kept here, for `torch.compile` would guard it
    loaded: Framework = Framework(library) if load is None else load()
    return loaded


def framework_of(x: Any) -> Framework:
    """Return the framework of an array, or of what stands for one while it is traced."""
    return framework(type(x).__module__.partition(".")[0])


def uncompiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function of arrays one that `torch.compile` calls as it is: the graph ends before it, and begins anew."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _R:
        q = arguments[0] if arguments else options.get("q")
        if type(q) is not np.ndarray:
            library = framework_of(q)
            if library.compiles():
                result: _R = library.run_uncompiled(function, *arguments, **options)
                return result
        return function(*arguments, **options)

    return call
