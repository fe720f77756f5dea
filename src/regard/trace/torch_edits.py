"""Edits of tensors with a gradient. Imported only when PyTorch is in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
    return _Edited.apply(value, changed, name, function) if value.requires_grad and torch.is_grad_enabled() else changed


class _Edited(torch.autograd.Function):  # type: ignore[misc]
    """The result of an edit; backward differentiates its function."""

    @staticmethod
    def forward(context: Any, value: Any, changed: Any, name: str, function: Callable[[Any], Any]) -> Any:
        context.save_for_backward(value, changed)
        context.name, context.function = name, function
        return changed.view_as(changed)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Any) -> tuple[Any, ...]:
        value, changed = context.saved_tensors
        with torch.enable_grad():
            # An edit gets bfloat16 as float32, and may write into what it gets.
            copy = (value.float() if value.dtype is torch.bfloat16 else value).detach().requires_grad_()
            try:
                again = context.function(copy.clone())
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise _no_gradient(context.name, f"it fails on a tensor: {error}") from error
        if not isinstance(again, torch.Tensor):
            raise _no_gradient(context.name, f"it returns a {type(again).__name__} for a tensor")
        if again.shape != changed.shape or not _close(again.detach().to(changed), changed):
            raise _no_gradient(context.name, "it gives other numbers for a tensor than for an array")
        if not again.requires_grad:
            return torch.zeros_like(value), None, None, None
        (found,) = torch.autograd.grad(again, copy, gradient.to(again), allow_unused=True)
        return torch.zeros_like(value) if found is None else found.to(value.dtype), None, None, None


def _close(one: Any, other: Any) -> bool:
    """Whether two tensors differ by rounding only."""
    tolerance = 64 * torch.finfo(other.dtype).eps
    finite = other[other.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def _no_gradient(name: str, reason: str) -> RegardError:
    return RegardError(
        f"there is no gradient through the edit of {name}: {' '.join(reason.split())}; write the edit so that it runs "
        f"on tensors too"
    )
