"""Attention of tensors on the CPU."""

from __future__ import annotations

from typing import Unpack

from regard import functional
from regard._utils.errors import RegardError
from regard.functional.arrays import Array
from regard.functional.inputs import Options
from regard.functional.recorder import NULL_RECORDER, Recorder


def attention(q: Array, k: Array, v: Array, *, trace: Recorder = NULL_RECORDER, **options: Unpack[Options]) -> Array:
    """Return softmax(q · kᵀ × scale) · v of tensors on the CPU.

    Takes the arguments of `regard.attention`, which says what they mean.

    Parameters
    ----------
    q : tensor, ``... H T D``
    k : tensor, ``... G S D``
    v : tensor, ``... G S Dv``

    Returns
    -------
    tensor, ``... H T Dv``

    Raises
    ------
    RegardError
        q, k or v is not a tensor on the CPU, or as `regard.attention`.
    """
    import torch

    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise RegardError(f"{name} must be a tensor of PyTorch, got {type(x).__name__}")
        if x.device.type != "cpu":
            raise RegardError(f"{name} is on {x.device}, but regard computes on the CPU; move it with .cpu()")
    return functional.attention(q, k, v, trace=trace, **options)
