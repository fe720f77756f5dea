"""PyTorch's samples of attention and of the layers that use it, ``torch.testing._internal``: values and derivatives.

The plugin puts regard in the place of PyTorch's function. A bound is twice the error of PyTorch's own formula in the
same dtype, against it in float64, and the rounding of a sum of as many terms as there are.
"""

import contextvars
import functools

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

ATTENTION, MULTI_HEAD = "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"
OPERATORS = {info.name: info for info in op_db if info.name in (ATTENTION, MULTI_HEAD)}
MODULES = {info.name: info for info in module_db if info.name.startswith(("nn.Transformer", "nn.MultiheadAttention"))}
DTYPES = sorted(OPERATORS[ATTENTION].dtypes, key=str)
TERMS = 64  # no sum of the samples has more: keys, features of a head, features of a layer
# What a weight's logarithm, a score, is rounded by: as often as the largest one is, a sum of so many terms, in two
# computations. Numbers of samples are at most 9.
ROUNDINGS_OF_A_SCORE = 2 * 8 * int(9 * 9 * 8 / 8**0.5)


def names(dtype):
    return str(dtype).removeprefix("torch.")


@functools.cache
def samples_of(name, dtype=torch.float64):
    """Return the samples; there are more of them if none is asked for that requires gradients."""
    torch.manual_seed(0)
    samples = list(OPERATORS[name].sample_inputs("cpu", dtype, requires_grad=False))
    for x in pytree.tree_leaves([(sample.input, sample.args, sample.kwargs) for sample in samples]):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            x.requires_grad_()
    return samples


def numbered(count, *, where=lambda number: True):
    return pytest.mark.parametrize("number", [number for number in range(count) if where(number)])


def by_pytorch(function, *arguments, **options):
    """Return what PyTorch itself computes: regard is in place only in the context that has put it there."""
    with sdpa_kernel(SDPBackend.MATH):
        return contextvars.Context().run(functools.partial(function, *arguments, **options))


def converted(tree, dtype):
    """Return a copy of all tensors of a tree, those that are floating in a dtype, which begin no other graph."""

    def convert(x):
        return x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x

    return pytree.tree_map_only(torch.Tensor, convert, tree)


def outputs_and_gradients(function, inputs):
    """Return the outputs, and the gradients with respect to all tensors that require some, of one direction."""
    found = [x for x in pytree.tree_leaves(function(*inputs)) if isinstance(x, torch.Tensor)]
    given = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    generator = torch.Generator().manual_seed(1)
    directions = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in found]
    gradients = torch.autograd.grad(found, given, directions, allow_unused=True)
    return [*(x.detach() for x in found), *(x for x in gradients if x is not None)]


def exact_and_own(function, inputs, dtype):
    """Return what PyTorch computes in float64, and in a dtype."""
    return (by_pytorch(outputs_and_gradients, function, converted(inputs, x)) for x in (torch.float64, dtype))


def assert_no_worse(found, own, exact, dtype, terms=TERMS):
    assert len(found) == len(own) == len(exact) > 0
    for one, other, true in zip(found, own, exact, strict=True):
        assert one.dtype == dtype
        assert one.shape == true.shape
        error, own_error = ((x.double() - true).abs().max() for x in (one, other))
        bound = 2 * own_error + terms * torch.finfo(dtype).eps * true.abs().max().clamp(min=1)
        assert error <= bound, f"{error} > {bound}"


def attention(query, key, value, options):
    return F.scaled_dot_product_attention(query, key, value, **options)


def inputs_of(sample):
    return sample.input, *sample.args, sample.kwargs


SAMPLES = samples_of(ATTENTION)
DROPS = [bool(sample.kwargs["dropout_p"]) for sample in SAMPLES]


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@numbered(len(SAMPLES), where=lambda number: not DROPS[number])
@pytest.mark.parametrize("memory", ["contiguous", "strided"])
def test_a_sample(dtype, number, memory):
    sample = samples_of(ATTENTION, dtype)[number]
    inputs = inputs_of(sample.noncontiguous() if memory == "strided" else sample)
    exact, own = exact_and_own(attention, inputs, dtype)
    terms = ROUNDINGS_OF_A_SCORE if dtype is torch.float64 else TERMS  # whose own numbers are those that are exact
    assert_no_worse(outputs_and_gradients(attention, inputs), own, exact, dtype, terms)


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@numbered(len(SAMPLES), where=DROPS.__getitem__)
def test_a_sample_with_dropout_is_linear_in_its_values(dtype, number):
    """The weights that a seed drops are the same in the gradient: ⟨g, W v⟩ = ⟨Wᵀ g, v⟩."""
    sample = samples_of(ATTENTION, dtype)[number]
    torch.manual_seed(2)
    output = attention(*inputs_of(sample))
    direction, value = torch.randn_like(output), sample.args[1]
    (gradient,) = torch.autograd.grad(output, value, direction)
    assert output.dtype == gradient.dtype == dtype
    forward = output.double() * direction.double()
    difference = forward.sum() - (gradient.double() * value.double()).sum()
    # Each number was rounded once where it was written, and the values broadcast once more.
    assert difference.abs() <= 8 * torch.finfo(dtype).eps * forward.abs().sum()
    assert (output == 0).sum() < output.numel()


@numbered(len(SAMPLES), where=lambda number: not DROPS[number])
@pytest.mark.parametrize("batched", [False, True])
def test_numerical_gradients(number, batched):
    sample = SAMPLES[number]
    tensors = [x for x in pytree.tree_leaves(inputs_of(sample)) if isinstance(x, torch.Tensor)]
    options = {name: x for name, x in sample.kwargs.items() if not isinstance(x, torch.Tensor)}
    function = functools.partial(F.scaled_dot_product_attention, **options)
    assert torch.autograd.gradcheck(function, tensors, check_batched_grad=batched, fast_mode=not batched)


def test_second_derivatives_are_refused():
    """PyTorch's tests take them too: the one thing of its samples that is left out."""
    query, key, value, options = inputs_of(SAMPLES[0])
    output = F.scaled_dot_product_attention(query, key, value, **options)
    with pytest.raises(RuntimeError, match="implementation='reference'"):
        torch.autograd.grad(torch.autograd.grad(output.sum(), query, create_graph=True)[0].sum(), query)


@numbered(len(SAMPLES), where=lambda number: not DROPS[number])
@pytest.mark.parametrize("mapped", [(0, 0, 0), (0, None, None), (None, 0, 0), (1, 0, 1)], ids=str)
def test_vectorised(number, mapped):
    """`torch.func.vmap` over each of the tensors, or some, beside a loop of PyTorch's own."""
    sample = SAMPLES[number]
    own = [x.detach() for x in (sample.input, *sample.args)]
    many = [x if d is None else torch.stack([x, x * 0.5, x - 1], d) for x, d in zip(own, mapped, strict=True)]

    def call(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **sample.kwargs)

    def gradients(*inputs):
        return torch.func.grad(lambda *x: call(*x).square().sum(), (0, 1, 2))(*inputs)

    ones = [[x if d is None else x.select(d, i) for x, d in zip(many, mapped, strict=True)] for i in range(3)]
    output, derivatives = (torch.func.vmap(f, mapped)(*many) for f in (call, gradients))
    for i, one in enumerate(ones):
        wanted = by_pytorch(call, *one), *by_pytorch(gradients, *one)
        assert_no_worse([output[i], *(x[i] for x in derivatives)], wanted, wanted, torch.float64, ROUNDINGS_OF_A_SCORE)


@numbered(len(SAMPLES), where=lambda number: not DROPS[number])
def test_compiled(number):
    torch._dynamo.reset()
    sample = SAMPLES[number]
    function = torch.compile(attention, fullgraph=True, backend="aot_eager")
    wanted = by_pytorch(outputs_and_gradients, attention, inputs_of(sample))
    assert_no_worse(
        outputs_and_gradients(function, inputs_of(sample)), wanted, wanted, torch.float64, ROUNDINGS_OF_A_SCORE
    )


@numbered(len(SAMPLES), where=lambda number: not DROPS[number])
def test_in_the_dtype_of_autocast(number):
    sample = samples_of(ATTENTION, torch.float32)[number]
    inputs = inputs_of(sample)
    exact = by_pytorch(outputs_and_gradients, attention, converted(inputs, torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(*inputs)
        own = by_pytorch(attention, *inputs)
    assert_no_worse([found.detach()], [own.detach()], exact[:1], own.dtype)


HEADED = samples_of(MULTI_HEAD)
DROP_RATE = 9  # the place of this argument behind the query


def smaller(x):
    return (x.detach() / 9).requires_grad_() if x.is_floating_point() else x


@numbered(len(HEADED), where=lambda number: not HEADED[number].args[DROP_RATE])
def test_a_sample_of_several_heads(number):
    """Without weights, which PyTorch computes on another way; of numbers up to 1, which leave scores that are small."""
    sample = HEADED[number]
    options = {**sample.kwargs, "need_weights": False}

    def call(*inputs):
        return F.multi_head_attention_forward(*inputs, **options)[0]

    inputs = pytree.tree_map_only(torch.Tensor, smaller, (sample.input, *sample.args))
    wanted = by_pytorch(outputs_and_gradients, call, inputs)
    # Both have the error; a score is of two features of three terms each, 3 · 3 · 2 / √2 at most.
    assert_no_worse(outputs_and_gradients(call, inputs), wanted, wanted, torch.float64, 2 * TERMS * 13)


@functools.cache
def inputs_of_module(name, dtype, training):
    torch.manual_seed(0)
    info = MODULES[name]
    return info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)


def cases_of_modules():
    for name, info in MODULES.items():
        for dtype in sorted(info.dtypes, key=str):
            for training in (True, False):
                for number in range(len(inputs_of_module(name, dtype, training))):
                    mode = "training" if training else "inference"
                    yield pytest.param(name, dtype, training, number, id=f"{name}-{names(dtype)}-{mode}-{number}")


@pytest.mark.parametrize(("name", "dtype", "training", "number"), cases_of_modules())
def test_a_module(name, dtype, training, number):
    given = inputs_of_module(name, dtype, training)[number]
    torch.manual_seed(2)
    module = MODULES[name].module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = module.to(dtype).train(training)
    arguments = given.forward_input.args, dict(given.forward_input.kwargs)
    if name == "nn.MultiheadAttention":
        arguments[1]["need_weights"] = False  # PyTorch computes those on another way

    def run(parameters, arguments):
        return torch.func.functional_call(module, parameters, *arguments)

    inputs = dict(module.named_parameters()), arguments
    exact, own = exact_and_own(run, inputs, dtype)
    assert_no_worse(outputs_and_gradients(run, inputs), own, exact, dtype)
