"""Linear attention: a state of fixed size in place of the keys, updated token by token, computed chunk by chunk.

With S the state, ``D Dv``, g the decay, b the write strength beta and u the value that is written:

    S ← exp(g) · S;   u = b · (v − kᵀ S) with the delta rule, else v;   S ← S + k uᵀ;   o = scale · qᵀ S

Inside a chunk, with c the sum of the decays up to a token, the states are not formed: what token i has written reaches
token t as exp(c_t − c_i) k_i u_iᵀ, so that all tokens of a chunk are a few matrix products, and the u of the delta rule
solve a triangular system. Exponents are differences of sums from i to t ≥ i, so that no decay, however strong,
overflows.

References
----------
Katharopoulos et al. (2020), "Transformers are RNNs", https://arxiv.org/abs/2006.16236; Yang et al. (2024), "Gated
linear attention transformers", https://arxiv.org/abs/2312.06635, and "Parallelizing linear transformers with the delta
rule", https://arxiv.org/abs/2406.06484; Yang, Kautz and Hatamizadeh (2025), "Gated delta networks",
https://arxiv.org/abs/2412.06464. The semantics follow the ONNX operator LinearAttention, opset 27.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional.arrays import (
    Array,
    as_array,
    compute_dtype,
    concat,
    device,
    is_floating,
    namespace,
    narrowed,
    result_dtype,
)
from regard.functional.biases.base import sum_to_shape
from regard.functional.scores.layout import broadcasts
from regard.functional.variable import Pullback, is_recorded, record_vjp

_OTHERS = ("decay", "beta", "state")
_FEATURE_DECAY_CHUNK = 16  # products of a chunk with a decay for each feature have chunk² · D elements


class LinearAttention(NamedTuple):
    """The result of `linear_attention`.

    Parameters
    ----------
    output : array, ``... H T Dv``
    state : array, ``... G D Dv``
        After the last token, in the compute dtype (float32 for half precision): to give to the call with the next
        tokens.
    """

    output: Array
    state: Array


class LinearAttentionGradients(NamedTuple):
    """The gradient of a scalar with respect to each input of `linear_attention`, in the input's shape and dtype.

    Parameters
    ----------
    q, k, v : array
    decay, beta, state : array or None
        None if there was no such input.
    """

    q: Array
    k: Array
    v: Array
    decay: Array | None = None
    beta: Array | None = None
    state: Array | None = None


def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    decay: Array | None = None,
    beta: Array | None = None,
    state: Array | None = None,
    scale: float | None = None,
    chunk_size: int = 64,
) -> LinearAttention:
    """Return causal attention without a softmax, in time linear in the length, and the state after the last token.

    The update rule is linear; with `decay` gated, with `beta` delta, with both gated delta.

    Parameters
    ----------
    q : array, ``... H T D``
        A plain ``T D`` is one head. Leading axes of all arrays broadcast.
    k : array, ``... G T D``
        G divides H: each key/value head, and its state, serves H/G consecutive query heads. The delta rules are made
        for keys of length 1; nothing is normalised here.
    v : array, ``... G T Dv``
    decay : array that broadcasts to k, optional
        The logarithm of what the state is multiplied by before a token is written, 0 or less: ``... G T 1`` for a
        head, ``... G T D`` for each feature of the keys.
    beta : array that broadcasts to ``... G T``, optional
        How much of what the state returns for a key is replaced by the token's value, 0 to 1.
    state : array, ``... G D Dv``, optional
        Before the first token; 0 by default.
    scale : float, optional
        Of the output, 1/√D by default.
    chunk_size : int
        Tokens that are computed together, at most 16 with a decay for each feature. It changes the time, and the
        result by rounding.

    Returns
    -------
    LinearAttention
        Output, in the common floating dtype of q, k and v, and state. Half precision is computed in float32.

    Raises
    ------
    RegardError
        Shapes or dtypes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.ones((3, 1))
    >>> linear_attention(x, x, x, scale=1).output[:, 0]
    array([1., 2., 3.])
    >>> linear_attention(x, x, x, beta=np.ones(3), scale=1).output[:, 0]
    array([1., 1., 1.])
    """
    if is_recorded(q, k, v, decay, beta, state):
        return _recorded(q, k, v, decay, beta, state, scale=scale, chunk_size=chunk_size)
    p = _validated(q, k, v, decay, beta, state, scale, chunk_size)
    output, (state,) = _forward(p, every_state=False)
    return _result(p, output, state)


def linear_attention_vjp(
    q: Array,
    k: Array,
    v: Array,
    *,
    decay: Array | None = None,
    beta: Array | None = None,
    state: Array | None = None,
    scale: float | None = None,
    chunk_size: int = 64,
) -> tuple[LinearAttention, Callable[..., LinearAttentionGradients]]:
    """Return linear attention and its vector-Jacobian product.

    Takes the arguments of `linear_attention`.

    Returns
    -------
    result : LinearAttention
    pullback : function
        ``pullback(d_output, d_state=None)`` takes the gradients of a scalar with respect to output and state, and
        returns `LinearAttentionGradients`. One state for each chunk is kept for it.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.ones((2, 1))
    >>> result, pullback = linear_attention_vjp(x, x, x, scale=1)
    >>> pullback(np.ones((2, 1))).v[:, 0]
    array([2., 1.])
    """
    p = _validated(q, k, v, decay, beta, state, scale, chunk_size)
    output, states = _forward(p, every_state=True)
    result = _result(p, output, states[-1])
    inputs = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta, "state": state}

    def pullback(d_output: Array, d_state: Array | None = None) -> LinearAttentionGradients:
        d_out, d_last = as_array(d_output, "d_output"), None if d_state is None else as_array(d_state, "d_state")
        for name, x, like in (("d_output", d_out, result.output), ("d_state", d_last, result.state)):
            if x is not None and tuple(x.shape) != tuple(like.shape):
                raise RegardError(f"{name} {tuple(x.shape)} must have the shape {tuple(like.shape)}")
        gradients = _backward(p, states, d_out, d_last)
        return LinearAttentionGradients(
            **{name: _like(gradients[name], x) for name, x in inputs.items() if x is not None}
        )

    return result, pullback


def _recorded(*inputs: Any, **options: Any) -> LinearAttention:
    """Return linear attention of variables: both results are parts of one variable."""
    results: list[LinearAttention] = []

    def vjp(q: Array, k: Array, v: Array, *others: Any) -> tuple[Array, Pullback]:
        result, pullback = linear_attention_vjp(q, k, v, **dict(zip(_OTHERS, others, strict=True)), **options)
        results.append(result)
        end = result.output.size

        def of_both(d: Array) -> LinearAttentionGradients:
            return pullback(d[:end].reshape(result.output.shape), d[end:].reshape(result.state.shape))

        return np.concatenate([x.ravel() for x in result]), of_both

    both = record_vjp(vjp, *inputs)
    (output, state), end = results[0], results[0].output.size
    return LinearAttention(both[:end].reshape(output.shape).astype(output.dtype), both[end:].reshape(state.shape))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Validated arguments in the compute dtype, with an axis of the query heads that share a key/value head."""

    xp: Any
    dtype: Any  # of the output
    q: Array  # ... G R T D
    k: Array  # ... G 1 T D
    v: Array  # ... G 1 T Dv
    decay: Array | None  # ... G 1 T D, or 1 in place of G, T and D
    beta: Array | None  # ... G 1 T 1
    state: Array | None  # ... G 1 D Dv
    scale: float
    chunk_size: int
    output_shape: tuple[int, ...]
    state_shape: tuple[int, ...]
    start: Array  # the state before the first token, ... G 1 D Dv

    def spans(self) -> list[slice]:
        """Return the chunks."""
        length = self.q.shape[-2]
        return [slice(a, min(a + self.chunk_size, length)) for a in range(0, length, self.chunk_size)]


def _validated(
    q: Array, k: Array, v: Array, decay: Any, beta: Any, state: Any, scale: float | None, chunk_size: int
) -> _Inputs:
    q, k, v = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
    others = {"decay": decay, "beta": beta, "state": state}
    others = {name: None if x is None else as_array(x, name) for name, x in others.items()}
    xp = namespace(q, k, v, *(x for x in others.values() if x is not None))
    dtype = result_dtype(q, k, v)
    shapes = {name: tuple(x.shape) for name, x in {"q": q, "k": k, "v": v, **others}.items() if x is not None}
    said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if min(len(shapes[name]) for name in "qkv") < 2:
        raise RegardError(f"q, k and v need at least two axes, positions and features: {said}")
    if shapes["q"][-1] != shapes["k"][-1]:
        raise RegardError(f"q and k need the same head dimension D (last axis): {said}")
    if len({shapes[name][-2] for name in "qkv"}) != 1:
        raise RegardError(f"q, k and v need the same number of positions T, for each token reads and writes: {said}")
    heads, groups = (shape[-3] if len(shape) > 2 else 1 for shape in (shapes["q"], shapes["k"]))
    if (shapes["v"][-3] if len(shapes["v"]) > 2 else 1) != groups or groups == 0 or heads % groups:
        raise RegardError(f"k and v need the same number of heads, which divides that of q: {said}")
    for name, x in others.items():
        if x is not None and not is_floating(x):
            raise RegardError(f"{name} must be floating, got {x.dtype}")
    length, dim, width = shapes["q"][-2], shapes["q"][-1], shapes["v"][-1]
    trailing_shapes = {"decay": (groups, length, dim), "beta": (groups, length), "state": (groups, dim, width)}
    parts = [shape[:-3] for shape in (shapes["q"], shapes["k"], shapes["v"])]
    for name, trailing in trailing_shapes.items():
        if name not in shapes:
            continue
        own = shapes[name][-len(trailing) :]
        if not broadcasts(own, trailing) or (name == "state" and own[-2:] != trailing[-2:]):
            raise RegardError(f"{name} {shapes[name]} does not fit {', '.join(map(str, trailing))}: {said}")
        parts.append(shapes[name][: -len(trailing)])
    try:
        lead = np.broadcast_shapes(*parts)
    except ValueError:
        raise RegardError(f"the axes before heads, positions and features do not broadcast: {said}") from None
    work = compute_dtype(xp, dtype)

    def prepared(x: Array, trailing: int, rows: int | None = None) -> Array:
        x = xp.astype(x, work, copy=False)
        x = xp.reshape(x, (1,) * (trailing - x.ndim) + tuple(x.shape))
        *before, axis = x.shape[: 1 - trailing]
        after = x.shape[1 - trailing :]
        grouped = (groups, rows) if rows is not None else (axis, 1)
        return xp.reshape(x, (*before, *grouped, *after))

    first = None if state is None else prepared(others["state"], 3)
    start = xp.zeros((*lead, groups, 1, dim, width), dtype=work, device=device(q))
    by_feature = decay is not None and (shapes["decay"] or (1,))[-1] != 1
    size = whole_number("chunk_size", chunk_size, 1)
    plain = all(len(shape) == 2 for shape in (shapes["q"], shapes["k"], shapes["v"])) and not lead
    return _Inputs(
        xp=xp,
        dtype=dtype,
        q=prepared(q, 3, heads // groups),
        k=prepared(k, 3),
        v=prepared(v, 3),
        decay=None if decay is None else prepared(others["decay"], 3),
        beta=None if beta is None else prepared(others["beta"][..., None], 3),
        state=first,
        scale=1 / math.sqrt(dim or 1) if scale is None else finite_number("scale", scale),
        chunk_size=min(size, _FEATURE_DECAY_CHUNK) if by_feature else size,
        output_shape=(length, width) if plain else (*lead, heads, length, width),
        state_shape=(dim, width) if plain else (*lead, groups, dim, width),
        start=start if first is None else start + first,
    )


def _result(p: _Inputs, output: Array, state: Array) -> LinearAttention:
    return LinearAttention(narrowed(p.xp.reshape(output, p.output_shape), p.dtype), p.xp.reshape(state, p.state_shape))


class _Chunk:
    """The arrays of one chunk of C tokens, and what its tokens write."""

    def __init__(self, p: _Inputs, span: slice, state: Array) -> None:
        self.p, self.xp, self.state = p, p.xp, state
        self.q, self.k, self.v = (x[..., span, :] for x in (p.q, p.k, p.v))
        self.lower = p.xp.tril(p.xp.ones((self.q.shape[-2],) * 2, dtype=p.xp.bool, device=device(p.q)))  # t ≥ i
        self.sums = None if p.decay is None else self._decay_sums(_part(p.decay, span))
        self.beta = None if p.beta is None else _part(p.beta, span)
        self.by_feature = self.sums is not None and self.sums.shape[-1] != 1
        self.factors = None if self.sums is None else self._pair_decays(self.sums)
        self.grown = 1.0 if self.sums is None else p.xp.exp(self.sums)  # of the state before the chunk
        self.left = 1.0 if self.sums is None else p.xp.exp(self.sums[..., -1:, :] - self.sums)  # until its end
        self.total = 1.0 if self.sums is None else p.xp.matrix_transpose(p.xp.exp(self.sums[..., -1:, :]))
        self.scores = self.products(self.q, self.k) * p.scale  # t i
        self.written = self.v
        if self.beta is not None:
            self.overlaps = p.xp.tril(self.products(self.k, self.k), k=-1)
            eye = p.xp.eye(self.k.shape[-2], dtype=self.k.dtype, device=device(self.k))
            self.system = eye + self.beta * self.overlaps
            self.error = self.v - (self.k * self.grown) @ state
            self.written = p.xp.linalg.solve(*self._same_lead(self.system, self.beta * self.error))

    def output(self) -> Array:
        """Return the output of the chunk, ``... G R C Dv``."""
        return self.p.scale * ((self.q * self.grown) @ self.state) + self.scores @ self.written

    def next_state(self) -> Array:
        """Return the state after the chunk."""
        return self.total * self.state + self.xp.matrix_transpose(self.k * self.left) @ self.written

    def products(self, x: Array, y: Array) -> Array:
        """Return Σ_d x_td · y_id · exp(c_td − c_id) for t ≥ i, else 0."""
        xp = self.xp
        if not self.by_feature:
            product = x @ xp.matrix_transpose(y)
            return xp.tril(product) if self.factors is None else product * self.factors
        return xp.sum(x[..., :, None, :] * y[..., None, :, :] * self.factors, axis=-1)

    def product_gradients(self, x: Array, y: Array, d_products: Array) -> tuple[Array, Array]:
        """Return the gradients of x and y in `products`."""
        xp, factors = self.xp, self.factors
        if not self.by_feature:
            d = xp.tril(d_products) if factors is None else d_products * factors
            return d @ y, xp.matrix_transpose(d) @ x
        d = d_products[..., None] * factors
        return xp.sum(d * y[..., None, :, :], axis=-2), xp.sum(d * x[..., :, None, :], axis=-3)

    def gradients(self, d_out: Array, d_next: Array) -> tuple[dict[str, Array], Array]:
        """Return the gradients of the chunk's arrays and of the state before it.

        Each exponential of the sums c multiplies a vector, so that its gradient is that vector times its own.
        """
        xp, transposed, scale = self.xp, self.xp.matrix_transpose, self.p.scale
        k_left, k_grown, q_grown = self.k * self.left, self.k * self.grown, self.q * self.grown
        d_written = _over_heads(transposed(self.scores) @ d_out) + k_left @ d_next
        d_scores = d_out @ transposed(self.written)
        d_state = _over_heads(scale * transposed(q_grown) @ d_out) + self.total * d_next
        d_k_left = self.written @ transposed(d_next)
        d_q_grown = scale * d_out @ transposed(self.state)
        gradients: dict[str, Array] = {"v": d_written}
        d_k = d_k_left * self.left
        d_sums = -self.k * d_k
        d_last = xp.sum(k_left * d_k_left, axis=-2, keepdims=True)
        d_last = d_last + transposed(xp.sum(self.total * self.state * d_next, axis=-1, keepdims=True))
        if self.beta is not None:
            right = xp.linalg.solve(*self._same_lead(transposed(self.system), d_written))
            d_system = -xp.tril(right @ transposed(self.written), k=-1)
            gradients["beta"] = xp.sum(right * self.error, axis=-1, keepdims=True) + xp.sum(
                d_system * self.overlaps, axis=-1, keepdims=True
            )
            gradients["v"] = self.beta * right
            d_k_grown = -gradients["v"] @ transposed(self.state)
            d_state = d_state - transposed(k_grown) @ gradients["v"]
            as_reader, as_writer = self.product_gradients(self.k, self.k, self.beta * d_system)
            d_k = d_k + d_k_grown * self.grown + as_reader + as_writer
            d_sums = d_sums + self.k * (d_k_grown * self.grown + as_reader - as_writer)
        as_query, as_key = self.product_gradients(self.q, self.k, scale * d_scores)
        as_query, as_key = as_query + d_q_grown * self.grown, _over_heads(as_key)
        gradients["q"], gradients["k"] = as_query, d_k + as_key
        if self.sums is not None:
            d_sums = d_sums + _over_heads(self.q * as_query) - self.k * as_key
            sums = xp.cumulative_sum(xp.flip(d_sums, axis=-2), axis=-2)
            gradients["decay"] = xp.flip(sums, axis=-2) + d_last  # of a decay: that of all sums that it is part of
        return gradients, d_state

    def _decay_sums(self, decay: Array) -> Array:
        least = 2 * math.log(self.xp.finfo(decay.dtype).smallest_normal)  # exp of it is 0; -inf - -inf would be NaN
        decay = self.xp.where(decay < least, least, decay)
        shape = (*decay.shape[:-2], self.k.shape[-2], decay.shape[-1])
        return self.xp.cumulative_sum(self.xp.broadcast_to(decay, shape), axis=-2)

    def _pair_decays(self, sums: Array) -> Array:
        """Return exp(c_t − c_i) for t ≥ i, else 0: ``... C C`` with a decay for a head, else ``... C C D``."""
        xp, minus = self.xp, -self.xp.inf
        if sums.shape[-1] == 1:
            return xp.exp(xp.where(self.lower, sums - xp.matrix_transpose(sums), minus))
        return xp.exp(xp.where(self.lower[..., None], sums[..., :, None, :] - sums[..., None, :, :], minus))

    def _same_lead(self, system: Array, right: Array) -> tuple[Array, Array]:
        lead = np.broadcast_shapes(tuple(system.shape[:-2]), tuple(right.shape[:-2]))
        return tuple(self.xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (system, right))


def _forward(p: _Inputs, *, every_state: bool) -> tuple[Array, list[Array]]:
    """Return the output, ``... G R T Dv``, and the states before each chunk and after the last one, or that alone."""
    states, outputs = [p.start], []
    for span in p.spans():
        chunk = _Chunk(p, span, states[-1])
        outputs.append(chunk.output())
        states.append(chunk.next_state())
        if not every_state:
            del states[:-1]
    empty = p.xp.zeros((*p.start.shape[:-3], p.q.shape[-3], 0, p.v.shape[-1]), dtype=p.v.dtype, device=device(p.q))
    return concat(outputs, -2) if outputs else empty, states


def _backward(p: _Inputs, states: list[Array], d_output: Array, d_state: Array | None) -> dict[str, Array]:
    """Return the gradients of the inputs, each with the axes of `_Inputs`."""
    xp = p.xp
    d_next = xp.zeros_like(p.start)
    if d_state is not None:
        d_next = d_next + xp.reshape(xp.astype(d_state, p.v.dtype, copy=False), p.start.shape)
    shape = (*p.start.shape[:-3], *p.q.shape[-3:-1], p.v.shape[-1])
    d_output = xp.reshape(xp.astype(d_output, p.v.dtype, copy=False), shape)
    parts: dict[str, list[Array]] = {}
    for span, state in reversed(list(zip(p.spans(), states[:-1], strict=True))):
        chunk_gradients, d_next = _Chunk(p, span, state).gradients(d_output[..., span, :], d_next)
        for name, gradient in chunk_gradients.items():
            parts.setdefault(name, []).insert(0, gradient)
    whole = {name: concat(gradients, -2) for name, gradients in parts.items()} | {"state": d_next}
    inputs = {name: getattr(p, name) for name in ("q", "k", "v", "decay", "beta", "state")}
    return {
        name: sum_to_shape(whole[name], tuple(x.shape)) if name in whole else xp.zeros_like(x)
        for name, x in inputs.items()
        if x is not None
    }


def _part(x: Array, span: slice) -> Array:
    return x[..., span, :] if x.shape[-2] != 1 else x


def _over_heads(x: Array) -> Array:
    """Return the sum over the query heads that share a key/value head."""
    return namespace(x).sum(x, axis=-3, keepdims=True)


def _like(gradient: Array, operand: Any) -> Array:
    """Return a gradient in the shape and, if that is floating, the dtype of the input."""
    array = as_array(operand, "input")
    gradient = namespace(gradient).reshape(gradient, tuple(array.shape))
    return narrowed(gradient, array.dtype if is_floating(array) else gradient.dtype)
