"""Attention of tensors on the CPU."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from regard import functional
from regard._utils.drop_ins import raises
from regard._utils.errors import RegardError, TorchError
from regard.functional.arrays import Array
from regard.functional.dropout import check_rate
from regard.functional.inputs import Options
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.torch import operator as torch_operator
from regard.torch.classes import check_class
from regard.torch.extra import torch


@raises(TorchError)
def attention(q: Array, k: Array, v: Array, *, trace: Recorder = NULL_RECORDER, **options: Unpack[Options]) -> Array:
    """Return softmax(q · kᵀ × scale) · v of tensors on the CPU.

    Takes the arguments of `regard.attention`, which says what they mean, and computes what it computes: forward and
    backward by the kernel, whether the call is run, compiled (``torch.compile(fullgraph=True)``), exported or
    transformed by `torch.func`, with the dtype of autocast if that is on. Tensors are read as they lie in memory, and
    the result lies in memory like q.

    Parameters
    ----------
    q : tensor, ``... H T D``
    k : tensor, ``... G S D``
    v : tensor, ``... G S Dv``
    rng : torch.Generator or numpy.random.Generator, optional
        Of `dropout`; by default PyTorch's own, as `torch.manual_seed` sets it.

    Returns
    -------
    tensor, ``... H T Dv``

    Raises
    ------
    RegardError
        Also a RuntimeError. q, k or v is not a tensor on the CPU, or a tensor is of another subclass; a second
        derivative is taken (``implementation="reference"`` has it); or as `regard.attention`.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> q = torch.randn(2, 8, 16, 64, requires_grad=True)  # doctest: +SKIP
    >>> attention(q, q, q, causal=True).sum().backward()  # doctest: +SKIP
    """
    check_tensors("regard.torch.attention", {"q": q, "k": k, "v": v})
    rng: Any = options.get("rng")
    if not options.get("dropout") or isinstance(rng, np.random.Generator):
        return functional.attention(q, k, v, trace=trace, **options)
    if rng is not None and not isinstance(rng, torch.Generator):
        raise RegardError(f"rng must be a generator of PyTorch or NumPy, or None, got {type(rng).__name__}")
    check_rate(options["dropout"])
    seed = torch.randint(-(2**63), 2**63 - 1, (), generator=rng, device="cpu")
    options.pop("rng", None)
    q, k, v = torch_operator.autocast(q, k, v)
    context = torch_operator.traced_attention(q, k, v, options, seed) if trace is NULL_RECORDER else None
    if context is not None:
        return context
    if not torch_operator.is_compiled():
        return _attention_with_seed(q, k, v, seed, trace, options)
    computed: Array = torch_operator.run_uncompiled(_attention_with_seed, q, k, v, seed, trace, options)
    return computed


def _attention_with_seed(q: Array, k: Array, v: Array, seed: Array, trace: Recorder, options: Options) -> Array:
    options["rng"] = np.random.default_rng(int(seed) % 2**64)
    return functional.attention(q, k, v, trace=trace, **options)


def check_tensors(function: str, tensors: dict[str, Array]) -> None:
    """Raise RegardError unless PyTorch is there and all are tensors on the CPU."""
    if torch is None:
        raise RegardError(f"{function} needs PyTorch: pip install 'regard[torch]'")
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise RegardError(f"{name} of {function} must be a tensor of PyTorch, got {type(x).__name__}")
        if x.device.type != "cpu":
            raise RegardError(f"{name} is on {x.device}, but {function} computes on the CPU; move it with .cpu()")
        if not is_plain(x):
            raise RegardError(f"{name} of {function} must be a dense tensor, not nested or sparse")
        check_class(x, f"{name} of {function}")


def is_plain(x: Array) -> bool:
    """Tell whether a tensor is an array of numbers in memory, neither nested nor sparse."""
    return not x.is_nested and x.layout is torch.strided
