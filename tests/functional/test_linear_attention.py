"""Linear attention beside its recurrence, token by token in float64."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from attention_cases import chance
from regard import functional as F, linear_attention, linear_attention_vjp

seeds = st.integers(0, 2**31)


def recurrence(q, k, v, decay=None, beta=None, state=None, scale=None):
    """Return output and state by the definition, in float64; all arrays have the axes B, heads, T and features."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    repeats, scale = q.shape[1] // k.shape[1], 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    state = np.zeros((*k.shape[:2], k.shape[-1], v.shape[-1])) if state is None else state.astype(np.float64)
    output = np.empty((*q.shape[:3], v.shape[-1]))
    for t in range(q.shape[2]):
        if decay is not None:
            state = np.exp(np.broadcast_to(decay, k.shape)[:, :, t, :, None].astype(np.float64)) * state
        written = v[:, :, t]
        if beta is not None:
            written = beta[:, :, t, None] * (written - np.einsum("bgdv,bgd->bgv", state, k[:, :, t]))
        state = state + k[:, :, t, :, None] * written[:, :, None, :]
        output[:, :, t] = scale * np.einsum("bhdv,bhd->bhv", state.repeat(repeats, 1), q[:, :, t])
    return output, state


def random_inputs(seed, strongest=100.0):
    """Draw arrays of any update rule, with keys of length 1, as they are in models."""
    rng = np.random.default_rng(seed)
    batch, groups, repeats, length, dim, width = (int(rng.integers(1, n)) for n in (3, 4, 4, 40, 7, 6))
    k = rng.standard_normal((batch, groups, length, dim))
    given = {
        "q": rng.standard_normal((batch, groups * repeats, length, dim)),
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": rng.standard_normal((batch, groups, length, width)),
    }
    if chance(rng, 0.6):
        shape = [(batch, groups, length, 1), (batch, groups, length, dim), (groups, 1, 1)][int(rng.integers(0, 3))]
        given["decay"] = -rng.random(shape) * rng.choice([0.1, 1.0, strongest])
    if chance(rng, 0.5):
        given["beta"] = rng.random((batch, groups, length))
    if chance(rng, 0.5):
        given["state"] = rng.standard_normal((batch, groups, dim, width))
    if chance(rng, 0.3):
        given["scale"] = float(rng.uniform(0.1, 2))
    return rng, given


@given(seeds)
def test_chunks_of_any_size_give_the_recurrence(seed):
    rng, given = random_inputs(seed)
    output, state = linear_attention(**given, chunk_size=int(rng.choice([1, 2, 5, 16, 64])))
    expected, expected_state = recurrence(**given)
    np.testing.assert_allclose(output, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(state, expected_state, rtol=1e-11, atol=1e-11)


@given(seeds)
def test_a_state_continues_where_it_was_taken(seed):
    rng, given = random_inputs(seed)
    whole = linear_attention(**given)
    cut = int(rng.integers(0, given["q"].shape[2] + 1))
    parts, state = [], given.pop("state", None)
    for span in (slice(0, cut), slice(cut, None)):
        own = {name: x[:, :, span] if np.ndim(x) > 2 and np.shape(x)[-2] != 1 else x for name, x in given.items()}
        if np.ndim(given.get("decay")) == 4:
            own["decay"] = given["decay"][:, :, span]
        if "beta" in given:
            own["beta"] = given["beta"][:, :, span]
        for name in ("q", "k", "v"):
            own[name] = given[name][:, :, span]
        output, state = linear_attention(**own, state=state)
        parts.append(output)
    np.testing.assert_allclose(np.concatenate(parts, 2), whole.output, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(state, whole.state, rtol=1e-11, atol=1e-11)


@given(seeds)
def test_gradients_are_those_of_differences(seed):
    rng, given = random_inputs(seed, strongest=3.0)
    result, pullback = linear_attention_vjp(**given, chunk_size=int(rng.choice([1, 4, 64])))
    d_output, d_state = (rng.standard_normal(x.shape) for x in result)
    gradients = pullback(d_output, d_state)

    def scalar(changed):
        output, state = recurrence(**changed)
        return (output * d_output).sum() + (state * d_state).sum()

    for name in given.keys() - {"scale"}:
        gradient = getattr(gradients, name)
        assert gradient.shape == given[name].shape
        step = rng.standard_normal(given[name].shape) * 1e-5
        difference = scalar(given | {name: given[name] + step}) - scalar(given | {name: given[name] - step})
        np.testing.assert_allclose((gradient * step).sum() * 2, difference, rtol=2e-5, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 2e-3), (np.float32, 1e-5)])
def test_narrow_floats_are_computed_in_float32_and_rounded_once(dtype, rtol):
    for seed in range(20):
        _, given = random_inputs(seed)
        given = {name: x if name == "scale" else x.astype(dtype) for name, x in given.items()}
        result, pullback = linear_attention_vjp(**given)
        expected, state = recurrence(**given)
        assert result.output.dtype == dtype
        assert result.state.dtype == np.float32
        np.testing.assert_allclose(result.output, expected, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(result.state, state, rtol=1e-4, atol=1e-4)
        gradients = pullback(result.output)
        assert all(g is None or (g.dtype == dtype and np.isfinite(g).all()) for g in gradients)


@pytest.mark.parametrize("lead", [(), (5,), (4, 5)], ids=str)
def test_no_tokens_leave_the_state_as_it_is(lead):
    state = np.arange(6.0 * np.prod(lead)).reshape(*lead, 1, 2, 3)
    q, v = np.ones((*lead, 1, 0, 2)), np.ones((*lead, 1, 0, 3))
    empty, pullback = linear_attention_vjp(q, q, v, state=state)
    assert empty.output.shape == v.shape
    np.testing.assert_array_equal(empty.state, state)
    np.testing.assert_array_equal(pullback(empty.output, 2 * state).state, 2 * state)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_decay_of_minus_infinity_forgets_all_before(rng, dtype):
    q, k, v = rng.standard_normal((3, 1, 6, 4)).astype(dtype)
    decay = np.zeros((1, 6, 1), dtype)
    decay[:, 3] = -np.inf
    whole = linear_attention(q, k, v, decay=decay)[0]
    after = linear_attention(q[:, 3:], k[:, 3:], v[:, 3:], decay=np.zeros((1, 3, 1), dtype))[0]
    np.testing.assert_allclose(whole[:, 3:], after, rtol=1e-4, atol=1e-5)
    assert np.isfinite(whole).all()


@given(seeds)
def test_variables_have_the_gradients_of_the_pullback(seed):
    rng, given = random_inputs(seed, strongest=3.0)
    scale = given.pop("scale", None)
    variables = {name: F.Variable(x) for name, x in given.items()}
    found = linear_attention(**variables, scale=scale)
    result, pullback = linear_attention_vjp(**given, scale=scale)
    d_output, d_state = (rng.standard_normal(x.shape) for x in result)
    total = np.sum(found.output * d_output) + np.sum(found.state * d_state)
    of_both = pullback(d_output, d_state)
    for name, gradient in zip(given, F.gradients(total, list(variables.values())), strict=True):
        np.testing.assert_allclose(gradient, getattr(of_both, name), rtol=1e-12, atol=1e-12)
