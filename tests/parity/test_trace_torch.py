"""A trace of torch tensors: kept as NumPy arrays, edited, and handed back as what they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard import RegardError, Trace, attention


def without_first_key(weights):
    weights[..., 0] = 0
    return weights


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_tensors_with_gradients_are_kept_and_edited(dtype):
    x = torch.randn(5, 3, dtype=getattr(torch, dtype), requires_grad=True)
    plain = Trace()
    attention(x, x, x, trace=plain)
    trace = Trace(edit={"weights": without_first_key})
    edited = attention(x, x, x, trace=trace)
    assert (type(edited), edited.dtype) == (torch.Tensor, x.dtype)
    rounding = 8 * np.finfo(trace["weights"].dtype).eps  # an edit is computed by the equation, not by the kernel
    np.testing.assert_allclose(trace["weights"], without_first_key(plain["weights"]), rtol=rounding)
    want = torch.from_numpy(trace["weights"]) @ x.detach().to(torch.from_numpy(trace["weights"]).dtype)
    torch.testing.assert_close(edited.detach(), want.to(x.dtype))


def test_a_tap_of_bfloat16_goes_back_as_bfloat16():
    value = torch.ones(3, dtype=torch.bfloat16)
    trace = Trace(edit={"a": lambda values: values * 2})
    went_on = trace("a", value, "E")
    assert (went_on.dtype, went_on.tolist(), value.tolist()) == (torch.bfloat16, [2, 2, 2], [1, 1, 1])
    assert trace["a"].dtype == np.float32


def test_an_edit_may_return_a_tensor_of_the_same_kind():
    value = torch.ones(3)
    assert Trace(edit={"a": lambda v: torch.from_numpy(v) * 2})("a", value, "E").tolist() == [2, 2, 2]
    with pytest.raises(RegardError, match="complex64 instead of float32"):
        Trace(edit={"a": lambda v: v + 1j})("a", value, "E")
