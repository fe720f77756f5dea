"""PyTorch tensors and JAX arrays: NumPy's numbers in the library, dtype and device that were given, and derivatives."""

import copy
import functools
import pickle

import attention_matrix as matrix
import numpy as np
import pytest
import torch
from jax_arrays import enable_x64, jax, jnp

import regard
from attention_cases import cut_into_blocks
from library_calls import BIAS, CALLS, HEADS, MASK, K, Q, V, draw, in_precision
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
from regard.functional import ALiBi, Causal, Mask, rotary
from sweeps import sweep_after, sweep_except

PRECISIONS = {"float64": {"rtol": 1e-12, "atol": 1e-13}, "float32": {"rtol": 2e-5, "atol": 2e-6}}


def close(ours, theirs, **tolerance):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), **(tolerance or PRECISIONS["float64"]))


# JAX compiles a call as one program, or each operation for each shape, which takes seven times as long.
# As programs, always: attention by its formula, its weights and its gradients with each option, and every function with
# some. By operations: functions with all options at once, and what asks for values, which a program does not have yet.
SOME = [
    name for name in CALLS if any(word in name for word in ("all at once", "arrays of", "rotary", "cache", "other"))
]
ASK_FOR_VALUES = ("map", "one head", "stretched positions", "tiles, a mask in blocks", "tiles, dropout")
PROGRAMS = [name for name in CALLS if not name.startswith(ASK_FOR_VALUES)]
IN_TORCH = [("torch", name, dtype) for name in CALLS for dtype in PRECISIONS]
IN_JAX = [
    *(("program", name, "float64") for name in PROGRAMS),
    *(("program", name, "float32") for name in PROGRAMS if name in SOME),
    *(("operations", name, "float64") for name in CALLS if name in SOME or name not in PROGRAMS),
]
KEPT_IN_JAX = [
    (how, name, dtype)
    for how, name, dtype in IN_JAX
    if ("all at once" in name and (how == "program" or not name.startswith("tiles")))
    or name in ("rotary", "cache", "others", "stretched positions", "one head, rules and sinks")
    or (how == "program" and not name.startswith(("tiles", "parts", "attention, blockwise")))
]


@pytest.mark.parametrize("case", [*IN_TORCH, *sweep_except(KEPT_IN_JAX, IN_JAX)], ids="-".join)
def test_the_numbers_of_numpy(case, monkeypatch):
    """In PyTorch in small blocks; in JAX in one block, as many would take minutes."""
    how, name, dtype = case
    if how == "torch":
        cut_into_blocks(monkeypatch, 3, 2)
    make, kind = (torch.tensor, torch.Tensor) if how == "torch" else (jnp.asarray, jax.Array)
    with enable_x64(dtype == "float64"):
        function = functools.partial(CALLS[name], in_precision(dtype, make))
        ours = (jax.jit(function) if how == "program" else function)()
        theirs = CALLS[name](in_precision(dtype, np.asarray))
    narrow = how != "torch" and dtype == "float32"  # JAX has then no numbers of 64 bits
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one, kind)
        assert one.device == (torch.device("cpu") if how == "torch" else jax.devices()[0])
        expected = other.dtype.name.replace("64", "32") if narrow else other.dtype.name
        assert (str(one.dtype).rpartition(".")[2], tuple(one.shape)) == (expected, other.shape)
        close(one, other, **PRECISIONS[dtype])


@pytest.mark.parametrize("implementation", ["reference", "blockwise"])
@pytest.mark.parametrize("short", ["float16", "bfloat16"])
def test_short_floats_are_computed_wide_and_rounded_once(short, implementation):
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[short]
    function = functools.partial(attention, causal=True, softcap=3.0, implementation=implementation)
    given = [torch.tensor(x, dtype=torch.float32).to(getattr(torch, short)) for x in (Q, K, V)]
    exact = function(*(x.double().numpy() for x in given))
    in_torch = function(*given)
    assert in_torch.dtype == getattr(torch, short)
    found = [in_torch.double().numpy()]
    for wide in (False, True):
        with enable_x64(wide):
            in_jax = jax.jit(function)(*(jnp.asarray(x.float().numpy()).astype(short) for x in given))
            assert in_jax.dtype == getattr(jnp, short)
            found.append(np.asarray(in_jax.astype(jnp.float32)))
    for ours in found:
        np.testing.assert_allclose(ours, exact, rtol=1.01 * eps, atol=1e-6)


# Output and gradients: each way of `attention_matrix` with masks and biases.


SHIFTS = 3  # combinations of each way; of those after the first a sample runs
SLOW = {"jax, reference", "jax, blockwise", "jax, operations"}  # compiled operation by operation


def drawn():
    """Return ways with combinations and dtypes: every mask with some bias always, of slow ways every third."""
    kept, swept = [], []
    for number, (way, (*_, without)) in enumerate(matrix.WAYS.items()):
        for shift in range(SHIFTS):
            for i, names in enumerate(matrix.combinations(number + 5 * shift, without)):
                often = shift == 0 and (way not in SLOW or (i + number) % 3 == 0)
                (kept if often else swept).append((way, *names, ("float64", "float64", "float32")[(i + number) % 3]))
    return [*kept, *sweep_after(0, swept)]


@pytest.mark.parametrize("case", drawn(), ids=", ".join)
def test_output_and_gradients_are_those_of_numpy(case, monkeypatch):
    way, mask, bias, dtype = case
    cut_into_blocks(monkeypatch, 3, 4 if "jax" in way else 2)
    make, attention, differentiate, _ = matrix.WAYS[way]
    arrays, call = matrix.arrays_and_call(mask, bias)
    output, d_output, gradients = matrix.expected(mask, bias)
    which = matrix.differentiable(arrays)
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-4, "atol": 2e-5}
    with enable_x64(dtype == "float64"):
        given = [make(x.astype(dtype) if i in which else x) for i, x in enumerate(arrays)]

        def function(*values):
            every = list(given)
            for i, x in zip(which, values, strict=True):
                every[i] = x
            return call(attention, *every)

        found = differentiate(function, [given[i] for i in which], make(d_output.astype(dtype)))
        for one, other in zip(found, (output, *gradients), strict=True):
            assert str(one.dtype).rpartition(".")[2] == dtype
            close(one, other, **tolerance)
        if attention in (matrix.operator, regard.jax.attention):
            assert call(regard.explain_plan, *given).implementation == "native"
        if way == "jax, kernel" and mask not in matrix.FUNCTIONS:
            assert "pure_callback" in str(jax.make_jaxpr(function)(*(given[i] for i in which)))
        if attention is matrix.operator:
            assert torch.equal(found[0], call(regard.attention, *given))


@pytest.mark.parametrize("way", matrix.WAYS)
def test_what_nobody_sees_leaves_gradients_finite(way, monkeypatch):
    cut_into_blocks(monkeypatch, 3, 4)
    make, attention, differentiate, _ = matrix.WAYS[way]
    mask = MASK.copy()
    mask[:, :, 2] = False
    arrays = [Q, K, V, draw(5, HEADS, 5, 7)]
    with enable_x64(True):
        seen = make(mask)

        def function(q, k, v, bias):
            return attention(q, k, v, mask=seen, bias=bias)

        clean = differentiate(function, [make(x) for x in arrays], make(draw(9, *Q.shape[:-1], 3)))
        for poison in (np.nan, np.inf, -np.inf) if way not in SLOW else (np.nan,):
            q, k, v, bias = (x.copy() for x in arrays)
            k[..., 2, :], v[..., 2, :], bias[~mask] = poison, poison, poison
            found = differentiate(function, [make(x) for x in (q, k, v, bias)], make(draw(9, *Q.shape[:-1], 3)))
            for one, other in zip(found, clean, strict=True):
                close(one, other)


# Each library maps a function over axes as the other does: what makes an array, what is called, and what maps it.
MAPS = {
    "torch": (torch.tensor, matrix.operator, torch.func.vmap, torch.func.grad, torch.stack, lambda f: f),
    "jax": (jnp.asarray, regard.jax.attention, jax.vmap, jax.grad, jnp.stack, jax.jit),
}
MAPPED = [
    *(("torch", *names) for names in matrix.combinations(1, matrix.FUNCTIONS)),
    *(("jax", *names) for names in matrix.combinations(2, matrix.FUNCTIONS) if names[0] in ("rules", "invented")),
    ("jax", "all keys", "table"),  # which has no axis of a batch
]
ALSO_MAPPED = [("jax", *names) for names in matrix.combinations(3, matrix.FUNCTIONS)]


@pytest.mark.parametrize("case", [*MAPPED, *sweep_after(0, ALSO_MAPPED)], ids=", ".join)
def test_vmap_is_a_loop(case):
    """Over every array at once, along its first axis or another, and over one at a time; of gradients too."""
    library, mask, bias = case
    make, attention, vmap, grad, stack, wrap = MAPS[library]
    arrays, call = matrix.arrays_and_call(mask, bias)
    pairs = [(x, x if x.dtype.kind == "i" else np.flip(x, -1).copy()) for x in arrays]
    every = [tuple(0 for _ in arrays), tuple(i % (x.ndim + 1) for i, x in enumerate(arrays))]
    alone = [tuple(0 if i == j else None for j in range(len(arrays))) for i in range(len(arrays))]
    if library == "torch":
        every += alone
    elif len(arrays) > 3:  # q, k and v, and what is not q, k or v
        every += [tuple(0 if (i < 3) == is_qkv else None for i in range(len(arrays))) for is_qkv in (True, False)]

    def output(*given):
        return (call(attention, *given),)

    def derivative(*given):
        return grad(lambda *x: (call(attention, *x) ** 2).sum(), matrix.differentiable(arrays))(*given)

    with enable_x64(True):
        for axes in every:
            of = list(zip(pairs, axes, strict=True))
            given = [make(pair[0] if axis is None else np.stack(pair, axis)) for pair, axis in of]
            each = [[make(pair[0 if axis is None else n]) for pair, axis in of] for n in range(2)]
            for function in (output, derivative) if library == "torch" else (derivative,):
                mapped, one = wrap(vmap(function, axes)), wrap(function)
                wanted = [stack(both) for both in zip(*(one(*x) for x in each), strict=True)]
                for ours, theirs in zip(mapped(*given), wanted, strict=True):
                    close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("names", matrix.combinations(4, matrix.FUNCTIONS), ids=", ".join)
def test_it_is_exported_saved_and_loaded(names, tmp_path):
    arrays, call = matrix.arrays_and_call(*names)

    class Module(torch.nn.Module):
        def forward(self, *given):
            return call(matrix.operator, *given)

    given = tuple(torch.tensor(x) for x in arrays)
    program = torch.export.export(Module(), given)
    assert program.graph_module.code.count("torch.ops.regard.attention") == 1
    torch.export.save(program, tmp_path / "program.pt2")
    close(torch.export.load(tmp_path / "program.pt2").module()(*given), matrix.expected(*names)[0])


def test_autograd_goes_through_parts_caches_and_rotations():
    def function(q, k, v):
        q, k = rotary(q), rotary(k, interleaved=True)
        cache = KVCache().append(k[..., :3, :], v[..., :3, :]).append(k[..., 3:, :], v[..., 3:, :])
        first = attention_partial(q, cache.k[..., :4, :], cache.v[..., :4, :], window=(5, 2), query_offset=2)
        second = attention_partial(q, cache.k[..., 4:, :], cache.v[..., 4:, :], window=(5, 2), query_offset=-2)
        whole = merge_partials(first, second)
        return whole.output, whole.lse, attention_weights(q, cache.k, rows=slice(1, 3))

    inputs = Q[:1, :2, :, :2], K[:1, :, :, :2], V[:1, :, :, :1]
    assert torch.autograd.gradcheck(function, tuple(torch.tensor(x, requires_grad=True) for x in inputs))


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_jax_compiles_what_has_one_axis_or_none_and_a_map_that_is_looked_at(path):
    x, row = np.random.default_rng(0).standard_normal((5, 4)), np.array([True, False, True, True, False])

    def out(x, offset, lengths, row):
        return attention(
            x, x, x, mask=row, causal=True, query_offset=offset, key_lengths=lengths, implementation=path,
            dropout=0.3, rng=np.random.default_rng(1),
        )  # fmt: skip

    def looks(q, k):
        look = AttentionMap(q, k, mask=Causal())
        return look[0, 1, 2], look.pooled((2, 2)), look.entropy(), look.received(), look.lse

    for wide in (False, True):
        with enable_x64(wide):
            traced = jax.jit(out)(jnp.asarray(x), jnp.asarray(1), jnp.asarray(4), jnp.asarray(row))
            close(traced, out(x, 1, 4, row), atol=1e-12 if wide else 1e-6)
            for one, other in zip(jax.jit(looks)(jnp.asarray(Q), jnp.asarray(K)), looks(Q, K), strict=True):
                close(one, other, rtol=2e-5, atol=2e-6)


def test_a_cache_grows_while_a_gradient_is_taken_of_what_it_held_before():
    k, v, q = (torch.tensor(draw(i, 2, n, 4), requires_grad=i == 2) for i, n in enumerate((6, 6, 3)))
    cache, total = KVCache().append(k[:, :2], v[:, :2]), 0
    for t in range(2, 6):
        total = total + attention(q, cache.k, cache.v).sum()
        cache = cache.append(k[:, t : t + 1], v[:, t : t + 1])
    total.backward()
    close(q.grad, sum(attention_vjp(q, k[:, :t], v[:, :t])[1](np.ones((2, 3, 4))).q for t in range(2, 6)))


def test_looks_and_pullbacks_keep_no_graph():
    x = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    output, pullback = attention_vjp(x, x, x, causal=True, implementation="blockwise")
    look = AttentionMap(x, x, causal=True)
    gradients = (g for g in pullback(np.ones((2, 9, 4))) if g is not None)
    assert not any(found.requires_grad for found in (output, *gradients, look[0], look.entropy()))


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


def test_numbers_of_numpy_go_with_any_library():
    x = torch.ones(3, 2)
    assert (attention(x, x, x, bias=np.float64(1), mask=np.bool_(True), sinks=np.float64(-99.0)) == 1).all()


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


@pytest.mark.parametrize("asarray", [torch.asarray, jnp.asarray])
def test_maps_are_copied_pickled_and_read_as_arrays(asarray, rng):
    x = asarray(rng.standard_normal((2, 3, 4)).astype(np.float32))
    look = AttentionMap(x, x, causal=True)
    for kept in (copy.deepcopy(look), pickle.loads(pickle.dumps(look))):
        assert type(kept.q) is type(x)
        np.testing.assert_array_equal(np.asarray(kept), np.asarray(look))
    if asarray is torch.asarray:
        half = AttentionMap(x.bfloat16(), x.bfloat16())
        assert np.asarray(half).dtype == np.float32
        np.testing.assert_array_equal(np.asarray(half), half.weights().float().numpy())
