"""JAX as a library of arrays, for `regard.functional`."""

from __future__ import annotations

from regard.functional.arrays import Array, is_jax
from regard.functional.frameworks import Framework
from regard.functional.inputs import Options
from regard.jax.call import in_numpy
from regard.jax.operator import jax_attention


class JaxFramework(Framework):
    """JAX: the kernel computes arrays on the CPU, called back from compiled programs."""

    def attention(self, q: Array, k: Array, v: Array, options: Options) -> Array | None:
        """Return the context by the kernel; None for a call that it does not take."""
        return jax_attention(q, k, v, options) if is_jax(q, k, v) else None

    def in_numpy(self, q: Array, k: Array, v: Array, options: Options) -> tuple[Array, Array, Array, Options]:
        """Return a call in NumPy; as it is if JAX traces it or on another device."""
        return in_numpy(q, k, v, options) if is_jax(q, k, v) else (q, k, v, options)


FRAMEWORK = JaxFramework("jax")
