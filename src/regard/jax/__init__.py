"""regard for JAX: the kernel's attention as a function of JAX, for arrays on the CPU.

`regard.attention` of such arrays is the same function; nobody has to import this package for it.
"""

from __future__ import annotations

from regard.jax.attention import attention

__all__ = ["attention"]
