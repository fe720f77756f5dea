"""Sequences of different lengths and paged caches in PyTorch: numbers and gradients of a formula there."""

import itertools

import numpy as np
import pytest
import torch

from attention_cases import paged
from regard import RegardError, attention_varlen, attention_varlen_vjp

H, G, D = 6, 2, 16


def draw(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    of_q, of_k = (torch.randint(1, most, (4,), generator=generator) for most in (40, 200))
    of_k = torch.maximum(of_q, of_k)  # no query is without keys
    starts = [torch.nn.functional.pad(x.cumsum(0), (1, 0)).to(torch.int32) for x in (of_q, of_k)]

    def normal(count, heads):
        return torch.randn(count, heads, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    return normal(of_q.sum(), H), normal(of_k.sum(), G), normal(of_k.sum(), G), *starts


def formula(q, k, v, starts_q, starts_k, *, causal=False, attention_chunk=None, sinks=None):
    """Return attention of each sequence, aligned at its end, and the log-sum-exp; a sink is a score without a value."""
    outputs, lses = [], []
    for (a, b), (c, d) in zip(*(itertools.pairwise(x.tolist()) for x in (starts_q, starts_k)), strict=True):
        keys, values = (x[c:d].repeat_interleave(H // G, 1) for x in (k, v))
        scores = torch.einsum("thd,shd->hts", q[a:b], keys) * D**-0.5
        position, key = torch.arange((d - c) - (b - a), d - c)[:, None], torch.arange(d - c)
        scores = scores.masked_fill(key > position, -torch.inf) if causal else scores
        if attention_chunk is not None:
            scores = scores.masked_fill(key // attention_chunk != position // attention_chunk, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(-1, b - a, 1)], -1)
        outputs.append(torch.einsum("hts,shd->thd", scores.softmax(-1)[..., : d - c], values))
        lses.append(scores.logsumexp(-1).T)
    return torch.cat(outputs), torch.cat(lses)


OPTIONS = {"plain": {}, "causal": {"causal": True}, "chunks": {"causal": True, "attention_chunk": 13}}


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_output_and_gradients_are_those_of_the_formula(seed, name, return_lse):
    q, k, v, *starts = draw(seed)
    inputs, options = {"q": q, "k": k, "v": v}, OPTIONS[name]
    if name == "chunks":
        inputs["sinks"] = torch.randn(H, dtype=torch.float64).requires_grad_()
    given = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), starts, strict=True)) | inputs | options
    theirs, lse = formula(q, k, v, *starts, **options, sinks=inputs.get("sinks"))
    ours = attention_varlen(**given, return_lse=return_lse)
    for each in (ours.output if return_lse else ours, attention_varlen_vjp(**given)[0]):
        torch.testing.assert_close(each, theirs, rtol=1e-10, atol=1e-12, check_device=False)
    with torch.no_grad():
        torch.testing.assert_close(attention_varlen(**given), theirs, rtol=1e-10, atol=1e-12)
    d_output = torch.randn_like(theirs)
    if return_lse:
        torch.testing.assert_close(ours.lse, lse, rtol=1e-10, atol=1e-12)
        ours, theirs = ours.output + ours.lse[..., None], theirs + lse[..., None]
    found, expected = (torch.autograd.grad(x, tuple(inputs.values()), d_output) for x in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    if not return_lse:
        gradients = attention_varlen_vjp(**given)[1](d_output)
        for each, wanted in zip(inputs, expected, strict=True):
            torch.testing.assert_close(getattr(gradients, each), wanted, rtol=1e-9, atol=1e-11)


def test_sinks_alone_have_gradients_and_their_dtype():
    q, k, v, *starts = (x.detach() for x in draw(2, torch.bfloat16))
    sinks = torch.zeros(H, dtype=torch.float32, requires_grad=True)
    attention_varlen(q, k, v, *starts, sinks=sinks).float().sum().backward()
    wide = torch.zeros(H, dtype=torch.float64, requires_grad=True)
    attention_varlen(q.double(), k.double(), v.double(), *starts, sinks=wide).sum().backward()
    assert sinks.grad.dtype == torch.float32
    torch.testing.assert_close(sinks.grad.double(), wide.grad, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_precisions_are_rounded_once(dtype):
    arrays = draw(9, dtype)
    wide, _ = formula(*(x.double() for x in arrays[:3]), *arrays[3:], causal=True)
    ours = attention_varlen(*arrays, causal=True)
    assert ours.dtype == dtype
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours.double(), wide, rtol=error, atol=error)
    gradients = torch.autograd.grad(ours.sum(), arrays[:3])
    assert [x.dtype for x in gradients] == [dtype] * 3


def test_a_paged_cache_of_pytorch_is_read_in_place():
    q, k, v, starts_q, starts_k = (x.detach() for x in draw(3, torch.float32))
    in_pages = [paged(x.numpy(), starts_k.numpy(), 16) for x in (k, v)]
    table, pages = torch.from_numpy(in_pages[0][1]), [torch.from_numpy(x) for x, _ in in_pages]
    ours = attention_varlen(q, *pages, starts_q, starts_k, causal=True, block_table=table)
    wanted, _ = formula(q, k, v, starts_q, starts_k, causal=True)
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


def test_the_queries_of_a_paged_cache_have_gradients():
    q, k, v = draw(3)[:3]
    pages = (x.detach()[:16][None] for x in (k, v))
    one = q.detach()[:1].requires_grad_()
    attention_varlen(one, *pages, [0, 1], [0, 16], block_table=[[0]]).sum().backward()
    other = q.detach()[:1].requires_grad_()
    attention_varlen(other, k[:16], v[:16], [0, 1], [0, 16]).sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("changed", ["values", "output"])
def test_a_tensor_changed_in_place_between_is_an_error(changed):
    q, k, v, *starts = draw(6)
    values = v.detach().clone().requires_grad_() * 1
    output = attention_varlen(q, k, values, *starts)
    with torch.no_grad():
        {"values": values, "output": output}[changed].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_slopes_may_be_tensors_and_bad_lengths_are_said():
    q, k, v, *starts = draw(7)
    slopes = torch.rand(H, dtype=torch.float32, requires_grad=True)
    ours = attention_varlen(q, k, v, *starts, alibi_slopes=slopes)
    theirs = attention_varlen(*(x.detach().numpy() for x in (q, k, v)), *starts, alibi_slopes=slopes.detach().numpy())
    np.testing.assert_array_equal(ours.detach().numpy(), theirs)
    with pytest.raises(RegardError, match="cu_seqlens_q must end with"):
        attention_varlen(q[1:], k, v, *starts)
    with pytest.raises(RegardError, match="cu_seqlens_q is on meta"):
        attention_varlen(q, k, v, starts[0].to("meta"), starts[1])
