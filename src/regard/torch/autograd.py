"""The kernel's attention as a function of PyTorch, whose backward pass is the kernel's too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from regard._utils.errors import TorchError
from regard.functional.arrays import Array
from regard.functional.backward import NOT_TWICE, backward, forward_with_stats, like
from regard.functional.inputs import AttentionInputs
from regard.functional.online_softmax import SoftmaxStats
from regard.torch.extra import torch


def differentiable(p: AttentionInputs) -> Array:
    """Return the context in the compute dtype, ``... H T Dv``, of tensors that PyTorch differentiates once.

    A second derivative raises; ``implementation="reference"`` has it.
    """
    inputs = p.parameters
    context: Array = _attention().apply(p.with_parameters(dict.fromkeys(inputs)), tuple(inputs), *inputs.values())
    return context


@functools.cache
def _attention() -> Any:
    class Attention(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, empty: AttentionInputs, names: tuple[str, ...], *inputs: Array) -> Array:
            p = empty.with_parameters(dict(zip(names, inputs, strict=True)))
            _, context, stats, ctx.native = forward_with_stats(p, native=True)
            ctx.save_for_backward(context, *stats, *inputs)
            ctx.empty, ctx.names = empty, names
            return context

        @staticmethod
        def backward(ctx: Any, d_context: Array) -> tuple[Array | None, ...]:
            context, row_max, row_sum, *inputs = ctx.saved_tensors
            p = ctx.empty.with_parameters(dict(zip(ctx.names, inputs, strict=True)))

            def gradients(d: Array) -> list[Array]:
                d_inputs = backward(p, context, SoftmaxStats(row_max, row_sum), d, native=ctx.native)
                return [like(p, d_inputs[name], x) for name, x in zip(ctx.names, inputs, strict=True)]

            return None, None, *differentiable_once(gradients, d_context, *inputs)

    return Attention


def differentiable_once(
    pullback: Callable[[Array], Iterable[Array | None]], d_output: Array, *inputs: Array
) -> list[Array | None]:
    """Return `one_by_one`; the gradients depend on the inputs in a way that has no derivative, if one may be taken."""

    def gradients(d: Array) -> Iterable[Array | None]:
        d_inputs = list(pullback(d))
        return _once().apply(len(d_inputs), *d_inputs, d, *inputs) if torch.is_grad_enabled() else d_inputs

    return one_by_one(gradients, d_output)


def one_by_one(pullback: Callable[[Array], Iterable[Array | None]], d_output: Array) -> list[Array | None]:
    """Return the gradients of a pullback; of one direction after the other where PyTorch maps over `d_output`.

    It maps in `torch.vmap`, and by an older implementation for ``is_grads_batched=True`` and what uses that.
    """
    functorch = torch._C._functorch
    if functorch.is_batchedtensor(d_output):
        level, add, remove = functorch.maybe_get_level(d_output), functorch._add_batch_dim, functorch._remove_batch_dim
    elif functorch.is_legacy_batchedtensor(d_output):
        level, add, remove = torch._C._vmapmode_increment_nesting() - 1, torch._add_batch_dim, torch._remove_batch_dim
        torch._C._vmapmode_decrement_nesting()
    else:
        return list(pullback(d_output))
    directions = remove(d_output, level, 1, 0)
    count = len(directions)
    each = [one_by_one(pullback, d) for d in (directions if count else directions.new_zeros(1, *directions.shape[1:]))]
    return [None if x[0] is None else add(torch.stack(x)[:count], 0, level) for x in zip(*each, strict=True)]


@functools.cache
def _once() -> Any:
    """Return the function of PyTorch that passes gradients on and cannot be differentiated."""

    class Once(torch.autograd.Function):  # type: ignore[misc]
        """The first `count` tensors, which depend on all; they have no derivative."""

        generate_vmap_rule = True

        @staticmethod
        def forward(count: int, *tensors: Array | None) -> tuple[Array | None, ...]:
            return tuple(None if x is None else x.view_as(x) for x in tensors[:count])

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Array, ...]) -> None:
            """Keep nothing."""

        @staticmethod
        def backward(ctx: Any, *_: Array) -> Any:  # noqa: ARG004
            raise TorchError(NOT_TWICE)

    return Once
