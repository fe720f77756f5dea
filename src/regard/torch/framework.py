"""PyTorch as a library of arrays, for `regard.functional`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from regard._utils.packages import needed
from regard.functional import attention
from regard.functional.arrays import Array, is_tensor
from regard.functional.frameworks import Framework
from regard.functional.inputs import AttentionInputs, Options
from regard.functional.varlen.inputs import VarlenInputs
from regard.torch import operator
from regard.torch.autograd import differentiable
from regard.torch.block_mask import from_pytorch
from regard.torch.classes import check_tensor
from regard.torch.direct_call import direct_attention
from regard.torch.extra import torch


class TorchFramework(Framework):
    """PyTorch: the kernel computes tensors on the CPU, with their gradients."""

    shares_memory = True

    def __init__(self) -> None:
        super().__init__("torch")
        if torch is not None:
            with needed("a tensor"):
                self.namespace = importlib.import_module("array_api_compat.torch")

    def autocast(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        """Return tensors in the dtype of autocast, if that is on."""
        q, k, v = operator.autocast(q, k, v) if _are_tensors(q, k, v) else (q, k, v)
        return q, k, v

    def attention(self, q: Array, k: Array, v: Array, options: Options) -> Array | None:
        """Return the context by the operator, if PyTorch traces the call, else by the shortest way to the kernel."""
        if not _are_tensors(q, k, v):
            return None
        if not operator.is_traced(q, k, v):
            return direct_attention(q, k, v, options)
        context = operator.traced_attention(q, k, v, options)
        if context is None and options["implementation"] in ("auto", "native") and operator.is_compiled():
            return operator.run_uncompiled(attention, q, k, v, **options)
        return context

    def compiles(self) -> bool:
        """Tell whether torch.compile traces the call."""
        return operator.is_compiled()

    def run_uncompiled(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function between two graphs of torch.compile."""
        return operator.run_uncompiled(function, *arguments, **options)

    def differentiable(self, p: AttentionInputs) -> Array:
        """Return the context in the compute dtype, ``... H T Dv``, of tensors that PyTorch differentiates once."""
        return differentiable(p)

    def differentiable_varlen(self, p: VarlenInputs) -> Array:
        """Return the same of `attention_varlen`, ``Tq H Dv``."""
        from regard.torch.varlen import differentiable_varlen

        return differentiable_varlen(p)

    def has_gradients(self, arrays: Sequence[Array]) -> bool:
        """Tell whether PyTorch records the gradient of a function of these arrays."""
        return bool(torch.is_grad_enabled() and any(x.requires_grad for x in arrays))

    def no_grad(self) -> AbstractContextManager[Any]:
        """Return a context in which PyTorch records no gradients."""
        context: AbstractContextManager[Any] = torch.no_grad()
        return context

    def unsupported_reason(self, device: Any, arrays: Iterable[Array]) -> str | None:
        """Return why the kernel cannot compute with these arrays; None for plain tensors on the CPU."""
        if device.type != "cpu":
            return super().unsupported_reason(device, arrays)
        operands = list(arrays)
        if torch.compiler.is_compiling() or any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in operands):
            return "PyTorch traces the call"
        if torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():  # such as make_fx or an operation counter
            return "PyTorch intercepts the operations of the call"
        if torch.autograd.forward_ad._current_level >= 0:
            return "PyTorch computes forward derivatives of the call"
        try:
            for x in operands:
                self.to_numpy(x)
        except RuntimeError:  # inside a transformation such as vmap tensors have no memory
            return "PyTorch transforms the call"
        return None

    def check(self, x: Any, name: str) -> None:
        """Raise RegardError unless a tensor is one block of numbers that attention computes with."""
        check_tensor(x, name)

    def to_numpy(self, x: Array) -> np.ndarray:
        """Return a tensor on the CPU as an array that shares its memory; bfloat16 as 16-bit integers."""
        x = x.detach()
        array: np.ndarray = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()
        return array

    def from_numpy(self, x: np.ndarray, dtype: Any = None) -> Array:
        """Return an array as a tensor that shares its memory."""
        tensor = torch.from_numpy(x)  # faster than asarray
        return tensor if dtype is None else tensor.view(dtype)

    def as_mask(self, mask: Any) -> Any:
        """Return a `BlockMask` of FlexAttention as one of ours."""
        of_pytorch = type(mask).__module__ == "torch.nn.attention.flex_attention" and type(mask).__name__ == "BlockMask"
        return from_pytorch(mask) if of_pytorch else mask

    def vectorized(self, mask_mod: Callable[..., Any]) -> Callable[..., np.ndarray]:
        """Return a function that calls `mask_mod` as FlexAttention does: with one number each, mapped over the axes."""
        mapped = mask_mod
        for axes in (None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None):
            mapped = torch.vmap(mapped, in_dims=axes)

        def of_arrays(*indices: Any) -> np.ndarray:
            allowed = mapped(*(torch.as_tensor(x.ravel(), dtype=torch.int64, device="cpu") for x in indices))
            return np.ascontiguousarray(allowed.mT)

        return of_arrays


def _are_tensors(*arrays: Any) -> bool:
    return all([is_tensor(x) for x in arrays])  # noqa: C419, a list is made faster


FRAMEWORK = TorchFramework()
