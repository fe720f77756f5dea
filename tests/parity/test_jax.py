"""regard.jax beside jax.nn: numbers, gradients, the transformations of JAX, and what it refuses.

`test_array_libraries` has every mask and bias, differentiated and mapped.
"""

import functools
import subprocess
import sys

import numpy as np
import pytest
from jax_arrays import enable_x64, jax, jnp

import regard
import regard.jax
from regard import RegardError, functional
from regard.functional import ALiBi, Causal, Mask

B, H, G, T, S, D, DV = 2, 6, 3, 5, 7, 4, 3
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


def draw(seed, *shape, dtype="float64"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def qkv(dtype="float64"):
    return tuple(draw(i, *shape, dtype=dtype) for i, shape in enumerate([(B, H, T, D), (B, G, S, D), (B, G, S, DV)]))


MASK = np.random.default_rng(7).random((B, 1, T, S)) < 0.6
MASK[0, 0, 2] = False  # a query that attends to no key


def gradients(function, inputs, wrap=lambda f: f):
    def total(*inputs):
        output = function(*inputs)
        return jnp.sum(output.astype(jnp.float32 if output.dtype.itemsize == 2 else output.dtype) ** 2), output

    (_, output), found = wrap(jax.value_and_grad(total, tuple(range(len(inputs))), has_aux=True))(*inputs)
    return output, *found


def close(ours, theirs, eps=EPS["float64"], factor=64):
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, rtol=0, atol=factor * eps * max(1.0, np.abs(other).max()))


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (2, 1)}, {"mask": True}, {"bias": True}, {"key_lengths": True}],
    ids=lambda options: next(iter(options), "plain"),
)
def test_the_numbers_and_gradients_of_jax_nn(options, dtype):
    """Of the same numbers in float32 at least; its softmax is of float32 for those of float64 too."""
    wide = dtype == "float64"
    with enable_x64(wide):
        n = 9
        q, k, v = (draw(i, B, heads, n, D, dtype=dtype) for i, heads in enumerate((H, G, G)))
        mask, lengths = np.random.default_rng(5).random((B, 1, n, n)) < 0.7, jnp.array([4, 9], jnp.int32)
        mask[..., 0] = True
        bias = draw(6, 1, H, n, n, dtype=dtype)
        given = {"mask": mask, "bias": bias, "key_lengths": lengths}
        ours = {name: given[name] if value is True and name in given else value for name, value in options.items()}
        names = {"causal": "is_causal", "window": "local_window_size", "key_lengths": "key_value_seq_lengths"}
        theirs = {names.get(name, name): value for name, value in ours.items()}
        precise = "float64" if wide else "float32"

        def peer(q, k, v):
            q, k, v = (jnp.swapaxes(x, 1, 2).astype(precise) for x in (q, k, v))
            wide = {"bias": bias.astype(precise)} if "bias" in ours else {}
            return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, **theirs | wide), 1, 2)

        found = gradients(lambda q, k, v: regard.jax.attention(q, k, v, **ours), (q, k, v), jax.jit)
        assert {str(x.dtype) for x in found} == {dtype}
        # The gradient comes through the rounded output, which is of that precision.
        close(found, gradients(peer, (q, k, v), jax.jit), max(EPS[dtype], EPS["float32"]), 16)


def test_vmap_folds_single_heads_twice_and_maps_every_array(x64):
    q, k, v, bias = draw(0, 2, 3, T, D), draw(1, 2, 3, S, D), draw(2, 2, 3, S, DV), draw(3, 3, T, S)
    mask, lengths, slopes, sinks = MASK[:, 0, :, :], jnp.array([[1, 7, 4], [0, 2, 5]]), draw(4, 3, 1), draw(5, 2, 1)

    def rules(q, k, v, bias, mask, length, sinks):
        return regard.jax.attention(q, k, v, bias=bias, mask=mask, key_lengths=length, sinks=sinks)

    def slope(q, k, v, slopes):
        return regard.jax.attention(q, k, v, bias=ALiBi(slopes))

    folded = jax.vmap(jax.vmap(rules, (0, 0, 0, 0, None, 0, None)), (0, 0, 0, None, 0, 0, 0))
    sloped = jax.vmap(jax.vmap(slope), (0, 0, 0, None))
    for i in range(2):
        for j in range(3):
            one = rules(q[i, j], k[i, j], v[i, j], bias[j], mask[i], lengths[i, j], sinks[i])
            close([jax.jit(folded)(q, k, v, bias, mask, lengths, sinks)[i, j]], [one])
            close([sloped(q, k, v, slopes)[i, j]], [slope(q[i, j], k[i, j], v[i, j], slopes[j])])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_vmap_maps_integers_alone(wrap, x64):
    """Lengths, offsets, rows and positions, with queries and keys that are not mapped."""
    (q, k, v), each = qkv(), jnp.array([[3, 7], [1, 5], [6, 0]])

    def lengths(k, x):
        return regard.jax.attention(q, k, v, key_lengths=x)

    def offsets(k, x):
        return regard.jax.attention(q, k, v, causal=True, query_offset=x)

    def rows(k, x):
        return regard.attention_weights(q, k, rows=x % T)

    def rotated(k, x):
        return functional.rotary(k[..., :2, :], x)

    for function in (lengths, offsets, rows, rotated):
        mapped = wrap(jax.vmap(functools.partial(function, k)))(each)
        close(mapped, jnp.stack([jax.jit(function)(k, x) for x in each]))

    def gradient(k, x):
        return jax.grad(lambda k: jnp.sum(lengths(k, x) ** 2))(k)

    keys, one = jnp.stack([k, 2 * k, -k]), jax.jit(gradient)
    close(wrap(jax.vmap(gradient))(keys, each), jnp.stack([one(*pair) for pair in zip(keys, each, strict=True)]))


def test_scan_and_checkpoint(x64):
    q, k, v = draw(0, H, T, D), draw(1, H, T, D), draw(2, H, T, D)

    def layers(attention, wrap):
        def layer(x, w):
            return x + attention(x * w, x + k, x - v, causal=True), None

        return lambda x, w: jnp.sum(jax.lax.scan(wrap(layer), x, w)[0] ** 2)

    def theirs(q, k, v, causal):
        weights = jnp.where(np.tri(T, dtype=bool), jnp.exp(q @ k.mT / D**0.5), 0)
        return weights @ v / weights.sum(-1, keepdims=True)

    expected = jax.jit(jax.grad(layers(theirs, lambda f: f), (0, 1)))(q, jnp.array([0.5, 1.0, 2.0]))
    for wrap in (lambda f: f, jax.checkpoint):
        ours = jax.jit(jax.grad(layers(regard.jax.attention, wrap), (0, 1)))(q, jnp.array([0.5, 1.0, 2.0]))
        close(ours, expected, factor=4096)


def test_regard_attention_takes_the_kernel_without_being_asked():
    q, k, v = qkv("float32")
    assert regard.explain_plan(q, k, v).implementation == "native"
    traced = jax.make_jaxpr(jax.grad(lambda q: regard.attention(q, k, v).sum()))(q)
    assert str(traced).count("pure_callback[") == 2
    formula = jax.make_jaxpr(lambda q: regard.attention(q, k, v, implementation="reference"))(q)
    assert "pure_callback" not in str(formula)


def test_a_call_that_is_not_traced_copies_nothing():
    q = draw(0, 8, 128, 64, dtype="float32")  # small arrays are not aligned as JAX needs them
    seen = []
    original = functional.native.kernel().forward

    def forward(call, out, *rest):
        seen.append(out)
        return original(call, out, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional.native.kernel(), "forward", forward)
        context = regard.attention(q, q, q)
    assert seen[0].ctypes.data == context.unsafe_buffer_pointer()


def test_equal_calls_are_compiled_once():
    q, k, v = qkv("float32")

    def call(q, mask, slopes):
        return regard.jax.attention(q, k, v, mask=Causal() & mask, bias=ALiBi(slopes), window=[3, None])

    def callback(seed):
        program = jax.make_jaxpr(call)(q, jnp.asarray(MASK), draw(seed, H, dtype="float32"))
        found = [eqn for eqn in _equations(program.jaxpr) if eqn.primitive.name == "pure_callback"]
        (eqn,) = found
        return eqn.params["callback"]

    assert callback(0) == callback(1)
    assert hash(callback(0)) == hash(callback(1))


def _equations(jaxpr):
    """Yield the steps of a program, and those of programs in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def test_dropout_by_a_key(x64):
    q, k, v = qkv()
    ones = jnp.eye(S)[None, None]  # the values are then the weights

    def weights(key):
        return regard.jax.attention(q, k, ones, dropout=0.4, rng=key)

    whole, compiled = regard.attention_weights(np.asarray(q), np.asarray(k)), jax.jit(weights)
    one, (same, other) = weights(jax.random.key(1)), (compiled(jax.random.key(seed)) for seed in (1, 2))
    close([one], [same])
    assert (np.asarray(one) != np.asarray(other)).any()
    dropped = np.asarray(one) == 0
    np.testing.assert_allclose(np.asarray(one)[~dropped], (whole / 0.6)[~dropped], rtol=1e-12)
    assert 0.25 < dropped.mean() < 0.55
    keys = jax.random.split(jax.random.key(0), 3)
    close(jax.jit(jax.vmap(weights))(keys), [compiled(key) for key in keys])
    # The gradient drops the same weights.
    function = lambda v: regard.jax.attention(q, k, v, dropout=0.4, rng=jax.random.key(1))  # noqa: E731
    _, pullback = jax.vjp(jax.jit(function), v)
    d_output = draw(9, B, H, T, DV)
    expected = np.swapaxes(np.asarray(one), -1, -2) @ np.asarray(d_output)
    close(pullback(d_output), [expected.reshape(B, G, H // G, S, DV).sum(2)])


def test_sums_that_overflow_are_computed_wider():
    q, k, v = qkv("float32")
    huge = 3e38 * jnp.sign(v)
    theirs = regard.attention(*(np.asarray(x) for x in (q, k, huge)))
    for function in (regard.jax.attention, jax.jit(regard.jax.attention)):
        np.testing.assert_allclose(function(q, k, huge), theirs, rtol=1e-6)
    found = jax.jit(jax.grad(lambda v: jnp.sum(regard.jax.attention(q, k, v) / 1e30)))(huge)
    assert jnp.isfinite(found).all()


def test_on_one_processor_without_waiting_for_itself():
    """A callback that used JAX would wait for the thread that it holds."""
    code = """
import os
if hasattr(os, "sched_setaffinity"): os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, jax.numpy as jnp, regard.jax
x = jnp.ones((4, 8, 256, 64))
f = jax.jit(jax.grad(lambda x: regard.jax.attention(jnp.sin(x), x * 2, x + 1, causal=True).sum()))
print(f(x).sum().block_until_ready().shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "()", done.stderr


# What it refuses


def test_it_speaks_of_arrays_and_devices_of_jax(monkeypatch):
    q, k, v = qkv("float32")
    with pytest.raises(RegardError, match=r"k must be an array of JAX, got ndarray; jax.numpy.asarray makes one"):
        regard.jax.attention(q, np.asarray(k), v)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(
        RegardError, match=r"for a program compiled for gpu, but regard computes on the CPU.*default_device"
    ):
        jax.jit(lambda *x: regard.jax.attention(*x))(q, k, v)  # of which nothing is compiled yet
    assert "pure_callback" not in str(jax.make_jaxpr(regard.attention)(q, k, v))  # the equation, there
    with jax.default_device(jax.devices("cpu")[0]):
        assert jax.jit(lambda *x: regard.jax.attention(*x))(q, k, v).shape == (B, H, T, DV)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": jnp.zeros((T, S))}, "mask must be boolean"),
        ({"bias": jnp.zeros((T, S), bool)}, "bias is boolean"),
        ({"bias": jnp.zeros((4, 4))}, "does not broadcast"),
        ({"window": 3}, "window must be"),
        ({"dropout": 0.5}, "explicit generator"),
        ({"q": jnp.zeros((2, 5, T, D))}, "cannot share"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_mistakes_are_told_before_the_program_runs(change, message):
    given = dict(zip("qkv", qkv("float32"), strict=True)) | change
    for function in (regard.jax.attention, lambda **given: jax.eval_shape(lambda: regard.jax.attention(**given))):
        with pytest.raises(RegardError, match=message) as caught:
            function(**given)
        assert isinstance(caught.value, ValueError)


def test_second_derivatives_are_refused_in_a_sentence():
    q, k, v = qkv("float32")

    def slope(q, **options):
        return jnp.sum(jax.grad(lambda q: jnp.sum(regard.jax.attention(q, k, v, **options) ** 2))(q))

    for wrap in (lambda f: f, jax.jit):
        with pytest.raises(ValueError, match=r"cannot be differentiated again.*implementation='reference'"):
            wrap(jax.grad(slope))(q)
    assert jnp.isfinite(jax.jit(jax.grad(lambda q: slope(q, implementation="reference")))(q)).all()


def test_a_rule_of_ones_own_may_use_jax():
    class Even(Mask):
        def allows(self, layout, rows, cols):
            return jnp.asarray(layout.key_indices(cols)) % 2 == 0

    q, k, v = qkv("float32")
    expected = regard.attention(*map(np.asarray, (q, k, v)), mask=np.arange(S) % 2 == 0)
    for wrap in (lambda f: f, jax.jit):
        found = wrap(lambda q: regard.jax.attention(q, k, v, mask=Even()))(q)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
