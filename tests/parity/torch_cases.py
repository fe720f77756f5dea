"""Tensors of all shapes that attention takes, and calls of it with each of its arguments, for tests with PyTorch."""

from __future__ import annotations

import torch

from regard.functional import (
    ALiBi,
    Causal,
    DenseMask,
    DistanceBias,
    KeyLengths,
    KeyRangeMask,
    PrefixLM,
    RelativePositionBias,
    SegmentMask,
    SlidingWindow,
)

B, H, G, T, S, D, Dv = 2, 6, 3, 5, 7, 4, 3


def tensor(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


QKV = tensor(B, H, T, D), tensor(B, G, S, D, seed=1), tensor(B, G, S, Dv, seed=2)
MASK = tensor(B, 1, T, S, seed=3) > -0.5
# The options of a call as a function of a tensor that is learned, of its shape, and of tensors of the rules.
CASES = {
    "plain": (None, (), lambda _: {}),
    "causal": (None, (), lambda _: {"causal": True}),
    "all numbers": (
        None, (),
        lambda _: {"causal": True, "window": (2, 0), "query_offset": 1, "scale": 0.7, "softcap": 2.0},
    ),
    "mask": (None, (MASK,), lambda _, mask: {"mask": mask}),
    "no key": (None, (torch.zeros((T, S), dtype=torch.bool),), lambda _, mask: {"mask": mask}),
    "lengths and offsets": (
        None, (torch.tensor([3, 7]), torch.tensor([2, -1])),
        lambda _, lengths, offsets: {"key_lengths": lengths, "causal": True, "query_offset": offsets},
    ),
    "rules": (
        None,
        (torch.tensor([2, 5]), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]]), torch.tensor([[0, 0, 1, 1, 1, 2, 2]])),
        lambda _, prefix, *ids: {
            "mask": (Causal(1) | PrefixLM(prefix)) & SlidingWindow(4, 2, 0) & (SegmentMask(*ids) | KeyLengths(3))
        },
    ),
    "ranges": (
        None, (torch.tensor([0, 1, 2, 3, 4]), torch.tensor([2, 3, 2, 6, 7]), MASK),
        lambda _, first, last, mask: {"mask": KeyRangeMask(first, last) | DenseMask(mask)},
    ),
    "bias": ((H, T, S), (), lambda x: {"bias": x}),
    "row bias": ((B, 1, 1, S), (), lambda x: {"bias": x}),
    "sinks": ((H,), (), lambda x: {"sinks": x}),
    "slopes": ((H,), (), lambda x: {"bias": ALiBi(x), "causal": True}),
    "slopes both ways": ((H,), (), lambda x: {"bias": ALiBi(x)}),
    "table": ((6, H), (), lambda x: {"bias": RelativePositionBias(x, bidirectional=False, max_distance=4)}),
    "table both ways": ((6, H), (), lambda x: {"bias": RelativePositionBias(x, max_distance=4)}),
    "distances": ((H, 11), (), lambda x: {"bias": DistanceBias(x, -6)}),
}  # fmt: skip


def gradients(function, given, others=(), direction=None):
    """Return the output and the gradients of its squares, or along a direction."""
    given = [x.detach().clone().requires_grad_() for x in given]
    output = function(*given, *others)
    if direction is None:
        return output, torch.autograd.grad(output.square().sum(), given)
    return output, torch.autograd.grad(output, given, direction.to(output.dtype))


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)
