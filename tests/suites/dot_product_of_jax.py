"""`jax.nn.dot_product_attention` with the arguments of JAX's tests of it, which no package carries: values, gradients.

The plugin puts regard in the place of JAX's function.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

OWN = jax.nn.dot_product_attention
B, T, S, H = 4, 17, 24, 8
DTYPES = ("float32", "bfloat16", "float16")
# Of each mode: the options, from a generator, the number of heads and that of queries. Each query keeps a key.
MODES = {
    "plain": lambda draw, heads, queries: {},
    "bias": lambda draw, heads, queries: {"bias": draw.standard_normal((B, heads, queries, S))},
    "bias of all": lambda draw, heads, queries: {"bias": draw.standard_normal((1, 1, queries, S))},
    "causal": lambda draw, heads, queries: {"is_causal": True},
    "padding": lambda draw, heads, queries: {
        "query_seq_lengths": draw.integers(1, queries + 1, B, np.int32),
        "key_value_seq_lengths": draw.integers(1, S + 1, B, np.int32),
    },
    "mask": lambda draw, heads, queries: {"mask": (draw.random((B, heads, queries, S)) < 0.5) | (np.arange(S) == 0)},
    "window": lambda draw, heads, queries: {"local_window_size": (3, 2)},
    "window of one size": lambda draw, heads, queries: {"local_window_size": 4},
    "scale": lambda draw, heads, queries: {"scale": 0.3},
}  # fmt: skip
MODES |= {
    f"{one}, {other}": lambda *x, one=one, other=other: MODES[one](*x) | MODES[other](*x)
    for one, other in [
        *(("bias", "causal"), ("bias", "mask"), ("bias", "padding"), ("causal", "mask"), ("causal", "padding")),
        *(("causal", "window"), ("mask", "padding"), ("mask", "scale"), ("bias", "window")),
    ]
}


def call_of(mode, heads, groups, queries, dtype):
    draw = np.random.default_rng(5)
    shapes = (B, queries, heads, H), (B, S, groups, H), (B, S, groups, H)
    q, k, v = (jnp.asarray(draw.standard_normal(shape), dtype) for shape in shapes)
    options = MODES[mode](draw, heads, queries)
    if "bias" in options:
        options["bias"] = jnp.asarray(options["bias"], dtype)
    return (q, k, v), options


def outputs_and_gradients(function, tensors, options):
    """Return the output and the gradients of the tensors and the bias, of one direction."""
    given = (*tensors, *(options[name] for name in ("bias",) if name in options))
    options = {name: x for name, x in options.items() if name != "bias"}
    output, pullback = jax.vjp(lambda *x: function(*x, **options), *given)
    direction = np.random.default_rng(6).standard_normal(output.shape)
    return output, *pullback(jnp.asarray(direction, output.dtype))


def assert_no_worse(found, own, exact, dtype):
    """Twice the error of JAX's own in the same dtype, and the rounding of a sum of all keys and features."""
    assert len(found) == len(own) == len(exact)
    for one, other, true in zip(found, own, exact, strict=True):
        assert one.dtype == dtype
        true = np.asarray(true, np.float64)
        error, own_error = (np.abs(np.asarray(x, np.float64) - true).max() for x in (one, other))
        assert error <= 2 * own_error + (S + H) * float(jnp.finfo(dtype).eps) * max(1, np.abs(true).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("mode", MODES)
def test_values_and_gradients(mode, groups, dtype):
    tensors, options = call_of(mode, 6, groups, T, dtype)
    with jax.enable_x64(True):
        wide = {n: x.astype("float64") if n == "bias" else x for n, x in options.items()}
        exact = outputs_and_gradients(OWN, [x.astype("float64") for x in tensors], wide)
    own = outputs_and_gradients(OWN, tensors, options)
    assert_no_worse(outputs_and_gradients(jax.nn.dot_product_attention, tensors, options), own, exact, dtype)


@pytest.mark.parametrize("mode", ["plain", "bias of all", "causal", "window", "scale"])
@pytest.mark.parametrize("transformed", ["jit", "vmap", "one text", "checkpoint", "scan"])
def test_transformed(mode, transformed):
    (q, k, v), options = call_of(mode, 6, 3, S, "float32")
    wanted = outputs_and_gradients(OWN, (q, k, v), options)
    bias = options.pop("bias", None)
    attention = functools.partial(jax.nn.dot_product_attention, **options)

    def function(q, k, v, bias=None):
        one_bias = None if bias is None else bias[0]
        if transformed == "jit":
            return jax.jit(attention)(q, k, v, bias)
        if transformed == "checkpoint":
            return jax.checkpoint(attention)(q, k, v, bias)
        if transformed == "vmap":
            return jax.vmap(lambda *x: attention(*(y[None] for y in x), bias)[0])(q, k, v)
        if transformed == "scan":
            return jax.lax.scan(lambda _, x: (None, attention(*x, one_bias)), None, (q, k, v))[1]
        return jnp.stack([attention(q[i], k[i], v[i], one_bias) for i in range(B)])

    options = {} if bias is None else {"bias": bias}
    assert_no_worse(outputs_and_gradients(function, (q, k, v), options), wanted, wanted, "float32")
