"""regard for PyTorch: the kernel's attention as an operator of PyTorch, for tensors on the CPU.

`regard.attention` of such tensors is the same operator; nobody has to import this package for it. It is installed by
``pip install regard[torch]``, and imports without PyTorch, whose functions then say that it is missing.
"""

from __future__ import annotations

from regard.torch.attention import attention
from regard.torch.sdpa import scaled_dot_product_attention, use_regard
from regard.torch.transformers import register

__all__ = ["attention", "scaled_dot_product_attention", "use_regard", "register"]
