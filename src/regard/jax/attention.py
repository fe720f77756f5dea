"""Attention of arrays of JAX."""

from __future__ import annotations

from typing import Unpack

from regard import functional
from regard._utils.drop_ins import raises
from regard._utils.errors import JaxError, RegardError
from regard.functional.arrays import Array, is_jax
from regard.functional.inputs import Options
from regard.jax.call import reason_against_device


@raises(JaxError)
def attention(q: Array, k: Array, v: Array, **options: Unpack[Options]) -> Array:
    """Return softmax(q · kᵀ × scale) · v of arrays on the CPU, under any of jit, vmap, grad, scan and checkpoint.

    Takes the arguments of `regard.attention`, which says what they mean; arrays among them may be traced. The head axis
    is before the positions, ``... H T D``; `jax.nn.dot_product_attention` has it after them.

    Parameters
    ----------
    q : jax.Array, ``... H T D``
        float16, bfloat16, float32 or, with ``jax_enable_x64``, float64.
    k : jax.Array, ``... G S D``
    v : jax.Array, ``... G S Dv``
    rng : key of `jax.random` or numpy.random.Generator, optional
        For dropout. A generator gives one seed each time the call is traced: under jit every run drops the same
        weights. Give a key for others.

    Returns
    -------
    jax.Array, ``... H T Dv``
        It has derivatives by reverse mode (`jax.grad`, `jax.vjp`), once, with respect to q, k, v, sinks, and the bias
        or the parameter of a `Bias`. ``implementation="reference"`` has those by forward mode and further ones.

    Raises
    ------
    RegardError
        Also a ValueError. q, k or v is not an array of JAX, an array is on another device than a CPU, or as
        `regard.attention`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp  # doctest: +SKIP
    >>> x = jnp.ones((2, 3, 4))  # doctest: +SKIP
    >>> jax.jit(jax.grad(lambda x: attention(x, x, x, causal=True).sum()))(x).shape  # doctest: +SKIP
    (2, 3, 4)
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not is_jax(x):
            raise RegardError(f"{name} must be an array of JAX, got {type(x).__name__}; jax.numpy.asarray makes one")
    if (where := reason_against_device(q, k, v)) is not None:
        raise RegardError(
            f"q, k and v are for {where}, but regard computes on the CPU; move them with "
            f"jax.device_put(x, jax.devices('cpu')[0]), or trace under jax.default_device(jax.devices('cpu')[0])"
        )
    return functional.attention(q, k, v, **options)
