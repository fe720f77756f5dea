"""JAX without the warnings of its import, and its setting for numbers of 64 bits, wherever a version has it."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jax
    import jax.numpy as jnp

    try:
        from jax import enable_x64
    except ImportError:
        from jax.experimental import enable_x64

__all__ = ["enable_x64", "jax", "jnp"]
