"""Backward passes of many gradients at once: vectorised ones of PyTorch, against one at a time."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import RegardError
from regard.functional import ALiBi, SlidingWindow
from regard.torch import attention, scaled_dot_product_attention, use_regard

BIAS = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
FIRST = torch.tensor([0, 2, 4]), torch.tensor([0, 2, 5])  # two sequences


def varlen(q, k, v):
    return regard.attention_varlen(
        *(x[0].transpose(0, 1) for x in (q, k, v)), cu_seqlens_q=FIRST[0], cu_seqlens_k=FIRST[1]
    )


def in_a_block(q, k, v):
    with use_regard():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


CALLS = {  # of q, k, v and one more tensor
    "causal": lambda q, k, v, _: regard.attention(q, k, v, causal=True),
    "half": lambda q, k, v, _: regard.attention(q.float(), k.bfloat16(), v.bfloat16(), window=(2, 1)),
    "overflow": lambda q, k, v, _: regard.attention(q.half() * 1e4, k.half(), v.half() * 1e4),
    "drop-in": lambda q, k, v, b: scaled_dot_product_attention(q, k, v, b, scale=0.3),
    "block": lambda q, k, v, _: in_a_block(q, k, v),
    "bias": lambda q, k, v, b: regard.attention(q, k, v, bias=b, softcap=2.0),
    "slopes": lambda q, k, v, b: regard.attention(q, k, v, bias=ALiBi(b[0, :3].exp())),
    "sinks": lambda q, k, v, b: regard.attention(q, k, v, sinks=b[0, :3]),
    "function": lambda q, k, v, _: regard.attention(q, k, v, mask=lambda b, h, i, j: (i + j) % 3 != 1),
    "rule": lambda q, k, v, b: regard.attention(q, k, v, mask=SlidingWindow(1, 2), bias=b),
    "dropout": lambda q, k, v, _: attention(q, k, v, dropout=0.3, rng=torch.Generator().manual_seed(1)),
    "sequences": lambda q, k, v, _: varlen(q, k, v),
}


def draw(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 2)
    given = [torch.randn(shape, dtype=dtype, generator=generator) for shape in shapes]
    return [x.requires_grad_() for x in (*given, BIAS.to(dtype).clone())]


OPTIONS = {"retain_graph": True, "allow_unused": True}


def used(gradients):
    return [x for x in gradients if x is not None]


def one_at_a_time(output, given, directions):
    each = [used(torch.autograd.grad(output, given, d, **OPTIONS)) for d in directions]
    return [torch.stack(x) for x in zip(*each, strict=True)]


def batched(output, given, directions, **options):
    return used(torch.autograd.grad(output, given, directions, is_grads_batched=True, **OPTIONS, **options))


def mapped(output, given, directions, **options):
    def gradients(d):
        return tuple(used(torch.autograd.grad(output, given, d, **OPTIONS, **options)))

    return list(torch.vmap(gradients)(directions))


@pytest.mark.parametrize("way", [batched, mapped])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_many_directions_are_those_of_each(name, way):
    given = draw()
    output = CALLS[name](*given)
    directions = torch.randn(7, *output.shape, generator=torch.Generator().manual_seed(1)).to(output.dtype)
    wanted = one_at_a_time(output, given, directions)
    torch.testing.assert_close(way(output, given, directions), wanted, equal_nan=True)
    transposed = directions.movedim(0, -1).contiguous().movedim(-1, 0)
    torch.testing.assert_close(way(output, given, transposed), wanted, equal_nan=True)
    assert [x.shape for x in mapped(output, given, directions[:0])] == [(0, *x.shape[1:]) for x in wanted]


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"half", "overflow"}))
def test_the_jacobian_and_gradcheck_are_vectorised(name):
    given = tuple(draw())
    plain, vectorised = (
        torch.autograd.functional.jacobian(CALLS[name], given, vectorize=vectorize) for vectorize in (False, True)
    )
    torch.testing.assert_close(vectorised, plain)
    assert torch.autograd.gradcheck(lambda *x: CALLS[name](*x) + 0 * x[3].sum(), given, check_batched_grad=True)


def test_maps_of_gradients_may_be_nested():
    given = draw()
    output = CALLS["causal"](*given)
    directions = torch.randn(2, 3, *output.shape, dtype=output.dtype)

    def gradients(d):
        return torch.autograd.grad(output, given[:3], d, retain_graph=True)

    found = torch.vmap(torch.vmap(gradients))(directions)
    wanted = one_at_a_time(output, given[:3], directions.flatten(0, 1))
    torch.testing.assert_close([x.flatten(0, 1) for x in found], wanted)
    across = torch.vmap(torch.vmap(gradients), in_dims=1, out_dims=1)(directions)
    torch.testing.assert_close(across, found)


@pytest.mark.parametrize("way", [batched, mapped])
@pytest.mark.parametrize("name", CALLS)
def test_no_second_derivative_of_them(name, way):
    given = draw()
    output = CALLS[name](*given)
    directions = torch.randn(3, *output.shape).to(output.dtype)
    found = way(output, given[:3], directions, create_graph=True)
    torch.testing.assert_close(found, one_at_a_time(output, given[:3], directions), equal_nan=True)
    with pytest.raises(RegardError, match="cannot be differentiated again"):
        torch.autograd.grad(sum(x.sum() for x in found), given[:3])
