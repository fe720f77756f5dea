"""The equations of self-attention as pure functions: arrays in, arrays out.

Everything works on arrays of any library of the Python array API standard and says in its docstring which
axes it expects, in the letters ``B H G T S D Dv E``. Knows nothing of layers, files or models.
"""

from regard.functional._activation import activation, gelu, relu
from regard.functional._attention import attention, attention_weights
from regard.functional._heads import merge_heads, split_heads
from regard.functional._linear import linear
from regard.functional._norm import layer_norm
from regard.functional._positions import sinusoidal_positions, table_positions
from regard.functional._softmax import softmax

__all__ = [
    "attention",
    "attention_weights",
    "softmax",
    "split_heads",
    "merge_heads",
    "linear",
    "layer_norm",
    "activation",
    "gelu",
    "relu",
    "sinusoidal_positions",
    "table_positions",
]
