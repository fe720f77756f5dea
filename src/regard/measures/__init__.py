"""Measures beside the raw weights: what heads do, and how far what a token was reaches through all layers.

They are computed from the trace of a run, in strips of a map that is never held whole, in float64. Rows of padding do
not count. Each says which paper it is from.
"""

from regard.measures._flow import flow
from regard.measures._heads import HeadMeasures, measure_heads, repeated_tokens
from regard.measures._rollout import rollout
from regard.measures._value_norms import value_norms

__all__ = [
    "HeadMeasures",
    "measure_heads",
    "repeated_tokens",
    "rollout",
    "flow",
    "value_norms",
]
