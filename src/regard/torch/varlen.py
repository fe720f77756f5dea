"""`attention_varlen` as a function of PyTorch, whose backward pass is the kernel's too."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from regard.functional.arrays import Array
from regard.functional.varlen.attention import varlen_vjp
from regard.functional.varlen.inputs import VarlenInputs
from regard.torch.autograd import differentiable_once
from regard.torch.extra import torch


def differentiable_varlen(p: VarlenInputs) -> Array:
    """Return the output of tensors that PyTorch differentiates once."""
    inputs = p.parameters
    output: Array = _function().apply(p, tuple(inputs), *inputs.values())
    return output


@functools.cache
def _function() -> Any:
    class VarlenAttention(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, p: VarlenInputs, names: tuple[str, ...], *inputs: Array) -> Array:
            computed, ctx.pullback = varlen_vjp(
                replace(p, **{n: x.detach() for n, x in zip(names, inputs, strict=True)})
            )
            ctx.names = names
            output = computed.detach()  # another tensor of the same numbers: the pullback does not hold what holds it
            ctx.save_for_backward(*inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, d_output: Array) -> tuple[Array | None, ...]:
            *inputs, _ = ctx.saved_tensors  # raises if one was changed in place

            def gradients(d: Array) -> list[Array]:
                d_inputs = ctx.pullback(d)
                return [getattr(d_inputs, name) for name in ctx.names]

            return None, None, *differentiable_once(gradients, d_output, *inputs)

    return VarlenAttention
