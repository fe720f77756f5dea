"""Edits of PyTorch tensors with a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from regard._utils.errors import RegardError


def with_gradient(name: str, value: Any, changed: Any, function: Callable[[Any], Any]) -> Any:
    """Return `changed`, the result of an edit of `value`, with the gradient of the edit's function.

    `function` gave `changed` for a NumPy array. When the gradient is computed it runs on a tensor, and must give the
    same numbers.

    Parameters
    ----------
    name : str
        The edited step.
    value, changed : tensor
    function : function
    """
    import torch

    if not value.requires_grad or not torch.is_grad_enabled():
        return changed
    return _edited_function().apply(value, changed, name, function)


@functools.cache
def _edited_function() -> Any:
    """Return the result of an edit as a function of PyTorch, whose backward pass differentiates the edit."""
    import torch

    class Edited(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, value: Any, changed: Any, name: str, function: Callable[[Any], Any]) -> Any:
            context.save_for_backward(value, changed)
            context.name, context.function = name, function
            return changed.view_as(changed)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(context: Any, gradient: Any) -> tuple[Any, None, None, None]:
            value, changed = context.saved_tensors
            return _pullback(context.name, value, changed, context.function, gradient), None, None, None

    return Edited


def _pullback(name: str, value: Any, changed: Any, function: Callable[[Any], Any], gradient: Any) -> Any:
    """Return the gradient of the edit at `value`; raise RegardError where there is none."""
    import torch

    with torch.enable_grad():
        # An edit gets bfloat16 as float32, and may write into what it gets.
        copy = (value.float() if value.dtype is torch.bfloat16 else value).detach().requires_grad_()
        try:
            again = function(copy.clone())
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise _no_gradient(name, f"it fails on a tensor: {error}") from error
    if not isinstance(again, torch.Tensor):
        raise _no_gradient(name, f"it returns a {type(again).__name__} for a tensor")
    if again.shape != changed.shape or not _close(again.detach().to(changed), changed):
        raise _no_gradient(name, "it gives other numbers for a tensor than for an array")
    pulled = None
    if again.requires_grad:
        (pulled,) = torch.autograd.grad(again, copy, gradient.to(again), allow_unused=True)
    return torch.zeros_like(value) if pulled is None else pulled.to(value.dtype)


def _close(one: Any, other: Any) -> bool:
    """Whether two tensors differ by rounding only."""
    import torch

    tolerance = 64 * torch.finfo(other.dtype).eps
    finite = other[other.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def _no_gradient(name: str, reason: str) -> RegardError:
    return RegardError(
        f"there is no gradient through the edit of {name}: {' '.join(reason.split())}; write the edit so that it runs "
        f"on tensors too"
    )
