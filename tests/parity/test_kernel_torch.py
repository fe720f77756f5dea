"""The compiled kernel on tensors of PyTorch: without a copy, and out of the way where PyTorch asks for the steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard import RegardError, attention, explain_plan
from regard.functional import native

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn((2, 3, 70, 8), generator=generator, dtype=torch.float64) for _ in range(3)]


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
    with pytest.raises(RegardError, match="native"):
        attention(*(x.to("meta") for x in qkv), implementation="native")
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


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
def test_forward_derivatives_are_right(qkv):
    q, k, v = qkv
    direction = torch.ones_like(q)
    ours = torch.func.jvp(lambda q: attention(q, k, v), (q,), (direction,))
    theirs = torch.func.jvp(lambda q: torch.softmax(q @ k.mT / 8**0.5, -1) @ v, (q,), (direction,))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
