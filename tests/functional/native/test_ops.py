"""The kernel's other operations: compared with the formulas and exact arithmetic, for each instruction set."""

import functools
import math

import ml_dtypes
import numpy as np
import pytest

from regard import RegardError, functional as F
from regard.functional import native
from regard.functional.activation import ACTIVATIONS
from regard.functional.native import ops
from regard.training.optimizer import AdamW, global_norm
from sweeps import sweep_after

kernel = native.kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason="there is no compiled kernel")

FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
CALLS = {
    "softmax": lambda x, y, w, b: F.softmax(x),
    "softmax of another axis": lambda x, y, w, b: F.softmax(x, axis=0),
    "layer norm": lambda x, y, w, b: F.layer_norm(x, w, b, eps=1e-5),
    "layer norm, residual": lambda x, y, w, b: F.layer_norm(x, w, b, residual=y),
    "plain layer norm": lambda x, y, w, b: F.layer_norm(x),
    "rms norm": lambda x, y, w, b: F.rms_norm(x, w),
    "rms norm, residual": lambda x, y, w, b: F.rms_norm(x, w, residual=y),
    "gelu": lambda x, y, w, b: F.gelu(x),
    "gelu, bias": lambda x, y, w, b: F.gelu(x, bias=b),
    "gelu tanh": lambda x, y, w, b: F.gelu(x, "tanh", bias=b),
    "silu": lambda x, y, w, b: F.silu(x, bias=b),
    "swiglu": lambda x, y, w, b: F.swiglu(x, y),
    "swiglu, biases": lambda x, y, w, b: F.swiglu(x, y, gate_bias=w, up_bias=b),
    "layer norm vjp": lambda x, y, w, b: F.layer_norm_vjp(x, w, b, eps=1e-5)[1](y)[0],
    "plain layer norm vjp": lambda x, y, w, b: F.layer_norm_vjp(x)[1](y)[0],
    "rms norm vjp": lambda x, y, w, b: F.rms_norm_vjp(x, w)[1](y)[0],
    "gelu vjp": lambda x, y, w, b: F.gelu_vjp(x)[1](y)[0],
    "gelu tanh vjp": lambda x, y, w, b: F.gelu_vjp(x, "tanh")[1](y)[0],
    "silu vjp": lambda x, y, w, b: F.silu_vjp(x)[1](y)[0],
}
SUMS = {  # over all rows: gradients of what all rows share
    "layer norm weight": lambda x, y, w, b: F.layer_norm_vjp(x, w, b, eps=1e-5)[1](y)[1],
    "layer norm bias": lambda x, y, w, b: F.layer_norm_vjp(x, w, b, eps=1e-5)[1](y)[2],
    "rms norm weight": lambda x, y, w, b: F.rms_norm_vjp(x, w)[1](y)[1],
    "bias": lambda x, y, w, b: F.linear_vjp(x, np.ones((x.shape[-1],) * 2, x.dtype), b, wrt=["bias"])[1](y)[2],
}
SHAPES = [(1,), (7, 1), (3, 16), (5, 17), (2, 3, 5, 63), (11, 384), (2, 1031), (3, 0, 5), (0, 7)]


def drawn(rng, shape, dtype=np.float32):
    x, y = (rng.standard_normal(shape) * 3 for _ in range(2))
    w, b = (rng.standard_normal(shape[-1:]) for _ in range(2))
    return [a.astype(dtype) for a in (x, y, w, b)]


def formula(monkeypatch, function, *arrays):
    """Return the result of the formula, without the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(ops.native, "kernel", lambda: None)
        return function(*arrays)


def bound(dtype, name):
    """Return the tolerance: a few roundings in the compute dtype, and one of the result.

    The sums of a row and the exponential of numbers up to 10 each lose some units in the last place, relative to
    numbers whose cancellation (of the mean, of a bias) is what the absolute part is for.
    """
    work = np.float32 if np.dtype(dtype).itemsize <= 4 else np.float64
    eps = float(np.finfo(work).eps)
    half = float(ml_dtypes.finfo(dtype).eps) / 2 if work is not dtype else 0.0
    return {"rtol": 40 * eps + 1.01 * half, "atol": 20 * eps + (2.0**-24 if half else 0)}


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", CALLS)
def test_the_kernel_agrees_with_the_formula(rng, monkeypatch, instruction_set, name, kind, shape):
    dtype, call = FLOATS[kind], CALLS[name]
    arrays = drawn(rng, shape, dtype)
    ours = call(*arrays)
    with np.errstate(all="ignore"):  # a norm of one feature
        exact = formula(monkeypatch, call, *(a.astype(np.float64) for a in arrays))
    assert (ours.dtype, ours.shape) == (dtype, exact.shape)
    np.testing.assert_allclose(ours.astype(np.float64), exact, **bound(dtype, name))


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", [*SHAPES[1:-1], (3, 331, 20), (2000, 3)], ids=str)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_over_rows_agree_with_the_formula(rng, monkeypatch, instruction_set, name, kind, shape):
    dtype, call = FLOATS[kind], SUMS[name]
    arrays = drawn(rng, shape, dtype)
    ours = call(*arrays)
    with np.errstate(all="ignore"):  # a norm of one feature
        exact = formula(monkeypatch, call, *(a.astype(np.float64) for a in arrays))
    assert (ours.dtype, ours.shape) == (dtype, exact.shape)
    rows, limits = math.prod(shape[:-1]), bound(dtype, name)
    # Each term has the error of the norm, relative to numbers of up to 20 times 5 standard deviations.
    limits["atol"] = limits["atol"] + rows * 100 * 2 * float(np.finfo(np.float32 if kind != "float64" else dtype).eps)
    np.testing.assert_allclose(ours.astype(np.float64), exact, **limits)


@pytest.mark.parametrize("name", CALLS)
def test_arrays_may_have_any_strides(rng, name):
    x, y, w, b = drawn(rng, (4, 6, 20))
    want = CALLS[name](x, y, w, b)
    strided = np.zeros((8, 6, 40), np.float32)[::2, ::-1, ::2]
    strided[...] = x
    backwards = np.ascontiguousarray(w[::-1])[::-1]
    frozen = y.copy()
    frozen.flags.writeable = False
    askew = np.frombuffer(b"\0" + b.tobytes(), np.uint8)[1:].view(np.float32)
    assert not askew.flags.aligned
    np.testing.assert_array_equal(CALLS[name](strided, frozen, backwards, askew), want)
    rotated = np.asfortranarray(x)
    np.testing.assert_array_equal(CALLS[name](rotated, np.asfortranarray(y), w, b), want)
    shared = np.broadcast_to(x[:1], x.shape)
    np.testing.assert_array_equal(CALLS[name](shared, y, w, b), CALLS[name](shared.copy(), y, w, b))


@pytest.mark.parametrize(
    "shape", sweep_after(3, [(301, 384), (70_001, 3), (2, 300_000), (3, 70_001), (1_000_003,)]), ids=str
)
@pytest.mark.parametrize("name", [name for name in CALLS | SUMS if "another" not in name])
def test_any_number_of_threads_gives_the_same_bits(rng, same_bits, name, shape):
    if name == "bias" and shape[-1] > 384:
        pytest.skip("its weight would be too large")
    same_bits(functools.partial((CALLS | SUMS)[name], *drawn(rng, shape)))


SPECIAL = [
    [-np.inf, 0.0, 1.0],
    [-np.inf, -np.inf, -np.inf],
    [np.inf, 0.0, 1.0],
    [np.inf, np.inf, -np.inf],
    [np.nan, 0.0, -np.inf],
    [0.0, np.nan, np.inf],
    [-0.0, 0.0, -0.0],
    [1e30, -1e30, 1e-40],
    [-300.0, 300.0, -90.0],
    [3.0, 3.0, 3.0],
]


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CALLS)
def test_nan_and_infinity_agree_with_the_formula(monkeypatch, instruction_set, name, dtype):
    x = np.array(SPECIAL, dtype)
    x = np.concatenate([x, np.tile(x, 13)], axis=-1)  # shorter and longer than a vector
    y, w, b = np.full_like(x, 0.5), np.full(x.shape[-1], 2, dtype), np.zeros(x.shape[-1], dtype)
    ours = CALLS[name](x, y, w, b)
    with np.errstate(all="ignore"):
        want = formula(monkeypatch, CALLS[name], x, y, w, b)
        wide = formula(monkeypatch, CALLS[name], *(a.astype(np.float64) for a in (x, y, w, b)))
        far = np.abs(want.astype(np.float64) - wide) > 1e-3 * np.abs(wide)  # where the formula itself overflows
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(ours[~far], want[~far], rtol=60 * eps, atol=20 * eps)


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", [(7, 1), (5, 17), (3, 5, 63), (11, 384), (2, 1031), (0, 7)], ids=str)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "label_smoothing": 0.1}, {"reduction": "none"}], ids=str)
def test_cross_entropy_agrees_with_the_formula(rng, monkeypatch, instruction_set, kind, shape, options):
    if not shape[0] and not options:
        pytest.skip("there is no mean of nothing")
    dtype, targets = FLOATS[kind], rng.integers(0, shape[-1], shape[:-1])
    logits = (rng.standard_normal(shape) * 5).astype(dtype)
    d = rng.standard_normal(shape[:-1] if options.get("reduction") == "none" else ())

    def call(x):
        loss, pullback = F.cross_entropy_vjp(x, targets, **options)
        return loss, pullback(d.astype(x.dtype))[0]

    (loss, d_logits), (exact, d_exact) = call(logits), formula(monkeypatch, call, logits.astype(np.float64))
    assert loss.dtype == d_logits.dtype == dtype
    limits = bound(dtype, "cross_entropy")
    # The gradient is d times a sum of three numbers of up to 1, each rounded.
    d_error = 4 * limits["rtol"] * np.abs(d).max(initial=0) + limits["atol"]
    np.testing.assert_allclose(d_logits.astype(np.float64), d_exact, rtol=0, atol=d_error)
    rows = math.prod(shape[:-1])
    np.testing.assert_allclose(np.float64(loss), exact, limits["rtol"] * (1 + rows), 10 * limits["rtol"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("make", [lambda x: x, np.asfortranarray, lambda x: x[::2, ::-1], lambda x: x[:, 1:].T])
def test_large_arrays_are_added_as_numpy_adds(rng, instruction_set, threads, dtype, make):
    x, y = (make(rng.standard_normal((401, 303)).astype(dtype)) for _ in range(2))
    threads(2)
    for a, b in ((x, y), (x, np.ascontiguousarray(y)), (np.ascontiguousarray(x), y)):
        np.testing.assert_array_equal(ops.add(a, b), a + b)
        want, before = a + b, b.copy()
        ops.add(a, b, out=a)
        np.testing.assert_array_equal(a, want)
        np.testing.assert_array_equal(b, before)


def test_other_sums_are_those_of_numpy(rng):
    x = rng.standard_normal((301, 303))
    for y in (1.5, x[0], x.astype(np.float32), x[:, :1]):
        found = ops.add(x, y)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 5, 1000, 70_001])
def test_adamw_agrees_with_its_formula(rng, monkeypatch, instruction_set, threads, size, dtype):
    decayed = size * 2 // 3  # not at the end of a vector
    start, *gradients = rng.standard_normal((4, size)).astype(dtype)

    def updated(count):
        threads(count)
        x, optimizer = start.copy(), AdamW(size, decayed, np.dtype(dtype), betas=(0.8, 0.95), weight_decay=0.1)
        norms = []
        for gradient in gradients:
            norms.append(global_norm(gradient))
            optimizer.step(x, gradient, 0.01, scale=0.7)
        return x, optimizer.first, optimizer.second, norms

    one, two, want = updated(1), updated(2), formula(monkeypatch, updated, 1)
    for ours, again, theirs in zip(one, two, want, strict=True):
        np.testing.assert_array_equal(ours, again)
        np.testing.assert_allclose(ours, theirs, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)


def test_long_rows_keep_precision(rng):
    x = rng.random(3_000_000, dtype=np.float32)
    assert abs(F.softmax(x).sum(dtype=np.float64) - 1) < 1e-6
    wide = x.astype(np.float64)
    np.testing.assert_allclose(F.layer_norm(x + 10, eps=0), (wide - wide.mean()) / wide.std(), rtol=0, atol=2e-5)


@pytest.mark.pairwise
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("features", "rotated"), [(2, 2), (64, 64), (70, 34), (33, 32)])
def test_rotary_agrees_with_the_formula(rng, monkeypatch, instruction_set, kind, features, rotated, interleaved):
    dtype = FLOATS[kind]
    x = np.moveaxis(rng.standard_normal((2, 7, 3, features)), 1, 2).astype(dtype)  # B H T D, as heads are split
    angles = rng.standard_normal((2, 1, 7, rotated // 2))
    work = np.float64 if dtype is np.float64 else np.float32
    for cos, sin in [(np.cos(angles), np.sin(angles)), (np.cos(angles[0, 0]), np.sin(angles[0, 0]))]:
        ours = F.apply_rotary(x, cos, sin, interleaved=interleaved)
        exact = formula(
            monkeypatch, lambda *a: F.apply_rotary(*a, interleaved=interleaved),
            x.astype(np.float64), cos.astype(work).astype(np.float64), sin.astype(work).astype(np.float64),
        )  # fmt: skip
        assert (ours.dtype, ours.shape) == (dtype, x.shape)
        np.testing.assert_allclose(ours.astype(np.float64), exact, **bound(dtype, "apply_rotary"))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 5, 31, 48, 49, 130, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 5), (64, 64), (37, 131), (520, 70), (0, 3)])
def test_the_linear_map_is_the_product(rng, instruction_set, rows, inputs, outputs, dtype):
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((rows, inputs), (inputs, outputs), (outputs,)))
    wide = [a.astype(np.longdouble) for a in (x, w, b)]
    exact = (wide[0] @ wide[1]).astype(np.float64)
    # Each product and each of the sums it is added to is rounded once, whatever the order.
    allowed = (inputs + 2) * np.finfo(dtype).eps * (np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])) + 1e-300
    for weight in (w, np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2], w[::-1][::-1]):
        for bias in (None, b):
            output = np.full((rows, outputs), np.nan, dtype)
            kernel.linear(output, x, weight, bias)
            assert (np.abs(output - (exact if bias is None else exact + b)) <= allowed).all()


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 5, 49, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 5), (37, 131), (520, 70), (900, 48), (0, 3)])
def test_a_transposed_matrix_is_read_as_it_is(rng, instruction_set, rows, inputs, outputs, dtype):
    x, w = rng.standard_normal((inputs, rows)).astype(dtype), rng.standard_normal((inputs, outputs)).astype(dtype)
    eps = float(np.finfo(dtype).eps)
    bound = eps * (np.abs(x.T).astype(float) @ np.abs(w).astype(float)) * (2 + inputs**0.5)
    assert (np.abs(F.linear(x.T, w) - x.T.astype(float) @ w) <= bound + np.finfo(dtype).tiny).all()
    wide = rng.standard_normal((inputs, rows + 3)).astype(dtype)
    part = wide[:, :rows]
    if rows > 48 and instruction_set != "generic":  # fewer are dot products, of contiguous rows; BLAS has its own order
        np.testing.assert_array_equal(F.linear(part.T, w), F.linear(np.ascontiguousarray(part.T), w))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 31, 300])
@pytest.mark.parametrize(("inputs", "widths"), [(1, [1]), (50, [48]), (96, [47, 2]), (600, [5, 96, 33]), (0, [3])])
def test_packed_weights_give_the_product(rng, instruction_set, rows, inputs, widths, dtype):
    kernel = native.kernel()
    x = rng.standard_normal((rows, inputs)).astype(dtype)
    weights = [rng.standard_normal((inputs, width)).astype(dtype) for width in widths]
    weights[0] = np.asfortranarray(weights[0])
    columns = sum(widths)
    panels = np.zeros((-(-columns // kernel.NR), inputs, kernel.NR), dtype)
    for weight, end in zip(weights, np.cumsum(widths), strict=True):
        kernel.pack(panels, weight, int(end) - weight.shape[1])
    bias = rng.standard_normal(columns).astype(dtype)
    expected = x.astype(np.float64) @ np.concatenate(weights, axis=1).astype(np.float64) + bias
    found = []
    for threads in (1, 2):
        native.set_num_threads(threads)
        output = np.full((rows, columns), np.nan, dtype)
        kernel.linear(output, x, panels, bias)
        found.append(output)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=(inputs + 1) * 10 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(*found)
    for shape in ((1, rows), (rows, 1, 1)):  # any number of axes
        output = np.full((*shape, columns), np.nan, dtype)
        kernel.linear(output, x.reshape(*shape, inputs), panels, bias)
        np.testing.assert_array_equal(output.reshape(rows, columns), found[0])


@pytest.mark.pairwise
@pytest.mark.parametrize("rows", [3, 60])
@pytest.mark.parametrize("name", ["gelu", "gelu_new", "silu", "relu"])
def test_a_linear_map_may_end_in_an_activation(rng, monkeypatch, instruction_set, name, rows):
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 20), (20, 71), (71,)))
    ours = F.linear(x, np.asfortranarray(w), b, activation=name)
    wide = formula(monkeypatch, lambda *a: F.linear(*a, activation=name), *(a.astype(np.float64) for a in (x, w, b)))
    np.testing.assert_allclose(ours, wide, rtol=1e-5, atol=22 * np.finfo(np.float32).eps * 20)
    with pytest.raises(RegardError, match="unknown activation 'mish'"):
        F.linear(x, w, b, activation="mish")


def test_any_number_of_threads_gives_the_same_product(rng, same_bits):
    w, b = rng.standard_normal((384, 1000)).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    for rows in (3, 40, 700):
        x = rng.standard_normal((2, rows, 384)).astype(np.float32)
        same_bits(functools.partial(F.linear, x, np.asfortranarray(w), b), (1, 2, 16))


def test_functions_dispatch_to_the_kernel(rng, monkeypatch):
    """Each function of the package gets its result from the kernel."""
    calls = []
    compute = ops._call

    def noting(function, *arguments):
        found = compute(function, *arguments)
        calls.append((function, found is not None))
        return found

    monkeypatch.setattr(ops, "_call", noting)
    for call in CALLS.values():
        call(*drawn(rng, (3, 5)))
    F.rotary(rng.standard_normal((3, 4)))
    for entry in ACTIVATIONS.values():
        entry.function(rng.standard_normal((3, 4)))
    logits, targets = rng.standard_normal((3, 4)), np.array([0, 1, 2])
    F.cross_entropy_vjp(logits, targets)[1](np.ones(()))
    names = {"softmax", "layer_norm", "rms_norm", "swiglu", "apply_rotary", "scaled_softmax"}
    activations = {entry.kernel_name for entry in ACTIVATIONS.values() if entry.kernel_name}
    vjps = {f"{name}_vjp" for name in ("layer_norm", "rms_norm", *activations)}
    assert set(calls) == {(name, True) for name in names | activations | vjps}


@pytest.mark.parametrize(
    "arrays",
    [
        (np.zeros((), np.float32),),
        (np.zeros((1,) * 9, np.float32),),
        (np.zeros(3, np.longdouble),),
        (np.zeros(3, ">f4"),),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.float64)),
        (np.zeros((2, 3), np.float16), np.zeros(3, ml_dtypes.bfloat16)),
    ],
)
def test_the_formula_computes_what_the_kernel_does_not_support(arrays):
    like, *others = arrays
    assert ops.apply_op("gelu", like, (), (*others, None)[:1]) is None
    assert F.gelu(like).shape == like.shape


def test_integers_and_lists_count_as_doubles():
    assert F.rms_norm([3, 4], eps=0).dtype == np.float64
    np.testing.assert_allclose(F.swiglu([0, 1], [1, 2]), [0, 2 / (1 + np.exp(-1))], rtol=1e-15)
