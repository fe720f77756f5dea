"""Classes of tensors: which of them are plain numbers."""

from __future__ import annotations

from typing import Any

from regard._utils.errors import RegardError
from regard.torch.extra import torch

_IN_PLACE_OF = {
    "CausalBias": "give causal=True, with query_offset=0 for causal_upper_left",
    "MaskedTensor": "give get_data() of it; mask= says where queries attend",
    "DTensor": "give full_tensor() or to_local() of it",
}


def is_of_own_class(x: Any) -> bool:
    """Tell whether a tensor is of a subclass, which may carry a meaning; not so what stands for one in a compiler."""
    plain = type(x) in (torch.Tensor, torch.nn.Parameter) or type(x).__name__ in ("FakeTensor", "FunctionalTensor")
    return not plain and isinstance(x, torch.Tensor)


def check_class(x: Any, name: str) -> None:
    """Raise RegardError if a tensor is of a class that may mean more than its numbers."""
    if is_of_own_class(x):
        kind = type(x).__name__
        hint = _IN_PLACE_OF.get(kind, f"{name.split()[0]}.as_subclass(torch.Tensor) is the tensor of its numbers")
        raise RegardError(f"{name} is of the class {kind}, whose meaning regard does not know; {hint}")


def check_tensor(x: Any, name: str) -> None:
    """Raise RegardError unless a tensor of PyTorch is one block of numbers that attention computes with."""
    if torch is None or not isinstance(x, torch.Tensor):
        return
    if x.is_nested:
        raise RegardError(f"{name} is a nested tensor: pad it and give key_lengths, or use attention_varlen")
    check_class(x, name)
    if x.layout is not torch.strided:
        layout = str(x.layout).removeprefix("torch.")
        raise RegardError(f"{name} is a tensor in the layout {layout}: give to_dense() of it")
    if x.is_quantized:
        raise RegardError(f"{name} is a quantized tensor, {x.dtype}: give dequantize() of it")
    if x.dtype.itemsize == 1 and x.is_floating_point():
        raise RegardError(f"{name} must be an array of numbers, got {x.dtype}; convert it first")
