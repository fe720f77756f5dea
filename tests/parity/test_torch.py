"""regard.torch: compiled, exported, differentiated and mapped by PyTorch; its errors; the drop-in for PyTorch's own."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode
from torch_cases import CASES, MASK, QKV, B, D, Dv, G, H, S, T, close, compiled, gradients, tensor

import regard
from regard import RegardError
from regard.functional import Mask
from regard.torch import attention


@pytest.fixture(params=CASES)
def case(request):
    """Return a function of tensors, those to differentiate with respect to, and the others."""
    shape, others, options = CASES[request.param]
    learned = [] if shape is None else [tensor(*shape, seed=4)]
    count = 3 + len(learned)

    def function(*given, call=attention):
        (q, k, v), parameter = given[:3], given[3] if learned else None
        return call(q, k, v, **options(parameter, *given[count:]))

    return function, (*QKV, *learned), others


def test_gradcheck(case):
    function, given, others = case
    given = [x.clone().requires_grad_() for x in given]
    assert function(*given, *others, call=regard.explain_plan).implementation == "native"
    assert torch.equal(function(*given, *others), function(*given, *others, call=regard.attention))
    whole = functools.partial(function, call=regard.attention)
    assert torch.autograd.gradcheck(lambda *x: whole(*x, *others), given, fast_mode=True)  # along one direction of each


def test_it_compiles_whole(case):
    function, given, others = case
    ours, theirs = (gradients(f, given, others) for f in (compiled(function), function))
    close(ours, theirs)
    with torch.no_grad():
        close(compiled(function)(*given, *others), function(*given, *others))


def test_torch_func_differentiates_it(case):
    function, given, others = case
    which = tuple(range(len(given)))
    found = torch.func.grad(lambda *x: function(*x, *others).square().sum(), argnums=which)(*given)
    close(found, gradients(function, given, others)[1])


def test_vmap(case):
    """Of every tensor, of one at a time, and of the gradients."""
    function, given, others = case
    every = (*given, *others)
    batches = [torch.stack([x, x.flip(-1) if x.dtype != torch.int64 else x]) for x in every]

    def expected(dims, call):
        parts = [call(*(x if d is None else x.select(d, i) for x, d in zip(at, dims, strict=True))) for i in range(2)]
        return tuple(torch.stack(part) for part in zip(*parts, strict=True))

    def derivative(*x):
        which = tuple(range(len(given)))
        return torch.func.grad(lambda *y: function(*y, *x[len(given) :]).square().sum(), argnums=which)(
            *x[: len(given)]
        )

    ways = [
        tuple(0 for _ in every),
        *(tuple(0 if i == j else None for j in range(len(every))) for i in range(len(every))),
    ]
    for dims in ways:
        at = [batch if d == 0 else x for batch, x, d in zip(batches, every, dims, strict=True)]
        for call in (lambda *x: (function(*x),), derivative):
            close(torch.func.vmap(call, dims)(*at), expected(dims, call))


def test_vmap_of_a_single_head_along_any_axis():
    q, k, v = tensor(T, 2, D), tensor(2, S, D, seed=1), tensor(S, Dv, 2, seed=2)
    mask = tensor(T, S) > 0
    ours = torch.func.vmap(lambda q, k, v: attention(q, k, v, mask=mask), in_dims=(1, 0, 2), out_dims=2)(q, k, v)
    close(ours, torch.stack([attention(q[:, i], k[i], v[..., i], mask=mask) for i in range(2)], 2))


def test_it_is_exported_saved_and_loaded(case, tmp_path):
    function, given, others = case

    class Module(torch.nn.Module):
        def forward(self, *x):
            return function(*x)

    program = torch.export.export(Module(), (*given, *others))
    assert "torch.ops.regard.attention" in program.graph_module.code
    torch.export.save(program, tmp_path / "program.pt2")
    close(torch.export.load(tmp_path / "program.pt2").module()(*given, *others), function(*given, *others))


def test_the_operator_keeps_the_promises_of_operators():
    q, k, v = (x.clone().requires_grad_() for x in QKV)
    arguments = (q, k, v, None, tensor(H).requires_grad_(), [MASK], [2], "t0 n n F w i n n", 0.5, None, 0.0, None)
    for wants_stats in (True, False):
        torch.library.opcheck(torch.ops.regard.attention.default, (*arguments, wants_stats))


@pytest.mark.parametrize(
    "name", ["weights", "tile", "partial", "varlen", "weights by keyword", "partial by keyword", "varlen by keyword"]
)
def test_other_functions_run_between_graphs(name):
    """Without a warning, which is an error here."""
    torch._dynamo.reset()
    q, k, v = QKV
    flat = q[0, 0][:, None]  # T 1 D
    lengths = torch.tensor([0, 2, len(flat)], dtype=torch.int32)
    functions = {
        "weights": lambda: regard.attention_weights(q, k, causal=True),
        "tile": lambda: regard.attention_weights(q, k, rows=[0, 1]),
        "partial": lambda: regard.attention_partial(q, k, v).lse,
        "varlen": lambda: regard.attention_varlen(flat, flat, flat, lengths, lengths),
        "weights by keyword": lambda: regard.attention_weights(q=q, k=k, causal=True),
        "partial by keyword": lambda: regard.attention_partial(q=q, k=k, v=v).lse,
        "varlen by keyword": lambda: regard.attention_varlen(
            q=flat, k=flat, v=flat, cu_seqlens_q=lengths, cu_seqlens_k=lengths
        ),
    }
    function = functions[name]
    found = torch.compile(lambda: 2 * function(), backend="eager")()
    torch.testing.assert_close(found, 2 * function(), rtol=0, atol=0)


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


def test_a_first_derivative_inside_another_one_is_right():
    def outer(a, **options):
        inner = torch.func.grad(lambda b: attention(a * QKV[0], *QKV[1:], **options).square().sum() * b**2)
        return inner(torch.tensor(2.0, dtype=torch.float64))

    at = torch.tensor(1.3, dtype=torch.float64)
    close(torch.func.grad(outer)(at), torch.func.grad(lambda a: outer(a, implementation="reference"))(at))


# Of the output in float16 and bfloat16 half a unit in the last place of numbers up to 4; else what sums of so few give.


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
    torch._dynamo.reset()

    def block(q, k, v):
        return 2 * function(q, k, v, **options).sin()

    counter = CompileCounterWithBackend("eager")
    close(gradients(torch.compile(block, backend=counter), QKV), gradients(block, QKV))
    assert not [*recwarn, *(record for record in caplog.records if record.levelno >= logging.WARNING)]
    assert 0 < counter.frame_count <= 2
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="regard's operator is attention without a mask or"):
        torch.compile(block, backend="eager", fullgraph=True)(*QKV)


def test_dropout_beside_what_the_operator_does_not_take(caplog, recwarn):
    torch._dynamo.reset()
    outputs = []
    for function in (attention, torch.compile(attention, backend="eager")):
        torch.manual_seed(3)
        outputs.append(function(*QKV, mask=Even(), dropout=0.5))
    close(*outputs)
    assert not [*recwarn, *(record for record in caplog.records if record.levelno >= logging.WARNING)]


@pytest.mark.filterwarnings("ignore")  # of steps that depend on numbers, which a trace cannot hold
@pytest.mark.parametrize("trace", [torch.jit.trace, lambda f, x: make_fx(f)(*x)], ids=["jit.trace", "make_fx"])
@pytest.mark.parametrize("function", [attention, regard.attention], ids=["regard.torch", "regard"])
def test_a_trace_holds_the_operator_for_other_numbers(function, trace):
    q, k, v = QKV
    traced = trace(lambda q, k, v: function(q, k, v), QKV)
    assert isinstance(traced, torch.jit.ScriptFunction) or "regard.attention" in traced.code
    torch.testing.assert_close(traced(2 * q, k, v), attention(2 * q, k, v, implementation="native"))


def test_an_operation_counter_sees_the_operator():
    with FlopCounterMode(display=False) as counter:
        attention(*QKV)
    assert counter.get_total_flops() == 2 * B * H * T * S * (D + Dv)


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


def test_a_default_device_is_not_that_of_the_call():
    x = tensor(1, 2, 11, 4, dtype=torch.float32)
    with torch.device("meta"):
        inside = attention(x, x, x, causal=True)
    torch.testing.assert_close(inside, attention(x, x, x, causal=True, implementation="blockwise"))
    assert torch.equal(inside, attention(x, x, x, causal=True))


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
@pytest.mark.parametrize("name", ["q", "k", "v", "bias", "mask", "sinks"])
def test_a_tensor_that_is_no_plain_array_is_one_sentence(name, kind):
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
    make, message = UNUSUAL[kind]
    arguments = dict.fromkeys("qkv", x) | {name: make(x)}
    with pytest.raises(RegardError, match=f"^{name} .*{message}"):
        regard.attention(**arguments)


@pytest.mark.filterwarnings("ignore:.*(prototype|beta state|quantize)")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_map_or_softmax_of_such_a_tensor_is_one_sentence(kind):
    make, message = UNUSUAL[kind]
    x = make(torch.ones(2, 4, 8))
    for call in (lambda: regard.AttentionMap(x, x), lambda: regard.functional.softmax(x)):
        with pytest.raises(RegardError, match=message):
            call()


def test_a_window_of_arrays_is_an_error_like_any_other():
    with pytest.raises(RegardError, match="window"):
        attention(*QKV, window=(np.array([1]), 0))


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
    with FlopCounterMode(display=False) as counter:
        attention(q, k, v)
    assert counter.get_total_flops() > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(q, k, v).dtype == torch.bfloat16
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        assert torch.autograd.forward_ad.unpack_dual(attention(dual, k, v)).tangent is not None
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(compiled(q, k, v), expected)
    for scale in (float("inf"), float("nan")):
        with pytest.raises(RegardError, match="scale"):
            attention(q, k, v, scale=scale)


@pytest.mark.parametrize("compiled", [False, True])
def test_nobody_has_to_import_regard_torch_before_the_first_call(compiled):
    code = f"""
import sys, torch, regard
from regard import attention
q = torch.randn(2, 5, 8)
call = lambda q: attention(q, q, q, causal=True)
assert "regard.torch" not in sys.modules
first = torch.compile(call, fullgraph=True, backend="eager")(q) if {compiled} else call(q)
assert "regard.torch.operator" in sys.modules and torch.equal(first, call(q))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
