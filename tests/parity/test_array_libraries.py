"""PyTorch tensors and JAX arrays: NumPy's numbers in the library, dtype and device that were given, and derivatives."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from jax_arrays import enable_x64, jax, jnp

import regard
import regard.jax
from attention_cases import cut_into_blocks
from library_calls import BIAS, CALLS, HEADS, IDS_OF_KEYS, IDS_OF_QUERIES, KEYS, MASK, K, Q, V, draw, in_precision
from regard import (
    AttentionMap,
    KVCache,
    RegardError,
    Trace,
    attention,
    attention_partial,
    attention_vjp,
    attention_weights,
    merge_partials,
)
from regard.functional import (
    ALiBi,
    Causal,
    Mask,
    RelativePositionBias,
    SegmentMask,
    SlidingWindow,
    alibi_slopes,
    rotary,
)
from sweeps import sweep_except

PRECISIONS = {np.float64: {"rtol": 1e-12, "atol": 1e-13}, np.float32: {"rtol": 2e-5, "atol": 2e-6}}


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def x64(request):
    with enable_x64(request.param):
        yield request.param


@pytest.fixture
def small_blocks(monkeypatch):
    cut_into_blocks(monkeypatch, 3, 2)


@pytest.fixture
def few_blocks(monkeypatch):
    """Let there be four blocks: JAX compiles each operation of each."""
    cut_into_blocks(monkeypatch, 3, 4)


def name_of(dtype):
    return str(dtype).rpartition(".")[2]


def narrow(dtype):
    """Return the name of the dtype that JAX has in the place of one of 64 bits."""
    return dtype.name.replace("64", "32")


def close(ours, theirs, **tolerance):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), **(tolerance or PRECISIONS[np.float64]))


# The same numbers


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_of_numpy_in_tensors(name, dtype):
    ours, theirs = (CALLS[name](in_precision(dtype, make)) for make in (torch.tensor, np.asarray))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one, torch.Tensor)
        assert one.device == torch.device("cpu")
        assert name_of(one.dtype) == other.dtype.name
        assert tuple(one.shape) == other.shape
        close(one, other, **PRECISIONS[dtype])


# JAX compiles a call as one program, or each operation for each shape, which takes seven times as long. As programs,
# always: attention by its formula, its weights and its gradients with each option, and every function with some. By
# operations: functions with all options at once, and what asks for values, which a program does not have yet.
SOME = [
    name for name in CALLS if any(word in name for word in ("all at once", "arrays of", "rotary", "cache", "other"))
]
ASK_FOR_VALUES = ("map", "one head", "stretched positions", "tiles, a mask in blocks", "tiles, dropout")
PROGRAMS = [name for name in CALLS if not name.startswith(ASK_FOR_VALUES)]
IN_JAX = [
    *(("program", name, "x64") for name in PROGRAMS),
    *(("program", name, "x32") for name in PROGRAMS if name in SOME),
    *(("operations", name, "x64") for name in CALLS if name in SOME or name not in PROGRAMS),
]
KEPT_IN_JAX = [
    (how, name, width)
    for how, name, width in IN_JAX
    if ("all at once" in name and (how == "program" or not name.startswith("tiles")))
    or name in ("rotary", "cache", "others", "stretched positions", "one head, rules and sinks")
    or (how == "program" and not name.startswith(("tiles", "parts", "attention, blockwise")))
]


@pytest.mark.parametrize("call", sweep_except(KEPT_IN_JAX, IN_JAX), ids="-".join)
def test_the_numbers_of_numpy_in_jax(call):
    """In one block: many small ones would take minutes."""
    how, name, width = call
    dtype = np.float64 if width == "x64" else np.float32
    with enable_x64(width == "x64"):
        function = functools.partial(CALLS[name], in_precision(dtype, jnp.asarray))
        ours = (jax.jit(function) if how == "program" else function)()
        theirs = CALLS[name](in_precision(dtype, np.asarray))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one, jax.Array)
        assert one.device == jax.devices()[0]
        assert one.dtype.name == (other.dtype.name if width == "x64" else narrow(other.dtype))
        assert one.shape == other.shape
        close(one, other, **PRECISIONS[dtype])


@pytest.mark.parametrize("implementation", ["reference", "blockwise"])
@pytest.mark.parametrize("short", ["float16", "bfloat16"])
def test_short_floats_are_computed_wide_and_rounded_once(short, implementation, x64):
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[short]
    options = {"causal": True, "softcap": 3.0, "implementation": implementation}
    for make, dtype in ((torch.tensor, getattr(torch, short)), (jnp.asarray, getattr(jnp, short))):
        q, k, v = (make(x.astype(np.float32)) for x in (Q, K, V))
        q, k, v = (x.to(dtype) if make is torch.tensor else x.astype(dtype) for x in (q, k, v))
        wide = [np.asarray(x.to(torch.float64) if make is torch.tensor else x.astype(jnp.float32)) for x in (q, k, v)]
        exact = attention(*(x.astype(np.float64) for x in wide), **options)
        function = functools.partial(attention, **options)
        ours = (function if make is torch.tensor else jax.jit(function))(q, k, v)
        assert ours.dtype == dtype
        ours = ours.double().numpy() if make is torch.tensor else np.asarray(ours.astype(jnp.float32))
        np.testing.assert_allclose(ours, exact, rtol=1.01 * eps, atol=1e-6)


TENSORS = [torch.tensor(x) for x in (Q, K, V)]
REFUSED = [
    *((lambda options=options: attention(*TENSORS, **options), "do not mix") for options in (
        {"mask": jnp.asarray(MASK)}, {"bias": ALiBi(jnp.ones(HEADS))}, {"bias": jnp.asarray(BIAS)},
    )),
    (lambda: attention(TENSORS[0], jnp.asarray(K), TENSORS[2]), "do not mix"),
    (lambda: attention(Q, *TENSORS[1:], implementation="native"), "different libraries"),
    (lambda: KVCache().append(np.zeros((2, 3)), torch.zeros(2, 3)), "do not mix"),
    (lambda: attention(*TENSORS, scale=torch.tensor(2.0, requires_grad=True)), "multiply q"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_go_together_is_told(call, message):
    with pytest.raises(RegardError, match=message):
        call()


# Derivatives by PyTorch


def tensors(**arrays):
    return {name: torch.tensor(x, dtype=torch.float64, requires_grad=True) for name, x in arrays.items()}


DIFFERENTIABLE = {
    "plain": ({}, {}),
    "causal, nothing for the first": ({}, {"causal": True, "query_offset": -2}),
    "mask with an empty row": ({}, {"mask": torch.tensor(MASK)}),
    "bias that hides": ({"bias": BIAS}, {}),
    "softcap and sinks": ({"sinks": draw(6, HEADS)}, {"softcap": 0.8, "causal": True}),
    "key lengths": ({}, {"key_lengths": torch.tensor([0, 5])}),
    "slopes": ({"slopes": alibi_slopes(HEADS)}, {"window": (2, 1)}),
    "table": ({"table": draw(7, 8, HEADS)}, {"causal": True}),
}
ALL = {"causal": True, "window": (3, None), "key_lengths": np.array([3, 7]), "mask": MASK, "softcap": 2.0}
OF_THE_KERNEL = DIFFERENTIABLE | {
    "causal": ({}, {"causal": True}),
    "causal from the top left": ({}, {"causal": True, "query_offset": 0}),
    "window": ({}, {"window": (2, 1)}),
    "mask of keys": ({}, {"mask": MASK[0, 0]}),
    "segments": ({}, {"mask": SegmentMask(IDS_OF_QUERIES, IDS_OF_KEYS)}),
    "one rule or the other": ({}, {"mask": Causal() | SlidingWindow(0, 2)}),
    "scale and softcap": ({}, {"scale": 0.7, "softcap": 0.8}),
    "bias of keys": ({"bias": draw(5, 2, 1, 1, KEYS)}, {}),
    "slopes alone": ({"slopes": alibi_slopes(HEADS)}, {}),
    "sinks alone": ({"sinks": draw(6, HEADS)}, {}),
    "all": ({}, ALL),
    "all and a bias": ({"bias": draw(5, HEADS, 5, KEYS)}, ALL),
    "all and a bias of keys": ({"bias": draw(5, 2, 1, 1, KEYS)}, ALL),
    "all and slopes": ({"slopes": alibi_slopes(HEADS)}, ALL),
    "all and sinks": ({"sinks": draw(6, HEADS)}, ALL),
}


def with_parameters(options, **parameters):
    options = dict(options)
    for name, value in parameters.items():
        rule = {"slopes": ALiBi, "table": lambda table: RelativePositionBias(table, max_distance=6)}.get(name)
        options["bias" if rule else name] = rule(value) if rule else value
    return options


@pytest.mark.parametrize("implementation", ["reference", "blockwise"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.usefixtures("small_blocks")
def test_autograd_goes_through_attention(name, implementation):
    arrays, options = DIFFERENTIABLE[name]
    inputs = tensors(q=Q[:, :, :, :3], k=K[:, :, :, :3], v=V, **arrays)

    def function(*values):
        given = dict(zip(inputs, values, strict=True))
        q, k, v = (given.pop(x) for x in "qkv")
        return attention(q, k, v, **with_parameters(options, **given), implementation=implementation)

    # Where the bias hides there is nothing to differentiate: a step from −inf stays there, and the slope is 0.
    finite = {n: x for n, x in inputs.items() if n != "bias"}
    assert torch.autograd.gradcheck(
        lambda *values: function(*values, *(inputs[n] for n in inputs if n == "bias")),
        tuple(finite.values()),
        fast_mode=True,  # along one direction of each; below every number is compared
    )

    output = function(*inputs.values())
    d_output = torch.tensor(draw(9, *output.shape))
    output.backward(d_output)
    q, k, v = (inputs[x].detach() for x in "qkv")
    rest = {n: x.detach() for n, x in inputs.items() if n not in "qkv"}
    _, pullback = attention_vjp(q, k, v, **with_parameters(options, **rest))
    gradients = pullback(d_output)._asdict()
    for key, tensor in inputs.items():
        assert torch.isfinite(tensor.grad).all(), key
        close(gradients["bias" if key in ("slopes", "table") else key], tensor.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("implementation", ["reference", "blockwise", "auto"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.usefixtures("small_blocks")
def test_what_nobody_sees_leaves_gradients_finite(poison, implementation):
    k, v = K.copy(), V.copy()
    k[..., 2, :], v[..., 2, :] = poison, poison
    mask = MASK.copy()
    mask[:, :, 2] = False
    bias = np.where(mask, draw(5, HEADS, 5, KEYS), poison)
    inputs = tensors(q=Q, k=k, v=v, bias=bias)
    q_, k_, v_, bias_ = inputs.values()
    output = attention(q_, k_, v_, mask=torch.tensor(mask), bias=bias_, implementation=implementation)
    output.sum().backward()
    clean = tensors(q=Q, k=K, v=V, bias=np.where(mask, bias, 0))
    q_, k_, v_, bias_ = clean.values()
    attention(q_, k_, v_, mask=torch.tensor(mask), bias=bias_, implementation=implementation).sum().backward()
    for name, tensor in inputs.items():
        assert torch.isfinite(tensor.grad).all(), name
        close(tensor.grad, clean[name].grad)


def test_autograd_goes_through_parts_caches_and_rotations():
    def function(q, k, v):
        q, k = rotary(q), rotary(k, interleaved=True)
        cache = KVCache().append(k[..., :3, :], v[..., :3, :]).append(k[..., 3:, :], v[..., 3:, :])
        first = attention_partial(q, cache.k[..., :4, :], cache.v[..., :4, :], window=(5, 2), query_offset=2)
        second = attention_partial(q, cache.k[..., 4:, :], cache.v[..., 4:, :], window=(5, 2), query_offset=-2)
        whole = merge_partials(first, second)
        return whole.output, whole.lse, attention_weights(q, cache.k, rows=slice(1, 3))

    inputs = tensors(q=Q[:1, :2, :, :2], k=K[:1, :, :, :2], v=V[:1, :, :, :1])
    assert torch.autograd.gradcheck(function, tuple(inputs.values()))


# JAX compiles and differentiates


@pytest.mark.pairwise
@pytest.mark.parametrize("implementation", ["reference", "blockwise"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.usefixtures("few_blocks")
def test_jax_differentiates_attention(name, implementation, x64):
    check_gradients_of_jax(name, implementation, np.float64 if x64 else np.float32)


@pytest.mark.parametrize("name", OF_THE_KERNEL)
def test_jax_differentiates_the_kernel(name):
    with enable_x64(True):
        check_gradients_of_jax(name, "native", np.float64)


def check_gradients_of_jax(name, implementation, dtype):
    """Compare output and gradients with those of NumPy: compiled, and, of the kernel and of a plain call, not."""
    by_formula = functools.partial(attention, implementation=implementation)
    call = regard.jax.attention if implementation == "native" else by_formula
    arrays, options = OF_THE_KERNEL[name]
    options = {key: x.numpy() if isinstance(x, torch.Tensor) else x for key, x in options.items()}
    arrays = {"q": Q, "k": K, "v": V, **arrays}
    d_output = draw(9, 2, HEADS, 5, 3)

    def total(inputs):
        inputs = dict(inputs)
        q, k, v = (inputs.pop(x) for x in "qkv")
        output = call(q, k, v, **with_parameters(options, **inputs))
        return jnp.sum(output * jnp.asarray(d_output, dtype=dtype)), output

    inputs = {key: jnp.asarray(x, dtype=dtype) for key, x in arrays.items()}
    rest = {key: x for key, x in arrays.items() if key not in "qkv"}
    expected, pullback = attention_vjp(Q, K, V, **with_parameters(options, **rest))
    gradients = pullback(d_output)._asdict()
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-4, "atol": 2e-5}
    derivative = jax.grad(total, has_aux=True)
    is_short = implementation == "native" or (implementation == "reference" and name == "plain")
    for function in (jax.jit(derivative), *([derivative] if is_short else [])):
        found, output = function(inputs)
        close(output, expected, **tolerance)
        for key, gradient in found.items():
            assert gradient.dtype == dtype
            close(gradient, gradients["bias" if key in ("slopes", "table") else key], **tolerance)


@pytest.mark.parametrize("implementation", ["reference", "blockwise"])
def test_jax_gradients_of_what_nobody_sees_are_finite(implementation, x64):
    k, v = K.copy(), V.copy()
    k[..., 2, :], v[..., 2, :] = np.nan, np.inf
    mask = MASK.copy()
    mask[:, :, 2] = False

    def total(q, k, v):
        return jnp.sum(attention(q, k, v, mask=jnp.asarray(mask), implementation=implementation))

    derivative = jax.grad(total, (0, 1, 2))
    for function in (jax.jit(derivative), *([derivative] if x64 else [])):
        for gradient in function(*(jnp.asarray(x) for x in (Q, k, v))):
            assert jnp.isfinite(gradient).all()


def test_jax_compiles_a_map_that_is_looked_at(x64):
    def function(q, k):
        look = AttentionMap(q, k, mask=Causal())
        return look[0, 1, 2], look.pooled((2, 2)), look.entropy(), look.received(), look.lse

    for one, other in zip(jax.jit(function)(jnp.asarray(Q), jnp.asarray(K)), function(Q, K), strict=True):
        close(one, other, rtol=2e-5, atol=2e-6)


def test_a_cache_grows_while_a_gradient_is_taken_of_what_it_held_before():
    rng = np.random.default_rng(0)
    k, v = (torch.from_numpy(rng.standard_normal((2, 6, 4))) for _ in range(2))
    q = torch.from_numpy(rng.standard_normal((2, 3, 4))).requires_grad_()
    cache, total = KVCache().append(k[:, :2], v[:, :2]), 0
    for t in range(2, 6):
        total = total + attention(q, cache.k, cache.v).sum()
        cache = cache.append(k[:, t : t + 1], v[:, t : t + 1])
    total.backward()
    expected = sum(attention_vjp(q, k[:, :t], v[:, :t])[1](np.ones((2, 3, 4))).q for t in range(2, 6))
    close(q.grad, expected)


def test_looks_and_pullbacks_keep_no_graph():
    x = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    output, pullback = attention_vjp(x, x, x, causal=True, implementation="blockwise")
    assert not output.requires_grad
    assert not any(g.requires_grad for g in pullback(np.ones((2, 9, 4))) if g is not None)
    look = AttentionMap(x, x, causal=True)
    assert not look[0].requires_grad
    assert not look.entropy().requires_grad


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_what_is_traced_without_axes_or_with_one(path, x64):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)))
    row = np.array([True, False, True, True, False])

    def out(x, offset, lengths, row):
        return attention(
            x, x, x, mask=row, causal=True, query_offset=offset, key_lengths=lengths, implementation=path,
            dropout=0.3, rng=np.random.default_rng(1),
        )  # fmt: skip

    traced = jax.jit(out)(x, jnp.asarray(1), jnp.asarray(4), jnp.asarray(row))
    assert traced.shape == (5, 4)
    close(traced, out(np.asarray(x), 1, 4, row), atol=1e-12 if x64 else 1e-6)


def test_numbers_of_numpy_go_with_any_library():
    x = torch.ones(3, 2)
    assert (attention(x, x, x, bias=np.float64(1), mask=np.bool_(True), sinks=np.float64(-99.0)) == 1).all()


def test_a_cache_outlives_inference_mode():
    x = torch.ones(2, 3)
    with torch.inference_mode():
        cache = KVCache().append(x, x)
        homes = {cache.append(x, x).k.data_ptr(), cache.k.data_ptr()}
    assert len(homes) == 1
    assert len(cache.append(x, x)) == 4


def test_a_rule_of_ones_own_is_traced_beside_torch():
    class Even(Mask):
        def allows(self, grid, rows, cols):
            return grid.key_indices(cols) % 2 == 0

    x, trace = torch.ones(4, 3), Trace(maps=True, only="*")
    attention(x, x, x, mask=Even(), trace=trace)
    assert trace.map()[0].tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.skipif(regard.functional.native.kernel() is None, reason="needs the compiled kernel")
def test_arrays_that_the_kernel_cannot_read_are_named_with_what_to_do():
    def native(x):
        return regard.attention(x, x, x, implementation="native")

    x = jnp.ones((2, 3, 4))
    strict = pytest.importorskip("array_api_strict").ones((2, 3, 4))
    with pytest.raises(RegardError, match=r"not of array_api_strict on .*CPU.*numpy\.asarray"):
        native(strict)
    assert regard.explain_plan(strict, strict, strict).implementation == "reference"
    for array in (x, np.asarray(x)):
        assert regard.explain_plan(array, array, array).implementation == "native"
        assert native(array).shape == jax.jit(native)(array).shape == (2, 3, 4)


def test_a_map_of_bfloat16_tensors_is_an_array_of_float32(rng):
    look = AttentionMap(*rng.standard_normal((2, 3, 4, 2), dtype=np.float32))
    half = AttentionMap(torch.from_numpy(np.array(look.q)).bfloat16(), torch.from_numpy(np.array(look.k)).bfloat16())
    assert np.asarray(half).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(half), half.weights().float().numpy())


@pytest.mark.parametrize("asarray", [torch.asarray, jnp.asarray])
def test_maps_are_copied_and_pickled(asarray, rng):
    x = asarray(rng.standard_normal((2, 3, 4)).astype(np.float32))
    look = AttentionMap(x, x, causal=True)
    for kept in (copy.deepcopy(look), pickle.loads(pickle.dumps(look))):
        assert type(kept.q) is type(x)
        np.testing.assert_array_equal(np.asarray(kept), np.asarray(look))
