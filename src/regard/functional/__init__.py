"""The equations of self-attention as pure functions: arrays in, arrays out.

Everything works on arrays of any library of the Python array API standard and says in its docstring which
axes it expects, in the letters ``B H G T S D Dv E``. Knows nothing of layers, files or models.
"""

from regard.functional._activation import activation, gelu, relu, silu, swiglu
from regard.functional._attention import attention, attention_weights
from regard.functional._bias import ALiBi, Bias, ByDistance, RelativePositions
from regard.functional._heads import merge_heads, split_heads
from regard.functional._linear import linear
from regard.functional._mask import Causal, Dense, KeyLengths, Mask, Prefix, Segments, Spans, Window
from regard.functional._norm import layer_norm, rms_norm
from regard.functional._partial import Partial, attention_partial, merge
from regard.functional._plan import Plan, explain_plan
from regard.functional._positions import (
    alibi_slopes,
    relative_position_buckets,
    sinusoidal_positions,
    table_positions,
)
from regard.functional._problem import Options
from regard.functional._rotary import rotary, rotary_frequencies, rotary_pairs, rotate
from regard.functional._softmax import softmax
from regard.functional._vjp import Gradients, attention_vjp

__all__ = [
    "attention",
    "attention_weights",
    "attention_partial",
    "merge",
    "Partial",
    "attention_vjp",
    "Gradients",
    "explain_plan",
    "Plan",
    "Options",
    "softmax",
    "Mask",
    "Causal",
    "Window",
    "KeyLengths",
    "Prefix",
    "Segments",
    "Spans",
    "Dense",
    "Bias",
    "ALiBi",
    "RelativePositions",
    "ByDistance",
    "rotary",
    "rotate",
    "rotary_frequencies",
    "rotary_pairs",
    "alibi_slopes",
    "relative_position_buckets",
    "sinusoidal_positions",
    "table_positions",
    "split_heads",
    "merge_heads",
    "linear",
    "layer_norm",
    "rms_norm",
    "activation",
    "gelu",
    "relu",
    "silu",
    "swiglu",
]
