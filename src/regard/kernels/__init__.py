"""The compiled kernel: the equations of `functional` at the speed of the machine.

It is optional: a package that was built without a compiler lacks it, and everything is then computed in NumPy. Knows
arrays and nothing above it; `functional` asks it first where it may.
"""

from regard.kernels._room import copied, empty, empty_like
from regard.kernels._threads import num_threads, set_num_threads
from regard.kernels._use import native, why_not

__all__ = ["native", "why_not", "num_threads", "set_num_threads", "empty", "empty_like", "copied"]
