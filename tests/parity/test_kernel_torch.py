"""The compiled kernel on tensors of PyTorch: without a copy, and out of the way where PyTorch asks for the steps."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from regard import RegardError, attention, attention_partial, explain_plan
from regard.functional import native

pytestmark = pytest.mark.skipif(os.environ.get("REGARD_PURE") == "1", reason="this run is of the package without it")

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Of a result in float16 and bfloat16 half a unit in the last place of numbers up to 4; else what sums of so few give.
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn((2, 3, 70, 8), generator=generator, dtype=torch.float64) for _ in range(3)]


def test_the_kernel_is_there():
    assert native.kernel() is not None, native.unavailable_reason()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [2, 70])
def test_the_numbers_and_the_dtype_are_those_of_pytorch(qkv, dtype, queries):
    q, k, v = (x.to(dtype) for x in qkv)
    q = q[..., :queries, :]
    for options in ({}, {"scale": 0.3}):
        ours = attention(q, k, v, **options, implementation="native")
        theirs = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), **options)
        assert isinstance(ours, torch.Tensor)
        assert ours.dtype == dtype
        assert (ours.double() - theirs).abs().max() <= BOUNDS[dtype]
    ours = attention(q, k, v, causal=True, query_offset=0, implementation="native")
    theirs = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), is_causal=True)
    assert (ours.double() - theirs).abs().max() <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bits_are_those_of_the_same_numbers_in_numpy(qkv, dtype):
    import ml_dtypes

    q, k, v = (x.to(dtype) for x in qkv)
    short = {torch.bfloat16: ml_dtypes.bfloat16}
    same = [x.double().numpy().astype(short.get(dtype, x.double().numpy().dtype)) for x in (q, k, v)]
    if dtype != torch.bfloat16:
        same = [x.numpy() for x in (q, k, v)]
    ours, theirs = (attention(*x, causal=True, implementation="native") for x in ((q, k, v), same))
    np.testing.assert_array_equal(ours.double().numpy(), theirs.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_the_kernel_reads_and_writes_is_the_memory_of_the_tensors(qkv, dtype, monkeypatch):
    given = [x.to(dtype) for x in qkv]
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2)[..., ::2, :] for x in given)
    attends, kernel = [], native.kernel()

    class Spy:
        def __getattr__(self, name):
            return getattr(kernel, name)

        def AttentionCall(self, *arguments, **options):
            attends.extend(arguments[2:5])
            return kernel.AttentionCall(*arguments, **options)

        def forward(self, call, output, *sums):
            attends.append(output)
            return kernel.forward(call, output, *sums)

    monkeypatch.setattr(native, "kernel", Spy)
    output = attention(q, k, v, implementation="native")
    assert [x.ctypes.data for x in attends] == [x.data_ptr() for x in (q, k, v, output)]


def test_other_dtypes_and_devices_go_another_way(qkv):
    q, k, v = qkv
    for moved in ([x.to("meta") for x in qkv],):
        with pytest.raises(RegardError, match="native"):
            attention(*moved, implementation="native")
    integers = [x.to(torch.int64) for x in (q, k, v)]  # integers count as float64
    np.testing.assert_allclose(
        attention(*integers, implementation="native").numpy(), attention(*(x.double() for x in integers)).numpy()
    )


def test_without_a_derivative_a_parameter_is_read_like_any_tensor(qkv):
    q, k, v = (torch.nn.Parameter(x) for x in qkv)
    with torch.no_grad():
        assert explain_plan(q, k, v).implementation == "native"
        ours = attention(q, k, v)
    assert not ours.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(attention(*qkv), ours)


def test_autograd_takes_the_kernel_and_is_right(qkv):
    q, k, v = (x.clone().requires_grad_() for x in qkv)
    assert explain_plan(q, k, v).implementation == "native"
    ours = torch.autograd.grad(attention(q, k, v, causal=True, query_offset=0).square().sum(), (q, k, v))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum()
    for one, other in zip(ours, torch.autograd.grad(theirs, (q, k, v)), strict=True):
        torch.testing.assert_close(one, other)


def test_one_input_that_is_learned_is_enough(qkv):
    q, k, v = qkv
    for name in ("sinks", "bias"):
        learned = torch.zeros(3 if name == "sinks" else (70, 70), dtype=torch.float64, requires_grad=True)
        output = attention(q, k, v, **{name: learned})
        (gradient,) = torch.autograd.grad(output.square().sum(), learned)
        assert gradient.abs().max() > 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
def test_forward_derivatives_are_right(qkv):
    q, k, v = qkv
    direction = torch.ones_like(q)
    ours = torch.func.jvp(lambda q: attention(q, k, v), (q,), (direction,))
    theirs = torch.func.jvp(lambda q: torch.softmax(q @ k.mT / 8**0.5, -1) @ v, (q,), (direction,))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_vmap_is_right(qkv):
    ours = torch.func.vmap(attention)(*qkv)
    torch.testing.assert_close(ours, attention(*qkv, implementation="native"))
    gradients = torch.func.grad(lambda q: attention(q, *qkv[1:]).square().sum())(qkv[0])
    assert torch.isfinite(gradients).all()


@pytest.mark.filterwarnings("ignore")  # what the compiler says of its own workings
def test_a_compiler_is_given_steps_that_it_can_trace(qkv):
    q, k, v = (x.float() for x in qkv)
    compiled = torch.compile(attention, backend="eager")
    torch.testing.assert_close(compiled(q, k, v), attention(q, k, v, implementation="native"))


@pytest.mark.filterwarnings("ignore")  # of steps that depend on numbers, which a trace cannot hold
@pytest.mark.parametrize("trace", [torch.jit.trace, lambda f, x: make_fx(f)(*x)], ids=["jit.trace", "make_fx"])
def test_a_trace_holds_for_other_numbers(qkv, trace):
    traced = trace(lambda q, k, v: attention(q, k, v), tuple(qkv))
    q, k, v = qkv
    torch.testing.assert_close(traced(2 * q, k, v), attention(2 * q, k, v, implementation="native"))


def test_a_conjugate_or_negative_view_is_read_as_what_it_says(qkv):
    q, k, v = qkv
    negative = torch.view_as_complex(torch.stack([q, -q], -1)).conj().imag  # a tensor that says: read me negated
    assert negative.is_neg()
    torch.testing.assert_close(attention(negative, k, v), attention(q, k, v))


def test_numbers_of_two_libraries_do_not_mix(qkv):
    q, k, v = qkv
    with pytest.raises(RegardError, match="different libraries"):
        attention(q.numpy(), k, v, implementation="native")


def test_sums_are_tensors_too(qkv):
    part = attention_partial(*qkv, implementation="native")
    theirs = torch.logsumexp(qkv[0] @ qkv[1].mT / 8**0.5, -1)
    assert isinstance(part.lse, torch.Tensor)
    torch.testing.assert_close(part.lse, theirs)


@pytest.mark.parametrize("tiles", native.kernel().tile_implementations()[:-1] if native.kernel() else [])
def test_products_of_bfloat16_are_those_of_the_same_numbers_in_numpy(tiles, rng):
    import ml_dtypes

    kernel = native.kernel()
    q, k, v = (rng.standard_normal((4, length, 40)).astype(ml_dtypes.bfloat16) for length in (130, 150, 150))
    tensors = [torch.from_numpy(x.astype(np.float32)).bfloat16() for x in (q, k[:2], v[:2])]
    try:
        assert kernel.use_tiles(tiles)
        ours, expected = attention(*tensors), attention(q, k[:2], v[:2])
    finally:
        kernel.use_tiles("auto")
    assert ours.dtype == torch.bfloat16
    np.testing.assert_array_equal(ours.float().numpy(), expected.astype(np.float32))
