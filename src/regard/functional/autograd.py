"""The kernel's attention as a function of PyTorch, whose backward pass is the kernel's too."""

from __future__ import annotations

import functools
from typing import Any

from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.backward import backward, forward_with_stats, like
from regard.functional.inputs import AttentionInputs
from regard.functional.online_softmax import SoftmaxStats

NOT_TWICE = (
    "the kernel's gradients of attention cannot be differentiated again; attention(..., implementation='reference') can"
)


def differentiable(p: AttentionInputs) -> Array:
    """Return the context in the compute dtype, ``... H T Dv``, of tensors that PyTorch differentiates once.

    A second derivative raises; ``implementation="reference"`` has it.
    """
    given = p.parameters
    context: Array = _attention().apply(p.with_parameters(dict.fromkeys(given)), tuple(given), *given.values())
    return context


@functools.cache
def _attention() -> Any:
    import torch

    class Attention(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, empty: AttentionInputs, names: tuple[str, ...], *given: Array) -> Array:
            p = empty.with_parameters(dict(zip(names, given, strict=True)))
            _, context, stats, ctx.native = forward_with_stats(p, native=True)
            ctx.save_for_backward(context, *stats, *given)
            ctx.empty, ctx.names = empty, names
            return context

        @staticmethod
        def backward(ctx: Any, d_context: Array) -> tuple[Array | None, ...]:
            context, row_max, row_sum, *given = ctx.saved_tensors
            p = ctx.empty.with_parameters(dict(zip(ctx.names, given, strict=True)))
            found = backward(p, context, SoftmaxStats(row_max, row_sum), d_context, native=ctx.native)
            gradients = [like(p, found[name], x) for name, x in zip(ctx.names, given, strict=True)]
            return None, None, *without_second_derivative(gradients, d_context, *given)

    return Attention


def without_second_derivative(gradients: list[Array], *inputs: Array) -> list[Array]:
    """Return gradients that depend on the inputs in a way that has no derivative, where one may be asked for."""
    import torch

    once = once_differentiable()
    return list(once.apply(len(gradients), *gradients, *inputs)) if torch.is_grad_enabled() else gradients


@functools.cache
def once_differentiable() -> Any:
    """Return the function of PyTorch that passes gradients on and cannot be differentiated."""
    import torch

    class Once(torch.autograd.Function):  # type: ignore[misc]
        """The first `count` tensors, which depend on all; they have no derivative."""

        @staticmethod
        def forward(ctx: Any, count: int, *given: Array) -> tuple[Array, ...]:  # noqa: ARG004
            return tuple(x.view_as(x) for x in given[:count])

        @staticmethod
        def backward(ctx: Any, *_: Array) -> Any:  # noqa: ARG004
            raise RegardError(NOT_TWICE)

    return Once
