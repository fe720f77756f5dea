"""Attention as an operator of PyTorch, for what traces or transforms a call: torch.compile, torch.func, torch.export.

``torch.ops.regard.attention`` takes tensors, integers and a string (`rule_codec`); its gradient is the operator
``torch.ops.regard.attention_backward``. A call that nobody traces goes to the kernel without it (`autograd`), faster.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from regard._utils.drop_ins import raises
from regard._utils.errors import TorchError
from regard.functional.arrays import Array, narrowed, no_grad
from regard.functional.backward import NOT_TWICE, backward, forward_with_stats, like
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.dropout import Dropout, check_rate
from regard.functional.inputs import AttentionInputs, Options, validate_inputs, widened
from regard.functional.native.attention import native_forward, stats_from_kernel
from regard.functional.native.buffer_pool import memory_order
from regard.torch.autograd import one_by_one
from regard.torch.classes import is_of_own_class
from regard.torch.extra import torch
from regard.torch.rule_codec import RANGES, SCORES, Encoder, array_axes, bias_axes, decode

_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, Tensor[] arrays, SymInt[] ints, str rules, "
    "float? scale, float? softcap, float dropout, Tensor? seed"
)
_STATES = (
    "Tensor d_output, Tensor context, Tensor row_max, Tensor row_sum"  # further ones of the gradient, before those
)
_PARAMETERS = ("q", "k", "v", "bias", "sinks")
_COUNT = _ARGUMENTS.count(",") + 1
_SINGLE_HEAD = 2  # axes of q, k and v without an axis of heads
_OF_HEADS = 2  # axes ... H T S that sinks lack at the end


def is_intercepted() -> bool:
    """Tell whether PyTorch does anything else with calls than to run them: it traces, transforms or converts."""
    c = torch._C
    return bool(
        torch.compiler.is_compiling()
        or c._get_tracing_state()
        or c._are_functorch_transforms_active()
        or c._len_torch_dispatch_stack()
        or torch.autograd.forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
    )


def is_traced(q: Array, k: Array, v: Array) -> bool:
    """Tell whether PyTorch compiles, exports, intercepts or transforms a call; forward derivatives are no such case."""
    if torch.compiler.is_compiling():
        return True
    if torch.jit.is_tracing() or torch.autograd.forward_ad._current_level >= 0:
        return False
    intercepts = torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack()
    return bool(intercepts) or any([type(x).__name__ == "FakeTensor" for x in (q, k, v)])  # noqa: C419, a list is made faster


def is_compiled() -> bool:
    """Tell whether torch.compile traces a call, or torch.export its bytecode: `run_uncompiled` can end the graph."""
    return bool(torch.compiler.is_dynamo_compiling())


def run_uncompiled(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of what torch.compile compiles: its graph ends before the call, and another begins after it."""
    return torch.compiler.disable(function)(*arguments, **options)


# What `torch.compiler.disable` says, which imports the compiler.
run_uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]
run_uncompiled._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "regard's operator is attention without a mask or bias that is a function or of your own class; others run eagerly"
)


def traced_attention(q: Array, k: Array, v: Array, options: Options, seed: Array | None = None) -> Array | None:
    """Return the context, ``... H T Dv``, by the operator; None for arguments that it does not take.

    Dropout needs a `seed`, an integer of 64 bits.
    """
    encoder = Encoder()
    if options.get("implementation", "auto") not in ("auto", "native") or not encoder.add_options(options):
        return None
    sinks, dropout = options.get("sinks"), options.get("dropout", 0.0)
    tensors = [x for x in (q, k, v, encoder.bias, sinks) if x is not None]
    if not all([isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in tensors]):  # noqa: C419
        return None
    if any([is_of_own_class(x) for x in tensors]):  # noqa: C419
        return None
    if seed is None and dropout:
        return None
    q, k, v = (x.double() if _is_integral(x) else x for x in (q, k, v))
    wants_stats = torch.is_grad_enabled() and any([x.requires_grad for x in tensors])  # noqa: C419
    context: Array = torch.ops.regard.attention(
        q, k, v, encoder.bias, sinks, encoder.arrays, encoder.ints, " ".join(encoder.words), options.get("scale"),
        options.get("softcap"), 0.0 if seed is None else dropout, seed, wants_stats,
    )[0]  # fmt: skip
    return context


def autocast(*tensors: Array) -> tuple[Array, ...]:
    """Return tensors as PyTorch's autocast gives them to a matrix product."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype, kept = torch.get_autocast_dtype("cpu"), torch.float64
    return tuple(
        x.to(dtype) if x.dtype.is_floating_point and x.dtype != kept and x.device.type == "cpu" else x for x in tensors
    )


def _is_integral(x: Array) -> bool:
    return not x.dtype.is_floating_point and not x.dtype.is_complex and x.dtype is not torch.bool


# What the operators compute.


@raises(TorchError)
def _inputs(*call: Any) -> AttentionInputs:
    """Return the inputs of a call with `_ARGUMENTS`."""
    q, k, v, bias, sinks, arrays, ints, rules, scale, softcap, dropout, seed = call
    options: Options = {**decode(rules, arrays, ints, bias), "sinks": sinks, "scale": scale, "softcap": softcap}
    p = validate_inputs(q, k, v, **options)
    check_rate(dropout)
    return p if seed is None else p.replace(dropout=Dropout(dropout, int(seed) % 2**64))


def _forward(*arguments: Any) -> tuple[Array, Array, Array, Array]:
    """Return the context in the dtype of the result and, if it differs, of computation; and the softmax statistics.

    The last three are empty unless they are wanted for the gradient. They are NaN if a sum of the kernel overflowed.
    """
    *call, wants_stats = arguments
    p = _inputs(*call)
    shape, dtype = p.context_shape, p.compute_dtype
    native = choose_implementation(p, with_gradient=True)[0] == "native"
    if not wants_stats:
        context, native = native_forward(p, p.dtype) if native else (None, False)
        context = context if native else narrowed(blockwise(widened(p))[0], p.dtype)
        return _in_order(p, context), *_no_states(p)
    _, context, stats, native = forward_with_stats(p, native=native)
    wide = _in_order(p, narrowed(context, dtype))
    if native:
        row_max, row_sum = (x.squeeze(-1).expand(shape[:-1]).contiguous() for x in stats)
    else:
        row_max, row_sum = (torch.full(shape[:-1], torch.nan, dtype=x, device="cpu") for x in (dtype, torch.float64))
    return (
        (wide, wide.new_empty(0), row_max, row_sum) if p.dtype == dtype else (wide.to(p.dtype), wide, row_max, row_sum)
    )


def _fake_forward(*arguments: Any) -> tuple[Array, Array, Array, Array]:
    *call, wants_stats = arguments
    *tensors, ints, rules, scale, softcap, dropout, _ = call
    concrete = [x if isinstance(x, int) else 0 for x in ints]  # a compiler leaves some open; no shape depends on them
    p = _inputs(*tensors, concrete, rules, scale, softcap, dropout, None)
    shape, dtype = p.context_shape, p.compute_dtype
    output, wide, row_max, row_sum = _empty(p, p.dtype), *_no_states(p)
    if wants_stats:
        wide = _empty(p, dtype) if p.dtype != dtype else wide
        row_max, row_sum = (x.new_empty(shape[:-1]) for x in (row_max, row_sum))
    return output, wide, row_max, row_sum


def _no_states(p: AttentionInputs) -> tuple[Array, Array, Array]:
    wide = torch.empty(0, dtype=p.compute_dtype, device=p.q.device)
    return wide, torch.empty_like(wide), torch.empty(0, dtype=torch.float64, device=p.q.device)


def _empty(p: AttentionInputs, dtype: Any) -> Array:
    """Return a tensor for the context, in the memory order of q."""
    order, back = memory_order(tuple(p.q.shape), p.q.stride(), len(p.context_shape))
    return torch.empty([p.context_shape[axis] for axis in order], dtype=dtype, device=p.q.device).permute(back)


def _in_order(p: AttentionInputs, context: Array) -> Array:
    ordered = _empty(p, context.dtype)
    return context if context.stride() == ordered.stride() else ordered.copy_(context)


def _backward(*arguments: Any) -> tuple[Array, ...]:
    """Return the gradients of q, k, v, the bias and the sinks; of what is not given, an empty tensor."""
    d_output, context, row_max, row_sum, *call = arguments
    p = _inputs(*call)
    with no_grad(p.layout.xp):
        native = choose_implementation(p, with_gradient=True)[0] == "native"
        if row_sum.shape != p.context_shape[:-1] or not native or bool(row_sum.isnan().any()):
            computed, context, stats, native = forward_with_stats(p, native=native)
        else:
            computed, stats = p, stats_from_kernel(p, row_max.numpy(), row_sum.numpy())
        gradients = backward(computed, context, stats, d_output, native=native)
        none = d_output.new_empty(0)
        inputs = dict(zip(_PARAMETERS, call, strict=False))
        d_inputs = [none if x is None else like(p, gradients[name], x) for name, x in inputs.items()]
        return tuple(x.contiguous() for x in d_inputs if x is not None)


def _fake_backward(*arguments: Any) -> tuple[Array, ...]:
    d_output, _, _, _, *call = arguments
    inputs = call[: len(_PARAMETERS)]
    return tuple(d_output.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs)


def _flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    """Return the operations of the two products, from the shapes of the arguments."""
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


# vmap: the axis becomes a leading one of the call.


def _vmapped(extra: int, operator: Any) -> Callable[..., Any]:
    """Return the rule of an operator for vmap; its first `extra` arguments are `_STATES`."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        dims, call = in_dims[extra:], list(arguments[extra:])
        q, k, v, bias, _, arrays, _, rules, *_, seed = call[:_COUNT]
        ranks = [x.ndim - (dim is not None) for x, dim in zip((q, k, v), dims, strict=False)]
        is_single, rank = max(ranks) == _SINGLE_HEAD, max(*ranks, _SINGLE_HEAD + 1)
        lacking, array_dims = array_axes(rules), dims[len(_PARAMETERS)] or [None] * len(arrays)
        by_head = bias is not None and bias_axes(rules) is None
        alone = any(kind is None and dim is not None for kind, dim in zip(lacking, array_dims, strict=True))
        if seed is not None or (by_head and (extra or dims[3] is not None)) or ranks[2] > max(ranks[:2]) or alone:
            return _one_by_one(operator, info.batch_size, in_dims, arguments)

        def fold(x: Array, dim: int | None, lacking: int | None) -> Array:
            assert lacking is not None
            x = x.unsqueeze(0).expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.reshape(x.shape[0], *(1,) * (rank - lacking - x.ndim + 1), *x.shape[1:])

        shapes = [
            None if x is None else x.shape if dim is None else x.movedim(dim, 0).shape[1:]
            for x, dim in zip(call[: len(_PARAMETERS)], dims, strict=False)
        ]
        kinds = (SCORES, SCORES, SCORES, bias_axes(rules), _OF_HEADS)
        for i, kind in enumerate(kinds):
            if call[i] is not None and not (by_head and _PARAMETERS[i] == "bias"):
                call[i] = fold(call[i], dims[i], kind)
        call[len(_PARAMETERS)] = [
            x if dim is None else fold(x, dim, kind) for x, dim, kind in zip(arrays, array_dims, lacking, strict=True)
        ]
        states = [
            x if dim is None and not x.numel() else fold(x, dim, kind)
            for x, dim, kind in zip(arguments, in_dims, (SCORES, SCORES, RANGES, RANGES)[:extra], strict=False)
        ]
        batched = operator(*states, *call)
        if extra:
            gradients = (
                x if shape is None else x.reshape(-1, *shape) for x, shape in zip(batched, shapes, strict=True)
            )
            return tuple(gradients), tuple(None if shape is None else 0 for shape in shapes)
        is_there = [x.ndim > 1 for x in batched]
        outputs = (x.squeeze(1) if is_single and there else x for x, there in zip(batched, is_there, strict=True))
        return tuple(outputs), tuple(0 if there else None for there in is_there)

    return rule


def _one_by_one(operator: Any, count: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    def select(x: Any, dim: Any, index: int) -> Any:
        if isinstance(dim, list | tuple):
            return [select(*each, index) for each in zip(x, dim, strict=True)]
        return x if dim is None else x.select(dim, index)

    calls = [[select(x, dim, index) for x, dim in zip(arguments, in_dims, strict=True)] for index in range(count)]
    per_call = [operator(*call) for call in calls]
    return tuple(torch.stack(each) for each in zip(*per_call, strict=True)), (0,) * len(per_call[0])


# Autograd. A formula of torch.library.register_autograd is none that torch.func differentiates, this one is.


def _autograd(operator: Any, extra: int) -> Callable[..., Any]:
    """Return the autograd kernel of an operator, whose first `extra` arguments are `_STATES`."""
    function = (_gradient_function if extra else _function)(operator)

    def kernel(keyset: Any, *arguments: Any) -> Any:
        *tensors, arrays, ints, rules, scale, softcap, dropout, seed = arguments[: extra + _COUNT]
        if not (torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])):  # noqa: C419
            with torch._C._AutoDispatchBelowAutograd():
                return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        from torch._functorch.utils import enable_single_level_autograd_function

        rest = ints, rules, scale, softcap, dropout, seed, *arguments[extra + _COUNT :]
        with enable_single_level_autograd_function():
            return function.apply(keyset, rest, len(tensors), *tensors, *arrays)

    return kernel


def _below_autograd(operator: Any, keyset: Any, arguments: tuple[Any, ...]) -> Any:
    """Call an operator inside a function, where gradients are off; torch.func may differentiate it further out."""
    outer = torch.enable_grad() if torch._C._are_functorch_transforms_active() else contextlib.nullcontext()
    with outer, torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


def _arguments(rest: tuple[Any, ...], count: int, tensors: Sequence[Array | None]) -> tuple[Any, ...]:
    return (*tensors[:count], list(tensors[count:]), *rest)


def _function(operator: Any) -> Any:
    class Attention(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
        """A function that does not dispatch to torch.func: the operator has done so."""

        @staticmethod
        def forward(ctx: Any, keyset: Any, rest: tuple[Any, ...], count: int, *tensors: Array) -> tuple[Array, ...]:
            output: tuple[Array, ...] = _below_autograd(operator, keyset, _arguments(rest, count, tensors))
            ctx.rest, ctx.count = rest[:-1], count
            ctx.save_for_backward(*output, *tensors)
            ctx.mark_non_differentiable(*output[1:])
            ctx.set_materialize_grads(False)
            return output

        @staticmethod
        def backward(ctx: Any, d_output: Array | None, *_: Any) -> tuple[Any, ...]:
            output, wide, row_max, row_sum, *tensors = ctx.saved_tensors
            if d_output is None:
                return (None,) * (3 + len(tensors))
            context = output if wide.dtype == output.dtype else wide
            call = _arguments(ctx.rest, ctx.count, tensors)
            states, gradient = (context, row_max, row_sum), torch.ops.regard.attention_backward
            d_inputs = one_by_one(lambda d: gradient(d, *states, *call), d_output)
            gradients = [None if x is None else y for x, y in zip(tensors, d_inputs, strict=False)]
            return (None, None, None, *gradients, *(None,) * (len(tensors) - len(gradients)))

    return Attention


def _gradient_function(operator: Any) -> Any:
    class Gradient(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
        """The gradient, which has no derivative."""

        @staticmethod
        def forward(ctx: Any, keyset: Any, rest: tuple[Any, ...], count: int, *tensors: Array) -> tuple[Array, ...]:  # noqa: ARG004
            gradients: tuple[Array, ...] = _below_autograd(operator, keyset, _arguments(rest, count, tensors))
            return gradients

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:  # noqa: ARG004
            raise TorchError(NOT_TWICE)

    return Gradient


def _register() -> Any:
    """Register the operators; they live as long as what is returned."""
    from torch.utils.flop_counter import register_flop_formula

    library = torch.library.Library("regard", "DEF")
    for name, extra, function, fake, signature in (
        ("attention", 0, _forward, _fake_forward, f"({_ARGUMENTS}, bool wants_stats) -> {_tensors(4)}"),
        ("attention_backward", 4, _backward, _fake_backward, f"({_STATES}, {_ARGUMENTS}) -> {_tensors(5)}"),
    ):
        library.define(name + signature, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, function, "CPU")
        operator = getattr(torch.ops.regard, name).default
        library.impl(name, _autograd(operator, extra), "Autograd", with_keyset=True)
        torch.library.register_fake(f"regard::{name}", fake, lib=library)
        torch.library.register_vmap(f"regard::{name}", _vmapped(extra, operator), lib=library)
    register_flop_formula(torch.ops.regard.attention)(_flops)
    return library


def _tensors(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})"


_LIBRARY = None if torch is None else _register()
