"""The compiled kernel: the equations of `functional` at the speed of the machine.

It is optional: a package that was built without a compiler lacks it, and everything is then computed in NumPy. Knows
arrays and nothing above it; `functional` asks it first where it may.
"""

from regard.functional.native.buffer_pool import empty, empty_like, pooled_copy
from regard.functional.native.loader import kernel, unavailable_reason
from regard.functional.native.threads import num_threads, set_num_threads

__all__ = ["kernel", "unavailable_reason", "num_threads", "set_num_threads", "empty", "empty_like", "pooled_copy"]
