"""regard for PyTorch: the kernel's attention as an operator of PyTorch, for tensors on the CPU.

`regard.attention` of such tensors is the same operator; nobody has to import this package for it.
"""

from __future__ import annotations

from regard.torch.attention import attention
from regard.torch.transformers import register

__all__ = ["attention", "register"]
