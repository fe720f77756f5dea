"""Bridge to the compiled kernel, which computes the equations of `functional` faster.

The kernel is optional: a package built without a compiler lacks it, and NumPy computes everything. It takes arrays and
depends on nothing above it.
"""

from regard.functional.native.buffer_pool import (
    aligned_zeros,
    empty,
    empty_like,
    kept_buffers,
    pool_buffer,
    pooled_copy,
)
from regard.functional.native.loader import kernel, num_threads, set_num_threads, unavailable_reason

__all__ = [
    "kernel", "unavailable_reason", "num_threads", "set_num_threads",
    "aligned_zeros", "empty", "empty_like", "kept_buffers", "pool_buffer", "pooled_copy",
]  # fmt: skip
