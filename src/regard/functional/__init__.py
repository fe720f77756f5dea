"""The equations of self-attention as pure functions: arrays in, arrays out.

Every function takes arrays of any library of the Python array API standard; its docstring names their axes with the
letters ``B H G T S D Dv E``. No function here depends on layers, files or models. Each is imported on
first use.
"""

from __future__ import annotations

from regard._utils.lazy import attach

__getattr__, __dir__ = attach(__name__)
