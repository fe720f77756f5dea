"""PyTorch's autograd through the kernel: the gradients of every argument, and what may happen to tensors between."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_cases
from torch_cases import H, S, T

from regard import RegardError, Trace, attention, attention_weights, explain_plan, num_threads, set_num_threads
from regard.functional import Bias
from regard.torch import attention as operator


def tensor(*shape, **options):
    return torch_cases.tensor(*shape, **options).requires_grad_()


@pytest.fixture
def qkv():
    return tuple(x.clone().requires_grad_() for x in torch_cases.QKV)


@pytest.mark.parametrize("name", ["q", "k", "v", "bias", "sinks"])
def test_one_tensor_that_is_learned_is_enough(qkv, name):
    given = dict(zip("qkv", (x.detach() for x in qkv), strict=True))
    given |= {"bias": tensor(T, S), "sinks": tensor(H)} if name in ("bias", "sinks") else {}
    given = {each: x.detach() for each, x in given.items()}
    learned = given[name].requires_grad_()
    ours, wanted = (
        torch.autograd.grad(attention(**given, implementation=each).square().sum(), learned)[0]
        for each in ("auto", "reference")
    )
    assert ours.abs().max() > 0
    torch.testing.assert_close(ours, wanted)


def test_tensors_of_two_dtypes_have_gradients_of_their_own():
    q, k = tensor(3, 5, 4, dtype=torch.float32), tensor(3, 5, 4, dtype=torch.bfloat16)
    attention(q, k, k, implementation="native").sum().backward()
    assert (q.grad.dtype, k.grad.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(
    ("function", "options"),
    [(attention, {}), (operator, {}), (operator, {"sinks": torch.zeros(H)}), (operator, {"dropout": 0.1})],
    ids=["regard", "regard.torch", "sinks", "dropout"],
)
def test_a_second_derivative_is_refused_in_a_sentence(qkv, function, options):
    """An error of PyTorch too, for what falls back on its own."""
    q, k, v = qkv
    (first,) = torch.autograd.grad(function(q, k, v, **options).square().sum(), q, create_graph=True)
    for inputs in (q, k):
        with pytest.raises(RuntimeError, match=r"cannot be differentiated again.*implementation='reference'") as error:
            torch.autograd.grad(first.sum(), inputs, retain_graph=True)
        assert isinstance(error.value, RegardError)


def test_the_formula_has_second_derivatives(qkv):
    q, k, v = qkv
    assert torch.autograd.gradgradcheck(lambda q: attention(q, k, v, implementation="reference"), q)


def test_the_graph_can_be_walked_twice_if_it_is_kept(qkv):
    output = attention(*qkv).square().sum()
    first = torch.autograd.grad(output, qkv, retain_graph=True)
    for one, other in zip(first, torch.autograd.grad(output, qkv), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(output, qkv)


def test_a_tensor_that_is_changed_in_between_is_noticed():
    q = tensor(3, 4)
    used = q * 1
    output = attention(used, used, used)
    used.data.add_(0)
    output.sum().backward(retain_graph=True)
    with torch.no_grad():
        used.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_it_lives_in_checkpoints_and_saved_tensor_hooks(qkv):
    wanted = torch.autograd.grad(attention(*qkv, causal=True).sum(), qkv)
    output = torch.utils.checkpoint.checkpoint(lambda *x: attention(*x, causal=True), *qkv, use_reentrant=False)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        hooked = attention(*qkv, causal=True)
    for result in (output, hooked):
        for one, other in zip(torch.autograd.grad(result.sum(), qkv), wanted, strict=True):
            assert torch.equal(one, other)


def test_numbers_near_the_largest_have_gradients_too():
    q, k, v = (tensor(4, 6, dtype=torch.float32, seed=i) for i in range(3))
    huge = (v.detach() * 1e38).requires_grad_()
    attention(q, k, huge).sum().backward()
    wanted = torch.autograd.grad(
        attention(*(x.detach().double() for x in (q, k)), (exact := huge.detach().double().requires_grad_())).sum(),
        exact,
    )[0]
    torch.testing.assert_close(huge.grad.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("maps", [False, True])
def test_a_trace_records_beside_it(qkv, maps):
    trace = Trace(maps=maps, only="*")
    output = attention(*qkv, trace=trace)
    np.testing.assert_allclose(trace["weights"], attention_weights(*(x.detach() for x in qkv[:2])).numpy(), atol=1e-15)
    wanted = torch.autograd.grad(attention(*qkv).square().sum(), qkv)
    for one, other in zip(torch.autograd.grad(output.square().sum(), qkv), wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_weights_are_differentiated_by_their_formula(qkv):
    q, k, _ = qkv
    assert torch.autograd.gradcheck(attention_weights, (q, k))
    with pytest.raises(RegardError, match="differentiates"):
        attention_weights(q, k, implementation="native")


def test_a_bias_of_ones_own_without_a_gradient_goes_by_the_formula(qkv):
    learned = tensor(1)

    class Mine(Bias):
        def values(self, layout, rows, cols):
            return learned * layout.xp.ones((len(layout.query_indices(rows)), len(layout.key_indices(cols))))

    plan = explain_plan(*qkv, bias=Mine())
    assert plan.implementation == "reference"
    attention(*qkv, bias=Mine()).square().sum().backward()
    assert torch.isfinite(learned.grad).all()


def test_the_bits_do_not_depend_on_the_number_of_threads(qkv):
    before, found = num_threads(), []
    for threads in (1, 2):
        set_num_threads(threads)
        found.append(torch.autograd.grad(attention(*qkv, causal=True).square().sum(), qkv))
    set_num_threads(before)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


# A trace keeps arrays; edits get and hand back what was there.


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
