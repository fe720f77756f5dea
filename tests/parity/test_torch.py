"""regard.torch: what PyTorch does with its operator and its derivatives, and what of tensors the kernel reads."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from attention_matrix import compiled
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import regard
from invented_rules import TwiceBias
from regard import RegardError, Trace, attention_weights, explain_plan
from regard.functional import ALiBi, Bias, Causal, Mask, SlidingWindow, native
from regard.functional.biases.base import DenseBias
from regard.torch import attention, scaled_dot_product_attention, use_regard
from regard.torch.rule_codec import Encoder, bias_axes

B, H, G, T, S, D, Dv = 2, 6, 3, 5, 7, 4, 3
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tensor(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


QKV = tensor(B, H, T, D), tensor(B, G, S, D, seed=1), tensor(B, G, S, Dv, seed=2)


@pytest.fixture
def qkv():
    return tuple(x.clone().requires_grad_() for x in QKV)


def gradients(function, given):
    """Return the output and the gradients of its squares."""
    given = [x.detach().clone().requires_grad_() for x in given]
    output = function(*given)
    return output, torch.autograd.grad(output.square().sum(), given)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def exact(q, k, v):
    """Return attention by the formula in float64, as PyTorch computes it."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(H // G, 1) for x in (k, v))
    return torch.softmax(q @ k.mT / D**0.5, -1) @ v


# Compiled, traced, mapped and counted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("is_huge", [False, True])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_the_operator_rounds_once_and_sums_that_overflow_are_wider(dtype, is_huge, with_gradient):
    """In half precision the gradient starts from the context before it is rounded."""
    info = torch.finfo(dtype)
    q, k, v = (x.to(dtype) for x in QKV)
    v = ((0.8 + v.double().sigmoid() / 5) * info.max).to(dtype) if is_huge else v
    d_output = (tensor(B, H, T, Dv, seed=3) * (1 / info.max if is_huge else 1)).to(dtype)
    given = [x.requires_grad_(with_gradient) for x in (q, k, v)]
    output, wanted = compiled(attention)(*given), exact(*given)
    assert output.dtype is dtype
    single = 8 * torch.finfo(torch.float32).eps  # of sums of 7 numbers in float32
    half = 0.5 * info.eps if dtype != torch.float32 else 0
    has_rounded_weights = dtype == torch.bfloat16 and not with_gradient  # where the kernel multiplies bfloat16
    atol = (single + half * has_rounded_weights) * v.double().abs().max().item()
    torch.testing.assert_close(output.double(), wanted, rtol=half + single, atol=atol)
    if not with_gradient:
        return
    found = torch.autograd.grad(output, given, d_output)
    for ours, theirs in zip(found, torch.autograd.grad(wanted, given, d_output.double()), strict=True):
        assert ours.dtype is dtype
        # Both are rounded to the dtype, at most a unit in the last place apart; sums cancel in float32.
        largest = theirs.double().abs().max().item()
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=info.eps, atol=8 * single * largest)


def test_vmap_of_a_single_head_along_any_axis():
    q, k, v = tensor(T, 2, D), tensor(2, S, D, seed=1), tensor(S, Dv, 2, seed=2)
    mask = tensor(T, S) > 0
    ours = torch.func.vmap(lambda q, k, v: attention(q, k, v, mask=mask), in_dims=(1, 0, 2), out_dims=2)(q, k, v)
    close(ours, torch.stack([attention(q[:, i], k[i], v[..., i], mask=mask) for i in range(2)], 2))


def test_the_operator_keeps_the_promises_of_operators(qkv):
    mask = tensor(B, 1, T, S, seed=3) > -0.5
    arguments = (*qkv, None, tensor(H).requires_grad_(), [mask], [2], "t0 n n F w i n n", 0.5, None, 0.0, None)
    for wants_stats in (True, False):
        torch.library.opcheck(torch.ops.regard.attention.default, (*arguments, wants_stats))


BETWEEN_GRAPHS = {
    "weights": (lambda *a, **b: attention_weights(*a, **b, causal=True), ("q", "k")),
    "tile": (lambda *a, **b: attention_weights(*a, **b, rows=[0, 1]), ("q", "k")),
    "partial": (lambda *a, **b: regard.attention_partial(*a, **b).lse, ("q", "k", "v")),
    "varlen": (regard.attention_varlen, ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")),
}


@pytest.mark.parametrize("by_keyword", [False, True])
@pytest.mark.parametrize("name", BETWEEN_GRAPHS)
def test_other_functions_run_between_graphs(name, by_keyword):
    """Without a warning, which is an error here."""
    torch._dynamo.reset()
    function, names = BETWEEN_GRAPHS[name]
    given, flat = dict(zip("qkv", QKV, strict=True)), QKV[0][0, 0][:, None]  # T 1 D
    if name == "varlen":
        lengths = torch.tensor([0, 2, len(flat)], dtype=torch.int32)
        given = dict.fromkeys("qkv", flat) | dict.fromkeys(names[3:], lengths)

    def call():
        return function(**{n: given[n] for n in names}) if by_keyword else function(*(given[n] for n in names))

    found = torch.compile(lambda: 2 * call(), backend="eager")()
    torch.testing.assert_close(found, 2 * call(), rtol=0, atol=0)


def test_lengths_that_the_compiler_leaves_open():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(
        lambda q, k, v, offset: attention(q, k, v, causal=True, query_offset=offset),
        fullgraph=True, dynamic=True, backend=counter,
    )  # fmt: skip
    for length in (5, 6, 9, 12):
        q, k, v = (tensor(2, 3, length, 4, seed=i) for i in range(3))
        close(function(q, k, v, length - 3), attention(q, k, v, causal=True, query_offset=length - 3))
    assert counter.frame_count < 3  # not one for each length


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_compiled_by_inductor():
    def block(x, w):
        q, k, v = (x @ w).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.gelu(attention(q, k, v, causal=True).transpose(1, 2).flatten(2))

    torch._dynamo.reset()
    given = tensor(2, 9, 16), tensor(16, 96, seed=1)
    close(gradients(torch.compile(block, fullgraph=True), given), gradients(block, given))


@pytest.mark.parametrize("how", ["plain", "compiled"])
def test_autocast_computes_in_its_dtype(how):
    given = [tensor(2, 3, 40, 8, seed=i).float() for i in range(3)]
    function = compiled(attention) if how == "compiled" else attention
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, found = gradients(function, given)
        theirs = torch.nn.functional.scaled_dot_product_attention(*given)
    assert output.dtype == theirs.dtype == torch.bfloat16
    assert {x.dtype for x in found} == {torch.float32}
    torch.testing.assert_close(output, theirs, rtol=2e-2, atol=2e-2)


def test_the_result_lies_in_memory_like_the_queries():
    x = tensor(2, 9, 3, 4).transpose(1, 2)
    for function in (attention, compiled(attention)):
        assert function(x, x, x).transpose(1, 2).is_contiguous()
        assert gradients(function, [x.clone() for _ in range(3)])[0].transpose(1, 2).is_contiguous()


class Even(Mask):
    def allows(self, layout, rows, cols):
        return layout.key_indices(cols) % 2 == 0


@pytest.mark.parametrize("function", [attention, regard.attention], ids=["regard.torch", "regard"])
@pytest.mark.parametrize(
    "options",
    [{"mask": Even()}, {"mask": lambda b, h, q, kv: q >= kv}, {"bias": lambda score, b, h, q, kv: score + q - kv}],
    ids=["mask of a class", "mask_mod", "score_mod"],
)
def test_what_the_operator_does_not_take_is_run_between_two_graphs(function, options, caplog, recwarn):
    def block(q, k, v, **more):
        return 2 * function(q, k, v, **options, **more).sin()

    torch._dynamo.reset()
    counter, dropped = CompileCounterWithBackend("eager"), []
    program = torch.compile(block, backend=counter)
    close(gradients(program, QKV), gradients(block, QKV))
    assert 0 < counter.frame_count <= 2
    for each in (program, block) if function is attention and "mask" in options else ():
        torch.manual_seed(3)
        dropped.append(each(*QKV, dropout=0.5))
    assert not dropped or torch.equal(*dropped)
    assert not [*recwarn, *(record for record in caplog.records if record.levelno >= logging.WARNING)]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="regard's operator is attention without a mask or"):
        torch.compile(block, backend="eager", fullgraph=True)(*QKV)


def test_a_bias_of_a_bias_is_computed_the_general_way():
    slopes, factors = torch.tensor([0.5, 0.25]), torch.tensor([1.0, 2.0])
    assert not Encoder().add_options({"bias": TwiceBias(factors, ALiBi(slopes))})
    q = tensor(2, 5, 4)
    close(attention(q, q, q, bias=TwiceBias(factors, ALiBi(slopes))), attention(q, q, q, bias=ALiBi(slopes * factors)))
    encoder = Encoder()
    assert encoder.add_options({"mask": Causal(), "bias": DenseBias(torch.zeros(2, 5, 5))})
    assert bias_axes(" ".join(encoder.words)) == 0


@pytest.mark.filterwarnings("ignore")  # of steps that depend on numbers, which a trace cannot hold
@pytest.mark.parametrize("trace", [torch.jit.trace, lambda f, x: make_fx(f)(*x)], ids=["jit.trace", "make_fx"])
@pytest.mark.parametrize("function", [attention, regard.attention], ids=["regard.torch", "regard"])
def test_a_trace_holds_the_operator_for_other_numbers(function, trace):
    q, k, v = QKV
    traced = trace(lambda q, k, v: function(q, k, v), QKV)
    assert isinstance(traced, torch.jit.ScriptFunction) or "regard.attention" in traced.code
    torch.testing.assert_close(traced(2 * q, k, v), attention(2 * q, k, v, implementation="native"))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_nobody_has_to_import_regard_torch_before_the_first_call(is_compiled):
    code = f"""
import sys, torch, regard
from regard import attention
q = torch.randn(2, 5, 8)
call = lambda q: attention(q, q, q, causal=True)
assert "regard.torch" not in sys.modules
first = torch.compile(call, fullgraph=True, backend="eager")(q) if {is_compiled} else call(q)
assert "regard.torch.operator" in sys.modules and torch.equal(first, call(q))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Derivatives


@pytest.mark.parametrize("name", ["q", "k", "v", "bias", "sinks"])
def test_one_tensor_that_is_learned_is_enough(name):
    given = dict(zip("qkv", (x.clone() for x in QKV), strict=True))
    given |= {"bias": tensor(T, S), "sinks": tensor(H)} if name in ("bias", "sinks") else {}
    learned = given[name].requires_grad_()
    ours, wanted = (
        torch.autograd.grad(regard.attention(**given, implementation=each).square().sum(), learned)[0]
        for each in ("auto", "reference")
    )
    assert ours.abs().max() > 0
    torch.testing.assert_close(ours, wanted)


def test_tensors_of_two_dtypes_have_gradients_of_their_own():
    q, k = (tensor(3, 5, 4, dtype=dtype).requires_grad_() for dtype in (torch.float32, torch.bfloat16))
    regard.attention(q, k, k, implementation="native").sum().backward()
    assert (q.grad.dtype, k.grad.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (regard.attention, {}),
        (attention, {}),
        (attention, {"sinks": torch.zeros(H)}),
        (attention, {"dropout": 0.1}),
    ],
    ids=["regard", "regard.torch", "sinks", "dropout"],
)
def test_a_second_derivative_is_refused_in_a_sentence(qkv, function, options):
    """An error of PyTorch too, for what falls back on its own; the formula has one."""
    q, k, v = qkv
    (first,) = torch.autograd.grad(function(q, k, v, **options).square().sum(), q, create_graph=True)
    for inputs in (q, k):
        with pytest.raises(RuntimeError, match=r"cannot be differentiated again.*implementation='reference'") as error:
            torch.autograd.grad(first.sum(), inputs, retain_graph=True)
        assert isinstance(error.value, RegardError)
    if function is regard.attention:
        assert torch.autograd.gradgradcheck(lambda q: function(q, k, v, implementation="reference"), q)


def test_a_first_derivative_inside_another_one_is_right():
    def outer(a, **options):
        inner = torch.func.grad(lambda b: attention(a * QKV[0], *QKV[1:], **options).square().sum() * b**2)
        return inner(torch.tensor(2.0, dtype=torch.float64))

    at = torch.tensor(1.3, dtype=torch.float64)
    close(torch.func.grad(outer)(at), torch.func.grad(lambda a: outer(a, implementation="reference"))(at))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
def test_forward_derivatives_are_right():
    q, k, v = (tensor(2, 3, 70, 8, seed=i) for i in range(3))
    direction = torch.ones_like(q)
    ours = torch.func.jvp(lambda q: regard.attention(q, k, v), (q,), (direction,))
    theirs = torch.func.jvp(lambda q: torch.softmax(q @ k.mT / 8**0.5, -1) @ v, (q,), (direction,))
    torch.testing.assert_close(ours, theirs)


def test_the_graph_is_walked_twice_if_kept_in_checkpoints_and_hooks_and_by_more_threads(qkv):
    """Each time with the same bits."""

    def output():
        return regard.attention(*qkv, causal=True).square().sum()

    before, kept = regard.num_threads(), output()
    found = [torch.autograd.grad(kept, qkv, retain_graph=True), torch.autograd.grad(kept, qkv)]
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(kept, qkv)
    found.append(torch.autograd.grad(torch.utils.checkpoint.checkpoint(output, use_reentrant=False), qkv))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        hooked = output()
    found.append(torch.autograd.grad(hooked, qkv))
    for threads in (1, 2):
        regard.set_num_threads(threads)
        found.append(torch.autograd.grad(output(), qkv))
    regard.set_num_threads(before)
    for each in found[1:]:
        assert all(map(torch.equal, each, found[0]))


def test_a_tensor_that_is_changed_in_between_is_noticed():
    used = tensor(3, 4).requires_grad_() * 1
    output = regard.attention(used, used, used)
    used.data.add_(0)
    output.sum().backward(retain_graph=True)
    with torch.no_grad():
        used.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_numbers_near_the_largest_have_gradients_too():
    q, k, v = (tensor(4, 6, dtype=torch.float32, seed=i) for i in range(3))
    huge, exact = ((v * 1e38).to(dtype).requires_grad_() for dtype in (torch.float32, torch.float64))
    regard.attention(q, k, huge).sum().backward()
    regard.attention(q.double(), k.double(), exact).sum().backward()
    torch.testing.assert_close(huge.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)


def test_weights_are_differentiated_by_their_formula(qkv):
    q, k, _ = qkv
    assert torch.autograd.gradcheck(attention_weights, (q, k))
    with pytest.raises(RegardError, match="differentiates"):
        attention_weights(q, k, implementation="native")


def test_a_bias_of_ones_own_without_a_gradient_goes_by_the_formula(qkv):
    learned = tensor(1).requires_grad_()

    class Mine(Bias):
        def values(self, layout, rows, cols):
            return learned * layout.xp.ones((len(layout.query_indices(rows)), len(layout.key_indices(cols))))

    assert explain_plan(*qkv, bias=Mine()).implementation == "reference"
    regard.attention(*qkv, bias=Mine()).square().sum().backward()
    assert torch.isfinite(learned.grad).all()


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 4), (3, 5, 4), (2, 3, 5, 4), (6, 6, 6, 6)])
@pytest.mark.parametrize("where", ["gradient", "values"])
def test_what_is_not_finite_stays_where_it_is(shape, dtype, bad, where):
    """As in NumPy without the kernel, where NaN is no gradient."""
    *inputs, d_output = (tensor(*shape, dtype=dtype, seed=i) for i in (0, 1, 2, 9))
    (d_output if where == "gradient" else inputs[2]).view(-1)[0] = bad
    numbers = [(x.float() if dtype == torch.bfloat16 else x).numpy() for x in (*inputs, d_output)]
    ours = torch.autograd.grad(attention(*(x.requires_grad_() for x in inputs)), inputs, d_output)
    with np.errstate(all="ignore"):
        wanted = regard.attention_vjp(*numbers[:3], implementation="blockwise")[1](numbers[3])
    error = {"rtol": 2e-2, "atol": 3e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for one, other in zip(ours, wanted, strict=False):
        np.testing.assert_allclose(one.double().numpy(), other.astype(np.float64), **error)


# Many gradients at once, against one at a time

STARTS = torch.tensor([0, 2, 4]), torch.tensor([0, 2, 5])  # two sequences


def sequences(q, k, v, _):
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    return regard.attention_varlen(q, k, v, cu_seqlens_q=STARTS[0], cu_seqlens_k=STARTS[1])


def in_a_block(q, k, v, _):
    with use_regard():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


CALLS = {  # of q, k, v and one more tensor
    "causal": lambda q, k, v, _: regard.attention(q, k, v, causal=True),
    "half": lambda q, k, v, _: regard.attention(q.float(), k.bfloat16(), v.bfloat16(), window=(2, 1)),
    "overflow": lambda q, k, v, _: regard.attention(q.half() * 1e4, k.half(), v.half() * 1e4),
    "drop-in": lambda q, k, v, b: scaled_dot_product_attention(q, k, v, b, scale=0.3),
    "block": in_a_block,
    "bias": lambda q, k, v, b: regard.attention(q, k, v, bias=b, softcap=2.0),
    "slopes": lambda q, k, v, b: regard.attention(q, k, v, bias=ALiBi(b[0, :3].exp())),
    "sinks": lambda q, k, v, b: regard.attention(q, k, v, sinks=b[0, :3]),
    "function": lambda q, k, v, _: regard.attention(q, k, v, mask=lambda b, h, i, j: (i + j) % 3 != 1),
    "rule": lambda q, k, v, b: regard.attention(q, k, v, mask=SlidingWindow(1, 2), bias=b),
    "dropout": lambda q, k, v, _: attention(q, k, v, dropout=0.3, rng=torch.Generator().manual_seed(1)),
    "sequences": sequences,
}
OPTIONS = {"retain_graph": True, "allow_unused": True}


def four():
    return tuple(tensor(*x).requires_grad_() for x in ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 2), (4, 5)))


def used(gradients):
    return [x for x in gradients if x is not None]


def one_at_a_time(output, given, directions):
    each = [used(torch.autograd.grad(output, given, d, **OPTIONS)) for d in directions]
    return [torch.stack(x) for x in zip(*each, strict=True)]


def batched(output, given, directions, **options):
    return used(torch.autograd.grad(output, given, directions, is_grads_batched=True, **OPTIONS, **options))


def mapped(output, given, directions, times=1, **options):
    def gradients(d):
        return tuple(used(torch.autograd.grad(output, given, d, **OPTIONS, **options)))

    for _ in range(times):
        gradients = torch.vmap(gradients)
    return list(gradients(directions))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_many_directions_are_those_of_each(name):
    """In any memory, none at all, and in maps of maps; they have no second derivative."""
    given = four()
    output = CALLS[name](*given)
    directions = tensor(6, *output.shape).to(output.dtype)
    wanted = one_at_a_time(output, given, directions)
    for way in (batched, mapped):
        for same in (directions, directions.movedim(0, -1).contiguous().movedim(-1, 0)):
            torch.testing.assert_close(way(output, given, same), wanted, equal_nan=True)
        found = way(output, given[:3], directions, create_graph=True)
        torch.testing.assert_close(found, wanted[:3], equal_nan=True)
        with pytest.raises(RegardError, match="cannot be differentiated again"):
            torch.autograd.grad(sum(x.sum() for x in found), given[:3], retain_graph=True)
    twice = mapped(output, given, directions.unflatten(0, (2, 3)), times=2)
    torch.testing.assert_close([x.flatten(0, 1) for x in twice], wanted, equal_nan=True)
    assert [x.shape for x in mapped(output, given, directions[:0])] == [(0, *x.shape[1:]) for x in wanted]


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"half", "overflow"}))
def test_the_jacobian_and_gradcheck_are_vectorised(name):
    given = four()
    plain, vectorised = (
        torch.autograd.functional.jacobian(CALLS[name], given, vectorize=vectorize) for vectorize in (False, True)
    )
    torch.testing.assert_close(vectorised, plain)
    assert torch.autograd.gradcheck(lambda *x: CALLS[name](*x) + 0 * x[3].sum(), given, check_batched_grad=True)


def test_maps_of_gradients_go_along_other_axes():
    given = four()
    output = CALLS["causal"](*given)
    directions = tensor(2, 3, *output.shape)

    def gradients(d):
        return torch.autograd.grad(output, given[:3], d, retain_graph=True)

    across = torch.vmap(torch.vmap(gradients), in_dims=1, out_dims=1)(directions)
    torch.testing.assert_close(list(across), mapped(output, given[:3], directions, times=2))


# A trace keeps arrays; edits get and hand back what was there.


@pytest.mark.parametrize("maps", [False, True])
def test_a_trace_records_beside_it(qkv, maps):
    trace = Trace(maps=maps, only="*")
    output, found = gradients(lambda *x: regard.attention(*x, trace=trace), qkv)
    np.testing.assert_allclose(trace["weights"], attention_weights(*QKV[:2]).numpy(), atol=1e-15)
    torch.testing.assert_close((output, found), gradients(regard.attention, qkv))


def without_first_key(weights):
    weights[..., 0] = 0
    return weights


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_tensors_with_gradients_are_kept_and_edited(dtype):
    x = tensor(5, 3, dtype=getattr(torch, dtype)).requires_grad_()
    plain, trace = Trace(), Trace(edit={"weights": without_first_key})
    regard.attention(x, x, x, trace=plain)
    edited = regard.attention(x, x, x, trace=trace)
    assert (type(edited), edited.dtype) == (torch.Tensor, x.dtype)
    rounding = 8 * np.finfo(trace["weights"].dtype).eps  # an edit is computed by the equation, not by the kernel
    np.testing.assert_allclose(trace["weights"], without_first_key(plain["weights"]), rtol=rounding)
    want = torch.from_numpy(trace["weights"]) @ x.detach().to(torch.from_numpy(trace["weights"]).dtype)
    torch.testing.assert_close(edited.detach(), want.to(x.dtype))


def test_an_edit_may_return_a_tensor_and_a_tap_goes_back_in_its_dtype():
    value, short = torch.ones(3), torch.ones(3, dtype=torch.bfloat16)
    assert Trace(edit={"a": lambda v: torch.from_numpy(v) * 2})("a", value, "E").tolist() == [2, 2, 2]
    with pytest.raises(RegardError, match="complex64 instead of float32"):
        Trace(edit={"a": lambda v: v + 1j})("a", value, "E")
    trace = Trace(edit={"a": lambda values: values * 2})
    went_on = trace("a", short, "E")
    assert (went_on.dtype, went_on.tolist(), short.tolist()) == (torch.bfloat16, [2, 2, 2], [1, 1, 1])
    assert trace["a"].dtype == np.float32


# The kernel on tensors: their memory, dtypes and devices


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_reads_and_writes_the_memory_of_tensors(dtype, monkeypatch):
    """And its bits are those of the same numbers in NumPy."""
    import ml_dtypes

    given = [tensor(2, 3, 70, 8, seed=i).to(dtype) for i in range(3)]
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

    with monkeypatch.context() as patch:
        patch.setattr(native, "kernel", Spy)
        output = regard.attention(q, k, v, implementation="native")
    assert [x.ctypes.data for x in attends] == [x.data_ptr() for x in (q, k, v, output)]
    short = dtype == torch.bfloat16
    same = [x.double().numpy().astype(ml_dtypes.bfloat16) if short else x.numpy() for x in given]
    ours, theirs = (regard.attention(*x, causal=True, implementation="native") for x in (given, same))
    np.testing.assert_array_equal(ours.double().numpy(), theirs.astype(np.float64))


def test_integers_parameters_other_devices_and_a_default_device():
    with pytest.raises(RegardError, match="native"):
        regard.attention(*(x.to("meta") for x in QKV), implementation="native")
    integers = [(3 * x).to(torch.int64) for x in QKV]  # integers count as float64
    close(regard.attention(*integers, implementation="native"), regard.attention(*(x.double() for x in integers)))
    with torch.no_grad():  # a parameter is read like any tensor
        parameters = [torch.nn.Parameter(x) for x in QKV]
        assert explain_plan(*parameters).implementation == "native"
        ours = regard.attention(*parameters)
    assert not ours.requires_grad
    with torch.inference_mode():
        close(regard.attention(*QKV), ours)
    with torch.device("meta"):  # which is not that of the call
        assert torch.equal(attention(*QKV), ours)
    close(ours, attention(*QKV, implementation="blockwise"))


def one_query(dtype):
    q = tensor(B, 1, H, D, dtype=dtype).transpose(1, 2)
    k, v = (tensor(B, S, G, width, dtype=dtype, seed=1).transpose(1, 2) for width in (D, Dv))
    return q, k, v


def misaligned(x):
    """Return a tensor with the numbers of x at odd addresses."""
    bytes_of_x = np.frombuffer(b"\0" + x.contiguous().numpy().tobytes(), np.uint8)[1:]
    return torch.from_numpy(bytes_of_x.view(x.numpy().dtype).reshape(x.shape))


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (misaligned(q), misaligned(k), misaligned(v)),
        lambda q, k, v: (q, k.float(), v),
        lambda q, k, v: (q, k[:1], v[:1]),  # broadcast over the batch
        lambda q, k, v: (torch._neg_view(q), k, v),
        lambda q, k, v: (q.requires_grad_(), k, v),
        lambda q, k, v: (torch.nn.Parameter(q), k, v),
        lambda q, k, v: (q.float(), k.float(), torch.full_like(v, 3e38).float()),  # sums overflow
        lambda q, k, v: (q, k, v[:, :, :0]),  # an error
        lambda q, k, v: (q, k[:, :2], v[:, :2].expand(B, 2, S, Dv)),
        lambda q, k, v: (q, k[:, :, :0], v[:, :, :0]),
        lambda q, k, v: (q, k[..., :3], v),  # an error
        lambda q, k, v: (q[..., :0], k[..., :0], v),
    ],
)
def test_one_new_token_by_any_way_is_what_the_formula_says(change):
    q, k, v = change(*one_query(torch.float64))
    answers = []
    for implementation in ("auto", "reference"):
        try:
            answers.append(attention(q, k, v, implementation=implementation).detach())
        except RegardError as error:
            answers.append(str(error))
    if isinstance(answers[0], str):
        assert answers[0] == answers[1]
    else:
        tolerance = 1e-12 if answers[1].dtype == torch.float64 else 1e-6
        torch.testing.assert_close(*answers, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_one_new_token_is_seen_by_what_intercepts_calls():
    q, k, v = one_query(torch.float32)
    expected = attention(q, k, v)
    mapped = torch.func.vmap(attention, (0, None, None))(q[:, None], k, v)
    torch.testing.assert_close(mapped[0, 0], expected[0])
    for given, queries in ((QKV, T), ((q, k, v), 1)):
        with FlopCounterMode(display=False) as counter:
            attention(*given)
        assert counter.get_total_flops() == 2 * B * H * queries * S * (D + Dv)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(q, k, v).dtype == torch.bfloat16
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        assert torch.autograd.forward_ad.unpack_dual(attention(dual, k, v)).tangent is not None
    torch.testing.assert_close(compiled(attention, dynamic=True)(q, k, v), expected)
    for scale in (float("inf"), float("nan")):
        with pytest.raises(RegardError, match="scale"):
            attention(q, k, v, scale=scale)


# Errors

UNUSUAL = {
    "sparse": (lambda x: x.to_sparse(), r"in the layout sparse_coo: give to_dense\(\) of it"),
    "rows": (lambda x: x[0].to_sparse_csr(), r"in the layout sparse_csr: give to_dense\(\) of it"),
    "nested": (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]]), "is a nested tensor: pad it"),
    "jagged": (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged), "is a nested tensor"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), r"give dequantize\(\) of it"),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), "got torch.float8_e4m3fn; convert it first"),
    "float8 of gradients": (lambda x: x.to(torch.float8_e5m2), "got torch.float8_e5m2; convert it first"),
}


@pytest.mark.filterwarnings("ignore:.*(prototype|beta state|quantize)")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_tensor_that_is_no_plain_array_is_one_sentence(kind):
    plain, (make, message) = tensor(2, 4, 8, dtype=torch.float32), UNUSUAL[kind]
    for name in ("q", "k", "v", "bias", "mask", "sinks"):
        with pytest.raises(RegardError, match=f"^{name} .*{message}"):
            regard.attention(**(dict.fromkeys("qkv", plain) | {name: make(plain)}))
    for function in (lambda x: regard.AttentionMap(x, x), regard.functional.softmax):
        with pytest.raises(RegardError, match=message):
            function(make(plain))


def test_a_window_of_arrays_is_an_error_like_any_other():
    with pytest.raises(RegardError, match="window"):
        attention(*QKV, window=(np.array([1]), 0))
